"""The live host: an explorer as Jupyter widgets, with the kernel doing the maths."""

from __future__ import annotations

import threading
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import anywidget
import ipywidgets as widgets
import numpy as np
import plotly.graph_objects as go
import traitlets
from plotly.basedatatypes import BasePlotlyType

from mha_widgets.figures.theme import dark
from mha_widgets.hosts import markup
from mha_widgets.view import Choice, Control, Toggle, View

if TYPE_CHECKING:
    from mha_widgets.explorer import Explorer

COPY = (
    ' onclick="navigator.clipboard.writeText('
    "this.parentNode.querySelector('code').textContent);this.textContent='Copied'\""
)


class _Screen(anywidget.AnyWidget):
    """Tells the kernel how wide the explorer is shown, and whether on a dark ground;
    tells readers what controls do.

    ipywidgets itself shows no tooltip on what has a description.
    """

    _esm = (
        markup.asset("ground.js")
        + """
    export default {
      render({ model, el }) {
        const tell = (name, value) => { model.set(name, value); model.save_changes(); };
        const root = () => el.closest(".mha-explorer"); // there once all is on the page
        let unwatch;
        const title = () => {
          for (const [name, text] of Object.entries(model.get("titles"))) {
            const control = root()?.querySelector(`.mha-${name}`);
            const parts = control ? [control, ...control.querySelectorAll("[title]")] : [];
            for (const part of parts) part.title = text;
          }
        };
        const size = new ResizeObserver(([{ contentRect }]) => {
          if (contentRect.width) tell("width", Math.floor(contentRect.width));
          unwatch ??= root() && watchGround(root(), (dark) => tell("dark", dark));
          title();
        });
        model.on("change:titles", title);
        size.observe(el);
        return () => { model.off("change:titles", title); unwatch?.(); size.disconnect(); };
      },
    };
    """
    )
    dark = traitlets.Bool(False).tag(sync=True)
    titles = traitlets.Dict().tag(sync=True)
    width = traitlets.Int(860).tag(sync=True)


class Live:
    """An explorer's controls and one figure, which follows them.

    Attributes:
        explorer: what is shown.
        controls: the widget of each control; its value is the place of the control's value.
        figure: the figure, changed in place.
        widget: everything together, to be displayed.

    >>> from mha_widgets import explorers
    >>> live = Live(explorers.Masks())
    >>> live.controls["row"].value = 5
    >>> live.figure.layout.shapes[0].y0, live.explorer.state["row"]
    (4.5, 5)
    """

    _following = False

    def __init__(self, explorer: Explorer) -> None:
        self.explorer = explorer
        self.controls = {name: _widget(control) for name, control in explorer.controls.items()}
        self._last = explorer.view()  # makes sense, whatever the explorer is set to
        self.figure = go.FigureWidget(self._last.figure)
        self.figure._config = {"displayModeBar": False, "doubleClick": False}
        self._screen = _Screen()
        # JupyterLab may handle the messages of several widgets in several threads
        self._alone = threading.RLock()
        self._error, self._facts = widgets.HTML(), widgets.HTML()
        code, self._fill_code = _fold(
            markup.CODE_SUMMARY, lambda: markup.code(self._last.code, COPY)
        )
        table, self._fill_table = _fold(markup.TABLE_SUMMARY, lambda: _table(self._last.figure))
        for name, control in self.controls.items():
            control.observe(self._moved, names="value")
            control.add_class(f"mha-{name}")
        self._screen.observe(self._redrawn, names=["dark", "width"])
        self._follow()
        explorer.observe(self._follow, names="state")
        row = widgets.Layout(
            flex_flow="row wrap", align_items="flex-end", grid_gap="8px 28px", margin="8px 0"
        )
        self.widget = widgets.VBox(
            [
                widgets.HTML(f"<style>{markup.style()}</style>{markup.header(explorer)}"),
                widgets.Box(list(self.controls.values()), layout=row),
                *(self._error, self.figure, self._facts, code, table, self._screen),
            ]
        )
        self.widget.add_class("mha-explorer").add_class("mha-live")

    def _moved(self, _: Any) -> None:
        with self._alone:
            if not self._following:
                controls = self.explorer.controls
                self.explorer.set(
                    **{
                        name: controls[name].values[widget.value]
                        for name, widget in self.controls.items()
                    }
                )

    def _follow(self, _: Any = None) -> None:
        with self._alone:
            self._follow_state()

    def _follow_state(self) -> None:
        self._following = True
        for name, value in self.explorer.state.items():
            place = self.explorer.controls[name].values.index(value)
            # a check box takes no 1 for True
            self.controls[name].value = type(self.controls[name].value)(place)
        self._following = False
        try:
            self._last = self.explorer.view(**self.explorer.state)
        except Exception as error:  # unsaid, the old view would pass for the new one
            said = (
                str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            )
            self._error.value = f'<p class="mha-error" role="alert">{escape(said)}</p>'
            return
        self._error.value = ""
        self._redrawn()
        self._show_words()

    def _redrawn(self, _: Any = None) -> None:
        with self._alone:
            self._draw()

    def _draw(self) -> None:
        data = [trace.to_plotly_json() for trace in self._last.figure.data]
        layout = self._last.figure.layout.to_plotly_json() | {"width": self._screen.width}
        meta = layout.get("meta", {})
        if self._screen.width < meta.get("narrow_below", 0):
            layout |= {
                key: layout[key] | new if isinstance(new, dict) else new
                for key, new in meta["narrow"].items()
            }
        elif self._screen.width < meta.get("wide", 0):
            layout["height"] *= self._screen.width / meta["wide"]
        if self._screen.dark:
            data, layout = dark(data), dark(layout)
        update(self.figure, data, layout)

    def _show_words(self) -> None:
        view: View = self._last
        self._facts.value = f'<ul class="mha-facts">{markup.facts(view.facts)}</ul>'
        self._fill_code()
        self._fill_table()
        for name, widget in self.controls.items():
            widget.disabled = name in view.disabled
        self._screen.titles = {
            name: view.disabled.get(name, control.help)
            for name, control in self.explorer.controls.items()
        }


def _table(figure: go.Figure) -> str:
    return f'<div class="mha-table"><div>{markup.tables(figure)}</div></div>'


def update(shown: go.FigureWidget, data: list[dict[str, Any]], layout: dict[str, Any]) -> None:
    """Change a shown figure in place, in one message, until it has these traces and this layout.

    Args:
        shown: the widget on the screen.
        data: its traces to be; they may differ from the shown ones in number and kind.
        layout: its layout to be.
    """
    with shown.batch_update():
        if [trace.type for trace in shown.data] != [trace["type"] for trace in data]:
            shown.data = ()
            shown.add_traces(data)
        for old, new in zip((*shown.data, shown.layout), (*data, layout), strict=True):
            _assign(old, old.to_plotly_json(), new)


def _assign(shown: BasePlotlyType, old: dict[str, Any], new: dict[str, Any]) -> None:
    # Leaf by leaf: plotly.js forgets how it has narrowed an axis only if told of its domain.
    # Plain values are compared first: asking plotly's objects takes longer than all the rest.
    for key in old.keys() - new.keys() - {"uid"}:
        shown[key] = None
    for key, value in new.items():
        if key == "uid" or _same(old.get(key), value):
            continue
        if (
            isinstance(old.get(key), dict)
            and isinstance(shown[key], BasePlotlyType)
            and key != "template"
        ):
            _assign(shown[key], old[key], value)
        else:
            shown[key] = value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(
            _same(value, other[key]) for key, value in one.items()
        )
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return one == other


def _widget(control: Control) -> widgets.ValueWidget:
    # Values are places: ipywidgets takes a chosen None for nothing chosen.
    common: dict[str, Any] = {
        "description": control.label,
        "style": {"description_width": "initial"},
    }
    if isinstance(control, Toggle):
        return widgets.Checkbox(**common, indent=False)
    if isinstance(control, Choice) and len(control.words) <= markup.MOST_BUTTONS:
        common["style"] |= {"button_width": "auto"}
        # A word that is its place, as "0" of the first, would keep its button from being disabled.
        return widgets.ToggleButtons(
            options=[(f"{word} ", place) for place, word in enumerate(control.words)], **common
        )
    options = [(word, place) for place, word in enumerate(control.words)]
    return (widgets.Dropdown if isinstance(control, Choice) else widgets.SelectionSlider)(
        options=options, **common
    )


def _fold(title: str, content: Callable[[], str]) -> tuple[widgets.VBox, Callable[..., None]]:
    """Return a fold, and what fills it anew if it is open: while nobody looks, nothing is sent."""
    # A button, and not HTML's <details>, which would close whenever its content is replaced.
    button, html = widgets.ToggleButton(False, description=title), widgets.HTML()

    def fill(_: Any = None) -> None:
        button.icon = "caret-down" if button.value else "caret-right"
        html.layout.display = None if button.value else "none"
        if button.value:
            html.value = content()

    button.observe(fill, names="value")
    fill()
    return widgets.VBox([button, html]).add_class("mha-fold"), fill
