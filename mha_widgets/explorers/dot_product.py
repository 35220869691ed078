"""DotProduct: how a direction and a length become a score."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from torch import Tensor

from mha_widgets.attention.fresh import fresh_torch
from mha_widgets.explorer import Explorer
from mha_widgets.figures import Plot, arrows, bars, colour, panels
from mha_widgets.kit import format_number, labels
from mha_widgets.view import Fact, Range, Word

QUERY = "q"  # the name of the query's arrow
LENGTHS = (1, 2, 3)
MOST_DEGREES = 10_000
LIMIT = 3.75  # how far the plane goes
PLACES = (
    "middle right",
    "top right",
    "top center",
    "top left",
    "middle left",
    "bottom left",
    "bottom center",
    "bottom right",
)
SAME = 1e-4  # scores and degrees that differ by less are called equal


@dataclass(frozen=True)
class Record:
    """A query and two keys of the plane, and what becomes of them.

    Attributes:
        names: the keys' names.
        length, angle: the query's.
        lengths, directions: the keys', the directions in degrees.
        query: (E,) = (2,).
        key: (S, E) = (2, 2).
        scores: (S,), the dot products.
        weights: (S,), the softmax of the scores.
    """

    names: tuple[str, ...]
    length: float
    angle: float
    lengths: tuple[float, ...]
    directions: tuple[float, ...]
    query: np.ndarray
    key: np.ndarray
    scores: np.ndarray
    weights: np.ndarray

    @property
    def between(self) -> list[float]:
        """The angle between the query and each key, from 0 to 180 degrees."""
        return [abs((direction - self.angle + 180) % 360 - 180) for direction in self.directions]

    @property
    def clean(self) -> np.ndarray:
        """The scores without the last digits: at a right angle they are 0, not −8.7e-08."""
        return np.round(self.scores.astype(float), 4) + 0.0

    @property
    def tie(self) -> bool:
        """Whether both keys score the same."""
        return abs(self.clean[0] - self.clean[1]) < SAME


class DotProduct(Explorer):
    """Shows a query and two keys as arrows, their dot products, and the softmax of those.

    Args:
        directions: where the two keys point, in degrees, counter-clockwise from the right.
        names: the two keys' names.

    Raises:
        TypeError: directions that aren't numbers, or one string as names.
        ValueError: directions or names that aren't two, aren't finite, or can't be told apart.

    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.2.1.

    >>> DotProduct().compute(angle=30, length=2, length_a=1, length_b=3).scores.round(2)
    array([2., 3.], dtype=float32)
    """

    title = "The dot product: direction times length"
    prompt = (
        "Try: point the query straight at one key, then make that key shorter and the other longer."
        " Which of the two wins?"
    )

    @fresh_torch()
    def __init__(
        self, directions: Sequence[float] = (30, 90), names: Sequence[str] = ("A", "B")
    ) -> None:
        self.directions = _checked_directions(directions)
        self.names = labels("names", names, 2, "keys")
        if len({QUERY, *self.names}) < 3:
            raise ValueError(
                f"names are {self.names}; pass two different ones, neither of them {QUERY!r}: the"
                " query has that."
            )
        first, second = self.names
        self.controls = {
            "angle": Range(
                "Query angle",
                tuple(range(0, 360, 15)),
                45,
                "Where the query points, counter-clockwise from the right.",
                tuple(f"{angle}°" for angle in range(0, 360, 15)),
            ),
            "length": Range("Query length", LENGTHS, 2, "How long the query is."),
            "length_a": Range(
                f"Length of {first}, at {self.directions[0]}°", LENGTHS, 2, "How long this key is."
            ),
            "length_b": Range(
                f"Length of {second}, at {self.directions[1]}°", LENGTHS, 2, "How long this key is."
            ),
        }

    @fresh_torch()
    def compute(self, **state: Any) -> Record:
        """Return the vectors, dot products and shares of one complete state."""
        lengths = (state["length_a"], state["length_b"])
        query = _arrow(state["length"], state["angle"])
        key = torch.stack([_arrow(*polar) for polar in zip(lengths, self.directions, strict=True)])
        scores = key @ query
        return Record(
            names=self.names,
            length=state["length"],
            angle=state["angle"],
            lengths=lengths,
            directions=self.directions,
            query=query.numpy(),
            key=key.numpy(),
            scores=scores.numpy(),
            weights=scores.softmax(dim=-1).numpy(),
        )

    def draw(self, record: Record) -> go.Figure:
        """Draw the arrows, with the keys' shadows on the query's line,
        then the scores and the shares.
        """
        most = LENGTHS[-1] ** 2 * 1.2
        scores = {"q·k": (record.clean.round(2), "key")}
        weights = {"share": (record.weights.astype(float).round(2), "key")}
        left = bars(
            "Dot products",
            "q·k",
            record.names,
            scores,
            height=("score", "ink"),
            range=(-most, most),
            size=(7, 4),
        )
        right = bars(
            "Shares", "softmax, they sum to 1", record.names, weights, range=(0, 1.1), size=(7, 4)
        )
        return panels.draw([_plane(record), left, right])

    def facts(self, record: Record) -> tuple[Fact, ...]:
        """Return the arithmetic of both dot products, the shares, and who wins and why."""
        return (
            _product(record, 0),
            _product(record, 1),
            _shares(record),
            _winner(record),
            _sharpened(record),
        )

    @fresh_torch()
    def code(self, **state: Any) -> str:
        """Return a program that makes ``query``, ``key``,
        ``scores`` and ``weights`` of a complete state.
        """
        keys = zip((state["length_a"], state["length_b"]), self.directions, strict=True)
        return "\n".join(
            [
                "import math",
                "import torch",
                "",
                "def arrow(length, degrees):",
                "    angle = math.radians(degrees)",
                "    return length * torch.tensor([math.cos(angle), math.sin(angle)])",
                "",
                f"query = arrow({state['length']}, {state['angle']})  # (E,) = (2,)",
                (
                    f"key = torch.stack([{', '.join(f'arrow{polar}' for polar in keys)}])  # (S, E)"
                    " = (2, 2)"
                ),
                (
                    "scores = key @ query  # one dot product for each key; attention divides them"
                    " by √E"
                ),
                "weights = scores.softmax(dim=-1)",
            ]
        )


def _checked_directions(directions: Sequence[float]) -> tuple[float, ...]:
    if not isinstance(directions, Iterable) or isinstance(directions, str):
        raise TypeError(
            f"directions is {directions!r}; pass two numbers, the degrees at which the keys point."
        )
    found = tuple(directions)
    if wrong := [one for one in found if not isinstance(one, Real) or isinstance(one, bool)]:
        raise TypeError(
            f"directions holds {wrong[0]!r}; pass two numbers, the degrees at which the keys point."
        )
    if len(found) != 2 or not all(
        -MOST_DEGREES < one < MOST_DEGREES for one in found
    ):  # NaN is in no range
        raise ValueError(
            f"directions is {found}; pass two finite numbers, the degrees at which the keys point."
        )
    return tuple(int(one) if one == int(one) else float(one) for one in found)


def _arrow(length: float, degrees: float) -> Tensor:
    angle = math.radians(degrees)
    return length * torch.tensor([math.cos(angle), math.sin(angle)])


def _plane(record: Record) -> Plot:
    vectors = dict(
        zip(
            (QUERY, *record.names),
            np.stack([record.query, *record.key]).round(2) + 0.0,
            strict=True,
        )
    )
    roles = {
        name: (vector, "query" if name == QUERY else "key") for name, vector in vectors.items()
    }
    plane = arrows("The plane", "dotted: a key’s reach along q", roles, limit=LIMIT)
    query, *keys = (
        _named(trace, place) for trace, place in zip(plane.data, _places(record), strict=True)
    )
    names, axes, cells = plane.table
    # Tables of their own: a page stores a table again for each state in which it differs.
    query["meta"] = {
        "name": "The query",
        "rows": list(names[:1]),
        "columns": axes,
        "cells": cells[:1],
    }
    return replace(plane, data=[*keys, query, _shadows(record)], table=(names[1:], axes, cells[1:]))


def _places(record: Record) -> list[str]:
    nearest = min(((key - record.angle + 180) % 360 - 180 for key in record.directions), key=abs)
    aside = record.angle + (-45 if nearest > 0 else 45)  # away from the key's name
    return [PLACES[round(degrees / 45) % 8] for degrees in (aside, *record.directions)]


def _named(arrow: Mapping[str, Any], place: str) -> dict[str, Any]:
    # seen even under the query
    line = arrow["line"] | {"width": 3 if arrow["name"] == QUERY else 5}
    return dict(arrow) | {"textposition": place, "line": line}


def _shadows(record: Record) -> dict[str, Any]:
    unit = record.query / record.length
    feet = (record.key @ unit)[:, None] * unit
    lines = [(-2 * LIMIT * unit, 2 * LIMIT * unit), *zip(record.key, feet, strict=True)]
    # NaN lifts the pen
    points = np.array([(*line, (np.nan, np.nan)) for line in lines]).reshape(-1, 2).round(2)
    line = {"color": colour("soft"), "width": 1.5, "dash": "dot"}
    return {
        "type": "scatter",
        "name": "shadows",
        "x": points[:, 0],
        "y": points[:, 1],
        "mode": "lines",
        "line": line,
    }


def _product(record: Record, index: int) -> Fact:
    angle, score = record.between[index], record.clean[index]
    meaning = (
        ": they point apart"
        if score < 0
        else ": at a right angle neither sees the other"
        if score == 0
        else ""
    )
    sizes = (
        f"{format_number(record.length)} × {format_number(record.lengths[index])} × cos"
        f" {format_number(angle)}°"
    )
    return (
        Word("query", "query"),
        " · ",
        Word(record.names[index], "key"),
        f" = {sizes} = {format_number(score)}{meaning}.",
    )


def _shares(record: Record) -> Fact:
    one, other = (f"e^{format_number(score)}" for score in record.clean)
    first, second = (
        f"{weight:.2f} for {name}"
        for weight, name in zip(record.weights, record.names, strict=True)
    )
    return (f"Shares: {one} ÷ ({one} + {other}) = {first}, {second}.",)


def _winner(record: Record) -> Fact:
    if record.tie:
        return ("It is a tie: both keys reach equally far along the query.",)
    first = int(record.clean.argmax())
    second = 1 - first
    name, other = record.names[first], record.names[second]
    near, far = record.between[first], record.between[second]
    longer = record.lengths[first] / record.lengths[1 - first]
    start: Fact = (Word(name, "key"), " wins by its ")
    angles = f"it is {format_number(near)}° from the query, {other} {format_number(far)}°"
    if near < far - SAME:
        despite = f", although {other} is longer" if longer < 1 and far < 90 else ""
        return (*start, f"direction: {angles}{despite}.")
    if longer > 1:
        return (
            *start,
            Word("length", "warn"),
            f": {angles}, and it is {format_number(longer)} times as long.",
        )
    angles = f"{format_number(near)}° and {format_number(far)}° from the query"
    return (
        *start,
        Word("shortness", "warn"),
        f": both point away ({angles}), so length counts against {other}.",
    )


def _sharpened(record: Record) -> Fact:
    if record.tie:
        return ("Lengthening the query leaves a tie as it is.",)
    lead = abs(record.clean[0] - record.clean[1]) / record.length
    few, many = (1 / (1 + math.exp(-lead * length)) for length in (LENGTHS[0], LENGTHS[-1]))
    return (
        (
            "Lengthening the query sharpens the shares and never swaps them:"
            f" {record.names[int(record.clean.argmax())]} has {few:.2f} at length {LENGTHS[0]} and"
            f" {many:.2f} at {LENGTHS[-1]}."
        ),
    )
