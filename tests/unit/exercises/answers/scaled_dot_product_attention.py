"""Answers to the exercises on scaled dot-product attention."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from answers import Answers


def attend(dim: int, scale: bool = True) -> object:
    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        scores = query @ key.transpose(-2, -1) / (math.sqrt(query.shape[-1]) if scale else 1)
        return torch.softmax(scores, dim=dim) @ value

    return attention


def in_halves(shrink: bool = True, safe: bool = True) -> object:
    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        largest = torch.full((len(query), 1), -math.inf if safe else 0.0)
        total, mixed = torch.zeros(len(query), 1), torch.zeros(len(query), value.shape[1])
        for start in range(0, len(key), 3):
            part = query @ key[start : start + 3].T / math.sqrt(query.shape[1])
            new = torch.maximum(largest, part.amax(dim=-1, keepdim=True)) if safe else largest
            factor = (largest - new).exp() if shrink else 1
            exponentials = (part - new).exp()
            total = total * factor + exponentials.sum(dim=-1, keepdim=True)
            mixed, largest = mixed * factor + exponentials @ value[start : start + 3], new
        return mixed / total

    return attention


def first_and_second(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    halves = [
        query @ key[keys].T / math.sqrt(query.shape[1]) for keys in (slice(0, 3), slice(3, 6))
    ]
    largest = torch.maximum(*(half.amax(dim=-1, keepdim=True) for half in halves))
    first, second = ((half - largest).exp() for half in halves)
    total = first.sum(dim=-1, keepdim=True) + second.sum(dim=-1, keepdim=True)
    return (first @ value[0:3] + second @ value[3:6]) / total


def row_by_row(query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
    return [in_halves()(row[None], key, value)[0] for row in query]


def all_keys_of_a_row(query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
    return [torch.softmax(key @ row / math.sqrt(len(row)), dim=0) @ value for row in query]


def joined_scores(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    scores = torch.cat([query @ half.T for half in key.split(3)], dim=-1)
    return torch.softmax(scores / math.sqrt(query.shape[-1]), dim=-1) @ value


ANSWERS = {
    "scaled-dot-product-attention-1": Answers(
        right=(
            ((2, 3, 5, 7), (2, 3, 5, 4)),
            ["(2, 3, 5, 7)", torch.Size([2, 3, 5, 4])],
            torch.tensor([[2, 3, 5, 7], [2, 3, 5, 4]]),
        ),
        wrong=(
            (((2, 3, 7, 5), (2, 3, 5, 4)), "a row for each query and a column for each key"),
            (((2, 3, 5, 7), (2, 3, 5, 8)), "the output is an average of values"),
            (((5, 7), (5, 4)), r"the weights are not \(5, 7\)"),
            ((2, 3), "give a shape, such as"),
        ),
    ),
    "scaled-dot-product-attention-2": Answers(
        right=(attend(-1), F.scaled_dot_product_attention),
        wrong=(
            (
                attend(1),
                "for a batch differs from torch .* along which axis do its weights sum to 1\\?$",
            ),
            (attend(-2), "without a batch differs from torch"),
            (attend(2), r"your function raises IndexError"),
            (lambda query, key, value: None, "returns nothing"),
            (3, "the answer is of type int; pass the function itself"),
        ),
    ),
    "scaled-dot-product-attention-3": Answers(
        right=(in_halves(), first_and_second, row_by_row, F.scaled_dot_product_attention),
        wrong=(
            (in_halves(shrink=False), "for 6 keys differs .* does what was summed before shrink"),
            (attend(-1), "right, but there was a score for each of the 6 keys at once"),
            (all_keys_of_a_row, "right, but there was a score for each of the 6 keys at once"),
            (joined_scores, "right, but there was a score for each of the 6 keys at once"),
            (attend(-1, scale=False), "for 6 keys differs .* are the scores scaled"),
            (
                in_halves(safe=False),
                "for large scores holds NaN: subtract the largest score so far",
            ),
        ),
    ),
}
