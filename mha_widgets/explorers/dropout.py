"""Dropout: what training does to attention weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from torch import Tensor
from torch.nn import functional as F

from mha_widgets.attention.fresh import fresh_torch
from mha_widgets.explorer import Explorer
from mha_widgets.figures import Map, Plot, colour, label_width, labelled, panels, titled
from mha_widgets.kit import assignment, format_number, labels, matrix, quoted, sentence
from mha_widgets.view import Choice, Fact, Range, Toggle, Word

RATES = (0.0, 0.1, 0.2, 0.4, 0.6)
LARGEST_SUM = 1 / (1 - RATES[-1])  # of a row that keeps all its weight
MOST_NUMBERED = 20  # rows and columns up to which the sums are written too


@dataclass(frozen=True)
class Record:
    """Attention weights before and after dropout.

    Attributes:
        rows, columns: (L,) and (S,), the labels of the queries and of the keys.
        p, training, draws: how the weights were dropped.
        weights: (L, S), before.
        dropped: (L, S), after; with more than one draw their mean.
        row_sums: (L,), what is left of each row.
        share: how many of all the weights were dropped, from 0 to 1; those that were 0 before don't
            count.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    p: float
    training: bool
    draws: int
    weights: np.ndarray
    dropped: np.ndarray
    row_sums: np.ndarray
    share: float

    @property
    def crossed(self) -> np.ndarray:
        """(L, S), the weights of which nothing is left."""
        return (self.dropped == 0) & (self.weights > 0)


class Dropout(Explorer):
    """Shows attention weights before and after dropout, and what the rows sum to.

    Args:
        weights: (L, S), the weights of one sequence (and one head), whose rows sum to 1; those of
            the book's running example if none are given.
        tokens: S labels for the keys.
        query_tokens: L labels for the queries; the keys' labels if L = S.

    Raises:
        TypeError: something other than a tensor and lists of strings.
        ValueError: weights that are negative or whose rows don't sum to 1, or too few or too many
            tokens.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Dropout.html

    >>> Dropout().compute(p=0.4, training=False, seed=0, draws=1).row_sums.round(4)
    array([1., 1., 1., 1., 1., 1.], dtype=float32)
    """

    title = "Dropout: what training does to the weights"
    prompt = (
        "Try: look for a row that sums to more than 1, then average 1000 draws. What do the rows"
        " sum to now?"
    )

    @fresh_torch()
    def __init__(
        self,
        weights: Tensor | None = None,
        *,
        tokens: Sequence[str] | None = None,
        query_tokens: Sequence[str] | None = None,
    ) -> None:
        self.own = weights is not None
        if weights is None:
            weights = (sentence.QUERY @ sentence.KEY.T / 4**0.5).softmax(dim=-1)
            tokens = sentence.TOKENS if tokens is None else tokens
        self.weights = _checked(matrix("weights", weights, "(L, S)"))
        L, S = self.weights.shape
        self.tokens = labels("tokens", tokens, S, "keys")
        self.query_tokens = labels("query_tokens", query_tokens, L, "queries", like=self.tokens)
        self.controls = {
            "p": Range("Dropout p", RATES, 0.4, "How likely each weight is to be dropped."),
            "training": Toggle(
                "Training", default=True, help="Whether the module trains: train() or eval()."
            ),
            "seed": Range("Seed", tuple(range(3)), 0, "What the random numbers start from."),
            "draws": Choice(
                "Mean of draws", (1, 10, 100, 1000), 1, "How many random draws are averaged."
            ),
        }

    def disabled(self, **state: Any) -> Mapping[str, str]:
        """Return the controls that do nothing in a complete state, each with the reason."""
        if not state["training"]:
            return dict.fromkeys(("p", "seed", "draws"), "In evaluation nothing is dropped.")
        if state["p"] == 0:
            return dict.fromkeys(("seed", "draws"), "p = 0 drops nothing.")
        return {}

    @fresh_torch()
    def compute(self, **state: Any) -> Record:
        """Return the weights before and after dropout of one complete state."""
        seed, draws = state["seed"], state["draws"]
        with fresh_torch(seed):
            every = F.dropout(self.weights.expand(draws, -1, -1), state["p"], state["training"])
        dropped = every.mean(dim=0) if draws > 1 else every[0]
        return Record(
            rows=self.query_tokens,
            columns=self.tokens,
            p=state["p"],
            training=state["training"],
            draws=draws,
            weights=self.weights.numpy(),
            dropped=dropped.numpy(),
            row_sums=dropped.sum(dim=-1).numpy(),
            share=(every[:, self.weights > 0] == 0).float().mean().item(),
        )

    def draw(self, record: Record) -> go.Figure:
        """Draw the weights before and after, and beside them what the rows sum to."""
        common: dict[str, Any] = {
            "rows": record.rows,
            "columns": record.columns,
            "colours": "weight",
        }
        words = np.where(record.crossed, "", np.vectorize("{:.2f}".format)(record.dropped))
        hover = "%{y} → %{x}<br>before %{customdata[0]:.3f}<br>after %{z:.3f}"
        after: dict[str, Any] = {
            "hover": hover,
            "customdata": record.weights[..., None],
            "text": words,
            "number": "%{text}",
        }
        crosses: dict[str, Any] = {"blocked": record.crossed, "blocked_word": "dropped"}
        return panels.draw(
            [
                Map(
                    "Weights",
                    "each row sums to 1",
                    record.weights,
                    **common,
                    hover="%{y} → %{x}: %{z:.4f}",
                ),
                Map(
                    "After dropout",
                    _subtitle(record),
                    record.dropped.round(3),
                    **common,
                    **after,
                    **crosses,
                ),
                _sums(record),
            ]
        )

    def facts(self, record: Record) -> tuple[Fact, ...]:
        """Return what is dropped, what becomes of the rows and the largest weights,
        and where that shows.
        """
        if not record.training or record.p == 0:
            return _nothing(record)
        if record.draws > 1:
            return _averaged(record)
        return _dropped(record)

    @fresh_torch()
    def code(self, **state: Any) -> str:
        """Return a program that makes ``weights``,
        ``dropped`` and ``row_sums`` of a complete state.
        """
        p, draws = state["p"], state["draws"]
        lines = ["import torch", "import torch.nn.functional as F", ""]
        if self.own:
            lines.append(assignment("weights", self.weights))
        else:
            lines += [assignment("query", sentence.QUERY), assignment("key", sentence.KEY)]
            lines.append("weights = (query @ key.T / 4 ** 0.5).softmax(dim=-1)  # (L, S)")
        lines += ["", f"torch.manual_seed({state['seed']})"] if state["training"] and p else []
        if draws > 1:
            lines.append(
                f"every = F.dropout(weights.expand({draws}, -1, -1), p={p}, training=True)  #"
                f" {draws} draws"
            )
            lines.append("dropped = every.mean(dim=0)")
        else:
            lines.append(f"dropped = F.dropout(weights, p={p}, training={state['training']})")
        lines.append("row_sums = dropped.sum(dim=-1)")
        return "\n".join(lines)


def _checked(weights: Tensor) -> Tensor:
    if (weights < 0).any():
        raise ValueError(
            f"weights holds {weights.min().item():.3g}; pass weights after the softmax, none"
            " below 0."
        )
    sums = weights.sum(dim=-1)
    off = ((sums - 1).abs() > 0.01).nonzero()
    if len(off):
        row = int(off[0])
        raise ValueError(
            f"Row {row} of weights sums to {sums[row].item():.3g}; pass rows that sum to 1: weights"
            " from before dropout, as a module in eval() returns them."
        )
    return weights


def _subtitle(record: Record) -> str:
    if not record.training:
        return "evaluation: nothing changes"
    if record.draws > 1:
        return f"p = {record.p:g}, the mean of {record.draws} draws"
    return f"p = {record.p:g}: the rest × {format_number(1 / (1 - record.p))}"


def _sums(record: Record) -> Plot:
    sums, places = record.row_sums.astype(float).round(3), np.arange(len(record.rows))
    words, end = [f"{value:.2f}" for value in record.row_sums], LARGEST_SUM * 1.25
    bars: dict[str, Any] = {
        "type": "bar",
        "name": "row sums",
        "orientation": "h",
        "x": sums,
        "y": places,
        "marker": {"color": colour("query")},
    }
    one: dict[str, Any] = {
        "type": "scatter",
        "name": "one",
        "x": [1, 1],
        "y": [-0.5, len(places) - 0.5],
        "mode": "lines",
    }
    numbers: dict[str, Any] = {
        "type": "scatter",
        "name": "numbers",
        "x": np.full(len(places), end),
        "y": places,
        "mode": "text",
        "text": words,
    }
    data = [
        bars | {"hovertemplate": "%{y}: %{x:.3f}<extra></extra>"},
        one | {"line": {"color": colour("ink"), "width": 1.5, "dash": "dot"}},
        *[numbers | {"textposition": "middle left", "textfont": {"size": 11}}]
        * (max(record.weights.shape) <= MOST_NUMBERED),
    ]
    x = titled(("sum of the row", "ink")) | {"range": [0, end], "tickvals": [0, 1, 2]}
    # as beside the map
    y = labelled(record.rows, ("query", "query")) | {
        "tickangle": 0,
        "range": [len(places) - 0.5, -0.5],
    }
    more: dict[str, Any] = {
        "size": (len(places), max(4, 0.6 * len(record.columns))),
        "left": label_width(record.rows),
    }
    return Plot(
        "Row sums",
        "dotted: 1",
        data,
        x,
        y,
        (record.rows, ["sum"], [[word] for word in words]),
        **more,
    )


def _nothing(record: Record) -> tuple[Fact, ...]:
    why = "In evaluation dropout does nothing" if not record.training else "p = 0 drops nothing"
    sums = (
        "every row still sums to 1"
        if np.abs(record.row_sums - 1).max() < 0.005
        else "every row sums to what it did"
    )
    return (
        (f"{why}: the weights stay as they were, and {sums}.",),
        ("Call it again and you get the same: no random number is drawn.",),
    )


def _dropped(record: Record) -> tuple[Fact, ...]:
    count, all_of_them = int(record.crossed.sum()), int((record.weights > 0).sum())
    kept = f"1 − {record.p:g} = {format_number(1 - record.p)}"
    facts: list[Fact] = [
        (f"Dropped: {count} of {all_of_them} weights; the others are divided by {kept}.",),
        _range(record),
    ]
    if len(empty := np.flatnonzero(record.row_sums == 0)) == 1:
        facts.append(
            (
                quoted(record.rows[empty[0]], "query"),
                " has lost every key: its output is ",
                Word("zeros", "warn"),
                ".",
            )
        )
    elif len(empty):
        facts.append(
            (
                f"{len(empty)} rows have lost every key: their outputs are ",
                Word("zeros", "warn"),
                ".",
            )
        )
    row, column = np.unravel_index(record.dropped.argmax(), record.dropped.shape)
    if record.dropped[row, column] >= 1.005:
        above = f" is now {record.dropped[row, column]:.2f}: a single weight above 1."
        facts.append(
            (quoted(record.rows[row], "query"), " → ", quoted(record.columns[column], "key"), above)
        )
    module = f"nn.MultiheadAttention(…, dropout={record.p:g})"
    facts.append(
        (
            (
                f"While {module} trains, it returns weights like these; after eval() they are whole"
                " again."
            ),
        )
    )
    return tuple(facts)


def _range(record: Record) -> Fact:
    low, high = int(record.row_sums.argmin()), int(record.row_sums.argmax())
    least, most = (f"{record.row_sums[row]:.2f}" for row in (low, high))
    if least == most:
        return (
            (f"Every row now sums to {most}.",)
            if len(record.rows) > 1
            else (f"The row now sums to {most}.",)
        )
    low_row, high_row = quoted(record.rows[low], "query"), quoted(record.rows[high], "query")
    return (
        "The rows no longer sum to 1: ",
        low_row,
        f" (row {low}) to {least}, ",
        high_row,
        f" (row {high}) to {most}.",
    )


def _averaged(record: Record) -> tuple[Fact, ...]:
    low, high = record.row_sums.min(), record.row_sums.max()
    away = np.abs(record.dropped - record.weights)
    row, column = np.unravel_index(away.argmax(), away.shape)
    before, after = f"{record.weights[row, column]:.2f}", f"{record.dropped[row, column]:.2f}"
    pair = quoted(record.rows[row], "query"), " → ", quoted(record.columns[column], "key")
    factor = format_number(1 / (1 - record.p))
    return (
        (
            (
                f"Over {record.draws} draws {record.share:.1%} of the weights were dropped; each"
                f" time, the others were × {factor}."
            ),
        ),
        (
            (
                f"The mean row sums lie between {low:.2f} and {high:.2f}: the more draws, the"
                " closer to 1."
            ),
        ),
        (
            "The mean weights come back to those before: the farthest off is ",
            *pair,
            f", {after} instead of {before}.",
        ),
        ("To come ten times closer takes a hundred times as many draws.",),
    )
