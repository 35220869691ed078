"""Attention maps: matrices side by side, rows looking at columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go

from mha_widgets.figures.theme import CLEAR, TEMPLATE, colour, scale

WIDE, NARROW = 860, 330  # px: the widths that a figure is laid out for
NARROW_BELOW = 680  # px: in less room than this, maps are stacked
LARGEST_CELL = {WIDE: 44, NARROW: 40}
LETTER, LINE, TITLE = 8.2, 20, 52  # px: a letter's width, a text line's height, the room above a map
LONGEST_LABEL = 12
SMALLEST_NUMBERED, SMALLEST_PARTED = 24, 6  # px: cells from these sizes on show numbers, and gaps between them
LABEL = 13  # px: the room that a label takes on its axis


@dataclass(frozen=True)
class Map:
    """One matrix, to be drawn as a map.

    Attributes:
        title, subtitle: the lines above it.
        values: (rows, columns); NaN where there is no number to show.
        rows, columns: the labels, shown literally.
        role: the colour role of the title.
        row_axis, column_axis: an axis title and its colour role each.
        colours: "weight" (always 0 to 1), "signed" (-limit to limit) or "mask" (0 or 1).
        limit: the largest size on a "signed" scale.
        number: what each cell shows: a plotly texttemplate of ``z`` or of ``text``, or nothing.
        hover: a plotly hovertemplate; it may use ``text`` and ``customdata``.
        text: (rows, columns), a word for each cell.
        customdata: (rows, columns, k), more numbers for each cell.
        blocked: (rows, columns), the cells to cross out, unless ``number`` writes ``text`` there.
        nan: (rows, columns), the cells to mark as NaN.
        selected_row, selected_column: what to frame.
    """

    title: str
    subtitle: str
    values: np.ndarray
    rows: Sequence[str]
    columns: Sequence[str]
    role: str = "ink"
    row_axis: tuple[str, str] = ("query", "query")
    column_axis: tuple[str, str] = ("key", "key")
    colours: str = "signed"
    limit: float = 1.0
    number: str = "%{z:.2f}"
    hover: str = "%{y}, %{x}: %{z:.4g}"
    text: np.ndarray | None = None
    customdata: np.ndarray | None = None
    blocked: np.ndarray | None = None
    nan: np.ndarray | None = None
    selected_row: int | None = None
    selected_column: int | None = None


def literal(text: str, longest: int | None = LONGEST_LABEL) -> str:
    """Write a token so that plotly shows it as it is: no HTML, no LaTeX, cut to ``longest`` letters.

    >>> literal("<pad>"), literal("$x$"), literal("antidisestablishment")
    ('&lt;pad&gt;', '&#36;x&#36;', 'antidisesta…')
    """
    if longest is not None and len(text) > longest:
        text = text[: longest - 1] + "…"
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("$", "&#36;"), ("\n", "⏎")):
        text = text.replace(character, entity)
    return text


def draw(maps: Sequence[Map]) -> go.Figure:
    """Draw maps side by side.

    The figure is laid out for a width of ``layout.meta["wide"]`` px; a host with less room shrinks
    its height in proportion. Below ``narrow_below`` px it makes the changes of ``narrow`` instead,
    which stack the maps.

    Args:
        maps: what to draw, from the left.

    Returns:
        A figure with a heatmap for each map, named by its title, each followed by markers for its
        blocked cells and for its NaN cells if the map speaks of any.

    >>> half = Map("Weights", "rows sum to 1", np.full((2, 2), 0.5), ["a", "b"], ["a", "b"], colours="weight")
    >>> [trace.type for trace in draw([half]).data]
    ['heatmap']
    """
    cell = _cell(maps, WIDE)
    traces = [trace for index, one in enumerate(maps, 1) for trace in _traces(one, index, cell)]
    layout = _layout(maps, _row(maps))
    layout["meta"] = {"wide": WIDE, "narrow_below": NARROW_BELOW, "narrow": _placed(maps, _stack(maps))}
    return go.Figure(traces, layout)


def _traces(one: Map, index: int, cell: float) -> list[dict[str, Any]]:
    axes = {"xaxis": f"x{index}" if index > 1 else "x", "yaxis": f"y{index}" if index > 1 else "y"}
    values = np.asarray(one.values, dtype=float)
    low, high = {"weight": (0, 1), "mask": (0, 1), "signed": (-one.limit, one.limit)}[one.colours]
    heatmap: dict[str, Any] = {
        "type": "heatmap",
        "name": one.title,
        "meta": {"rows": list(one.rows), "columns": list(one.columns), "cells": "z" if "%{z" in one.number else "text"},
        "z": np.where(np.isnan(values), None, values),  # a NaN could not be sent to a notebook
        "zmin": low,
        "zmax": high,
        "colorscale": scale(one.colours),
        "hovertemplate": one.hover + "<extra></extra>",
        **axes,
    }
    if one.text is not None:
        heatmap["text"] = one.text
    if one.customdata is not None:
        heatmap["customdata"] = one.customdata
    numbered = min(cell, _cell([one], NARROW)) >= SMALLEST_NUMBERED
    if numbered:
        heatmap["texttemplate"] = one.number
    if cell < SMALLEST_PARTED:
        heatmap |= {"xgap": 0, "ygap": 0}
    traces = [heatmap]
    if one.blocked is not None:
        told = numbered and one.number == "%{text}"
        rows, columns = np.nonzero(one.blocked & (not told))
        size = min(12.0, 0.4 * cell)
        cross = {"symbol": "x-thin", "size": size, "line": {"color": colour("cross"), "width": 1.5}}
        traces.append(_marks(columns, rows, axes) | {"name": "blocked", "mode": "markers", "marker": cross})
    if one.nan is not None:
        rows, columns = np.nonzero(one.nan)
        square = {"symbol": "square", "size": 2, "color": CLEAR}
        traces.append(_striped(columns, rows, axes))
        traces.append(
            _marks(columns, rows, axes)
            | {"name": "NaN", "mode": "text", "text": "NaN", "marker": square}
            | {"textfont": {"color": colour("warn"), "size": 10.5, "weight": 600}}
        )
    return traces


def _marks(columns: np.ndarray, rows: np.ndarray, axes: dict[str, str]) -> dict[str, Any]:
    return {"type": "scatter", "x": columns, "y": rows, **axes}


def _striped(columns: np.ndarray, rows: np.ndarray, axes: dict[str, str]) -> dict[str, Any]:
    corners = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (-0.5, -0.5)])
    cells = np.stack([columns, rows], -1)[:, None] + corners  # (cells, 5, 2)
    outline = np.concatenate([cells, np.full((len(cells), 1, 2), np.nan)], axis=1).reshape(-1, 2)  # NaN lifts the pen
    stripes = {"shape": "/", "fgcolor": colour("warn"), "bgcolor": CLEAR, "fgopacity": 0.35, "size": 7, "solidity": 0.3}
    return _marks(columns, rows, axes) | {
        "name": "NaN cells",
        "x": outline[:, 0],
        "y": outline[:, 1],
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillpattern": stripes,
    }


Box = tuple[float, float, float, float]  # left, top, width, height of a map's cells, in px


def _label_width(one: Map) -> float:
    return 1.1 * LETTER * min(max(map(len, one.rows)), LONGEST_LABEL) + 2 * LINE + 4


def _label_height(one: Map) -> float:
    slanted = 0.65 * LETTER * min(max(map(len, one.columns)), LONGEST_LABEL) if _angle(one.columns) else 0
    return slanted + 2.5 * LINE


def _cell(maps: Sequence[Map], width: int) -> float:
    room = width - sum(map(_label_width, maps))
    return min(LARGEST_CELL[width], room / sum(len(one.columns) for one in maps))


def _row(maps: Sequence[Map]) -> tuple[list[Box], int, float]:
    cell = _cell(maps, WIDE)
    used = sum(_label_width(one) + cell * len(one.columns) for one in maps)
    gap = min(40.0, (WIDE - used) / max(1, len(maps) - 1))
    left = (WIDE - used - gap * (len(maps) - 1)) / 2
    boxes = []
    for one in maps:
        left += _label_width(one)
        boxes.append((left, TITLE, cell * len(one.columns), cell * len(one.rows)))
        left += cell * len(one.columns) + gap
    return boxes, WIDE, max(TITLE + cell * len(one.rows) + _label_height(one) for one in maps)


def _stack(maps: Sequence[Map]) -> tuple[list[Box], int, float]:
    boxes, top = [], 0.0
    for one in maps:
        cell = _cell([one], NARROW)
        left = _label_width(one) + max(0, NARROW - _label_width(one) - cell * len(one.columns)) / 2
        boxes.append((left, top + TITLE, cell * len(one.columns), cell * len(one.rows)))
        top += TITLE + cell * len(one.rows) + _label_height(one) + 6
    return boxes, NARROW, top


def _placed(maps: Sequence[Map], places: tuple[list[Box], int, float]) -> dict[str, Any]:
    boxes, width, height = places
    placed: dict[str, Any] = {"height": round(height), "annotations": []}
    for index, (one, (left, top, w, h)) in enumerate(zip(maps, boxes, strict=True), 1):
        axis = str(index) if index > 1 else ""
        x, y = [left / width, (left + w) / width], [1 - (top + h) / height, 1 - top / height]
        placed["xaxis" + axis] = {"domain": [round(v, 4) for v in x]}
        placed["yaxis" + axis] = {"domain": [round(v, 4) for v in y]}
        for text, role, size, above in ((one.title, one.role, 15, 22), (one.subtitle, "soft", 12, 4)):
            placed["annotations"].append(
                {
                    "text": text,
                    "font": {"color": colour(role), "size": size},
                    "x": round(sum(x) / 2, 4),
                    "y": round(y[1], 4),
                    "yshift": above,
                }
            )
    return placed


def _layout(maps: Sequence[Map], places: tuple[list[Box], int, float]) -> dict[str, Any]:
    layout = _placed(maps, places) | {
        "template": TEMPLATE,
        "shapes": [frame for index, one in enumerate(maps, 1) for frame in _frames(one, index)],
    }
    every = math.ceil(LABEL / min(_cell(maps, WIDE), *(_cell([one], NARROW) for one in maps)))
    for index, one in enumerate(maps, 1):
        axis = str(index) if index > 1 else ""
        layout["xaxis" + axis] |= _axis(one.columns, one.column_axis, every, f"y{axis}") | {"tickangle": _angle(one.columns)}
        layout["yaxis" + axis] |= _axis(one.rows, one.row_axis, every, f"x{axis}") | {
            "range": [len(one.rows) - 0.5, -0.5],
            "scaleanchor": f"x{axis}",
        }
    return layout


def _axis(labels: Sequence[str], title: tuple[str, str], every: int, anchor: str) -> dict[str, Any]:
    text, role = title
    return {
        "anchor": anchor,
        "range": [-0.5, len(labels) - 0.5],
        "tickvals": list(range(0, len(labels), every)),
        "ticktext": [literal(label) for label in labels[::every]],
        "title": {"text": text, "font": {"color": colour(role)}},
    }


def _angle(labels: Sequence[str]) -> int:
    return -45 if max(map(len, labels)) > 3 else 0


def _frames(one: Map, index: int) -> list[dict[str, Any]]:
    axis = str(index) if index > 1 else ""
    frame = {"type": "rect", "xref": f"x{axis}", "yref": f"y{axis}"}
    frames = []
    if (row := one.selected_row) is not None:
        place = {"x0": -0.5, "x1": len(one.columns) - 0.5, "y0": row - 0.5, "y1": row + 0.5}
        frames.append(frame | place | {"line": {"color": colour(one.row_axis[1]), "width": 2.5}})
    if (column := one.selected_column) is not None:
        place = {"x0": column - 0.5, "x1": column + 0.5, "y0": -0.5, "y1": len(one.rows) - 0.5}
        frames.append(frame | place | {"line": {"color": colour(one.column_axis[1]), "width": 2.5}})
    return frames
