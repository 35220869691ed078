"""The exercises of the chapter on heads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_widgets.exercises._checking import (
    Wrong,
    called,
    close,
    exercise,
    expect,
    random,
    several,
    shape_of,
    shaped,
    tensor,
)


@exercise("heads-1")
def shapes(answer: Any) -> str:
    """The shapes of split query, weights and joined heads for N = 2, L = 5, S = 7,
    E = 12 and H = 3.
    """
    wanted = "give three shapes: that of the split query, of the weights and of the joined heads"
    split, weights, joined = map(shape_of, several(answer, 3, wanted))
    if split == (2, 5, 3, 4):
        raise Wrong(
            "the split query still has its heads behind the words; transpose brings them behind the"
            " batch."
        )
    if split[-1:] == (12,):
        raise Wrong(
            "each head gets a slice of queries, keys and values, D = E / H wide, not all of them."
        )
    expect(split, (2, 3, 5, 4), "the split query is", "it is (N, H, L, D)")
    if weights == (2, 5, 7):
        raise Wrong(
            "the weights have shape (2, 5, 7); there should be one map for each head: did you"
            " average?"
        )
    expect(
        weights,
        (2, 3, 5, 7),
        "the weights are",
        "there is one map (L, S) for each sentence and head",
    )
    expect(
        joined,
        (2, 5, 12),
        "the joined heads are",
        "side by side they are as wide as before, (N, L, E)",
    )
    return "The heads have an axis of their own between split and join."


@exercise("heads-2")
def join(answer: Any) -> str:
    """A function that joins (N, H, L, D) to (N, L, E)."""
    heads = random(2, 3, 7, 5, seed=0)
    hints = {
        (2, 7, 3, 5): "put the last two axes together",
        (2, 21, 5): "put heads and features together, not heads and words",
    }
    joined = shaped(called(answer, heads), (2, 7, 15), hints, "its output")
    if close(joined, heads.permute(0, 2, 3, 1).reshape(2, 7, 15)):
        raise Wrong("feature 0 of all heads comes first; the features of head 0 should.")
    if close(joined, heads.reshape(2, 7, 15)):
        raise Wrong("the rows hold other words' features: transpose before you reshape.")
    if not close(joined, heads.transpose(1, 2).reshape(2, 7, 15)):
        raise Wrong(
            "row l should hold the features that head 0 has for word l, then those of head 1, and"
            " so on."
        )
    return "The head axis stands before D: head 0 first, then head 1."


@exercise("heads-3")
def attention(answer: Any) -> str:
    """A function attention(x, w_q, w_k, w_v, w_o, num_heads) for (N, L, E)."""
    x, weights = (
        random(2, 5, 12, seed=1),
        [random(12, 12, seed=seed) / 12**0.5 for seed in range(2, 6)],
    )
    turned = [weight.T for weight in weights]
    for num_heads in (1, 3, 6):
        output_name = f"its output for {num_heads} head{'s' * (num_heads > 1)}"
        output = shaped(called(answer, x, *weights, num_heads), (2, 5, 12), what=output_name)
        right = _attend(x, weights, num_heads)
        if close(output, right):
            continue
        known = {
            "apply w_o at the end": right @ torch.linalg.inv(weights[3]).T,
            "your w_o is not transposed: joined @ w_o.T": _attend(
                x, [*weights[:3], weights[3].T], num_heads
            ),
            "your w_q, w_k and w_v are not transposed: x @ w_q.T": _attend(
                x, [*turned[:3], weights[3]], num_heads
            ),
            "no matrix is transposed: x @ w_q.T": _attend(x, turned, num_heads),
            "divide the scores by √D": _attend(x, weights, num_heads, scale=1.0),
            "the scale is √D, not √E": _attend(x, weights, num_heads, scale=12**-0.5),
            "transpose before you join the heads": _attend(x, weights, num_heads, joins=False),
            "split into (N, L, H, D), then transpose": _attend(x, weights, num_heads, splits=False),
            "transpose behind the split and before the join": _attend(
                x, weights, num_heads, splits=False, joins=False
            ),
            "it attends with one head: split the features first": _attend(x, weights, 1),
        }
        told = [hint for hint, wrong in known.items() if close(output, wrong, 1e-3)]
        hint = told[0] if told else "compare it with the cells of this chapter"
        raise Wrong(f"{output_name} differs from the right one: {hint}.")
    return "It agrees with torch for 1, 3 and 6 heads."


def _attend(
    x: Tensor,
    weights: list[Tensor],
    num_heads: int,
    scale: float | None = None,
    splits: bool = True,
    joins: bool = True,
) -> Tensor:
    """Attend in each head, or as a reader does who forgets a transpose."""
    N, L, E = x.shape
    D = E // num_heads
    made = [x @ w.T for w in weights[:3]]
    q, k, v = (
        t.view(N, L, num_heads, D).transpose(1, 2) if splits else t.view(N, num_heads, L, D)
        for t in made
    )
    heads = F.scaled_dot_product_attention(q, k, v, scale=scale)
    return (heads.transpose(1, 2) if joins else heads).reshape(x.shape) @ weights[3].T


@exercise("heads-4")
def effects(answer: Any) -> str:
    """A function effects(joined, w_o, num_heads): how much the output moves without each head."""
    joined, w_o = random(5, 12, seed=8), random(12, 12, seed=9)
    found = shaped(
        tensor(called(answer, joined, w_o, 3), "its output").squeeze(),
        (3,),
        {(): "one for each head"},
        "its output",
    )
    slices, columns, rows = joined.chunk(3, dim=1), w_o.chunk(3, dim=1), w_o.chunk(3)
    right = [part @ own.T for part, own in zip(slices, columns, strict=True)]
    if close(found, _largest(right)):
        return "The output is a sum over heads, so what is missing is the part of that head."
    known = {
        "these are the slices themselves; the output comes after w_o": _largest(slices),
        "a head stays at zero when the next one is taken; start from a clone each time": _largest(
            [joined[:, : 4 * head] @ w_o[:, : 4 * head].T for head in (1, 2, 3)]
        ),
        "differences can be negative too: take absolute values before the largest": torch.stack(
            [part.max() for part in right]
        ),
        "your w_o is not transposed: the output is joined @ w_o.T": _largest(
            [part @ own for part, own in zip(slices, rows, strict=True)]
        ),
    }
    otherwise = (
        "for each head, set its D features to zero and take the largest change of the output"
    )
    raise Wrong(
        next((hint for hint, wrong in known.items() if close(found, wrong)), otherwise) + "."
    )


def _largest(parts: Sequence[Tensor]) -> Tensor:
    return torch.stack([part.abs().max() for part in parts])
