"""Attention maps: matrices whose rows look at columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import unescape
from typing import Any

import numpy as np

from mha_widgets.figures.panels import (
    NARROW,
    TIGHTEST,
    Axes,
    Panel,
    cell_of,
    label_height,
    label_width,
    labelled,
)
from mha_widgets.figures.theme import CLEAR, colour, scale

# px: cells from these sizes on can show numbers, and gaps between them
SMALLEST_NUMBERED, SMALLEST_PARTED = (
    18,
    6,
)
DIGIT, SIGN = 7, 4  # px: how wide they are in a cell


@dataclass(frozen=True)
class Frame:
    """A frame around a block of a map's cells.

    Attributes:
        role: its colour role.
        left, top, right, bottom: where it stands, counted in cells from the map's top left corner.
        width: of its line, in px.
    """

    role: str
    left: float
    top: float
    right: float
    bottom: float
    width: float = 2.5

    def shape(self, index: str) -> dict[str, Any]:
        """Return it as a shape of plotly's layout, on the axes of this index."""
        place = {
            "x0": self.left - 0.5,
            "y0": self.top - 0.5,
            "x1": self.right - 0.5,
            "y1": self.bottom - 0.5,
        }
        line = {"color": colour(self.role), "width": self.width}
        return {"type": "rect", "xref": f"x{index}", "yref": f"y{index}", "line": line} | place


@dataclass(frozen=True)
class Map(Panel):
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
        blocked: (rows, columns), the cells to cross out, unless ``number`` writes a ``text`` there.
        blocked_word: what the table beside it says of them.
        nan: (rows, columns), the cells to mark as NaN.
        selected_row, selected_column: what to frame.
        frames: more frames, drawn below those.
        cell: the height and the width of each cell, in cells of a square map.
        label_every: label each so-many-th row; all, or as many as there is room for, if not given.
        told: (rows, columns), what the table beside it says, if not what the cells do.
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
    blocked_word: str = "blocked"
    nan: np.ndarray | None = None
    selected_row: int | None = None
    selected_column: int | None = None
    frames: Sequence[Frame] = ()
    cell: tuple[float, float] = (1, 1)
    label_every: int | None = None
    told: Sequence[Sequence[str]] | None = None

    @property
    def size(self) -> tuple[float, float]:
        """Height and width in cells."""
        return self.cell[0] * len(self.rows), self.cell[1] * len(self.columns)

    @property
    def left(self) -> float:
        """The room for row labels and the axis title, in px."""
        return label_width(self.rows)

    @property
    def below(self) -> float:
        """The room for column labels and the axis title, in px."""
        return label_height(self.columns)

    def axes(self, index: str, every: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the axes: rows from the top, square cells."""
        x = labelled(self.columns, self.column_axis, every) | {
            "range": [-0.5, len(self.columns) - 0.5]
        }
        y = labelled(self.rows, self.row_axis, self.label_every or every) | {
            "range": [len(self.rows) - 0.5, -0.5],
            "tickangle": 0,
        }
        square = {} if self.cell[0] == self.cell[1] else {"scaleratio": self.cell[0] / self.cell[1]}
        return x, y | {"scaleanchor": f"x{index}"} | square

    def shapes(self, index: str) -> list[dict[str, Any]]:
        """Return the frames."""
        high, wide, frames = len(self.rows), len(self.columns), list(self.frames)
        if (row := self.selected_row) is not None:
            frames.append(Frame(self.row_axis[1], 0, row, wide, row + 1))
        if (column := self.selected_column) is not None:
            frames.append(Frame(self.column_axis[1], column, 0, column + 1, high))
        return [frame.shape(index) for frame in frames]

    def traces(self, axes: Axes, cell: float) -> list[dict[str, Any]]:
        """Return the heatmap, then markers for its
        blocked and its NaN cells if the map speaks of any.
        """
        values = np.asarray(self.values, dtype=float)
        low, high = {"weight": (0, 1), "mask": (0, 1), "signed": (-self.limit, self.limit)}[
            self.colours
        ]
        cells = (
            [list(row) for row in self.told]
            if self.told is not None
            else "z"
            if "%{z" in self.number
            else "text"
        )
        heatmap: dict[str, Any] = {
            "type": "heatmap",
            "name": self.title,
            "meta": {
                "name": self.title,
                "rows": list(self.rows),
                "columns": list(self.columns),
                "cells": cells,
            },
            # a NaN could not be sent to a notebook
            "z": np.where(np.isnan(values), np.array(None), values),
            "zmin": low,
            "zmax": high,
            "colorscale": scale(self.colours),
            "hovertemplate": self.hover + "<extra></extra>",
            **axes,
        }
        if self.text is not None:
            heatmap["text"] = self.text
        if self.customdata is not None:
            heatmap["customdata"] = self.customdata
        numbered = self._room_for_numbers(min(cell * TIGHTEST, cell_of([self], NARROW)))
        if numbered:
            heatmap["texttemplate"] = self.number
        if cell < SMALLEST_PARTED:
            heatmap |= {"xgap": 0, "ygap": 0}
        traces = [heatmap]
        if self.blocked is not None:
            told = numbered and self.number == "%{text}"
            rows, columns = np.nonzero(self.blocked & (self.text == "") if told else self.blocked)
            size = min(12.0, 0.4 * cell)
            cross = {
                "symbol": "x-thin",
                "size": size,
                "line": {"color": colour("cross"), "width": 1.5},
            }
            traces.append(
                _marks(columns, rows, axes, self.blocked_word)
                | {
                    "mode": "markers",
                    "marker": cross,
                }
            )
        if self.nan is not None:
            rows, columns = np.nonzero(self.nan)
            square = {"symbol": "square", "size": 2, "color": CLEAR}
            traces.append(_striped(columns, rows, axes))
            traces.append(
                _marks(columns, rows, axes, "NaN")
                | {"mode": "text", "text": "NaN", "marker": square}
                | {"textfont": {"color": colour("warn"), "size": 10.5, "weight": 600}}
            )
        return traces

    def _room_for_numbers(self, cell: float) -> bool:
        high, wide = self.cell
        if min(high, wide) * cell < SMALLEST_NUMBERED:
            return False
        if self.number == "%{text}" and self.text is not None:
            shown = [unescape(word) for word in np.ravel(self.text)]
        else:
            form = self.number.removeprefix("%{z:").removesuffix("}")
            shown = [f"{value:{form}}" for value in np.ravel(self.values) if not np.isnan(value)]
        widest = max(
            (sum(DIGIT if letter.isalnum() else SIGN for letter in word) for word in shown),
            default=0,
        )
        return wide * cell >= widest


def _marks(columns: np.ndarray, rows: np.ndarray, axes: Axes, word: str) -> dict[str, Any]:
    """Return a trace on cells of the map before it; tables put the word there."""
    return {
        "type": "scatter",
        "name": word,
        "meta": {"word": word},
        "x": columns,
        "y": rows,
        **axes,
    }


def _striped(columns: np.ndarray, rows: np.ndarray, axes: dict[str, str]) -> dict[str, Any]:
    corners = np.array([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5), (-0.5, -0.5)])
    cells = np.stack([columns, rows], -1)[:, None] + corners  # (cells, 5, 2)
    # NaN lifts the pen
    outline = np.concatenate([cells, np.full((len(cells), 1, 2), np.nan)], axis=1).reshape(-1, 2)
    stripes = {
        "shape": "/",
        "fgcolor": colour("warn"),
        "bgcolor": CLEAR,
        "fgopacity": 0.35,
        "size": 7,
        "solidity": 0.3,
    }
    return {
        "type": "scatter",
        "name": "NaN cells",
        **axes,
        "x": outline[:, 0],
        "y": outline[:, 1],
        "mode": "lines",
        "line": {"width": 0},
        "fill": "toself",
        "fillpattern": stripes,
    }
