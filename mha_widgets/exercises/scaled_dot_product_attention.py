"""The exercises of the chapter on scaled dot-product attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from mha_widgets.exercises._checking import (
    Wrong,
    called,
    close,
    exercise,
    expect,
    several,
    shape_of,
    shaped,
)


@exercise("scaled-dot-product-attention-1")
def shapes(answer: Any) -> str:
    """The shapes of weights and output for query (2, 3, 5, 8), key (2, 3, 7, 8) and value (2, 3,
    7, 4).
    """
    weights, output = map(
        shape_of,
        several(answer, 2, "give two shapes: that of the weights, then that of the output"),
    )
    if weights == (2, 3, 7, 5):
        raise Wrong(
            "the weights have a row for each query and a column for each key, not the other way"
            " round."
        )
    expect(
        weights,
        (2, 3, 5, 7),
        "the weights are",
        "they hold one number for each query and key, (…, L, S)",
    )
    if output == (2, 3, 5, 8):
        raise Wrong("the output is an average of values, so its last size is theirs, Ev.")
    expect(
        output,
        (2, 3, 5, 4),
        "the output is",
        "it holds one average of values for each query, (…, L, Ev)",
    )
    return "E has gone, since the dot products add it up; S has gone, since the weighted sums do."


def _inputs(*front: int, S: int = 7, scale: float = 1.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [
        scale * torch.randn(*front, *size, generator=generator) for size in ((5, 3), (S, 3), (S, 2))
    ]


def _agrees(function: Callable[..., Any], inputs: list[Tensor], where: str, hint: str) -> None:
    query, key, value = inputs
    expected = F.scaled_dot_product_attention(query, key, value)
    output = shaped(called(function, *inputs), expected.shape, what=f"its output {where}")
    if output.isnan().any():
        raise Wrong(f"its output {where} holds NaN: {hint}")
    if not close(output, expected):
        raise Wrong(
            f"its output {where} differs from torch by {(output - expected).abs().max():.2g}:"
            f" {hint}"
        )


@exercise("scaled-dot-product-attention-2")
def attend(answer: Any) -> str:
    """A function attend(query, key, value) that works with and without a batch."""
    _agrees(answer, _inputs(), "without a batch", "compare it with the four lines of this chapter.")
    _agrees(answer, _inputs(2), "for a batch", "along which axis do its weights sum to 1?")
    _agrees(
        answer, _inputs(2, 3), "for two axes in front", "count the softmax's axis from the back."
    )
    return "dim=-1 is the keys' axis, however many axes stand in front."


class _Watching(TorchFunctionMode):
    """Take down the shapes of all results, but for axes of size 1."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[int, ...]] = set()

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.shapes.add(tuple(size for size in result.shape if size > 1))
        return result


@exercise("scaled-dot-product-attention-3")
def in_halves(answer: Any) -> str:
    """A function of query, key and value that looks at three keys at a time: keys 0 to 2,
    then 3 to 5.
    """
    hint = (
        "are the scores scaled, does what was summed before shrink when a larger score comes, and"
        " do you divide at the end?"
    )
    with _Watching() as watching:
        _agrees(answer, _inputs(S=6), "for 6 keys", hint)
    hint = "subtract the largest score so far before you take exponentials."
    _agrees(answer, _inputs(S=6, scale=40.0), "for large scores", hint)
    if watching.shapes & {(5, 6), (6, 5), (6,)}:
        raise Wrong(
            "its output is right, but there was a score for each of the 6 keys at once; look at"
            " three keys at a time."
        )
    return "At no time did all the weights, (L, S), exist: this is how fast attention saves memory."
