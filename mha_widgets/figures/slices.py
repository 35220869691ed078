"""Maps with many rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mha_widgets.figures.maps import Map
from mha_widgets.figures.panels import Axes

FLAT = 0.6  # a row's height, in cells


@dataclass(frozen=True)
class Slices(Map):
    """A map of many flat rows, without numbers in its cells.

    Attributes:
        every: which rows are labelled: each so-many-th.
    """

    every: int = 1

    @property
    def size(self) -> tuple[float, float]:
        """Rows, made flat, and columns."""
        return FLAT * len(self.rows), len(self.columns)

    def axes(self, index: str, every: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the axes: rows may be as flat as they are."""
        x, y = super().axes(index, every)
        y.pop("scaleanchor")
        labelled = range(0, len(self.rows), self.every)
        return x, y | {"tickvals": list(labelled), "ticktext": [self.rows[row] for row in labelled]}

    def traces(self, axes: Axes, cell: float) -> list[dict[str, Any]]:
        """Return the heatmap."""
        return [trace | {"texttemplate": ""} for trace in super().traces(axes, cell)]
