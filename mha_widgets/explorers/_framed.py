"""Maps with frames around blocks of cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mha_widgets.figures.maps import Map
from mha_widgets.figures.panels import Axes
from mha_widgets.figures.theme import colour


@dataclass(frozen=True)
class Framed(Map):
    """A map with frames around some of its blocks, and a table of its own words.

    Attributes:
        frames: the colour role of each, and its left, top, right and bottom, counted in cells.
        told: (rows, columns), what the table says in place of the cells' text, which is written for plotly.
    """

    frames: Sequence[tuple[str, int, int, int, int]] = ()
    told: Sequence[Sequence[str]] | None = None

    def shapes(self, index: str) -> list[dict[str, Any]]:
        """Return the frames, and those around the selected row and column."""
        frames = []
        for role, *box in self.frames:
            place = dict(zip(("x0", "y0", "x1", "y1"), (edge - 0.5 for edge in box), strict=True))
            line = {"color": colour(role), "width": 2.5}
            frames.append({"type": "rect", "xref": f"x{index}", "yref": f"y{index}", "line": line} | place)
        return frames + super().shapes(index)

    def traces(self, axes: Axes, cell: float) -> list[dict[str, Any]]:
        """Return the traces of the map."""
        first, *rest = super().traces(axes, cell)
        if self.told is not None:
            first["meta"]["cells"] = [list(row) for row in self.told]
        return [first, *rest]
