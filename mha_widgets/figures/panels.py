"""Panels of a figure: side by side where there is room, below each other where there is not."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import plotly.graph_objects as go

from mha_widgets.figures.theme import TEMPLATE, colour

WIDE, NARROW = 860, 330  # px: the widths that a figure is laid out for
NARROW_BELOW = 700  # px: in less room than this, panels are stacked
# a figure side by side shrinks as far as this, and its letters do not
TIGHTEST = NARROW_BELOW / WIDE
LARGEST_CELL = {WIDE: 44, NARROW: 40}
# px: a letter's width, a text line's height, the room above a panel
LETTER, LINE, TITLE = (
    8.2,
    20,
    52,
)
TITLE_LETTER, SUBTITLE_LETTER = 8, 7  # px
# px: the room to the right of the last panel, where half a label may stand out
EDGE = {
    WIDE: 14,
    NARROW: 4,
}
ROW_GAP = 24  # px: between rows of panels; a figure in little room shrinks, its words do not
LONGEST_LABEL = 12
LABEL = 13  # px: the room that a label takes on its axis
# px: in such cells labels of three letters stand beside each other without touching
ROOMY = 3 * LETTER
SMALL = {"tickfont": {"size": 11}}

Axes = dict[str, str]  # the axes of a panel's traces: {"xaxis": "x2", "yaxis": "y2"}
# left, top, width and height of a panel without its labels, in px
Box = tuple[float, float, float, float]


class Panel(ABC):
    """A part of a figure with axes of its own. Its size is counted in cells, as if it were a map.

    Attributes:
        title, subtitle: the lines above it.
        role: the colour role of the title.
    """

    title: str
    subtitle: str
    role: str

    @property
    @abstractmethod
    def size(self) -> tuple[float, float]:
        """Height and width in cells."""

    @property
    @abstractmethod
    def left(self) -> float:
        """The room that is needed to the left of the cells, in px."""

    @property
    @abstractmethod
    def below(self) -> float:
        """The room that is needed below the cells, in px."""

    @abstractmethod
    def axes(self, index: str, every: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the layout of the x and the y axis; of labels show only each ``every``-th."""

    @abstractmethod
    def traces(self, axes: Axes, cell: float) -> list[dict[str, Any]]:
        """Return what is drawn, for cells of so many px."""

    def shapes(self, index: str) -> list[dict[str, Any]]:
        """Return what is drawn over it."""
        return []


def literal(text: str, longest: int | None = LONGEST_LABEL) -> str:
    """Write a token so that plotly shows it as it is: no HTML, no LaTeX,
    cut to ``longest`` letters.

    >>> literal("<pad>"), literal("$x$"), literal("antidisestablishment")
    ('&lt;pad&gt;', '&#36;x&#36;', 'antidisesta…')
    """
    if longest is not None and len(text) > longest:
        text = text[: longest - 1] + "…"
    for character, entity in (
        ("&", "&amp;"),
        ("<", "&lt;"),
        (">", "&gt;"),
        ("$", "&#36;"),
        ("\n", "⏎"),
    ):
        text = text.replace(character, entity)
    return text


def draw(panels: Sequence[Panel], per_row: int | None = None) -> go.Figure:
    """Draw panels side by side.

    The figure is laid out for a width of ``layout.meta["wide"]`` px; a host with less room shrinks
    its height in proportion. Below ``narrow_below`` px it makes the changes of ``narrow`` instead,
    which stack the panels.

    Args:
        panels: what to draw, from the left.
        per_row: how many stand in a row at most; all if not given.

    Returns:
        A figure with the traces of each panel in turn.

    >>> import numpy as np
    >>> from mha_widgets.figures.maps import Map
    >>> names, shares = ["a", "b"], np.full((2, 2), 0.5)
    >>> half = Map("Weights", "rows sum to 1", shares, names, names, colours="weight")
    >>> [trace.type for trace in draw([half]).data]
    ['heatmap']
    """
    per_row = per_row or len(panels)
    rows = [panels[start : start + per_row] for start in range(0, len(panels), per_row)]
    cell = min(cell_of(row, WIDE) for row in rows)
    smallest = min(cell, *(cell_of([panel], NARROW) for panel in panels))
    every, font = math.ceil(LABEL / smallest), SMALL if smallest < ROOMY else {}
    traces: list[dict[str, Any]] = []
    layout = _placed(panels, *_rows(rows, cell)) | {"template": TEMPLATE}
    shapes: list[dict[str, Any]] = []
    for number, panel in enumerate(panels, 1):
        index = str(number) if number > 1 else ""
        traces += panel.traces({"xaxis": f"x{index}", "yaxis": f"y{index}"}, cell)
        shapes += panel.shapes(index)
        x, y = panel.axes(index, every)
        layout["xaxis" + index] |= font | x | {"anchor": f"y{index}"}
        layout["yaxis" + index] |= y | {"anchor": f"x{index}"}
    layout["meta"] = {
        "wide": WIDE,
        "narrow_below": NARROW_BELOW,
        "narrow": _placed(panels, *_stack(panels)),
    }
    if shapes:
        layout["shapes"] = shapes
    # A test has plotly check every explorer's figures: here that would take half of the time.
    figure = go.Figure(traces, layout, _validate=False)
    for part in (figure.layout, *figure.data):
        part._validate = True  # what a reader changes is checked again
    return figure


def labelled(labels: Sequence[str], title: tuple[str, str], every: int = 1) -> dict[str, Any]:
    """Return an axis with labels at 0, 1, 2 and so on, shown literally,
    and a title in its colour role.
    """
    shown = list(map(literal, labels))
    # When pointed at, a place without a label must tell its own:
    # plotly takes it from an alias of its number.
    text = (
        {"ticktext": shown}
        if every == 1
        else {"labelalias": {str(place): label for place, label in enumerate(shown)}}
    )
    slanted = {"autotickangles": [0, -45]}  # where they would touch
    return titled(title) | {"tickvals": list(range(0, len(labels), every))} | text | slanted


def titled(title: tuple[str, str]) -> dict[str, Any]:
    """Return an axis with a title in its colour role."""
    text, role = title
    return {"title": {"text": text, "font": {"color": colour(role)}}}


def label_width(labels: Sequence[str]) -> float:
    """Return the room for labels and a title to the left, in px."""
    return 1.1 * LETTER * min(max(map(len, labels)), LONGEST_LABEL) + 2 * LINE + 4


def label_height(labels: Sequence[str]) -> float:
    """Return the room for labels and a title below, in px."""
    longest = min(max(map(len, labels)), LONGEST_LABEL)
    return 2.5 * LINE + (0.65 * LETTER * longest if longest > 2 else 0)  # they may be slanted


def cell_of(panels: Sequence[Panel], width: int) -> float:
    """Return how many px a cell can have if these panels share a width."""
    columns, labels = sum(panel.size[1] for panel in panels), sum(panel.left for panel in panels)
    cell = float(LARGEST_CELL[width])
    for _ in range(4):  # smaller cells leave more of the outer titles beside their panels
        left, right = _overhang(panels, cell, width)
        cell = min(cell, (width - labels - left - right) / columns)
    return cell


def _overhang(panels: Sequence[Panel], cell: float, width: int) -> tuple[float, float]:
    shrink = TIGHTEST if width == WIDE else 1
    over = []
    for panel in (panels[0], panels[-1]):
        title = max(TITLE_LETTER * len(panel.title), SUBTITLE_LETTER * len(panel.subtitle)) / shrink
        over.append((title - cell * panel.size[1]) / 2)
    return max(0.0, over[0] - panels[0].left), max(EDGE[width], over[1])


def _rows(rows: Sequence[Sequence[Panel]], cell: float) -> tuple[list[Box], int, float]:
    boxes, top = [], 0.0
    for row in rows:
        over = _overhang(row, cell, WIDE)
        free = WIDE - sum(panel.left + cell * panel.size[1] for panel in row) - sum(over)
        gap = min(40.0, free / max(1, len(row) - 1))
        left = over[0] + (free - gap * (len(row) - 1)) / 2
        for panel in row:
            left += panel.left
            boxes.append((left, top + TITLE, cell * panel.size[1], cell * panel.size[0]))
            left += cell * panel.size[1] + gap
        top += max(TITLE + cell * panel.size[0] + panel.below for panel in row) + ROW_GAP
    return boxes, WIDE, top - ROW_GAP


def _stack(panels: Sequence[Panel]) -> tuple[list[Box], int, float]:
    boxes, top = [], 0.0
    for panel in panels:
        cell = cell_of([panel], NARROW)
        rows, columns = panel.size
        before, after = _overhang([panel], cell, NARROW)
        left = (
            before + panel.left + max(0, NARROW - before - panel.left - cell * columns - after) / 2
        )
        boxes.append((left, top + TITLE, cell * columns, cell * rows))
        top += TITLE + cell * rows + panel.below + 6
    return boxes, NARROW, top


def _placed(panels: Sequence[Panel], boxes: list[Box], width: int, height: float) -> dict[str, Any]:
    placed: dict[str, Any] = {"height": round(height), "annotations": []}
    for number, (panel, (left, top, w, h)) in enumerate(zip(panels, boxes, strict=True), 1):
        index = str(number) if number > 1 else ""
        x, y = [left / width, (left + w) / width], [1 - (top + h) / height, 1 - top / height]
        placed["xaxis" + index] = {"domain": [round(v, 4) for v in x]}
        placed["yaxis" + index] = {"domain": [round(v, 4) for v in y]}
        for text, role, size, above in (
            (panel.title, panel.role, 15, 22),
            (panel.subtitle, "soft", 12, 4),
        ):
            placed["annotations"].append(
                {
                    "text": text,
                    "font": {"color": colour(role), "size": size},
                    "x": round(sum(x) / 2, 4),
                    "y": round(y[1], 4),
                    "yshift": above,
                }
            )
    return placed
