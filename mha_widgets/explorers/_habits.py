"""What a head looks at in most rows, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from mha_widgets.explorer import Fact

MOST_TOLD = 8


def habit(weights: np.ndarray) -> tuple[str, float]:
    """Return where a head looks, and how much of a token's weight goes there on average.

    >>> habit(np.array([[1.0, 0.0], [0.25, 0.75]]))
    ('itself', 0.875)
    """
    shares = {"itself": np.diagonal(weights).mean()}
    if len(weights) > 1:
        shares |= {"the previous token": np.diagonal(weights, -1).mean(), "the next token": np.diagonal(weights, 1).mean()}
    shares |= {f"key {j}" if j else "the first token": share for j, share in enumerate(weights.mean(axis=0))}
    best = max(shares, key=lambda place: round(float(shares[place]), 5))  # of equal ones the first
    return best, round(float(shares[best]), 5)


def habits(maps: Mapping[int, np.ndarray], averaged: bool) -> Fact:
    """Say what each head looks at, and which ones have no habit.

    >>> habits({0: np.eye(3), 1: np.full((3, 3), 1 / 3)}, averaged=False)
    ('On average a token looks in head 0 at itself (1.00); head 1 has no habit.',)
    """
    found = {head: habit(weights) for head, weights in maps.items()}
    told = [f"in head {head} at {place} ({share:.2f})" for head, (place, share) in found.items() if share >= 0.5]
    rest = [str(head) for head, (_, share) in found.items() if share < 0.5]
    if not told:
        return (f"{_have(rest)} no habit: neither itself, nor a neighbour, nor one fixed token gets half of a token's weight.",)
    start = "Behind the mean, a token looks " if averaged else "On average a token looks "
    return (start + _listed(told) + (f"; {_have(rest).lower()} no habit." if rest else "."),)


def _have(heads: Sequence[str]) -> str:
    return f"Head {heads[0]} has" if len(heads) == 1 else f"Heads {_listed(heads)} have"


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words[:MOST_TOLD]) + (", …" if len(words) > MOST_TOLD else "")
