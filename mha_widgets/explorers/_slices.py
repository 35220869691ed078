"""The rows of a projection, cut into heads: as a map, and as a program."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from mha_widgets.figures.maps import Map
from mha_widgets.figures.panels import Axes
from mha_widgets.figures.theme import colour

FLAT = 0.6  # a row's height, in cells


@dataclass(frozen=True)
class Slices(Map):
    """A map of many flat rows, without numbers in its cells, some of its rows framed.

    Attributes:
        frames: the first row, the row after the last, the colour role and the width in px of each frame.
        every: which rows are labelled: each so-many-th.
    """

    frames: Sequence[tuple[int, int, str, float]] = ()
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

    def shapes(self, index: str) -> list[dict[str, Any]]:
        """Return the frames."""
        axes = {"type": "rect", "xref": f"x{index}", "yref": f"y{index}", "x0": -0.44, "x1": len(self.columns) - 0.56}
        return [
            axes | {"y0": start - 0.4, "y1": stop - 0.6, "line": {"color": colour(role), "width": width}}
            for start, stop, role, width in self.frames
        ]

    def traces(self, axes: Axes, cell: float) -> list[dict[str, Any]]:
        """Return the heatmap."""
        return [trace | {"texttemplate": ""} for trace in super().traces(axes, cell)]


def all_by_hand(module: nn.MultiheadAttention, names: Sequence[str], length: int) -> list[str]:
    """Write a program that makes a module's output from slices of its weights.

    Args:
        module: the module.
        names: what its inputs are called.
        length: L, how many queries there are.

    >>> print(*all_by_hand(nn.MultiheadAttention(8, 2, bias=False), ["x", "y", "y"], 5)[:3], sep="\\n")
    w_q, w_k, w_v = module.in_proj_weight.chunk(3)
    q, k, v = x @ w_q.T, y @ w_k.T, y @ w_v.T
    q, k, v = (part.view(-1, 2, 4).transpose(0, 1) for part in (q, k, v))  # (H, L, D)
    """
    E, H, letters = module.embed_dim, module.num_heads, "qkv"
    parts = "module.in_proj_weight.chunk(3)"
    if module.in_proj_weight is None:
        parts = ", ".join(f"module.{letter}_proj_weight" for letter in letters)
    biased = module.in_proj_bias is not None
    products = (f"{name} @ w_{letter}.T{f' + b_{letter}' if biased else ''}" for name, letter in zip(names, letters, strict=True))
    return [
        f"w_q, w_k, w_v = {parts}",
        *(["b_q, b_k, b_v = module.in_proj_bias.chunk(3)"] if biased else []),
        f"q, k, v = {', '.join(products)}",
        f"q, k, v = (part.view(-1, {H}, {E // H}).transpose(0, 1) for part in (q, k, v))  # (H, L, D)",
        "heads = nn.functional.scaled_dot_product_attention(q, k, v)",
        f"by_hand = module.out_proj(heads.transpose(0, 1).reshape({length}, {E}))",
        f"print((by_hand - module({', '.join(names)})[0]).abs().max())  # 0, but for rounding",
    ]
