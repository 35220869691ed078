"""What a head looks at in most rows, in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from mha_widgets.kit.words import listed
from mha_widgets.view import Fact


def habit(weights: np.ndarray, tokens: Sequence[str]) -> tuple[str, float] | None:
    """Return the place that gets more than half of the weight, in most rows and on average,
    and its average; or None.

    >>> habit(np.array([[1.0, 0.0], [0.25, 0.75]]), ["a", "b"])
    ('itself', 0.875)
    >>> habit(np.full((2, 2), 0.5), ["a", "b"])
    """
    places = {"itself": np.diagonal(weights)}
    if len(weights) > 1:
        places |= {
            "the previous token": np.diagonal(weights, -1),
            "the next token": np.diagonal(weights, 1),
        }
    places |= {_fixed(tokens, j): column for j, column in enumerate(weights.T)}
    shares = {place: float(rows.mean()) for place, rows in places.items()}
    found = {
        place: round(share, 5)
        for place, share in shares.items()
        if min(share, np.median(places[place])) > 0.505
    }
    return max(found.items(), key=lambda one: one[1]) if found else None  # of equal ones the first


def habits(maps: Mapping[int, np.ndarray], tokens: Sequence[str], averaged: bool) -> Fact:
    """Say what each head looks at, and which ones have no habit.

    >>> maps = {0: np.eye(3), 1: np.full((3, 3), 1 / 3), 2: np.eye(3)}
    >>> habits(maps, ["a", "b", "c"], averaged=False)[0].split(": ")[1]
    'itself in heads 0, 2 (1.00, 1.00), none in head 1.'
    """
    found: dict[str, dict[int, float]] = {}
    rest = []
    for head, weights in maps.items():
        if told := habit(weights, tokens):
            found.setdefault(told[0], {})[head] = told[1]
        else:
            rest.append(head)
    if not found:
        have = "has" if len(rest) == 1 else "have"
        return (
            f"{_heads(rest).capitalize()} {have} no habit: in most rows no place gets more than "
            "half of the weight, be it the token itself, a neighbour or one fixed token.",
        )
    habitual = []
    for place, shares in found.items():
        numbers = [f"{share:.2f}" for share in shares.values()]
        habitual.append(f"{place} in {_heads(shares)} ({listed(numbers)})")
    habitual += [f"none in {_heads(rest)}"] if rest else []
    start = "Behind the mean, a" if averaged else "A"
    return (
        (
            f"{start} head's habit is what gets more than half of the weight in most rows:"
            f" {listed(habitual)}."
        ),
    )


def _fixed(tokens: Sequence[str], index: int) -> str:
    if index == 0:
        return "the first token"
    return f"key {index}" if tokens[index] == str(index) else f"“{tokens[index]}” (key {index})"


def _heads(heads: Iterable[int]) -> str:
    numbers = [str(head) for head in heads]
    return f"head {numbers[0]}" if len(numbers) == 1 else f"heads {listed(numbers)}"
