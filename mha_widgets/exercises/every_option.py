"""The exercises of the chapter on the options of the constructor."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_widgets.exercises._checking import (
    Wrong,
    as_number,
    called,
    close,
    exercise,
    expect,
    random,
    several,
    shape_of,
    shaped,
)


@exercise("every-option-1")
def shapes_and_number(answer: Any) -> str:
    """Two shapes and the number of parameters of a
    module without biases and with two appended keys.
    """
    a, b, c = several(answer, 3, "give two shapes and a number, (a, b, c)")
    default = "which of N, H, L and S does it need, and does it grow?"
    hints = {
        (2, 3, 5, 7): "two keys are appended",
        (2, 3, 7, 9): "only the axis of the keys, S, grows",
        (4, 3, 5, 7): "only the axis of the keys, S, grows",
        (2, 5, 9): "with average_attn_weights=False each head has its own",
    }
    expect(shape_of(a), (2, 3, 5, 9), "(a) is", default, hints)
    expect(shape_of(b), (2, 7), "(b) is", default, {(2, 9): "the module widens the mask itself"})
    counts = {
        576: "bias_k and bias_v are learned too, E numbers each",
        648: "bias=False takes away the biases of all four projections",
        624: "bias=False takes away the biases of all four projections",
        588: "there are two of them, bias_k and bias_v",
    }
    expect(
        as_number(c, "(c)"), 600, "(c) is", "count four matrices, and what add_bias_kv adds", counts
    )
    return "(N, H, L, S + 2), (N, S) and 4 · E · E + 2 · E."


@exercise("every-option-2")
def dropped(answer: Any) -> str:
    """A function of weights and p: each weight 0 with probability p,
    the others divided by 1 - p.
    """
    weights, p = random(400, 25, seed=3).softmax(dim=-1), 0.2
    found = shaped(called(answer, weights, p), (400, 25), what="what your function returns")
    ratio = found.double() / weights.double()
    zero = ratio == 0
    share = zero.double().mean().item()
    if share == 0:
        raise Wrong("no weight was dropped.")
    if (zero == zero[:, :1]).all() or (zero == zero[:1]).all():
        raise Wrong("whole rows or columns are dropped; each weight is to have its own chance.")
    if abs(share - p) > 0.03:
        raise Wrong(f"for p = {p} a share of {share:.2f} is 0: p is the probability to be dropped.")
    if close(found.sum(dim=-1), torch.ones(400)):
        raise Wrong(
            "every row sums to 1, so a weight that stays grows by more or less, as its neighbours"
            " are dropped."
        )
    kept = ratio[~zero]
    if close(kept, torch.ones_like(kept)):
        raise Wrong(
            "the weights that stay are as they were; on average over many draws, that is too"
            " little."
        )
    if not close(kept, torch.full_like(kept, 1 / (1 - p))):
        raise Wrong(
            "the weights that stay should all grow by one and the same factor: which makes the mean"
            " right?"
        )
    return "Each weight is dropped with probability p, and the others are divided by 1 − p."


@exercise("every-option-3")
def with_nobody(answer: Any) -> str:
    """A function of scores (..., L, S): the weights that they keep beside a key of score 0."""
    for scores in (2 * random(2, 3, 4, 5, seed=4), 2 * random(4, 6, seed=5)):
        _compare(answer, scores)
    large = torch.tensor([[1000.0, 999.0, -3.0], [-1000.0, -1000.0, -1000.0]])
    _compare(answer, large, "for scores of 1,000 and −1,000: ")
    blocked = torch.tensor([[0.5, -math.inf, 2.0], [-math.inf] * 3])
    _compare(answer, blocked, "where scores are −∞: ")
    return "What is missing from 1 in a row went to nobody."


def _compare(function: Any, scores: Tensor, where: str = "") -> None:
    S = scores.shape[-1]
    hints = {(*scores.shape[:-1], S + 1): "return the S columns of the words only"}
    found = shaped(called(function, scores), scores.shape, hints, what="what your function returns")
    expected = F.pad(scores, (0, 1)).softmax(dim=-1)[..., :-1]
    if not found.isfinite().all():
        raise Wrong(
            f"{where}NaN or inf comes out; which number is safe to take off all scores first?"
        )
    if close(found, scores.softmax(dim=-1)):
        raise Wrong(f"{where}the rows sum to 1, so nothing is left for the zero key.")
    if not close(found, expected):
        raise Wrong(
            f"{where}these are not the weights beside a key of score 0; does its term shrink with"
            " the others?"
        )
