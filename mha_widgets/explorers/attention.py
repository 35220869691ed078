"""Attention: from queries, keys and values to an output, one step at a time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from torch import Tensor

from mha_widgets.attention import softmax
from mha_widgets.attention.fresh import fresh_torch
from mha_widgets.explorer import Explorer
from mha_widgets.figures import Map, panels
from mha_widgets.kit import (
    assignment,
    check_scores,
    format_number,
    labels,
    matrix,
    one_type,
    quoted,
    sentence,
    strongest,
    summed,
    vector,
)
from mha_widgets.view import Choice, Fact, Range, Word

# titles of axes and their roles
KEY, FEATURE, CONTENT = (
    ("key", "key"),
    ("feature", "soft"),
    ("content", "soft"),
)
STEPS = ("Q, K, V", "scores", "scale", "softmax", "output")


@dataclass(frozen=True)
class Record:
    """Every matrix of one call, and what to look at.

    Attributes:
        rows, columns: (L,) and (S,), the labels of the queries and of the keys.
        features, contents: (E,) and (Ev,), the labels of the vectors' entries.
        query, key, value: (L, E), (S, E), (S, Ev).
        scores: (L, S), the dot products.
        scaled: (L, S), the scores divided by sqrt(E).
        weights: (L, S), the softmax of each row.
        output: (L, Ev), the weighted sums of the values.
        step: the step to show.
        row: the query to follow.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    features: tuple[str, ...]
    contents: tuple[str, ...]
    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    scores: np.ndarray
    scaled: np.ndarray
    weights: np.ndarray
    output: np.ndarray
    step: str
    row: int


class Attention(Explorer):
    """Shows scaled dot-product attention step by step, with the arithmetic of one row.

    Args:
        query: (L, E), one sequence (and one head); the book's running example if none is given.
        key: (S, E).
        value: (S, Ev).
        tokens: S labels for the keys.
        query_tokens: L labels for the queries; the keys' labels if L = S.
        features: E labels for the entries of queries and keys.

    Raises:
        TypeError: something other than tensors and lists of strings.
        ValueError: shapes that don't fit, numbers that aren't finite, or too few or too many
            tokens.

    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.2.1.

    >>> Attention().compute(step="output", row=2).output.shape
    (6, 3)
    """

    title = "Scaled dot-product attention, step by step"
    prompt = (
        "Try: follow one row through the steps. Which key's value does its output resemble in the"
        " end?"
    )

    @fresh_torch()
    def __init__(
        self,
        query: Tensor | None = None,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        tokens: Sequence[str] | None = None,
        query_tokens: Sequence[str] | None = None,
        features: Sequence[str] | None = None,
    ) -> None:
        if query is None and key is None and value is None:
            query, key, value = sentence.QUERY, sentence.KEY, sentence.VALUE
            tokens = sentence.TOKENS if tokens is None else tokens
            features = sentence.FEATURES if features is None else features
        if query is None or key is None or value is None:
            missing = [
                n for n, t in (("query", query), ("key", key), ("value", value)) if t is None
            ]
            raise ValueError(
                f"Attention got no {' and no '.join(missing)}; pass query, key and value, or none"
                " of them."
            )
        self.query = matrix("query", query, "(L, E)")
        self.key = matrix("key", key, "(S, E)")
        self.value = matrix("value", value, "(S, Ev)")
        one_type(query=query, key=key, value=value)
        self._check()
        check_scores(self.query, self.key)
        (L, E), (S, Ev) = self.query.shape, self.value.shape
        self.features = labels("features", features, E, "features")
        self.contents = tuple(map(str, range(Ev)))
        self.tokens = labels("tokens", tokens, S, "keys")
        self.query_tokens = labels("query_tokens", query_tokens, L, "queries", like=self.tokens)
        self.controls = {
            "step": Choice("Step", STEPS, "scores", "How far the calculation has got."),
            "row": Range(
                "Query row",
                tuple(range(L)),
                min(2, L - 1),
                "The query to follow.",
                tuple(f"{i}: {token}" for i, token in enumerate(self.query_tokens)),
            ),
        }

    def _check(self) -> None:
        shapes = (
            f"query {tuple(self.query.shape)}, key {tuple(self.key.shape)} and value"
            f" {tuple(self.value.shape)}"
        )
        if self.query.shape[1] != self.key.shape[1]:
            raise ValueError(
                f"Got {shapes}; query and key need the same last size E: a dot product pairs their"
                " entries."
            )
        if len(self.key) != len(self.value):
            raise ValueError(
                f"Got {shapes}; key and value need the same length S: every key comes with one"
                " value."
            )

    @fresh_torch()
    def compute(self, **state: Any) -> Record:
        """Return every matrix of the call, and the step and row of one complete state."""
        scores = self.query @ self.key.T  # (L, S)
        scaled = scores / math.sqrt(self.query.shape[1])
        weights = softmax(scaled)
        return Record(
            rows=self.query_tokens,
            columns=self.tokens,
            features=self.features,
            contents=self.contents,
            query=self.query.numpy(),
            key=self.key.numpy(),
            value=self.value.numpy(),
            scores=scores.numpy(),
            scaled=scaled.numpy(),
            weights=weights.numpy(),
            output=(weights @ self.value).numpy(),
            **state,
        )

    def draw(self, record: Record) -> go.Figure:
        """Draw the matrices that take part in the record's step, the followed row framed."""
        drawn = {
            "Q, K, V": (_query, _key, _value),
            "scores": (_query, _key_transposed, _scores),
            "scale": (_scores, _scaled),
            "softmax": (_scaled, _weights),
            "output": (_weights, _value, _output),
        }
        return panels.draw([matrix(record) for matrix in drawn[record.step]])

    def facts(self, record: Record) -> tuple[Fact, ...]:
        """Return the arithmetic of the followed row at the record's step, in words and numbers."""
        told = {
            "Q, K, V": _told_vectors,
            "scores": _told_scores,
            "scale": _told_scale,
            "softmax": _told_softmax,
            "output": _told_output,
        }
        return told[record.step](record)

    @fresh_torch()
    def code(self, **state: Any) -> str:
        """Return a program that makes every matrix up to the step of a complete state."""
        (L, E), (S, Ev) = self.query.shape, self.value.shape
        done = STEPS.index(state["step"])
        lines = [
            "import torch",
            assignment("query", self.query) + f"  # (L, E) = ({L}, {E})",
            assignment("key", self.key) + f"  # (S, E) = ({S}, {E})",
            assignment("value", self.value) + f"  # (S, Ev) = ({S}, {Ev})",
        ]
        steps = [
            f"scores = query @ key.T  # (L, S) = ({L}, {S})",
            f"scaled = scores / {E} ** 0.5",
            "weights = scaled.softmax(dim=-1)  # each row sums to 1",
            f"output = weights @ value  # (L, Ev) = ({L}, {Ev})",
        ]
        return "\n".join(lines + steps[:done])


def _limit(*arrays: np.ndarray) -> float:
    return float(max(np.abs(array).max() for array in arrays)) or 1.0


def _size(letters: str, array: np.ndarray) -> str:
    return f"({letters}) = ({', '.join(map(str, array.shape))})"


def _number_format(values: np.ndarray) -> str:
    return "%{z:.0f}" if (values == values.round()).all() else "%{z:.1f}"


def _vectors(r: Record, title: str, letters: str, values: np.ndarray, **more: Any) -> Map:
    limit = _limit(r.query, r.key, r.value)
    return Map(
        title, _size(letters, values), values, limit=limit, number=_number_format(values), **more
    )


def _query(r: Record) -> Map:
    labels = {"rows": r.rows, "columns": r.features, "column_axis": FEATURE}
    return _vectors(r, "Q", "L, E", r.query, role="query", selected_row=r.row, **labels)


def _key(r: Record) -> Map:
    labels = {"rows": r.columns, "columns": r.features, "row_axis": KEY, "column_axis": FEATURE}
    return _vectors(r, "K", "S, E", r.key, role="key", **labels)


def _key_transposed(r: Record) -> Map:
    labels = {"rows": r.features, "columns": r.columns, "row_axis": FEATURE}
    return _vectors(r, "× Kᵀ", "E, S", r.key.T, role="key", **labels)


def _value(r: Record) -> Map:
    labels = {"rows": r.columns, "columns": r.contents, "row_axis": KEY, "column_axis": CONTENT}
    return _vectors(
        r, "× V" if r.step == "output" else "V", "S, Ev", r.value, role="value", **labels
    )


def _output(r: Record) -> Map:
    labels = {"rows": r.rows, "columns": r.contents, "column_axis": CONTENT}
    return _vectors(r, "= output", "L, Ev", r.output, role="output", selected_row=r.row, **labels)


def _pairs(r: Record, title: str, subtitle: str, values: np.ndarray, **more: Any) -> Map:
    return Map(title, subtitle, values, r.rows, r.columns, selected_row=r.row, **more)


def _scores(r: Record) -> Map:
    limit = _limit(r.scores)
    title, subtitle = "Scores", f"Q·Kᵀ, colours −{limit:.3g} to {limit:.3g}"
    if r.step == "scores":
        title, subtitle = "= scores", _size("L, S", r.scores)
    return _pairs(r, title, subtitle, r.scores, limit=limit, number=_number_format(r.scores))


def _scaled(r: Record) -> Map:
    E = r.query.shape[1]
    title = "÷ √E = scaled" if r.step == "scale" else "Scaled scores"
    subtitle = f"√{E} = {format_number(math.sqrt(E))}, the same colours"
    return _pairs(
        r, title, subtitle, r.scaled, limit=_limit(r.scores), number=_number_format(r.scaled)
    )


def _weights(r: Record) -> Map:
    title = "→ softmax = weights" if r.step == "softmax" else "Weights"
    return _pairs(r, title, "each row sums to 1", r.weights, colours="weight")


def _told_vectors(r: Record) -> tuple[Fact, ...]:
    best = int(r.scores[r.row].argmax())
    return (
        (
            quoted(r.rows[r.row], "query"),
            " looks for ",
            Word(vector(r.query[r.row]), "query"),
            ": its row of Q.",
        ),
        (
            quoted(r.columns[best], "key"),
            " can be found by ",
            Word(vector(r.key[best]), "key"),
            ": its row of K.",
        ),
        (
            quoted(r.columns[best], "key"),
            " hands over ",
            Word(vector(r.value[best]), "value"),
            ": its row of V.",
        ),
        (f"{len(r.rows)} queries, {len(r.columns)} keys, and one value for each key.",),
    )


def _told_scores(r: Record) -> tuple[Fact, ...]:
    row, best = r.row, int(r.scores[r.row].argmax())
    terms = [
        f"{format_number(q)}×{format_number(k)}"
        for q, k in zip(r.query[row], r.key[best], strict=True)
    ]
    return (
        (
            *(quoted(r.rows[row], "query"), " · ", quoted(r.columns[best], "key"), " = "),
            (
                f"{summed(terms)} = {format_number(r.scores[row, best])}, the largest score of its"
                " row."
            ),
        ),
        (
            (
                f"One dot product for each query and key: {len(r.rows)} × {len(r.columns)} ="
                f" {r.scores.size} scores."
            ),
        ),
    )


def _told_scale(r: Record) -> tuple[Fact, ...]:
    row, best, E = r.row, int(r.scores[r.row].argmax()), r.query.shape[1]
    return (
        (
            *(
                quoted(r.rows[row], "query"),
                " · ",
                quoted(r.columns[best], "key"),
                f": {format_number(r.scores[row, best])} ÷ √{E}",
            ),
            (
                f" = {format_number(r.scores[row, best])} ÷ {format_number(math.sqrt(E))} ="
                f" {format_number(r.scaled[row, best])}."
            ),
        ),
        (
            (
                f"Dot products of {E} entries spread about √{E} times as wide as one; dividing"
                " keeps the softmax from saturating."
            ),
        ),
    )


def _told_softmax(r: Record) -> tuple[Fact, ...]:
    row, best = r.row, int(r.scores[r.row].argmax())
    scaled, weight = r.scaled[row].astype(float), r.weights[row, best]
    shift = 0.0 if -2 <= scaled.max() <= 9 else scaled.max()  # keeps the powers readable
    top, total = math.exp(scaled[best] - shift), np.exp(scaled - shift).sum()
    terms = [f"e^{format_number(score - shift)}" for score in scaled]
    shifted = (
        f" (The largest score, {format_number(shift)}, is subtracted first: the shares stay.)"
        if shift
        else ""
    )
    return (
        (
            *(
                quoted(r.rows[row], "query"),
                " → ",
                quoted(r.columns[best], "key"),
                f": e^{format_number(scaled[best] - shift)} ÷ ",
            ),
            f"({summed(terms)}) = {top:.2f} ÷ {total:.2f} = {weight:.2f}.{shifted}",
        ),
        strongest(r.rows[row], r.columns, r.weights[row]),
        (f"The row's {len(r.columns)} weights sum to {r.weights[row].sum():.2f}.",),
    )


def _told_output(r: Record) -> tuple[Fact, ...]:
    row = r.row
    order = np.argsort(-r.weights[row], kind="stable")
    terms = [f"{r.weights[row, j]:.2f}×{vector(r.value[j])}" for j in order]
    return (
        (
            *("Output of ", quoted(r.rows[row], "query"), " = ", summed(terms, most=3), " = "),
            *(Word(vector(r.output[row]), "output"), "."),
        ),
        strongest(r.rows[row], r.columns, r.weights[row]),
        ("Its output is an average of the values, weighted by its row.",),
    )
