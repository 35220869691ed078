"""Answers to the exercises on the mask arguments."""

from typing import Any

import torch
from torch import Tensor

from answers import Answers


def decoder_mask(lengths: list[int], L: int, num_heads: int) -> Tensor:
    real = torch.arange(L) < torch.tensor(lengths)[:, None]
    return ~(torch.ones(L, L).tril().bool() & real[:, None]).repeat_interleave(num_heads, dim=0)


def decoder_mask_in_loops(lengths: list[int], L: int, num_heads: int) -> list[Any]:
    return [
        [[j > i or j >= length for j in range(L)] for i in range(L)]
        for length in lengths
        for _ in range(num_heads)
    ]


def one_after_the_other(lengths: list[int], L: int, num_heads: int) -> list[Tensor]:
    tables = []
    while lengths:
        tables += list(decoder_mask([lengths.pop(0)], L, num_heads))
    return tables


def as_it_was(lengths: list[int], L: int, num_heads: int) -> Tensor:
    return both(lengths, L).expand(num_heads, -1, -1, -1).flatten(0, 1)


def both(lengths: list[int], L: int) -> Tensor:
    return (
        torch.ones(L, L).triu(1).bool()
        & (torch.arange(L) >= torch.tensor(lengths)[:, None])[:, None]
    )


def repeated(lengths: list[int], L: int, num_heads: int) -> Tensor:
    return decoder_mask(lengths, L, 1).repeat(num_heads, 1, 1)


def distance_mask(N: int, L: int, slopes: list[float]) -> Tensor:
    steps = (torch.arange(L)[:, None] - torch.arange(L)).abs()
    return (-torch.tensor(slopes)[:, None, None] * steps).repeat(N, 1, 1)


def distance_mask_in_loops(N: int, L: int, slopes: list[float]) -> list[Any]:
    return [
        [[-slope * abs(i - j) for j in range(L)] for i in range(L)]
        for _ in range(N)
        for slope in slopes
    ]


def signed(N: int, L: int, slopes: list[float]) -> Tensor:
    return (
        -torch.tensor(slopes)[:, None, None] * (torch.arange(L)[:, None] - torch.arange(L))
    ).repeat(N, 1, 1)


ANSWERS = {
    "mask-arguments-1": Answers(
        right=(
            ((3, 7), (12, 5, 7), 6),
            ["(3, 7)", torch.Size([12, 5, 7]), torch.tensor(6)],
            (torch.zeros(3, 7), [12, 5, 7], "6"),
        ),
        wrong=(
            (((7, 3), (12, 5, 7), 6), r"^Not yet: \(a\) is not \(7, 3\): a row is a sentence"),
            (((3, 7), (3, 5, 7), 6), r"\(b\) is not \(3, 5, 7\): sentences and heads share"),
            (
                ((3, 5, 7), (12, 5, 7), 6),
                r"^Not yet: \(a\) is not \(3, 5, 7\): which of N, H, L and S",
            ),
            (((3, 7), (12, 7, 5), 6), r"\(b\) is not \(12, 7, 5\): in a table, a row is a query"),
            (((3, 7), (4, 5, 7), 6), r"\(b\) is not \(4, 5, 7\): which of N, H, L and S"),
            (((3, 7), (12, 5, 7), 7), r"\(c\) is not 7: h · N \+ n would be right"),
            (((3, 7), (12, 5, 7), 2), r"\(c\) is not 2: sentence 0 has the tables 0 to 3"),
            (((3, 7), (12, 5, 7), (1, 2)), r"\(c\) holds 2 numbers; give one"),
            ((3, 7), "give two shapes and a number"),
        ),
    ),
    "mask-arguments-2": Answers(
        right=(decoder_mask, decoder_mask_in_loops, one_after_the_other),
        wrong=(
            (as_it_was, "this is the function as it was"),
            (repeated, "table 1 belongs to sentence 0, head 1"),
            (
                lambda lengths, L, H: both(lengths, L).repeat_interleave(H, dim=0),
                "only if both masks block it",
            ),
            (lambda *a: ~decoder_mask(*a), "it is the wrong way round"),
            (lambda *a: decoder_mask(*a).float(), "your mask holds torch.float32; a boolean one"),
            (
                lambda *a: decoder_mask(*a)[::3],
                r"there should be \(9, 6, 6\): one table for each head too",
            ),
            (
                lambda lengths, L, H: decoder_mask(lengths, max(lengths), H),
                r"shape \(9, 5, 5\); there should be \(9, 6, 6\)",
            ),
            (
                lambda lengths, L, H: decoder_mask(lengths, L, 2),
                r"shape \(6, 6, 6\); there should be \(9, 6, 6\)",
            ),
            (
                lambda lengths, L, H: decoder_mask([5] * 3, L, H),
                (
                    r"L = 6 and 3 heads, query 2 → key 2 of table 3 \(sentence 1, head 0\) should"
                    r" be blocked"
                ),
            ),
            (decoder_mask([5, 2, 4], 5, 2), "pass the function itself"),
        ),
    ),
    "mask-arguments-3": Answers(
        right=(distance_mask, distance_mask_in_loops, lambda *a: list(distance_mask(*a))),
        wrong=(
            (lambda *a: -distance_mask(*a), "far keys count more"),
            (
                lambda N, L, s: distance_mask(1, L, s).repeat_interleave(N, dim=0),
                "table 1 belongs to head 1 of sentence 0",
            ),
            (signed, "later keys get a bonus"),
            (lambda N, L, s: distance_mask(1, L, s), "N copies of it, one for each sentence"),
            (lambda *a: distance_mask(*a) < 0, "your mask holds torch.bool; it is added"),
            (lambda *a: 2 * distance_mask(*a), "not minus slope times distance"),
        ),
    ),
}
