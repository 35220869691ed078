"""Tables of words, some of them coloured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mha_widgets.figures.panels import LETTER, LINE, Axes, Panel, labelled, literal
from mha_widgets.figures.theme import colour

PLAIN, GOOD, BAD = 0, 1, 2
LONGEST = 16  # letters of a row's label


@dataclass(frozen=True)
class Table(Panel):
    """A table of words as a panel of a figure.

    Attributes:
        title: the line above it.
        rows, columns: the labels.
        words: (rows, columns), what the cells say.
        marks: (rows, columns), PLAIN, GOOD or BAD.
        hover: what each row says when it is pointed at.
        blocks: the number of rows of each block, and its name; blocks change apart from each other.
        wide: the width of a column in cells.
        role: the colour role of the title.
    """

    title: str
    rows: Sequence[str]
    columns: Sequence[str]
    words: Sequence[Sequence[str]]
    marks: Sequence[Sequence[int]]
    hover: Sequence[str]
    blocks: Sequence[tuple[int, str]]
    wide: float = 2.0
    role: str = "ink"
    subtitle: str = ""  # the columns' labels are in its place

    @property
    def size(self) -> tuple[float, float]:
        """Height and width in cells."""
        return 0.75 * len(self.rows), self.wide * len(self.columns)

    @property
    def left(self) -> float:
        """The room for row labels, in px."""
        return LETTER * min(max(map(len, self.rows)), LONGEST) + 8

    @property
    def below(self) -> float:
        """The room below, in px."""
        return LINE

    def axes(self, index: str, every: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the axes: labels of columns at the top, of rows at the left."""
        x = labelled(self.columns, ("", "soft")) | {
            "range": [-0.5, len(self.columns) - 0.5],
            "side": "top",
            "tickangle": 0,
        }
        y = labelled(self.rows, ("", "soft")) | {
            "range": [len(self.rows) - 0.5, -0.5],
            "tickangle": 0,
        }
        return x, y | {"ticktext": [literal(row, LONGEST) for row in self.rows]}

    def traces(self, axes: Axes, cell: float) -> list[dict[str, Any]]:
        """Return a heatmap for each block."""
        made, start = [], 0
        for count, name in self.blocks:
            made.append(self._block(name, slice(start, start + count)) | axes)
            start += count
        return made

    def _block(self, name: str, rows: slice) -> dict[str, Any]:
        hover = np.array(self.hover[rows], dtype=object)
        return {
            "type": "heatmap",
            "name": name,
            "meta": {
                "name": name,
                "rows": list(self.rows[rows]),
                "columns": list(self.columns),
                "cells": "text",
            },
            "y": np.arange(len(self.rows))[rows],
            "z": np.array(self.marks[rows]),
            "zmin": PLAIN,
            "zmax": BAD,
            "colorscale": [[0, colour("blocked")], [0.5, colour("open")], [1, colour("warn")]],
            "text": np.array(self.words[rows], dtype=object),
            "texttemplate": "%{text}",
            "customdata": np.repeat(hover[:, None], len(self.columns), axis=1)[..., None],
            "hovertemplate": "%{y}: %{text}<br>%{customdata[0]}<extra></extra>",
        }
