"""Large maps, reduced to what can be seen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

MOST_CELLS = 64  # rows and columns of a map that are drawn at most


def reduced(
    values: np.ndarray, rows: Sequence[str], columns: Sequence[str]
) -> tuple[np.ndarray, tuple[str, ...], tuple[str, ...], tuple[int, int]]:
    """Return a map of at most 64 rows and columns: of each block its largest number, NaN if it holds any.

    Args:
        values: (L, S).
        rows: L labels.
        columns: S labels.

    Returns:
        The reduced map, its labels ("first … last" of each block), and how many rows and columns make a block.

    >>> reduced(np.eye(128), [str(i) for i in range(128)], [str(i) for i in range(128)])[1:][0][1], reduced(
    ...     np.eye(128), [""] * 128, [""] * 128)[0].shape
    ('2…3', (64, 64))
    """
    high, wide = (-(-size // MOST_CELLS) for size in values.shape)
    if high == wide == 1:
        return values, tuple(rows), tuple(columns), (1, 1)
    L, S = values.shape
    padded = np.full((-(-L // high) * high, -(-S // wide) * wide), -np.inf, dtype=values.dtype)
    padded[:L, :S] = values
    blocks = padded.reshape(len(padded) // high, high, -1, wide).max(axis=(1, 3))
    return blocks, _blocks(rows, high), _blocks(columns, wide), (high, wide)


def _blocks(labels: Sequence[str], size: int) -> tuple[str, ...]:
    if size == 1:
        return tuple(labels)
    starts = range(0, len(labels), size)
    return tuple(f"{labels[start]}…{labels[min(start + size, len(labels)) - 1]}" for start in starts)
