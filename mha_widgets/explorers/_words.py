"""Sentences that explorers have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mha_widgets.explorer import Fact, Word

MOST_TERMS = 8  # how many entries of a row a sentence spells out


def quoted(token: str, role: str) -> Word:
    """Set off a token, in quotes so that spaces and empty tokens can be seen."""
    return Word(f"“{token}”", role)


def number(value: float) -> str:
    """Write a number with two decimals, without where they are zeros, or with a power of ten.

    >>> number(2.9999), number(-0.25), number(1234567.0)
    ('3', '−0.25', '1.23e+06')
    """
    plain = value == 0 or 0.005 <= abs(value) < 100_000
    return (f"{value:.2f}".removesuffix(".00") if plain else f"{value:.2e}").replace("-", "−")


def vector(values: np.ndarray) -> str:
    """Write a vector's entries.

    >>> vector(np.array([3.0, 0.0, -0.5]))
    '[3, 0, −0.50]'
    """
    more = ", …" if len(values) > MOST_TERMS else ""
    return f"[{', '.join(map(number, values[:MOST_TERMS]))}{more}]"


def summed(terms: Sequence[str], most: int = MOST_TERMS) -> str:
    """Write a sum, cut after ``most`` terms.

    >>> summed(["1", "2", "3"], most=2)
    '1 + 2 + …'
    """
    return " + ".join([*terms[:most], "…"] if len(terms) > most else terms)


def strongest(query: str, keys: Sequence[str], weights: np.ndarray) -> Fact:
    """Say what a row looks at most, and what next."""
    order = np.argsort(-weights, kind="stable")
    first, open_keys = order[0], int((weights > 0).sum())
    if open_keys > 1 and weights[first] - weights[order[open_keys - 1]] < 0.005:
        return (quoted(query, "query"), f" looks evenly at {open_keys} keys ({weights[first]:.2f} each).")
    fact: Fact = (quoted(query, "query"), " looks mostly at ", quoted(keys[first], "key"), f" ({weights[first]:.2f})")
    if len(order) > 1 and weights[order[1]] > 0:
        second = order[1]
        return (*fact, ", then at ", quoted(keys[second], "key"), f" ({weights[second]:.2f}).")
    return (*fact, ".") if len(order) == 1 else (*fact, " and at nothing else.")


def row_in_numbers(keys: Sequence[str], scores: np.ndarray, weights: np.ndarray, keep: np.ndarray) -> Fact:
    """Spell out a row, from each score to its weight."""
    parts: list[str | Word] = ["Score → weight: "]
    for index, key in enumerate(keys[:MOST_TERMS]):
        weight = f"{number(scores[index])} → {weights[index]:.2f}" if keep[index] else "blocked"
        parts += [", " if index else "", quoted(key, "key"), f" {weight}"]
    rest = len(keys) - MOST_TERMS
    return (*parts, f" and {rest} more." if rest > 0 else ".")
