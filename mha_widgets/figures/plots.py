"""Panels that are no maps: bars, lines and arrows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mha_widgets.figures.panels import (
    LETTER,
    LINE,
    LONGEST_LABEL,
    NARROW,
    Axes,
    Panel,
    label_height,
    labelled,
    literal,
    titled,
)
from mha_widgets.figures.theme import colour

Numbers = np.ndarray | Sequence[float]
# how each series of bars is filled, and that in the legend
PATTERNS = (
    ("", "■"),
    ("/", "▨"),
    (".", "▦"),
    ("x", "▩"),
)
DASHES = ("solid", "dash", "dot", "dashdot")
LONGEST_NAME = 8  # letters of an arrow's name that are shown


@dataclass(frozen=True)
class Plot(Panel):
    """A panel of plotly traces, with a table of its numbers for those who can't see it.

    Attributes:
        title, subtitle: the lines above it.
        data: plotly traces, as dictionaries, without axes; the first gets ``table``.
        x, y: the axes, as dictionaries of plotly's layout.
        table: row labels, column labels and the cells, as words.
        role: the colour role of the title.
        size: height and width in cells.
        below, left: the room for labels below it and beside it, in px.
    """

    title: str
    subtitle: str
    data: Sequence[Mapping[str, Any]]
    x: Mapping[str, Any]
    y: Mapping[str, Any]
    table: tuple[Sequence[str], Sequence[str], Sequence[Sequence[str]]]
    role: str = "ink"
    size: tuple[float, float] = (5, 7)
    below: float = 2.5 * LINE
    left: float = 4 * LETTER + 2 * LINE

    def axes(self, index: str, every: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return its axes; where one is to be as long as the other, plotly has to know its name."""
        high, wide = self.size
        x, y = _thinned(self.x, wide, every), _thinned(self.y, high, every)
        return x, y | ({"scaleanchor": f"x{index}"} if "scaleratio" in y else {})

    def traces(self, axes: Axes, cell: float) -> list[dict[str, Any]]:
        """Return its traces."""
        rows, columns, cells = self.table
        meta = {
            "name": self.title,
            "rows": list(rows),
            "columns": list(columns),
            "cells": [list(row) for row in cells],
        }
        return [
            dict(trace) | axes | ({"meta": meta} if number == 0 else {})
            for number, trace in enumerate(self.data)
        ]


def _thinned(axis: Mapping[str, Any], cells: float, every: int) -> dict[str, Any]:
    labels = {name: axis[name] for name in ("tickvals", "ticktext") if "ticktext" in axis}
    return dict(axis) | {
        name: some[:: every * math.ceil(len(some) / cells)] for name, some in labels.items()
    }


def bars(
    title: str,
    subtitle: str,
    labels: Sequence[str],
    series: Mapping[str, tuple[Numbers, str]],
    *,
    axis: tuple[str, str] = ("key", "key"),
    height: tuple[str, str] = ("weight", "ink"),
    range: tuple[float, float] = (0, 1),
    **more: Any,
) -> Plot:
    """Draw bars, one group for each label.

    Args:
        title, subtitle: the lines above it.
        labels: the groups, shown literally.
        series: name to values, one for each label, and the colour role of its bars.
        axis, height: titles of both axes and their colour roles.
        range: from where to where the bars can go.
        more: other attributes of :class:`Plot`.

    Returns:
        The panel. With more than one series each is filled in a way of its own, which the subtitle
        tells.

    >>> bars("Shares", "", ["a", "b"], {"weights": ([0.25, 0.75], "key")}).table
    (('weights',), ['a', 'b'], [['0.25', '0.75']])
    """
    places = np.arange(len(labels))
    data = [
        {
            "type": "bar",
            "name": name,
            "x": places,
            "y": np.asarray(values, dtype=float),
            "marker": (
                {"color": colour(role), "line": {"color": colour(role), "width": 1}}
                | {"pattern": {"shape": PATTERNS[number % 4][0]}}
            ),
            "texttemplate": "%{y:.2f}" if len(labels) * len(series) <= 12 else "",
            "hovertext": [literal(label) for label in labels],
            "hovertemplate": f"{literal(name)}, %{{hovertext}}: %{{y:.4g}}<extra></extra>",
        }
        for number, (name, (values, role)) in enumerate(series.items())
    ]
    if len(series) > 1:
        names = [f"{PATTERNS[number % 4][1]} {literal(name)}" for number, name in enumerate(series)]
        subtitle = ", ".join([subtitle, *names] if subtitle else names)
    x = labelled(labels, axis) | {"range": [-0.6, len(labels) - 0.4]}
    y = titled(height) | {"range": list(range)} | (_zero_line() if range[0] < 0 else {})
    table = (
        tuple(series),
        labels,
        [list(map(_format_number, values)) for values, _ in series.values()],
    )
    return Plot(title, subtitle, data, x, y, table, below=label_height(labels), **more)


def lines(
    title: str,
    subtitle: str,
    x: Numbers,
    series: Mapping[str, tuple[Numbers, str]],
    *,
    axis: tuple[str, str],
    height: tuple[str, str],
    range: tuple[float, float],
    here: float | None = None,
    logarithmic: bool = False,
    filled: bool = False,
    **more: Any,
) -> Plot:
    """Draw curves over a shared axis; if there are several, their names at their ends.

    Args:
        title, subtitle: the lines above it.
        x: where the values are.
        series: name to values and the colour role of its line.
        axis, height: titles of both axes and their colour roles.
        range: from where to where the values can go.
        here: the x to mark on every curve, in traces called "name, here".
        logarithmic: spread x by powers.
        filled: fill the ground below the curves.
        more: other attributes of :class:`Plot`.

    Returns:
        The panel.

    >>> axes = {"axis": ("x", "ink"), "height": ("y", "ink"), "range": (0, 1)}
    >>> lines("f", "", [1, 2], {"f": ([0, 1], "ink")}, **axes).table
    (('f',), ['1', '2'], [['0', '1']])
    """
    x = np.asarray(x, dtype=float)
    curves = {name: np.asarray(values, dtype=float) for name, (values, _) in series.items()}
    named = (
        _beside({name: values[-1] for name, values in curves.items()}, 0.1 * (range[1] - range[0]))
        if len(curves) > 1
        else {}
    )
    data: list[dict[str, Any]] = []
    for number, (name, values) in enumerate(curves.items()):
        common = {"type": "scatter", "x": x, "y": values, "cliponaxis": False}
        line = {"color": colour(series[name][1]), "width": 2.5, "dash": DASHES[number % 4]}
        curve = common | {"name": name, "mode": "lines", "line": line, "hoverinfo": "x+y+name"}
        if filled:
            curve |= {"fill": "tozeroy"}
        if named:
            text = [""] * (len(x) - 1) + [literal(name)]
            curve |= {"mode": "lines+text", "text": text, "textposition": named[name]}
        data.append(curve)
        if here is not None:
            at = int(np.abs(x - here).argmin())
            spot = {
                "x": x[[at]],
                "y": values[[at]],
                "mode": "markers",
                "marker": {"color": line["color"], "size": 10},
            }
            data.append(common | {"name": f"{name}, here"} | spot)
    low, high = map(float, np.log10([x.min(), x.max()]) if logarithmic else (x.min(), x.max()))
    table = (
        tuple(series),
        list(map(_format_number, x)),
        [list(map(_format_number, values)) for values in curves.values()],
    )
    left, right = (high - low) * 0.05 * (here is not None), (high - low) * _share(named)
    axes = (
        titled(axis)
        | {"range": [low - left, high + right]}
        | ({"type": "log"} if logarithmic else {})
    )
    return Plot(title, subtitle, data, axes, titled(height) | {"range": list(range)}, table, **more)


def _beside(ends: Mapping[str, float], close: float) -> dict[str, str]:
    """Return where each curve's name stands at its end: above it,
    but below where another end is close above.
    """
    places, order = {}, sorted(ends, key=ends.__getitem__)
    for lower, name, upper in zip([None, *order[:-1]], order, [*order[1:], None], strict=True):
        above = upper is not None and ends[upper] - ends[name] < close
        below = lower is not None and ends[name] - ends[lower] < close
        places[name] = (
            "middle right" if above and below else "bottom right" if above else "top right"
        )
    return places


def _share(names: Iterable[str]) -> float:
    """Return the room for names, as a share of what is left of a phone's width."""
    needed = 7 * min(max(map(len, names), default=0), LONGEST_LABEL)
    return needed / (NARROW - 4 * LETTER - 2 * LINE - needed)


def arrows(
    title: str,
    subtitle: str,
    vectors: Mapping[str, tuple[Numbers, str]],
    *,
    limit: float,
    **more: Any,
) -> Plot:
    """Draw vectors of the plane as arrows from the origin, their names at their tips.

    Args:
        title, subtitle: the lines above it.
        vectors: name to its two entries and its colour role.
        limit: how far both axes go each way.
        more: other attributes of :class:`Plot`.

    Returns:
        The panel, square.

    >>> arrows("Vectors", "", {"q": ([3, 4], "query")}, limit=5).table
    (('q',), ['x', 'y'], [['3', '4']])
    """
    # Plotly lets markers of different sizes shine through unless told.
    tip = {"size": [1, 14], "symbol": ["circle", "triangle-up"], "opacity": 1}
    data = []
    for name, (vector, role) in vectors.items():
        x, y = map(float, vector)
        angle = float((np.degrees(np.arctan2(x, y)) + 180) % 360 - 180)  # from -180 on
        data.append(
            {
                "type": "scatter",
                "name": name,
                "x": [0.0, x],
                "y": [0.0, y],
                "cliponaxis": False,
                "mode": "lines+markers+text",
                "line": {"color": colour(role), "width": 3},
                "marker": tip | {"color": colour(role), "angle": [0.0, angle]},
                "text": ["", literal(name, LONGEST_NAME)],
                "textposition": "top right" if x >= 0 else "top left",
                "textfont": {"color": colour(role), "size": 15},
            }
        )
    ends = {"range": [-limit, limit], "showticklabels": False} | _zero_line()
    table = (
        tuple(vectors),
        ["x", "y"],
        [list(map(_format_number, vector)) for vector, _ in vectors.values()],
    )
    return Plot(
        title, subtitle, data, ends, ends | {"scaleratio": 1}, table, **({"size": (7, 7)} | more)
    )


def _zero_line() -> dict[str, Any]:
    return {"zeroline": True, "zerolinecolor": colour("line")}


def _format_number(value: float) -> str:
    return f"{value:.4g}".replace("-", "−")
