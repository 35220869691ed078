"""Panels that are no maps: bars, lines and arrows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mha_widgets.figures.panels import LETTER, LINE, Axes, Panel, label_height, labelled, titled
from mha_widgets.figures.theme import colour

Numbers = np.ndarray | Sequence[float]


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
        below: the room for labels below it, in px.
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
    left: float = field(default=4 * LETTER + 2 * LINE, init=False)

    def axes(self, index: str, every: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return its axes; where one is to be as long as the other, plotly has to know its name."""
        x, y = dict(self.x), dict(self.y)
        if "scaleratio" in y:
            y["scaleanchor"] = f"x{index}"
        return x, y

    def traces(self, axes: Axes, cell: float) -> list[dict[str, Any]]:
        """Return its traces."""
        rows, columns, cells = self.table
        meta = {"name": self.title, "rows": list(rows), "columns": list(columns), "cells": [list(row) for row in cells]}
        return [dict(trace) | axes | ({"meta": meta} if number == 0 else {}) for number, trace in enumerate(self.data)]


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
        The panel. With more than one series, their names stand in a legend on the bars themselves.

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
            "marker": {"color": colour(role)},
            "texttemplate": "%{y:.2f}" if len(labels) * len(series) <= 12 else "",
            "hovertemplate": f"{name}, %{{x}}: %{{y:.4g}}<extra></extra>",
        }
        for name, (values, role) in series.items()
    ]
    x = labelled(labels, axis) | {"range": [-0.6, len(labels) - 0.4]}
    table = tuple(series), labels, [list(map(_number, values)) for values, _ in series.values()]
    return Plot(title, subtitle, data, x, titled(height) | {"range": list(range)}, table, below=label_height(labels), **more)


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
    """Draw curves over a shared axis, their names at their ends.

    Args:
        title, subtitle: the lines above it.
        x: where the values are.
        series: name to values and the colour role of its line.
        axis, height: titles of both axes and their colour roles.
        range: from where to where the values can go.
        here: the x to mark on every curve.
        logarithmic: spread x by powers.
        filled: fill the ground below the curves.
        more: other attributes of :class:`Plot`.

    Returns:
        The panel.

    >>> lines("f", "", [1, 2], {"f": ([0, 1], "ink")}, axis=("x", "ink"), height=("y", "ink"), range=(0, 1)).table
    (('f',), ['1', '2'], [['0', '1']])
    """
    x = np.asarray(x, dtype=float)
    dashes = ("solid", "dash", "dot", "dashdot")
    data: list[dict[str, Any]] = []
    for number, (name, (values, role)) in enumerate(series.items()):
        values = np.asarray(values, dtype=float)
        line = {"type": "scatter", "name": name, "x": x, "y": values, "mode": "lines"}
        line |= {"line": {"color": colour(role), "width": 2.5, "dash": dashes[number % 4]}}
        if filled:
            line |= {"fill": "tozeroy"}
        data.append(line | {"hoverinfo": "x+y+name"})
        if here is not None:
            at = int(np.abs(x - here).argmin())
            spot = {"x": x[[at]], "y": values[[at]], "mode": "markers", "marker": {"color": colour(role), "size": 10}}
            data.append({"type": "scatter", "name": f"{name}, here"} | spot)
    low, high = x.min(), x.max()
    across = [float(np.log10(low)), float(np.log10(high))] if logarithmic else [float(low), float(high)]
    table = tuple(series), list(map(_number, x)), [list(map(_number, values)) for values, _ in series.values()]
    axes = titled(axis) | {"range": across} | ({"type": "log"} if logarithmic else {})
    return Plot(title, subtitle, data, axes, titled(height) | {"range": list(range)}, table, **more)


def arrows(title: str, subtitle: str, vectors: Mapping[str, tuple[Numbers, str]], *, limit: float, **more: Any) -> Plot:
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
    data = []
    for name, (vector, role) in vectors.items():
        x, y = map(float, vector)
        angle = float(np.degrees(np.arctan2(x, y)))
        data.append(
            {
                "type": "scatter",
                "name": name,
                "x": [0.0, x],
                "y": [0.0, y],
                "mode": "lines+markers+text",
                "line": {"color": colour(role), "width": 3},
                "marker": {"color": colour(role), "size": [1, 14], "symbol": ["circle", "triangle-up"], "angle": [0.0, angle]},
                "text": ["", name],
                "textposition": "top right" if x >= 0 else "top left",
                "textfont": {"color": colour(role), "size": 15},
            }
        )
    ends = {"range": [-limit, limit], "zeroline": True, "zerolinecolor": colour("line"), "showticklabels": False}
    table = tuple(vectors), ["x", "y"], [list(map(_number, vector)) for vector, _ in vectors.values()]
    return Plot(title, subtitle, data, ends, ends | {"scaleratio": 1}, table, **({"size": (7, 7)} | more))


def _number(value: float) -> str:
    return f"{value:.4g}".replace("-", "−")
