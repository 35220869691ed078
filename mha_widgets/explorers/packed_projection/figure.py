"""What PackedProjection records, and its maps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from mha_widgets.figures import Frame, Map

THIRDS = ("query", "key", "value")
FEATURE = ("feature", "soft")
MOST_LABELS = 24
SMALL = (0.4, 0.5)  # cells of the weights: there are many


@dataclass(frozen=True)
class Record:
    """The input projections of a module, and one slice of them at work.

    Attributes:
        tokens: the labels of the inputs that are projected.
        x: (L, E), the queries' input.
        source_name: what the input of the chosen third is.
        source: (n, F), that input.
        packed: (3E, E), in_proj_weight, or None.
        separate: (E, E), (E, kdim) and (E, vdim): the three matrices, one by one.
        third: "query", "key" or "value".
        head: the head whose slice is framed.
        rows: where the slice starts and ends in the matrix that it lies in.
        weight: (D, F), the slice.
        projected: (n, D), what the slice makes of the input.
        biased: whether a bias other than 0 is in that.
        by_hand: (L, E), the output of the whole module, made from slices.
        missed: its largest difference to what the module returns.
        state_dict: the name and the shape of each parameter.
    """

    tokens: tuple[str, ...]
    x: np.ndarray
    source_name: str
    source: np.ndarray
    packed: np.ndarray | None
    separate: tuple[np.ndarray, ...]
    third: str
    head: int
    rows: tuple[int, int]
    weight: np.ndarray
    projected: np.ndarray
    biased: bool
    by_hand: np.ndarray
    missed: float
    state_dict: Mapping[str, tuple[int, ...]]


def _size(array: np.ndarray, letters: str) -> str:
    return f"({letters}) = ({', '.join(map(str, array.shape))})"


def _numbered(count: int, start: int = 0) -> tuple[str, ...]:
    return tuple(map(str, range(start, start + count)))


def _limit(*arrays: np.ndarray) -> float:
    return max(float(np.abs(array).max()) for array in arrays) or 1.0


def _short(values: np.ndarray) -> np.ndarray:
    """Round to three digits of the largest number: a page holds many of these."""
    return values.astype(float).round(max(0, 2 - math.floor(math.log10(_limit(values)))))


def packed_map(record: Record, packed: np.ndarray) -> Map:
    """Return in_proj_weight as a map, its thirds and the slice framed."""
    E, limit = record.x.shape[1], _limit(*record.separate)
    rows = tuple(
        f"{third[0]} {row + index * E}" for index, third in enumerate(THIRDS) for row in range(E)
    )
    frames = [_framed(index * E, (index + 1) * E, E, third) for index, third in enumerate(THIRDS)]
    subtitle = f"{packed.shape}, colours ±{limit:.2f}"
    return Map(
        *(
            "in_proj_weight",
            subtitle,
            _short(packed),
            rows,
            _numbered(E),
            "ink",
            ("row", "soft"),
            FEATURE,
        ),
        limit=limit,
        frames=[*frames, _framed(*record.rows, E, "ink", 3.5)],
        cell=SMALL,
        label_every=_labelled(record, len(rows)),
    )


def _framed(start: int, stop: int, columns: int, role: str, width: float = 2.5) -> Frame:
    # a little apart from its neighbours
    return Frame(role, 0.06, start + 0.1, columns - 0.06, stop - 0.1, width)


def _labelled(record: Record, rows: int) -> int:
    D = len(record.weight)
    return D * math.ceil(rows / (MOST_LABELS * D))


def separate_maps(record: Record) -> list[Map]:
    """Return the three matrices as maps, the slice framed."""
    return [_separate(record, index) for index in range(3)]


def _separate(record: Record, index: int) -> Map:
    third, weight = THIRDS[index], record.separate[index]
    chosen = [_framed(*record.rows, weight.shape[1], "ink", 3.5)] if third == record.third else []
    size, columns = _size(weight, f"E, {('E', 'kdim', 'vdim')[index]}"), _numbered(weight.shape[1])
    return Map(
        *(
            f"{third[0]}_proj_weight",
            size,
            _short(weight),
            _numbered(len(weight)),
            columns,
            third,
            ("row", "soft"),
            FEATURE,
        ),
        limit=_limit(*record.separate),
        frames=[_framed(0, len(weight), weight.shape[1], third), *chosen],
        cell=SMALL,
        label_every=_labelled(record, len(weight)),
    )


def product_maps(record: Record) -> list[Map]:
    """Return the maps of an input, of the slice, and of what it makes."""
    D, F = record.weight.shape
    start, stop = record.rows
    letters = "L, E" if record.third == "query" else f"S, {record.third[0]}dim"
    role, number = record.third, "%{z:.1f}"
    made = f"head {record.head}, {'bias added' if record.biased else record.projected.shape}"
    source, projected = _short(record.source), _short(record.projected)
    return [
        Map(
            *(
                record.source_name,
                _size(source, letters),
                source,
                record.tokens,
                _numbered(F),
                "ink",
                ("word", "soft"),
                FEATURE,
            ),
            limit=_limit(source),
            number=number,
        ),
        Map(
            *(
                "× sliceᵀ",
                f"rows {start}:{stop} as columns",
                _short(record.weight.T),
                _numbered(F),
                _numbered(D, start),
                role,
            ),
            *(FEATURE, ("row", "soft")),
            limit=_limit(*record.separate),
            number=number,
        ),
        Map(
            *(f"= {role}", made, projected, record.tokens, _numbered(D), role),
            *((role, role), FEATURE),
            limit=_limit(projected),
            number=number,
        ),
    ]
