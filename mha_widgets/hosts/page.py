"""The page host: an explorer as HTML that needs no kernel and no network.

A page holds the view of every state. A view is a tree of small values, and most of them depend
on few controls or on none. So a page stores, for each place in the tree, its distinct values and
the pattern in which they come: which controls decide, and which case each combination of those is.
Equal values and equal patterns are stored once.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go
from plotly.offline import get_plotlyjs, get_plotlyjs_version

from mha_widgets.figures.theme import COLOURS
from mha_widgets.hosts import markup
from mha_widgets.view import Choice, Control, Fact, Toggle

if TYPE_CHECKING:
    from mha_widgets.explorer import Explorer

MOST_STATES = 30_000
SCRIPT, STYLE, PLOTLY = "mha-explorer.js", "mha-explorer.css", "plotly.min.js"
ROLES = {light: f"--mha-{role}" for role, (light, _) in COLOURS.items()}


def compact(figure: go.Figure) -> dict[str, Any]:
    """Return what a page stores of a figure: numbers to 5 digits, colours by role, NaN as null."""
    return _compact(
        {
            "data": [trace.to_plotly_json() for trace in figure.data],
            "layout": figure.layout.to_plotly_json(),
        }
    )


def _compact(value: Any, key: str = "") -> Any:
    if isinstance(value, dict):
        return {k: _compact(v, k) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_compact(v, key) for v in value]
    if isinstance(value, np.ndarray):
        return _compact(value.tolist())
    if isinstance(value, float):
        return _rounded(value)
    if isinstance(value, str) and "color" in key:
        return ROLES.get(value, value)
    return value


def _rounded(value: float) -> float | int | None:
    if not math.isfinite(value):
        return None
    short = float(f"{value:.5g}")
    return int(short) if short == int(short) else short


def payload(explorer: Explorer) -> dict[str, Any]:
    """Return what a page needs to show every state of an explorer.

    Returns:
        ``controls``: the name and the number of values of each control that is alive on a page;
        ``values``: the distinct values;
        ``patterns``: which controls decide (by number), and the case of each combination of their
        values, the last control moving fastest;
        ``places``: for each place in a view its path, its pattern, and the value in each case
        (-1: this place doesn't exist there).

    Raises:
        ValueError: the controls have more than 30,000 combinations.
    """
    names = explorer.page_controls or tuple(explorer.controls)
    sizes = [len(explorer.controls[name].values) for name in names]
    if math.prod(sizes) > MOST_STATES:
        counts = " × ".join(f"{size} {name}" for size, name in zip(sizes, names, strict=True))
        raise ValueError(
            f"{explorer.name} has {counts} = {math.prod(sizes):,} states, "
            f"but a page holds at most {MOST_STATES:,}; "
            "give it shorter data or fewer values, or show it in a notebook."
        )
    values: dict[str, int] = {}
    known: dict[tuple, dict[tuple, int]] = {}
    columns: dict[tuple, np.ndarray] = {}
    for index, state in enumerate(explorer.states(names)):
        settled = (*explorer.complete(**state).values(), *explorer.disabled(**state).items())
        if settled not in known:
            known[settled] = {
                path: values.setdefault(
                    json.dumps(leaf, ensure_ascii=False, sort_keys=True), len(values)
                )
                for path, leaf in _leaves(_recorded(explorer, state))
            }
        for path, value in known[settled].items():
            if path not in columns:
                columns[path] = np.full(math.prod(sizes), -1)
            columns[path][index] = value
    patterns: dict[tuple, int] = {}
    places = []
    for path, column in columns.items():
        pattern, cases = _factored(column.reshape(sizes))
        places.append([list(path), patterns.setdefault(pattern, len(patterns)), cases])
    return {
        "controls": [list(pair) for pair in zip(names, sizes, strict=True)],
        "values": [json.loads(value) for value in values],
        "patterns": [[list(part) for part in pattern] for pattern in patterns],
        "places": places,
    }


def _recorded(explorer: Explorer, state: dict[str, Any]) -> dict[str, Any]:
    try:
        view = explorer.view(**state)
    except ValueError as error:
        return {"error": str(error)}
    return {
        "figure": compact(view.figure),
        "facts": list(map(_joined, view.facts)),
        "code": view.code.split("\n"),
        "disabled": dict(view.disabled),
    }


def _joined(fact: Fact) -> list[str | list[str]]:
    parts: list[str | list[str]] = []
    for word in fact:
        if not isinstance(word, str):
            parts.append([word.text, word.role])
        elif parts and isinstance(parts[-1], str):
            parts[-1] += word
        else:
            parts.append(word)
    return parts


def _leaves(tree: Any, path: tuple = ()) -> Iterator[tuple[tuple, Any]]:
    if isinstance(tree, dict) and tree:
        items: Any = tree.items()
    elif isinstance(tree, list) and (
        path in (("facts",), ("code",)) or (tree and isinstance(tree[0], dict))
    ):
        items = enumerate(tree)
    else:
        yield path, tree
        return
    for key, value in items:
        yield from _leaves(value, (*path, key))


def _factored(ids: np.ndarray) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], list[int]]:
    needed = tuple(axis for axis in range(ids.ndim) if (ids != ids.take([0], axis)).any())
    kept = (
        ids[tuple(slice(None) if axis in needed else 0 for axis in range(ids.ndim))]
        .ravel()
        .tolist()
    )
    cases = {value: case for case, value in enumerate(dict.fromkeys(kept))}
    return (needed, tuple(cases[value] for value in kept)), list(cases)


def fragment(explorer: Explorer) -> str:
    """Return an explorer as one HTML section; style, script and plotly come from around it."""
    view = explorer.view(**explorer.state)
    data = json.dumps(payload(explorer), ensure_ascii=False, separators=(",", ":")).replace(
        "<", "\\u003c"
    )
    title = escape(explorer.title)
    alive = explorer.page_controls or tuple(explorer.controls)
    controls, fixed = "", []
    for name, control in explorer.controls.items():
        start = control.values.index(explorer.state[name])
        if name in alive:
            controls += _control(name, control, start)
        else:
            fixed.append(f"{escape(control.label)}: <b>{escape(control.words[start])}</b>")
    note = (
        f'<p class="mha-fixed">Run the notebook to change this: {", ".join(fixed)}.</p>'
        if fixed
        else ""
    )
    return (
        f'<section class="mha-explorer" data-explorer="{escape(explorer.name)}" '
        f'aria-label="{title}">'
        f"{markup.header(explorer)}"
        f'<form class="mha-controls" autocomplete="off">{controls}</form>{note}'
        '<div class="mha-figure" role="img" '
        f'aria-label="{title}. The numbers are in the table below."></div>'
        '<p class="mha-noscript">'
        "The controls need JavaScript. The first view is in the table below.</p>"
        '<p class="mha-error" role="alert" hidden></p>'
        f'<ul class="mha-facts" aria-live="polite">{markup.facts(view.facts)}</ul>'
        f'<details class="mha-code"><summary>{markup.CODE_SUMMARY}</summary>'
        f"{markup.code(view.code)}</details>"
        f'<details class="mha-table"><summary>{markup.TABLE_SUMMARY}</summary>'
        f'<div tabindex="0">{markup.tables(view.figure)}</div></details>'
        f'<script type="application/json" class="mha-data">{data}</script>'
        "</section>"
    )


def _control(name: str, control: Control, start: int) -> str:
    label, attributes = escape(control.label), f'class="mha-control" title="{escape(control.help)}"'
    words = list(enumerate(map(escape, control.words)))
    if isinstance(control, Toggle):
        checked = " checked" if control.values[start] else ""
        box = f'<input type="checkbox" name="{name}"{checked}>'
        return f"<label {attributes}>{box} {label}</label>"
    if not isinstance(control, Choice):
        spoken = json.dumps(control.words).replace("<", "\\u003c")
        return (
            f"<label {attributes}><span>{label}</span><span>"
            f'<input type="range" name="{name}" min="0" max="{len(words) - 1}" value="{start}" '
            f'aria-valuetext="{words[start][1]}"><output>{words[start][1]}</output></span>'
            f'<script type="application/json">{spoken}</script></label>'
        )
    if len(words) <= markup.MOST_BUTTONS:
        buttons = "".join(
            f'<label><input type="radio" name="{name}" value="{i}"'
            f"{' checked' if i == start else ''}>{word}</label>"
            for i, word in words
        )
        return (
            f"<fieldset {attributes}><legend>{label}</legend>"
            f'<span class="mha-buttons">{buttons}</span></fieldset>'
        )
    options = "".join(
        f'<option value="{i}"{" selected" if i == start else ""}>{word}</option>'
        for i, word in words
    )
    select = f'<select name="{name}">{options}</select>'
    return f"<label {attributes}><span>{label}</span>{select}</label>"


def script() -> str:
    """Return the script that brings explorers on a page to life.

    It is a classic one, and no module, so that it also loads from a file on disk.
    """
    parts = markup.asset("ground.js") + markup.asset("explorer.js")
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def plotly_script() -> str:
    """Return plotly.js so that it leaves an AMD loader on the page, such as RequireJS, alone.

    Some of plotly's versions register parts with such a loader, and then miss them.
    """
    return f"((define) => {{\n{get_plotlyjs()}\n}})();\n"


def write_assets(folder: Path) -> None:
    """Write the style sheet, the script and plotly.js, for pages that hold fragments."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in ((STYLE, markup.style()), (SCRIPT, script()), (PLOTLY, plotly_script())):
        (folder / name).write_text(text, encoding="utf-8")


def part(explorer: Explorer, include_plotlyjs: bool | str, folder: Path = Path()) -> str:
    """Return a fragment with style, script and plotly.

    See :meth:`mha_widgets.explorer.Explorer.to_html`.
    """
    plotly = _plotly(include_plotlyjs, folder)
    return f"<style>{markup.style()}</style>{fragment(explorer)}{plotly}<script>{script()}</script>"


def write(explorer: Explorer, path: Path, include_plotlyjs: bool | str) -> None:
    """Write an explorer as a page of its own.

    See :meth:`mha_widgets.explorer.Explorer.write_html`.
    """
    path.write_text(
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(explorer.title)}</title><style>body{{margin:1rem}}</style></head>"
        f"<body>{part(explorer, include_plotlyjs, path.parent)}</body></html>\n",
        encoding="utf-8",
    )


def _plotly(include: bool | str, folder: Path) -> str:
    if include is True:
        return f"<script>{plotly_script()}</script>"
    if include is False:
        return ""
    if include == "directory":
        (folder / PLOTLY).write_text(plotly_script(), encoding="utf-8")
        return f'<script src="{PLOTLY}"></script>'
    if include == "cdn":
        return f'<script src="https://cdn.plot.ly/plotly-{get_plotlyjs_version()}.min.js"></script>'
    if isinstance(include, str) and include.endswith(".js"):
        return f'<script src="{escape(include)}"></script>'
    raise ValueError(
        f'Got include_plotlyjs={include!r}; it is True, False, "cdn", "directory" '
        'or an address that ends in ".js".'
    )
