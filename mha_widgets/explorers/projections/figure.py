"""What Projections records, and its maps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mha_widgets.figures import Map

SYMBOLS = {"w_q": "W_q", "w_k": "W_k", "w_v": "W_v"}


@dataclass(frozen=True)
class Record:
    """One attention with its projections.

    Attributes:
        rows, columns: (L,) and (S,), the labels of the queries and of the keys, shuffled.
        features: (E,), the labels of the features.
        x: (L, E), what the queries are made of, shuffled.
        y: (S, E), what keys and values are made of; None if that is x.
        query, key, value: (L, E), (S, E), (S, E).
        scores: (L, S), scaled.
        weights: (L, S).
        output: (L, E).
        identity: the projections that are the identity, of "w_q", "w_k" and "w_v".
        shuffled: whether the order was changed.
        moved: the largest difference to weights and output of the original order, after undoing the
            shuffle.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    features: tuple[str, ...]
    x: np.ndarray
    y: np.ndarray | None
    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    scores: np.ndarray
    weights: np.ndarray
    output: np.ndarray
    identity: tuple[str, ...]
    shuffled: bool
    moved: float


def maps(record: Record) -> list[Map]:
    """Return the sentences, the projections, the weights and the output as maps."""
    source = "X" if record.y is None else "Y"
    other = [] if record.y is None else [_vectors(record, "Y", "S", record.y)]
    return [
        _vectors(record, "X", "L", record.x),
        _vectors(record, _product(record, "Q", "X", "w_q"), "L", record.query, "query"),
        *other,
        _vectors(record, _product(record, "K", source, "w_k"), "S", record.key, "key"),
        _vectors(record, _product(record, "V", source, "w_v"), "S", record.value, "value"),
        Map(
            "Weights",
            "each row sums to 1",
            record.weights,
            record.rows,
            record.columns,
            colours="weight",
        ),
        _vectors(record, "Output", "L", record.output, "output"),
    ]


def _product(record: Record, name: str, source: str, weight: str) -> str:
    return (
        f"{name} = {source}"
        if weight in record.identity
        else f"{name} = {source}·{SYMBOLS[weight]}ᵀ"
    )


def _vectors(record: Record, title: str, letter: str, values: np.ndarray, role: str = "") -> Map:
    shown = (
        record.x,
        record.query,
        record.key,
        record.value,
        *(() if record.y is None else (record.y,)),
    )
    rows, axis = (
        (record.rows, ("query", "query")) if letter == "L" else (record.columns, ("key", "key"))
    )
    return Map(
        title,
        f"({letter}, E) = ({', '.join(map(str, values.shape))})",
        values,
        rows,
        record.features,
        role=role or "ink",
        row_axis=axis if role else ("word", "soft"),
        column_axis=("feature", "soft"),
        limit=max(float(np.abs(array).max()) for array in shown) or 1.0,
        number="%{z:.0f}" if (values == values.round()).all() else "%{z:.1f}",
    )
