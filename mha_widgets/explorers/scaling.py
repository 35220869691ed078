"""Scaling: why scores are divided by the square root of head_dim."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from torch import Tensor

from mha_widgets.attention.fresh import fresh_torch
from mha_widgets.explorer import Explorer
from mha_widgets.figures import Plot, bars, lines, panels
from mha_widgets.kit import format_number
from mha_widgets.view import Fact, Range, Toggle, Word

ROWS = 1000  # random queries, each with keys of its own
HEAD_DIMS = tuple(2**power for power in range(10))
FURTHEST = 30  # how far the distribution is drawn, each way
PARTS = (-np.inf, -10, -3, -1, 1, 3, 10, np.inf)  # what its table counts
# by the toggle: a name and its colour role
CURVES = {
    True: ("scaled", "head-0"),
    False: ("not scaled", "head-1"),
}


@dataclass(frozen=True)
class Record:
    """Random rows of scores, and what the softmax makes of them.

    Attributes:
        head_dim, scale, temperature: how the scores were made.
        scores: (N, S), what goes into the softmax.
        weights: (N, S).
        entropy: the median over the rows, in nats.
        gradient: the median over the rows of the sum of w(1 − w).
        entropies, gradients: both for every head_dim, by whether it is scaled.
    """

    head_dim: int
    scale: bool
    temperature: float
    scores: np.ndarray
    weights: np.ndarray
    entropy: np.ndarray
    gradient: np.ndarray
    entropies: Mapping[bool, np.ndarray]
    gradients: Mapping[bool, np.ndarray]

    @property
    def row(self) -> np.ndarray:
        """The weights of one row, the largest first."""
        return np.sort(self.weights[0])[::-1]


class Scaling(Explorer):
    """Shows how wide random scores spread, how few keys the softmax leaves then,
    and what that does to its gradient.

    Args:
        num_keys: how many keys a row has, S.
        seed: what the random numbers start from.

    Raises:
        TypeError: something other than whole numbers.
        ValueError: fewer than 2 keys or more than 64, or a negative seed.

    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.2.1 and footnote 4.

    >>> Scaling().compute(head_dim=512, scale=False, temperature=1).row[:2].round(2).tolist()
    [1.0, 0.0]
    """

    title = "Scaling: why scores are divided by √head_dim"
    prompt = (
        "Try: switch the scale off, then widen head_dim to 512. How many keys are left, and how"
        " much gradient?"
    )

    @fresh_torch()
    def __init__(self, num_keys: int = 16, seed: int = 0) -> None:
        for name, value in (("num_keys", num_keys), ("seed", seed)):
            if not isinstance(value, int) or isinstance(value, bool):
                raise TypeError(f"{name} is {value!r}; pass a whole number.")
        if not 2 <= num_keys <= 64:
            raise ValueError(
                f"num_keys is {num_keys}; pass 2 to 64: one key takes everything, and more are too"
                " thin to see."
            )
        if not 0 <= seed < 2**63:
            raise ValueError(f"seed is {seed}; pass 0 or more, below 2**63.")
        self.num_keys, self.seed = num_keys, seed
        self.controls = {
            "head_dim": Range(
                "head_dim", HEAD_DIMS, 64, "How many features each query and key has: E."
            ),
            "scale": Toggle(
                "Scale: ÷ √head_dim",
                default=True,
                help="Whether the scores are divided by √head_dim.",
            ),
            "temperature": Range(
                "Temperature",
                (0.5, 1, 2, 4, 8, 16),
                1,
                "What the scores are divided by after that.",
            ),
        }

    def disabled(self, **state: Any) -> Mapping[str, str]:
        """Return the controls that do nothing in a complete state, each with the reason."""
        return (
            {"scale": "√1 = 1: dividing by it changes nothing."} if state["head_dim"] == 1 else {}
        )

    @fresh_torch()
    def compute(self, **state: Any) -> Record:
        """Return the scores and weights of one complete state,
        and the curves over every head_dim.
        """
        scores = _scores(self.num_keys, self.seed, **state)
        weights, entropy, gradient = _softmax(scores)
        curves = _curves(self.num_keys, self.seed, state["temperature"])
        return Record(
            **state,
            scores=scores.numpy(),
            weights=weights.numpy(),
            entropy=entropy.numpy(),
            gradient=gradient.numpy(),
            entropies={scale: pairs[0] for scale, pairs in curves.items()},
            gradients={scale: pairs[1] for scale, pairs in curves.items()},
        )

    def draw(self, record: Record) -> go.Figure:
        """Draw the distribution of the scores and one row's weights,
        and below them the curves over head_dim.
        """
        even = 1 - 1 / self.num_keys
        return panels.draw(
            [
                _distribution(record),
                _row(record),
                _curve(
                    record, "Entropy of a row", "nats", record.entropies, math.log(self.num_keys)
                ),
                _curve(
                    record, "Gradient of the softmax", "sum of w(1 − w)", record.gradients, even
                ),
            ],
            per_row=2,
        )

    def facts(self, record: Record) -> tuple[Fact, ...]:
        """Return how wide the scores spread, how many keys are left,
        and what is left of the gradient.
        """
        told = (
            _spread(record),
            _strongest(record),
            _median(record),
            _gradient(record),
            _over_widths(record),
        )
        if record.scale:
            return told
        E = record.head_dim
        root = format_number(math.sqrt(E))
        return (
            *told,
            (
                (
                    f"Temperature {root} without the scale is the same as temperature 1 with it:"
                    f" both divide by √{E}."
                ),
            ),
        )

    @fresh_torch()
    def code(self, **state: Any) -> str:
        """Return a program that makes ``scores``, ``weights``,
        ``entropy`` and ``gradient`` of a complete state.
        """
        E, S = state["head_dim"], self.num_keys
        lines = [
            "import torch",
            "",
            f"generator = torch.Generator().manual_seed({self.seed})",
            f"query = torch.randn({ROWS}, 1, {E}, generator=generator)  # (N, L, E)",
            f"key = torch.randn({ROWS}, {S}, {E}, generator=generator)  # (N, S, E)",
            "scores = (query @ key.mT).squeeze(1)  # (N, S), one row for each query",
        ]
        lines += [f"scores = scores / {E} ** 0.5  # the scale"] if state["scale"] else []
        lines += (
            [f"scores = scores / {state['temperature']}  # the temperature"]
            if state["temperature"] != 1
            else []
        )
        lines += [
            "weights = scores.softmax(dim=-1)  # the first row is the one shown",
            (
                "entropy = torch.special.entr(weights).sum(dim=-1).median()  # in nats, of the"
                " median row"
            ),
            "effective_keys = entropy.exp()",
            (
                "gradient = (weights * (1 - weights)).sum(dim=-1).median()  # each weight's slope"
                " in its own score, summed"
            ),
        ]
        return "\n".join(lines)


@functools.cache
def _dot_products(num_keys: int, seed: int, head_dim: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(ROWS, 1, head_dim, generator=generator)
    key = torch.randn(ROWS, num_keys, head_dim, generator=generator)
    return (query @ key.mT).squeeze(1)


def _scores(num_keys: int, seed: int, head_dim: int, scale: bool, temperature: float) -> Tensor:
    scores = _dot_products(num_keys, seed, head_dim)
    return (scores / head_dim**0.5 if scale else scores) / temperature


def _softmax(scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    weights = scores.softmax(dim=-1)
    entropy = torch.special.entr(weights).sum(dim=-1).median()
    return weights, entropy, (weights * (1 - weights)).sum(dim=-1).median()


@functools.cache
def _curves(num_keys: int, seed: int, temperature: float) -> dict[bool, np.ndarray]:
    # (2, head_dims) each: entropy and gradient
    return {
        scale: (
            np.array(
                [
                    _softmax(_scores(num_keys, seed, head_dim, scale, temperature))[1:]
                    for head_dim in HEAD_DIMS
                ]
            ).T
        )
        for scale in CURVES
    }


def _distribution(record: Record) -> Plot:
    edges = np.arange(-FURTHEST - 0.5, FURTHEST + 1)
    counts = np.histogram(record.scores, edges)[0]
    beyond = 1 - counts.sum() / record.scores.size
    subtitle = f"standard deviation {format_number(record.scores.std())}" + (
        f", {beyond:.0%} outside" if beyond > 0.005 else ""
    )
    panel = lines(
        "Scores",
        subtitle,
        edges[:-1] + 0.5,
        {"scores": (np.round(counts / counts.max(), 3), CURVES[record.scale][1])},
        axis=("score", "ink"),
        height=("how often", "ink"),
        range=(0, 1.05),
        filled=True,
    )
    parts = np.histogram(record.scores, PARTS)[0] / record.scores.size
    names = [
        f"{format_number(low)} to {format_number(high)}"
        for low, high in zip(PARTS[1:-2], PARTS[2:-1], strict=True)
    ]
    table = (
        ["share of the scores"],
        ["below −10", *names, "above 10"],
        [[f"{part:.1%}" for part in parts]],
    )
    return replace(panel, table=table, y={**panel.y, "showticklabels": False})


def _row(record: Record) -> Plot:
    order = np.argsort(-record.weights[0], kind="stable")
    panel = bars(
        "Weights of one row",
        f"{len(order)} keys, the largest takes {record.row[0]:.2f}",
        [f"key {index}" for index in order],
        {"weight": (record.row.round(4), CURVES[record.scale][1])},
        axis=("keys, the strongest first", "key"),
        range=(0, 1.05),
    )
    return replace(panel, x={**panel.x, "showticklabels": False}, below=Plot.below)


def _curve(
    record: Record, title: str, unit: str, curves: Mapping[bool, np.ndarray], most: float
) -> Plot:
    panel = lines(
        title,
        f"median of {ROWS} rows",
        HEAD_DIMS,
        {CURVES[scale][0]: (curve.round(4), CURVES[scale][1]) for scale, curve in curves.items()},
        axis=("head_dim", "ink"),
        height=(unit, "ink"),
        range=(0, 1.05 * most),
        here=record.head_dim,
        logarithmic=True,
    )
    traces, here = {trace["name"]: trace for trace in panel.data}, CURVES[record.scale][0]
    shown = [traces[CURVES[True][0]], traces[CURVES[False][0]], traces[f"{here}, here"]]
    ticks = HEAD_DIMS[::3]
    return replace(
        panel, data=shown, x={**panel.x, "tickvals": ticks, "ticktext": list(map(str, ticks))}
    )


def _small(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "less than 0.001"


def _spread(record: Record) -> Fact:
    E, root = record.head_dim, format_number(math.sqrt(record.head_dim))
    divided = [root] * (record.scale and E > 1) + [
        f"temperature {format_number(record.temperature)}"
    ] * (record.temperature != 1)
    after = f"; divided by {' and by '.join(divided)}, of " if divided else ": "
    return (
        (
            f"Dot products of {E} random feature{'s' * (E > 1)} have a standard deviation of about"
            f" √{E} = {root}{after}{format_number(record.scores.std())} here."
        ),
    )


def _strongest(record: Record) -> Fact:
    some = record.row[record.row > 0]
    left = math.exp(-(some * np.log(some)).sum())
    keys = len(record.row)
    spread = f"it is spread as widely as over {left:.1f} keys that share evenly"
    return (
        (
            f"In the row shown the strongest of {keys} keys takes {some[0]:.2f} of the weight;"
            f" {spread}."
        ),
    )


def _median(record: Record) -> Fact:
    left = math.exp(record.entropy)
    role = "warn" if left < 2 else "key"
    return (
        (
            f"The median of {ROWS} rows has an entropy (the mean of −ln w) of {record.entropy:.2f}"
            " nats: "
        ),
        Word(f"e^{record.entropy:.2f} = {left:.1f} effective keys", role),
        f" of {record.weights.shape[1]}.",
    )


def _gradient(record: Record) -> Fact:
    other = record.gradients[not record.scale][HEAD_DIMS.index(record.head_dim)]
    told = (
        ""
        if record.head_dim == 1
        else f" ({'without' if record.scale else 'with'} the scale {_small(other)})"
    )
    return (
        (
            "Move a score a little, and its weight moves w(1 − w) as much: summed over the median"
            f" row {_small(float(record.gradient))}{told}."
        ),
    )


def _over_widths(record: Record) -> Fact:
    scaled, plain = (np.exp(record.entropies[scale]).round(1) for scale in (True, False))
    stay = (
        f"between {scaled.min():.1f} and {scaled.max():.1f}"
        if scaled.min() < scaled.max()
        else f"at {scaled[0]:.1f}"
    )
    return (
        (
            f"From head_dim {HEAD_DIMS[0]} to {HEAD_DIMS[-1]} the effective keys stay {stay} when"
            f" scaled, and go from {plain[0]:.1f} to {plain[-1]:.1f} when not."
        ),
    )
