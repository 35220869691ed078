"""Move an explorer's controls as a reader does, and compare what it shows with what Python says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from itertools import combinations, product
from random import Random
from typing import Any

from playwright.sync_api import Locator

from mha_widgets.explorer import Explorer
from mha_widgets.hosts.page import _compact, compact
from mha_widgets.view import Range, Toggle, View

READ = """(root, names) => {
  const all = (selector) => [...root.querySelectorAll(selector)];
  const plot = root.querySelector(".js-plotly-plot"), error = root.querySelector(".mha-error");
  const copied = (tree) => JSON.parse(JSON.stringify(tree, (key, value) =>
    ArrayBuffer.isView(value) ? Array.from(value, (x) => Number.isNaN(x) ? null : x) : value));
  const position = (inputs) => {
    const [first] = inputs;
    if (first.type === "radio") return inputs.findIndex((input) => input.checked);
    if (first.type === "checkbox") return Number(first.checked);
    if (first.tagName === "BUTTON") {
      return inputs.findIndex((input) => input.classList.contains("mod-active"));
    }
    return Number(first.selectedIndex ?? first.ariaValueNow ?? first.value);
  };
  return {
    data: copied(plot.data), layout: copied(plot.layout),
    facts: all(".mha-facts li").map((fact) => fact.textContent),
    code: root.querySelector("code").textContent,
    error: error && !error.hidden ? error.textContent : "",
    note: root.querySelector(".mha-fixed")?.textContent ?? "",
    controls: Object.fromEntries(names.map((name) => {
      const inputs = all(`[name="${name}"], .mha-${name} :is(input, button, select, .noUi-handle)`);
      const disabled = inputs.every((input) => input.closest("[disabled]"));
      return [name, { position: position(inputs), disabled }];
    })),
    titles: Object.fromEntries(all(".mha-control").map((control) =>
      [control.querySelector("[name]").name, control.title])),
  };
}"""


# which trace is which; domains with square cells; a type for every axis
OWN = {
    "uid",
    "_doNotReportToPy",
    "domain",
    "type",
}
# no longer automatic where a range or a scale is given
IMPLIED = {
    "autorange",
    "zauto",
    "autocolorscale",
}


def figure(data: list[dict[str, Any]], layout: dict[str, Any]) -> dict[str, Any]:
    """Return a figure without what plotly writes into it."""
    kept = {key: value for key, value in layout.items() if key not in ("template", "width")}
    for axis in [key for key in kept if key[:5] in ("xaxis", "yaxis")]:
        kept[axis] = _given(kept[axis], OWN)
    return {"data": [_given(trace, OWN - {"type"}) for trace in data], "layout": _given(kept)}


def _given(part: dict[str, Any], own: Set[str] = frozenset()) -> dict[str, Any]:
    """Return what is not plotly's own, nor implied, nor empty."""
    found = {
        key: _given(value) if isinstance(value, dict) else value
        for key, value in part.items()
        if key not in own
    }
    return {
        key: value
        for key, value in found.items()
        if value not in ({}, []) and not (key in IMPLIED and value is False)
    }


def drawn(root: Locator, names: Sequence[str]) -> dict[str, Any]:
    """Return everything that an explorer with these controls shows,
    with numbers as short as a page has them.
    """
    shown = root.evaluate(READ, names)
    plot = _compact({"data": shown.pop("data"), "layout": shown.pop("layout")})
    return shown | {"width": plot["layout"]["width"]} | figure(**plot)


def expected(view: View, width: int) -> dict[str, Any]:
    """Return what Python says that a view must show in so much room."""
    plot = compact(view.figure)
    layout, meta = plot["layout"], plot["layout"]["meta"]
    if width < meta["narrow_below"]:
        layout |= {
            key: layout[key] | new if isinstance(new, dict) else new
            for key, new in meta["narrow"].items()
        }
    elif width < meta["wide"]:
        layout["height"] = float(f"{layout['height'] * width / meta['wide']:.5g}")
    facts = ["".join(w if isinstance(w, str) else w.text for w in fact) for fact in view.facts]
    return {"facts": facts, "code": view.code, "width": width} | figure(**plot)


def differences(shown: Any, wanted: Any, path: str = "") -> Iterator[str]:
    """Yield where two trees differ, and how."""
    if isinstance(shown, dict) and isinstance(wanted, dict):
        for key in sorted({*shown, *wanted}):
            yield from differences(
                shown.get(key, "nothing"), wanted.get(key, "nothing"), f"{path}/{key}"
            )
    elif isinstance(shown, list) and isinstance(wanted, list) and len(shown) == len(wanted):
        for index, pair in enumerate(zip(shown, wanted, strict=True)):
            yield from differences(*pair, f"{path}/{index}")
    elif shown != wanted:
        yield f"{path} shows {shown!r:.200}, not {wanted!r:.200}"


class Reader:
    """Someone who moves the controls of an explorer on a page, one by one.

    Attributes:
        state: where the controls are.
        view: the last view that made sense.
        error: why there is none of this state, if there is none.
        free: the controls that can be moved.
    """

    def __init__(self, root: Locator, explorer: Explorer) -> None:
        self.root, self.explorer = root, explorer
        self.names = self.alive()
        self.state, self.error, self.moves = dict(explorer.state), "", []
        self._look()

    def alive(self) -> tuple[str, ...]:
        """Return the names of the controls that this host has."""
        return self.explorer.page_controls or tuple(self.explorer.controls)

    def _look(self) -> None:
        try:
            self.view, self.error = self.explorer.view(**self.state), ""
        except ValueError as error:  # the last view that made sense stays
            self.error = str(error)
            return
        several = [name for name in self.names if len(self.explorer.controls[name].values) > 1]
        self.free = [name for name in several if name not in self.view.disabled]

    def wrong(self) -> list[str]:
        """Return what is not as Python says."""
        shown = drawn(self.root, self.names)
        wanted = expected(self.view, shown["width"]) | {
            "error": self.error,
            "note": self.note(),
            "controls": {
                name: {
                    "position": control.values.index(self.state[name]),
                    "disabled": name in self.view.disabled,
                }
                for name, control in self.explorer.controls.items()
                if name in self.names
            },
            "titles": self.titles(),
        }
        return list(differences(shown, wanted))

    def titles(self) -> dict[str, str]:
        """Return what each control says when it is hovered: what it does,
        or why it does nothing.
        """
        return {
            name: self.view.disabled.get(name, self.explorer.controls[name].help)
            for name in self.names
        }

    def note(self) -> str:
        """Return the sentence about the controls that this host lacks."""
        lacking = {
            name: control
            for name, control in self.explorer.controls.items()
            if name not in self.names
        }
        fixed = [
            f"{control.label}: {control.words[control.values.index(self.state[name])]}"
            for name, control in lacking.items()
        ]
        return f"Run the notebook to change this: {', '.join(fixed)}." if fixed else ""

    def assert_shows_what_python_says(self) -> None:
        """Compare the figure, the facts, the code,
        the controls and the message with the view of this state.
        """
        wrong = self.wrong()
        assert not wrong, f"{wrong} at {self.state} after {self.moves[-5:]}"

    def move(self, name: str, value: Any) -> None:
        """Move a free control from where it is."""
        control = self.explorer.controls[name]
        before, after = control.values.index(self.state[name]), control.values.index(value)
        self._put(name, before, after)
        self.moves.append(f"{name}={value!r}")
        self.follow(**{name: value})

    def follow(self, **changes: Any) -> None:
        """Know that the controls have been moved otherwise."""
        self.state |= changes
        self._look()

    def _put(self, name: str, before: int, after: int) -> None:
        """Move a native control: by a click, a choice or the keyboard."""
        control, inputs = self.explorer.controls[name], self.root.locator(f'[name="{name}"]')
        if isinstance(control, Toggle):
            inputs.set_checked(bool(after))
        elif isinstance(control, Range):
            for _ in range(abs(after - before)):
                inputs.press("ArrowRight" if after > before else "ArrowLeft")
        elif inputs.first.get_attribute("type") == "radio":
            inputs.nth(after).check()
        else:
            inputs.select_option(index=after)

    def go(self, state: dict[str, Any]) -> None:
        """Move every control that can be moved to where a state has it; twice,
        since one can set another free.
        """
        for name in (*self.names, *self.names):
            if name in self.free and self.state[name] != state[name]:
                self.move(name, state[name])

    def walk(self, values: int | None = None) -> Iterator[None]:
        """Give every control each of its values, or so many others, where it does something,
        and stop at each.
        """
        for name in self.names:
            if base := self._base(name):
                self.go(base)
                others = [
                    value for value in self.explorer.controls[name].values if value != base[name]
                ]
                for value in others[:values]:
                    self.move(name, value)
                    yield
                self.move(name, base[name])
                yield

    def _base(self, name: str) -> dict[str, Any] | None:
        """Find the state nearest to the explorer's own in which a control does something."""
        if len(self.explorer.controls[name].values) == 1:
            return None
        for count in range(3):
            for others in combinations([other for other in self.names if other != name], count):
                for values in product(*(self.explorer.controls[other].values for other in others)):
                    state = self.explorer.state | dict(zip(others, values, strict=True))
                    if name not in self.explorer.disabled(**state):
                        return state
        raise AssertionError(f"{name} does nothing anywhere near {self.explorer.state}")

    def stroll(self, chance: Random, steps: int) -> Iterator[None]:
        """Move one free control after another at random, and stop at each."""
        for _ in range(steps):
            name = chance.choice(self.free)
            values = self.explorer.controls[name].values
            self.move(name, chance.choice([value for value in values if value != self.state[name]]))
            yield

    def leap(self, chance: Random) -> None:
        """Move to a state at random."""
        self.go({name: chance.choice(self.explorer.controls[name].values) for name in self.names})


class LiveReader(Reader):
    """The same in JupyterLab, where the kernel does the maths and every control is alive;
    the code is unfolded first.
    """

    def __init__(self, root: Locator, explorer: Explorer) -> None:
        super().__init__(root, explorer)
        fold = root.locator(".mha-fold button").first
        if "mod-active" not in fold.get_attribute("class"):
            fold.click()
        root.locator("code").wait_for()

    def alive(self) -> tuple[str, ...]:
        return tuple(self.explorer.controls)

    def titles(self) -> dict[str, str]:
        return {}  # widgets have theirs in places of their own

    def assert_shows_what_python_says(self) -> None:
        for _ in range(200):  # 10 s
            if not self.wrong():
                return
            self.root.page.wait_for_timeout(50)
        super().assert_shows_what_python_says()

    def _put(self, name: str, before: int, after: int) -> None:
        control, widget = self.explorer.controls[name], self.root.locator(f".mha-{name}")
        if isinstance(control, Toggle):
            widget.locator("input").set_checked(bool(after))
        elif isinstance(control, Range):
            widget.locator(".slider:not([disabled])").wait_for()
            for _ in range(abs(after - before)):
                widget.locator(".noUi-handle").press(
                    "ArrowRight" if after > before else "ArrowLeft"
                )
        elif widget.locator("select").count():
            widget.locator("select").select_option(index=after)
        else:
            widget.locator("button").nth(after).click()
