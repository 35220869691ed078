"""The live host: an explorer as Jupyter widgets, with the kernel doing the maths."""

from __future__ import annotations

from html import escape
from typing import Any

import anywidget
import ipywidgets as widgets
import numpy as np
import plotly.graph_objects as go
import traitlets
from plotly.basedatatypes import BasePlotlyType

from mha_widgets import markup
from mha_widgets.explorer import Choice, Control, Explorer, Toggle, View
from mha_widgets.figures.theme import dark

COPY = ' onclick="navigator.clipboard.writeText(this.parentNode.querySelector(\'code\').textContent);this.textContent=\'Copied\'"'


class _Screen(anywidget.AnyWidget):
    """Tells the kernel how wide the explorer is shown, and whether on a dark ground."""

    _esm = """
    export default {
      render({ model, el }) {
        const tell = (name, value) => { model.set(name, value); model.save_changes(); };
        const look = () => tell("dark", document.body.dataset.jpThemeLight === "false");
        const theme = new MutationObserver(look);
        const size = new ResizeObserver(([{ contentRect }]) => {
          if (contentRect.width) tell("width", Math.floor(contentRect.width));
        });
        theme.observe(document.body, { attributeFilter: ["data-jp-theme-light"] });
        size.observe(el);
        look();
        return () => { theme.disconnect(); size.disconnect(); };
      },
    };
    """
    dark = traitlets.Bool(False).tag(sync=True)
    width = traitlets.Int(860).tag(sync=True)


class Live:
    """An explorer's controls and one figure, which follows them.

    Attributes:
        explorer: what is shown.
        controls: the widget of each control.
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
        self._error, self._facts, self._code, self._table = (widgets.HTML() for _ in range(4))
        for name, control in self.controls.items():
            control.observe(self._moved, names="value")
            control.add_class(f"mha-{name}")
        self._screen.observe(self._redrawn, names=["dark", "width"])
        self._follow()
        explorer.observe(self._follow, names="state")
        row = widgets.Layout(flex_flow="row wrap", align_items="flex-end", grid_gap="8px 28px", margin="8px 0")
        folds = _fold(markup.CODE_SUMMARY, self._code), _fold(markup.TABLE_SUMMARY, self._table)
        self.widget = widgets.VBox(
            [
                widgets.HTML(f"<style>{markup.style()}</style>{markup.header(explorer)}"),
                widgets.Box(list(self.controls.values()), layout=row),
                *(self._error, self.figure, self._facts, *folds, self._screen),
            ]
        )
        self.widget.add_class("mha-explorer").add_class("mha-live")

    def _moved(self, _: Any) -> None:
        if not self._following:
            self.explorer.set(**{name: control.value for name, control in self.controls.items()})

    def _follow(self, _: Any = None) -> None:
        self._following = True
        for name, value in self.explorer.state.items():
            self.controls[name].value = value
        self._following = False
        try:
            self._last = self.explorer.view(**self.explorer.state)
        except ValueError as error:
            self._error.value = f'<p class="mha-error" role="alert">{escape(str(error))}</p>'
            return
        self._error.value = ""
        self._redrawn()
        self._told()

    def _redrawn(self, _: Any = None) -> None:
        data = [trace.to_plotly_json() for trace in self._last.figure.data]
        layout = self._last.figure.layout.to_plotly_json() | {"width": self._screen.width}
        meta = layout.get("meta", {})
        if self._screen.width < meta.get("narrow_below", 0):
            layout |= {key: layout[key] | new if isinstance(new, dict) else new for key, new in meta["narrow"].items()}
        elif self._screen.width < meta.get("wide", 0):
            layout["height"] *= self._screen.width / meta["wide"]
        if self._screen.dark:
            data, layout = dark(data), dark(layout)
        update(self.figure, data, layout)

    def _told(self) -> None:
        view: View = self._last
        self._facts.value = f'<ul class="mha-facts">{markup.facts(view.facts)}</ul>'
        self._code.value = markup.code(view.code, COPY)
        self._table.value = f'<div class="mha-table"><div>{markup.tables(view.figure)}</div></div>'
        for name, widget in self.controls.items():
            widget.disabled = name in view.disabled
            widget.tooltip = view.disabled.get(name, self.explorer.controls[name].help)


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
    # Leaf by leaf: plotly.js forgets how it has narrowed an axis only if told of xaxis.domain itself.
    # Plain values are compared first: asking plotly's objects takes longer than all the rest.
    for key in old.keys() - new.keys() - {"uid"}:
        shown[key] = None
    for key, value in new.items():
        if key == "uid" or _same(old.get(key), value):
            continue
        if isinstance(old.get(key), dict) and isinstance(shown[key], BasePlotlyType) and key != "template":
            _assign(shown[key], old[key], value)
        else:
            shown[key] = value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return one == other


def _widget(control: Control) -> widgets.ValueWidget:
    options = list(zip(control.words, control.values, strict=True))
    common: dict[str, Any] = {"value": control.default, "description": control.label, "style": {"description_width": "initial"}}
    if isinstance(control, Toggle):
        return widgets.Checkbox(**common, indent=False)
    if not isinstance(control, Choice):
        return widgets.SelectionSlider(options=options, **common)
    if len(options) <= markup.MOST_BUTTONS:
        common["style"] |= {"button_width": "auto"}
        return widgets.ToggleButtons(options=options, **common)
    return widgets.Dropdown(options=options, **common)


def _fold(title: str, content: widgets.HTML) -> widgets.VBox:
    # A button, and not HTML's <details>, which would close whenever its content is replaced.
    button = widgets.ToggleButton(False, description=title)

    def turned(_: Any = None) -> None:
        button.icon = "caret-down" if button.value else "caret-right"
        content.layout.display = None if button.value else "none"

    button.observe(turned, names="value")
    turned()
    return widgets.VBox([button, content]).add_class("mha-fold")
