"""The one place for colours, fonts and sizes.

Every colour is a role with a light and a dark value. Figures are drawn in light values; a host
that shows them on a dark ground swaps each for its partner.
"""

from __future__ import annotations

from typing import Any

import plotly.graph_objects as go

COLOURS: dict[str, tuple[str, str]] = {
    "ink": ("#1d2430", "#e8ebef"),
    "soft": ("#5b6472", "#a3adba"),
    "line": ("#dfe3e8", "#323b48"),
    "card": ("#fbfbfa", "#1a2029"),
    "code": ("#f3f4f6", "#222a35"),
    "warn": ("#9b1c1c", "#ff9d9d"),
    "query": ("#1f5fa8", "#7db2f0"),
    "key": ("#b4560a", "#f0a35e"),
    "value": ("#1d7a4f", "#6fd3a0"),
    "output": ("#7a3fa0", "#cf9df0"),
    "open": ("#cfe8da", "#2f6d4f"),
    "blocked": ("#eceff2", "#262e3a"),
    "cross": ("#8b95a3", "#7c8898"),
    # Attention weights: lightness runs evenly from 0 to 1 (OKLCH, hue 252).
    "weight-0": ("#eff6fd", "#233242"),
    "weight-1": ("#a8c7ea", "#385d86"),
    "weight-2": ("#5f97d5", "#4f8ccf"),
    "weight-3": ("#2369ae", "#90bff3"),
    "weight-4": ("#003d74", "#e1f0ff"),
    # Scores and other signed numbers: brown below 0, teal above,
    # as far apart for every kind of eye.
    "signed-0": ("#97571c", "#f3ac75"),
    "signed-1": ("#cda07f", "#926949"),
    "signed-2": ("#f2f2ef", "#31302e"),
    "signed-3": ("#7eb7b3", "#467e7b"),
    "signed-4": ("#147874", "#78d0ca"),
    # Heads: Okabe and Ito's palette for every kind of eye, https://jfly.uni-koeln.de/color/
    "head-0": ("#0072b2", "#3aa0dc"),
    "head-1": ("#d55e00", "#e87a26"),
    "head-2": ("#009e73", "#1cc294"),
    "head-3": ("#cc79a7", "#db94bb"),
    "head-4": ("#e69f00", "#f0b429"),
    "head-5": ("#56b4e9", "#7fcaf2"),
    "head-6": ("#e0d21f", "#f0e442"),
    "head-7": ("#1a1a1a", "#f2f2f2"),
}
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, sans-serif'
TEXT_SIZE = 13
CLEAR = "rgba(0,0,0,0)"


def colour(role: str) -> str:
    """Return the light value of a colour's role, e.g. ``colour("query")``."""
    return COLOURS[role][0]


def scale(name: str) -> list[list[float | str]]:
    """Return a plotly colour scale: "weight" (0 to 1),
    "signed" (centred on 0) or "mask" (0 or 1).
    """
    if name == "mask":
        return [[0, colour("blocked")], [1, colour("open")]]
    return [[i / 4, colour(f"{name}-{i}")] for i in range(5)]


_AXIS = {
    "ticks": "",
    "showgrid": False,
    "zeroline": False,
    "constrain": "domain",
    "fixedrange": True,
    "ticklabelstandoff": 3,
}
_AXIS |= {"title": {"standoff": 6, "font": {"size": TEXT_SIZE}}}
TEMPLATE = go.layout.Template(
    layout={
        "margin": {"l": 0, "r": 0, "t": 0, "b": 0},
        "paper_bgcolor": CLEAR,
        "plot_bgcolor": CLEAR,
        "font": {"family": FONT, "size": TEXT_SIZE, "color": colour("ink")},
        "hoverlabel": {
            "bgcolor": colour("card"),
            "bordercolor": colour("soft"),
            "font": {"color": colour("ink")},
        },
        "dragmode": False,
        "annotationdefaults": {
            "xref": "paper",
            "yref": "paper",
            "xanchor": "center",
            "yanchor": "bottom",
            "showarrow": False,
        },
        "shapedefaults": {"fillcolor": CLEAR},
        "xaxis": _AXIS,
        "yaxis": _AXIS | {"constraintoward": "top"},
    },
    data={
        "bar": [
            {
                "textposition": "outside",
                "cliponaxis": False,
                "textfont": {"size": 11},
                "showlegend": False,
            }
        ],
        "heatmap": [{"showscale": False, "xgap": 1.5, "ygap": 1.5, "textfont": {"size": 11}}],
        "scatter": [{"hoverinfo": "skip", "showlegend": False}],
    },
)

_DARK = dict(COLOURS.values())


def dark(tree: Any, key: str = "") -> Any:
    """Return a copy of a figure's data or layout, as dictionaries,
    in the dark value of each colour.

    >>> dark({"font": {"color": colour("ink")}, "text": colour("ink")})
    {'font': {'color': '#e8ebef'}, 'text': '#1d2430'}
    """
    if isinstance(tree, dict):
        return {k: dark(v, k) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [dark(v, key) for v in tree]
    return _DARK.get(tree, tree) if isinstance(tree, str) and "color" in key else tree
