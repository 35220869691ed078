"""Read what a page shows, and move its controls as a reader does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from playwright.sync_api import Locator

from mha_widgets.explorer import Choice, Explorer, Range, Toggle
from mha_widgets.page import _plain, plain

READ = """host => ({ data: host.data.map(({ uid, ...trace }) => JSON.parse(JSON.stringify(trace, (key, value) =>
  ArrayBuffer.isView(value) ? Array.from(value, x => Number.isNaN(x) ? null : x) : value))),
  shapes: (host.layout.shapes ?? []).map(({ y0, y1 }) => [y0, y1]) })"""
KEYS = ("type", "name", "x", "y", "z", "zmin", "zmax", "text", "texttemplate", "customdata", "xaxis", "yaxis")


def picked(figure: dict[str, Any]) -> dict[str, Any]:
    """Return what a figure shows: its traces' data, and which row is framed."""
    data = [{key: trace[key] for key in KEYS if key in trace} for trace in figure["data"]]
    return {"data": data, "shapes": figure["shapes"]}


def expected(explorer: Explorer, **state: Any) -> dict[str, Any]:
    """Return what Python says that the page must show."""
    figure = plain(explorer.view(**state).figure)
    frames = [[shape["y0"], shape["y1"]] for shape in figure["layout"].get("shapes", [])]
    return picked({"data": figure["data"], "shapes": frames})


def said(explorer: Explorer, **state: Any) -> list[str]:
    """Return the facts of a state as plain text."""
    return ["".join(w if isinstance(w, str) else w.text for w in fact) for fact in explorer.view(**state).facts]


def drawn(root: Locator) -> dict[str, Any]:
    """Return what the plot inside an explorer shows, its numbers as short as a page has them."""
    return picked(_plain(root.locator(".js-plotly-plot").evaluate(READ)))


def set_control(root: Locator, explorer: Explorer, name: str, value: Any) -> None:
    """Move a native control as a reader does: by a click, a choice or the keyboard."""
    control = explorer.controls[name]
    index = control.values.index(value)
    inputs = root.locator(f'[name="{name}"]')
    if isinstance(control, Toggle):
        inputs.set_checked(bool(value))
    elif isinstance(control, Range):
        inputs.focus()
        inputs.press("Home")
        for _ in range(index):
            inputs.press("ArrowRight")
    elif isinstance(control, Choice) and inputs.first.get_attribute("type") == "radio":
        inputs.nth(index).check()
    else:
        inputs.select_option(index=index)


def set_state(root: Locator, explorer: Explorer, state: dict[str, Any]) -> None:
    """Move every control that can be moved; twice, since one can set another free."""
    for name in (*state, *state):
        if root.locator(f'[name="{name}"]').first.is_enabled():
            set_control(root, explorer, name, state[name])


def walk(explorer: Explorer) -> Iterator[dict[str, Any]]:
    """Yield states that between them give every control each of its values where it does something."""
    for name, control in explorer.controls.items():
        base = next(state for state in explorer.states() if name not in explorer.disabled(**state))
        for value in control.values:
            state = base | {name: value}
            if name not in explorer.disabled(**state):
                yield state
