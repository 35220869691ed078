"""Answers to the exercises on dot products."""

import torch
from torch import Tensor
from torch.nn import functional as F

from answers import Answers


def lookup(dim: int) -> object:
    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return torch.softmax(query @ key.T, dim=dim) @ value

    return attention


def unpaired(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.softmax((query * key).sum(dim=-1), dim=-1) @ value


def loop(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.stack([unpaired(one, key, value) for one in query])


def in_place(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    query @= key.T @ key
    return loop(query @ torch.linalg.inv(key.T @ key), key, value)


ANSWERS = {
    "dot-products-1": Answers(
        right=(
            ((6,), (2, 6), (2, 3)),
            ["(6,)", torch.Size([2, 6]), [2, 3]],
            [torch.ones(6), torch.ones(2, 6), torch.ones(2, 3)],
        ),
        wrong=(
            (
                ((6, 4), (2, 6), (2, 3)),
                r"the scores of one query are not \(6, 4\): the axis E is added up",
            ),
            (((6,), (6, 2), (2, 3)), "two queries have a row each"),
            (((6,), (2, 6), (2, 4)), r"the output is not \(2, 4\): one average of values"),
            ((6, (2, 6), (2, 3)), r"one axis is written with a comma, \(6,\)"),
            ((2, 6), "give three shapes"),
        ),
    ),
    "dot-products-2": Answers(
        right=(
            lookup(-1),
            loop,
            in_place,
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=1.0),
            lambda q, k, v: list(loop(q, k, v)),
            lambda q, k, v: loop(q.double(), k.double(), v.double()).numpy(),
        ),
        wrong=(
            (
                unpaired,
                r"has shape \(3,\); there should be \(6, 3\): it compares query i with key i only",
            ),
            (lookup(0), "for 6 queries and 6 keys is off by .* do the rows of weights sum to 1"),
            (lambda q, k, v: (q * k).softmax(dim=-1) @ v, "your function raises RuntimeError"),
            (F.scaled_dot_product_attention, "is off by"),
        ),
    ),
    "dot-products-3": Answers(
        right=(
            [0, 0, 2, 4],
            torch.tensor([-1.0, 0, 1, 3]),
            (0, -1, 0, 4),
            list(torch.tensor([0.0, 0, 2, 4])),
        ),
        wrong=(
            ([0, 0, 1, 2], '"on" gets 0.80: ask more strongly'),
            ([0, 0, 4, 0], '"on" gets .*, and another word more'),
            ([-4, -4, -4, 4], '"on" gets 0.50: ask more strongly, or push away'),
            ([0, 0, 10, 20], "outside −4 to 4"),
            ([[0, 0, 2, 4]], "drop the outer brackets"),
        ),
    ),
    "dot-products-4": Answers(
        right=((0.25, 1.0), torch.tensor([0.23, 0.999]), ["0.25", torch.tensor([1.0])]),
        wrong=(
            ((0.97, 1.0), "for E = 64, 0.97 is not what noise three times as strong"),
            ((260, 1000), "a share lies between 0 and 1"),
            ((float("nan"), 1.0), "for E = 64, nan is not what noise"),
            (0.25, "give two shares"),
            ((0.26, 0.5), "for E = 1024, 0.50 is too few"),
        ),
    ),
}
