"""Large maps, reduced to what can be seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MOST_CELLS = 64  # rows and columns of a map that are drawn at most


def block(values: np.ndarray) -> tuple[int, int]:
    """Return how many rows and columns of a map (L, S) are drawn as one cell.

    >>> block(np.zeros((128, 65))), block(np.zeros((64, 7)))
    ((2, 2), (1, 1))
    """
    high, wide = (-(-size // MOST_CELLS) for size in values.shape)
    return high, wide


def reduced(
    values: np.ndarray, rows: Sequence[str], columns: Sequence[str]
) -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...]]:
    """Return a map of at most 64 rows and columns: of each block its largest number,
    NaN if it holds any.

    Args:
        values: (L, S).
        rows: L labels.
        columns: S labels.

    Returns:
        The reduced map and its labels: "first…last" of each block.

    >>> values, rows, columns = reduced(np.eye(128), range(128), range(128))
    >>> values.shape, rows[1]
    ((64, 64), '2…3')
    """
    high, wide = block(values)
    if high == wide == 1:
        return values, tuple(rows), tuple(columns)
    L, S = values.shape
    padded = np.full((-(-L // high) * high, -(-S // wide) * wide), -np.inf, dtype=values.dtype)
    padded[:L, :S] = values
    # both axes at once would take ten times as long
    flat = padded.reshape(len(padded) // high, high, -1).max(axis=1)
    return (
        flat.reshape(len(flat), -1, wide).max(axis=2),
        _blocks(rows, high),
        _blocks(columns, wide),
    )


def _blocks(labels: Sequence[str], size: int) -> tuple[str, ...]:
    if size == 1:
        return tuple(labels)
    starts = range(0, len(labels), size)
    return tuple(
        f"{labels[start]}…{labels[min(start + size, len(labels)) - 1]}" for start in starts
    )
