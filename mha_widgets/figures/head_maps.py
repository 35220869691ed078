"""Maps in the colours of the heads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mha_widgets.figures.maps import Frame, Map
from mha_widgets.figures.panels import Axes
from mha_widgets.figures.theme import colour

PALETTE = 8  # colours: head 8 has that of head 0 again
SMALLEST_WORD = 20  # px: cells from this size on can hold "1·3"
BORDER = 0.2  # cells


@dataclass(frozen=True)
class HeadMap(Map):
    """A square map with a border in a colour.

    Attributes:
        border: the colour's role, such as "head-0".
    """

    border: str = "line"

    def axes(self, index: str, every: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the axes, with room for the border."""
        x, y = super().axes(index, every)
        low, high = -0.5 - BORDER, len(self.rows) - 0.5 + BORDER
        return x | {"range": [low, high]}, y | {"range": [high, low]}

    def shapes(self, index: str) -> list[dict[str, Any]]:
        """Return the border."""
        edge, end = BORDER / 2, len(self.rows) + BORDER / 2
        return [Frame(self.border, -edge, -edge, end, end, width=3).shape(index)]


class JoinedHeads(Map):
    """A map whose values are numbers of heads, below 8, and whose cells are in their colours."""

    def traces(self, axes: Axes, cell: float) -> list[dict[str, Any]]:
        """Return the heatmap."""
        (heatmap,) = super().traces(axes, cell)
        steps = [
            [(k + end) / PALETTE, colour(f"head-{k}")] for k in range(PALETTE) for end in (0, 1)
        ]
        template = self.number if cell >= SMALLEST_WORD else ""
        return [
            heatmap
            | {
                "colorscale": steps,
                "zmin": -0.5,
                "zmax": PALETTE - 0.5,
                "texttemplate": template,
            }
        ]
