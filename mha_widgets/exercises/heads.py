"""The exercises of the chapter on heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_widgets.exercises._checking import Wrong, called, close, exercise, random, shape_of, shaped


@exercise("heads-1")
def shapes(answer: Any) -> str:
    """The shapes of split query, weights and joined heads for N = 2, L = 5, S = 7, E = 12 and H = 3."""
    if not isinstance(answer, (tuple, list)) or len(answer) != 3:
        raise Wrong("give three shapes: that of the split query, of the weights and of the joined heads.")
    split, weights, joined = map(shape_of, answer)
    if split == (2, 5, 3, 4):
        raise Wrong("the split query still has its heads behind the words; transpose brings them behind the batch.")
    if split[-1:] == (12,):
        raise Wrong("each head gets a slice of the features, D = E / H, not all of them.")
    if split != (2, 3, 5, 4):
        raise Wrong(f"the split query is not {split}: it is (N, H, L, D).")
    if weights == (2, 5, 7):
        raise Wrong("the weights have shape (2, 5, 7); there should be one map for each head: did you average?")
    if weights != (2, 3, 5, 7):
        raise Wrong(f"the weights are not {weights}: there is one map (L, S) for each sentence and head.")
    if joined != (2, 5, 12):
        raise Wrong(f"the joined heads are not {joined}: side by side they are as wide as before, (N, L, E).")
    return "The heads have an axis of their own between split and join."


@exercise("heads-2")
def join(answer: Any) -> str:
    """A function that joins (N, H, L, D) to (N, L, E)."""
    heads = random(2, 3, 5, 4, seed=0)
    hints = {(2, 5, 3, 4): "put the last two axes together", (2, 15, 4): "put heads and features together, not heads and words"}
    joined = shaped(called(answer, heads), (2, 5, 12), hints, "its output")
    if close(joined, heads.permute(0, 2, 3, 1).reshape(2, 5, 12)):
        raise Wrong("feature 0 of all heads comes first; the features of head 0 should.")
    if close(joined, heads.reshape(2, 5, 12)):
        raise Wrong("the rows hold other words' features: transpose before you reshape.")
    if not close(joined, heads.transpose(1, 2).reshape(2, 5, 12)):
        raise Wrong("row l should hold the features that head 0 has for word l, then those of head 1, and so on.")
    return "The head axis stands before D: head 0 first, then head 1."


@exercise("heads-3")
def attention(answer: Any) -> str:
    """A function attention(x, w_q, w_k, w_v, w_o, num_heads) for (N, L, E)."""
    x, weights = random(2, 5, 12, seed=1), [random(12, 12, seed=seed) / 12**0.5 for seed in range(2, 6)]
    turned = [weight.T for weight in weights]
    for num_heads in (1, 3, 6):
        output = shaped(called(answer, x, *weights, num_heads), (2, 5, 12), what=f"its output for {num_heads} heads")
        right = _attend(x, weights, num_heads)
        if close(output, right):
            continue
        known = {
            "apply w_o at the end": right @ torch.linalg.inv(weights[3]).T,
            "your w_o is not transposed: joined @ w_o.T": _attend(x, [*weights[:3], weights[3].T], num_heads),
            "your w_q, w_k and w_v are not transposed: x @ w_q.T": _attend(x, [*turned[:3], weights[3]], num_heads),
            "no matrix is transposed: x @ w_q.T": _attend(x, turned, num_heads),
            "the scale is √D, not √E": _attend(x, weights, num_heads, scale=12**-0.5),
            "transpose before you join the heads": _attend(x, weights, num_heads, transposed=False),
            "it attends with one head: split the features first": _attend(x, weights, 1),
        }
        told = [hint for hint, wrong in known.items() if close(output, wrong, 1e-3)]
        hint = told[0] if told else "compare it with the cells of this chapter"
        raise Wrong(f"its output for {num_heads} head{'s' * (num_heads > 1)} differs from the right one: {hint}.")
    return "It agrees with torch for 1, 3 and 6 heads."


def _attend(x: Tensor, weights: list[Tensor], num_heads: int, scale: float | None = None, transposed: bool = True) -> Tensor:
    q, k, v = ((x @ w.T).unflatten(-1, (num_heads, -1)).transpose(1, 2) for w in weights[:3])
    heads = F.scaled_dot_product_attention(q, k, v, scale=scale)
    return (heads.transpose(1, 2) if transposed else heads).reshape(x.shape) @ weights[3].T


@exercise("heads-4")
def effects(answer: Any) -> str:
    """A function effects(joined, w_o, num_heads): how much the output moves without each head."""
    joined, w_o = random(5, 12, seed=8), random(12, 12, seed=9)
    made = called(answer, joined, w_o, 3)
    if isinstance(made, (list, tuple)):
        made = [number.item() if isinstance(number, Tensor) and number.numel() == 1 else number for number in made]
    found = shaped(made, (3,), what="its output")
    slices, columns, rows = joined.chunk(3, dim=1), w_o.chunk(3, dim=1), w_o.chunk(3)
    right = [part @ own.T for part, own in zip(slices, columns, strict=True)]
    if close(found, _largest(right)):
        return "The output is a sum over heads, so what is missing is the part of that head."
    known = {
        "these are the slices themselves; the output comes after w_o": _largest(slices),
        "differences can be negative too: take absolute values before the largest": torch.stack([part.max() for part in right]),
        "your w_o is not transposed: the output is joined @ w_o.T": _largest(
            [part @ own for part, own in zip(slices, rows, strict=True)]
        ),
    }
    told = [hint for hint, wrong in known.items() if close(found, wrong)]
    raise Wrong(f"{told[0] if told else 'for each head, set its D features to zero and see by how much the output moves'}.")


def _largest(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack([part.abs().max() for part in parts])
