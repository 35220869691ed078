"""Sentences that explorers have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mha_widgets.view import Fact, Word

MOST_TERMS = 8  # how many entries of a row a sentence spells out
MOST_TOLD = 8  # how many things a sentence lists
MOST_NAMED = 3  # how many keys of one weight it names


def quoted(token: str, role: str) -> Word:
    """Set off a token, in quotes so that spaces and empty tokens can be seen."""
    return Word(f"“{token}”", role)


def format_number(value: float) -> str:
    """Write a number with two decimals, without where they are zeros, or with a power of ten.

    >>> format_number(2.9999), format_number(-0.25), format_number(1234567.0)
    ('3', '−0.25', '1.23e+06')
    """
    plain = value == 0 or 0.005 <= abs(value) < 100_000
    return (f"{value:.2f}".removesuffix(".00") if plain else f"{value:.2e}").replace("-", "−")


def listed(words: Sequence[str], most: int = MOST_TOLD, comma: str = ", ") -> str:
    """List words, cut after ``most``.

    >>> listed("abcd", 3)
    'a, b, c, …'
    """
    return comma.join([*words[:most], "…"] if len(words) > most else words)


def counted(count: int, what: str) -> str:
    """Count things: one, or several with an s.

    >>> counted(1, "head"), counted(2, "head")
    ('1 head', '2 heads')
    """
    return f"{count} {what}{'s' * (count != 1)}"


def vector(values: np.ndarray) -> str:
    """Write a vector's entries.

    >>> vector(np.array([3.0, 0.0, -0.5]))
    '[3, 0, −0.50]'
    """
    more = ", …" if len(values) > MOST_TERMS else ""
    return f"[{', '.join(map(format_number, values[:MOST_TERMS]))}{more}]"


def summed(terms: Sequence[str], most: int = MOST_TERMS) -> str:
    """Write a sum, cut after ``most`` terms.

    >>> summed(["1", "2", "3"], most=2)
    '1 + 2 + …'
    """
    return " + ".join([*terms[:most], "…"] if len(terms) > most else terms)


def named(tokens: Sequence[str], index: int, role: str) -> Fact:
    """Set off one of several tokens, with its place if another is spelt the same."""
    place = f" ({role} {index})" if list(tokens).count(tokens[index]) > 1 else ""
    return (quoted(tokens[index], role), place) if place else (quoted(tokens[index], role),)


def difference(value: float) -> str:
    """Write how far apart two results are that may differ by rounding.

    >>> difference(3e-8), difference(0.25)
    ('0, but for rounding', 'up to 0.25')
    """
    return "0, but for rounding" if value < 5e-6 else f"up to {format_number(value)}"


def strongest(query: str, keys: Sequence[str], weights: np.ndarray) -> Fact:
    """Say what a row looks at most, and what next; keys of the same weight are told together."""
    order = np.argsort(-weights, kind="stable")
    first, open_keys = weights[order[0]], int((weights > 0).sum())
    if open_keys > 1 and first - weights[order[open_keys - 1]] < 0.05 * first:
        return (
            quoted(query, "query"),
            f" looks evenly at {open_keys} keys ({_share(first)} each).",
        )
    most, rest = _alike(order, weights)
    fact: Fact = (quoted(query, "query"), " looks mostly at ", *_name_keys(keys, most, weights))
    if len(rest) and weights[rest[0]] > 0:
        return (*fact, ", then at ", *_name_keys(keys, _alike(rest, weights)[0], weights), ".")
    return (*fact, ".") if len(order) == len(most) else (*fact, " and at nothing else.")


def _share(weight: float) -> str:
    return f"{weight:.2f}" if weight >= 0.005 else format_number(weight)


def _alike(order: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    alike = np.round(weights[order], 2) == np.round(weights[order[0]], 2)
    return order[alike], order[~alike]


def _name_keys(keys: Sequence[str], some: np.ndarray, weights: np.ndarray) -> Fact:
    each = f" ({_share(weights[some[0]])}{' each' if len(some) > 1 else ''})"
    if len(some) > MOST_NAMED:
        return (f"{len(some)} keys{each}",)
    told: Fact = ()
    for place, index in enumerate(some):
        told += (
            *((" and " if place == len(some) - 1 else ", ",) if place else ()),
            *named(keys, index, "key"),
        )
    return (*told, each)


def row_in_numbers(
    keys: Sequence[str], scores: np.ndarray, weights: np.ndarray, keep: np.ndarray
) -> Fact:
    """Spell out a row, from each score to its weight."""
    parts: list[str | Word] = ["Score → weight: "]
    for index, key in enumerate(keys[:MOST_TERMS]):
        weight = (
            f"{format_number(scores[index])} → {weights[index]:.2f}" if keep[index] else "blocked"
        )
        parts += [", " if index else "", quoted(key, "key"), f" {weight}"]
    rest = len(keys) - MOST_TERMS
    return (*parts, f" and {rest} more." if rest > 0 else ".")
