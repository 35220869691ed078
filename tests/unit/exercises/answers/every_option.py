"""Answers to the exercises on the options of the constructor."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from answers import Answers


def dropped(weights: Tensor, p: float) -> Tensor:
    return weights * (torch.rand(weights.shape) >= p) / (1 - p)


def as_it_was(weights: Tensor, p: float) -> Tensor:
    kept = weights * (torch.rand(weights.shape) < p)
    return kept / kept.sum(dim=-1, keepdim=True)


def renormalised(weights: Tensor, p: float) -> Tensor:
    return as_it_was(weights, 1 - p)


def with_nobody(scores: Tensor) -> Tensor:
    largest = scores.amax(dim=-1, keepdim=True).clamp(min=0)
    exponentials = (scores - largest).exp()
    return exponentials / (exponentials.sum(dim=-1, keepdim=True) + (-largest).exp())


def with_nobody_appended(scores: Tensor) -> list[Any]:
    return (
        torch.cat([scores, torch.zeros(*scores.shape[:-1], 1)], dim=-1)
        .softmax(dim=-1)[..., :-1]
        .tolist()
    )


def in_place(scores: Tensor) -> Tensor:
    largest = scores.amax(dim=-1, keepdim=True).clamp(min=0)
    scores.sub_(largest).exp_()
    return scores.div_(scores.sum(dim=-1, keepdim=True) + (-largest).exp())


def careless(scores: Tensor) -> Tensor:
    return scores.exp() / (1 + scores.exp().sum(dim=-1, keepdim=True))


def never_shrunk(scores: Tensor) -> Tensor:
    exponentials = (scores - scores.amax(dim=-1, keepdim=True)).exp()
    return exponentials / (1 + exponentials.sum(dim=-1, keepdim=True))


def not_clamped(scores: Tensor) -> Tensor:
    largest = scores.amax(dim=-1, keepdim=True)
    exponentials = (scores - largest).exp()
    return exponentials / (
        (-largest).exp().clamp(max=1e38) + exponentials.sum(dim=-1, keepdim=True)
    )


ANSWERS = {
    "every-option-1": Answers(
        right=(
            ((2, 3, 5, 9), (2, 7), 600),
            ["(2, 3, 5, 9)", torch.Size([2, 7]), torch.tensor(600)],
            (torch.zeros(2, 3, 5, 9), [2, 7], "600"),
        ),
        wrong=(
            (((2, 3, 5, 7), (2, 7), 600), r"^Not yet: \(a\) is not .* two keys are appended"),
            (((2, 3, 7, 9), (2, 7), 600), r"\(a\) is not .* only the axis of the keys"),
            (((2, 5, 9), (2, 7), 600), r"\(a\) is not .* each head has its own"),
            (((2, 3, 5, 9), (2, 9), 600), r"\(b\) is not \(2, 9\): the module widens the mask"),
            (
                ((2, 3, 5, 9), (2, 5, 9), 600),
                r"^Not yet: \(b\) is not \(2, 5, 9\): which of N, H, L and S",
            ),
            (((2, 3, 5, 9), (7, 2), 600), r"\(b\) is not \(7, 2\): which of N, H, L and S"),
            (((2, 3, 5, 9), (2, 7), 576), r"\(c\) is not 576: bias_k and bias_v are learned too"),
            (((2, 3, 5, 9), (2, 7), 648), r"\(c\) is not 648: bias=False takes away"),
            (((2, 3, 5, 9), (2, 7), 12), r"\(c\) is not 12: count four matrices"),
            (((2, 3, 5, 9), (2, 7), [600, 1]), r"\(c\) holds 2 numbers; give one"),
            (((2, 3, 5, 9), (2, 7), float("nan")), r"\(c\) is not nan: count"),
            ((2, 3, 5, 9), "give two shapes and a number"),
        ),
    ),
    "every-option-2": Answers(
        right=(
            dropped,
            F.dropout,
            lambda weights, p: F.dropout(weights, p, inplace=True),
            lambda weights, p: [dropped(row, p) for row in weights],
        ),
        wrong=(
            (as_it_was, "a share of 0.80 is 0: p is the probability to be dropped"),
            (renormalised, "every row sums to 1, so a weight that stays"),
            (
                lambda weights, p: dropped(weights, p) * (1 - p),
                "on average over many draws, that is too little",
            ),
            (lambda weights, p: dropped(weights, p) * (1 - p) / p, "one and the same factor"),
            (
                lambda weights, p: weights * (torch.rand(len(weights), 1) >= p) / (1 - p),
                "whole rows or columns",
            ),
            (lambda weights, p: weights, "no weight was dropped"),
            (lambda weights, p: None, "your function returns nothing"),
        ),
    ),
    "every-option-3": Answers(
        right=(
            with_nobody,
            with_nobody_appended,
            in_place,
            lambda scores: [with_nobody(part) for part in scores],
        ),
        wrong=(
            (lambda scores: scores.softmax(dim=-1), "the rows sum to 1, so nothing is left"),
            (careless, "for scores of 1,000 and −1,000: NaN or inf comes out"),
            (never_shrunk, "not the weights beside a key of score 0; does its term shrink"),
            (not_clamped, "where scores are −∞: NaN or inf comes out"),
            (
                lambda scores: F.pad(scores, (0, 1)).softmax(dim=-1),
                "return the S columns of the words only",
            ),
            (torch.zeros(4, 5), "pass the function itself"),
        ),
    ),
}
