"""The exercises of the chapter on softmax and scaling."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from mha_widgets.exercises._checking import (
    Wrong,
    as_number,
    called,
    close,
    exercise,
    several,
    shaped,
)

SAT_SCORES = torch.tensor([0.0, 6, 0, 0, 0, 3])
FIRST_SIZE, SIZES = 64, (2, 4, 8, 16, 32, 64, 128)


@exercise("softmax-and-scaling-1")
def spreads(answer: Any) -> str:
    """The standard deviation before and after the division,
    of entries with standard deviation 2 and E = 64.
    """
    before, after = map(as_number, several(answer, 2, "give two numbers, (before, after)"))
    if abs(before - 1024) < 50:
        raise Wrong("1024 is the variance; its root is asked for.")
    if abs(before - 8) < 0.5:
        raise Wrong("8 is for entries with standard deviation 1: here one product spreads by more.")
    if abs(before - 16) < 1:
        raise Wrong(
            "both the query and the key are twice as wide: a product of the two spreads by 2 × 2."
        )
    if not abs(before - 32) < 2:
        raise Wrong(
            f"before the division it is not {before:g}: take the spread of one product times √64."
        )
    if not abs(after - 4) < 0.25:
        raise Wrong(f"after the division it is not {after:g}: divide the first number by √64.")
    return "The usual scale assumes entries with standard deviation 1: here it leaves 4."


@exercise("softmax-and-scaling-2")
def attend(answer: Any) -> str:
    """A function attend(query, key, value) that scales by its features,
    with and without a batch.
    """
    generator = torch.Generator().manual_seed(0)
    for front, S, E in (((), 4, 4), ((), 7, 4), ((2,), 7, 4), ((2, 3), 5, 9)):
        inputs = [
            torch.randn(*front, *size, generator=generator) for size in ((6, E), (S, E), (S, 3))
        ]
        query, key, value = inputs
        expected = F.scaled_dot_product_attention(query, key, value)
        output = shaped(
            called(answer, *inputs), expected.shape, what=f"its output for S = {S} and E = {E}"
        )
        if not close(output, expected):
            off = (
                f"its output for S = {S} and E = {E} differs from torch by"
                f" {(output - expected).abs().max():.2g}"
            )
            raise Wrong(f"{off}: how many products does one score add up?")
    return (
        "The last axis of query and key is E, however many axes stand in front. Its test had S = E."
    )


@exercise("softmax-and-scaling-3")
def temperature(answer: Any) -> str:
    """The temperature that leaves 4 effective keys."""
    found = as_number(answer, "your temperature")
    if not 0 < found < float("inf"):
        raise Wrong("a temperature is a number above 0.")
    left = torch.special.entr((SAT_SCORES / found).softmax(dim=-1)).sum().exp().item()
    if abs(left - 4) > 0.02:
        raise Wrong(
            f"at {found:g} there are {left:.2f} effective keys: go"
            f" {'hotter' if left < 4 else 'colder'}."
        )
    return f"At {found:.2f} there are {left:.2f} effective keys."


@exercise("softmax-and-scaling-4")
def first_size(answer: Any) -> str:
    """The first E with fewer than 2 effective keys in the median row, of 64 keys."""
    size = as_number(answer, "your E")
    if size not in SIZES:
        raise Wrong(f"{size:g} is none of {', '.join(map(str, SIZES))}.")
    if size < FIRST_SIZE:
        raise Wrong(
            f"at E = {size:g} the median row has more than 2 keys left: are there 64 keys, and no"
            " scale?"
        )
    if size > FIRST_SIZE:
        raise Wrong(f"at E = {size:g} it has fewer than 2, but so it has before that.")
    return (
        "Four times the keys don't help for long: without the scale 64 features are enough for"
        " chance to decide."
    )
