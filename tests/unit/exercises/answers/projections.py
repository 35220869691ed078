"""Answers to the exercises on projections."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from answers import Answers


def attention(values_from_y: bool = True, scale_of_query: bool = True) -> object:
    def attend(x: Tensor, y: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
        query, key, value = x @ w_q.T, y @ w_k.T, (y if values_from_y else x) @ w_v.T
        size = (query if scale_of_query else x).shape[-1]
        return torch.softmax(query @ key.mT / size**0.5, dim=-1) @ value

    return attend


def by_torch(x: Tensor, y: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(F.linear(x, w_q), F.linear(y, w_k), F.linear(y, w_v))


def flipped(x: Tensor, y: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor) -> Tensor:
    return torch.softmax((x @ w_q.T) @ (y @ w_k.T).transpose(0, 1) / len(w_q) ** 0.5, dim=-1) @ (
        y @ w_v.T
    )


def is_blind(tries: int, exact: bool = False, reverse: bool = False) -> object:
    def blind(function: Callable[[Tensor], Tensor]) -> bool:
        generator = torch.Generator().manual_seed(1)
        words = torch.randn(6, 4, generator=generator)
        before = function(words)
        orders = (
            [torch.arange(5, -1, -1)]
            if reverse
            else [torch.randperm(6, generator=generator) for _ in range(tries)]
        )
        return all(
            torch.allclose(function(words[o]), before[o], atol=0 if exact else 1e-4, rtol=0)
            for o in orders
        )

    return blind


def blind_to(*orders: list[int], invariant: bool = False) -> object:
    def blind(function: Callable[[Tensor], Tensor]) -> bool:
        words = torch.randn(6, 4)
        before = function(words)
        every = orders or ([5, 4, 3, 2, 1, 0],)
        return all(
            torch.allclose(function(words[o]), before if invariant else before[o], atol=1e-4)
            for o in every
        )

    return blind


def swaps(function: Callable[[Tensor], Tensor]) -> Tensor:
    words = torch.randn(4, 4, generator=torch.Generator().manual_seed(2))
    orders = [[1, 0, 2, 3], [0, 2, 1, 3], [0, 1, 3, 2]]
    return torch.stack(
        [(function(words[o]) - function(words)[o]).abs().max() < 1e-4 for o in orders]
    ).all()


THINGS_ASK_FOR_PLACES = torch.tensor([[0.0, 1, 0, 1], [0, 0, 0, 0], [4, 0, 1, 0], [0, 0, 0, 0]])
AND_FOR_ACTIONS = torch.tensor([[0.0, 1, 0, 1], [1, 0, 0, 0], [10, 0, 1, 0], [7, 0, 0, 0]])
TOO_WEAK = torch.tensor([[0.0, 1, 0, 1], [1, 0, 0, 0], [1, 0, 1, 0], [0, 0, 0, 0]])
EVERYONE = torch.tensor([[0.0, 1, 0, 1], [0, 0, 0, 0], [4, 0, 4, 0], [0, 0, 0, 0]])

ANSWERS = {
    "projections-1": Answers(
        right=(((2, 5, 3), (2, 5, 7), (2, 5, 4)), ["(2, 5, 3)", torch.Size([2, 5, 7]), [2, 5, 4]]),
        wrong=(
            (((2, 5, 8), (2, 5, 7), (2, 5, 4)), "the query has the features that w_q makes"),
            (((5, 3), (5, 7), (5, 4)), r"the query is not \(5, 3\)"),
            (((2, 5, 3), (2, 7, 5), (2, 5, 4)), "a row for each query and a column for each key"),
            (((2, 5, 3), (2, 5, 5), (2, 5, 4)), r"the weights are not \(2, 5, 5\)"),
            (((2, 5, 3), (2, 5, 7), (2, 7, 4)), "each query gets one output"),
            (((2, 5, 3), (2, 5, 7), (2, 5, 8)), "as wide as a value"),
            ((2, 5, 4), "give a shape, such as"),
        ),
    ),
    "projections-2": Answers(
        right=(attention(), by_torch),
        wrong=(
            (
                attention(values_from_y=False),
                "in cross-attention differs .* from which words do the values come",
            ),
            (
                attention(scale_of_query=False),
                "for D ≠ E differs .* whose size belongs under the root",
            ),
            (lambda x, y, w_q, w_k, w_v: x @ w_q.T, "in self-attention differs"),
            (flipped, "your function raises RuntimeError"),
        ),
    ),
    "projections-3": Answers(
        right=(THINGS_ASK_FOR_PLACES, AND_FOR_ACTIONS.tolist(), list(AND_FOR_ACTIONS)),
        wrong=(
            (TOO_WEAK, r"cat gives 0\.\d\d to on; it should be more than 0.9"),
            (EVERYONE, "word 3 looks elsewhere too"),
            (THINGS_ASK_FOR_PLACES.T, "your w_q is transposed"),
            (torch.zeros(4), r"your w_q has shape \(4,\); there should be \(4, 4\)"),
        ),
    ),
    "projections-4": Answers(
        right=(is_blind(20), swaps, lambda function: [bool(swaps(function))]),
        wrong=(
            (
                is_blind(1, reverse=True),
                "says True of attention with a window .*: one order is not enough",
            ),
            (is_blind(20, exact=True), "says False of attention alone: .* allow for rounding"),
            (blind_to(invariant=True), "says False of attention alone: shuffle its output too"),
            (
                blind_to([1, 0, 2, 3, 4, 5]),
                "says True of attention that marks the last word: one order is not enough",
            ),
            (
                blind_to([1, 2, 3, 4, 5, 0], [3, 4, 5, 0, 1, 2]),
                "closes to a ring: turning all words is not enough",
            ),
            (lambda function: True, "says True of attention with a causal mask: shuffle the words"),
            (lambda function: torch.ones(6), "return one True or False"),
            (lambda function: 0.5, "return one True or False"),
        ),
    ),
}
