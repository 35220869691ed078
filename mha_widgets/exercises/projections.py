"""The exercises of the chapter on projections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_widgets.attention import causal_mask, window_mask
from mha_widgets.exercises._checking import (
    Wrong,
    called,
    close,
    exercise,
    expect,
    random,
    says,
    several,
    shape_of,
    shaped,
)
from mha_widgets.kit.sentence import W_K, W_Q, X


@exercise("projections-1")
def shapes(answer: Any) -> str:
    """The shapes of query, weights and output for x (2, 5, 8), y (2, 7, 6) and matrices (3, 8),
    (3, 6), (4, 6).
    """
    wanted = "give three shapes: that of the query, of the weights and of the output"
    query, weights, output = map(shape_of, several(answer, 3, wanted))
    if query == (2, 5, 8):
        raise Wrong("the query has the features that w_q makes, not those of x.")
    expect(query, (2, 5, 3), "the query is", "x @ w_q.T changes the last size only")
    if weights == (2, 7, 5):
        raise Wrong(
            "the weights have a row for each query and a column for each key, not the other way"
            " round."
        )
    expect(
        weights,
        (2, 5, 7),
        "the weights are",
        "they hold one number for each query and key, (N, L, S)",
    )
    if output == (2, 7, 4):
        raise Wrong("each query gets one output: there are as many rows as in x.")
    expect(output, (2, 5, 4), "the output is", "it has a row for each query, as wide as a value")
    return "x decides the rows, y the columns of the weights, w_v the width of the output."


@exercise("projections-2")
def attention(answer: Any) -> str:
    """A function attention(x, y, w_q, w_k, w_v) that is right for sizes that differ."""
    square = [random(4, 4, seed=seed) for seed in range(3)]
    narrow = [random(3, 8, seed=3), random(3, 6, seed=4), random(5, 6, seed=5)]
    x, y = random(6, 4, seed=6), random(6, 4, seed=7)
    _agrees(
        answer, (x, x, *square), "in self-attention", "compare it with the lines of this chapter."
    )
    _agrees(answer, (x, y, *square), "in cross-attention", "from which words do the values come?")
    _agrees(
        answer,
        (random(5, 8, seed=8), random(7, 6, seed=9), *narrow),
        "for D ≠ E",
        "whose size belongs under the root?",
    )
    _agrees(
        answer,
        (random(2, 5, 8, seed=8), random(2, 7, 6, seed=9), *narrow),
        "for a batch",
        "count axes from the back.",
    )
    return "Values come from where the keys come from, and the scale is that of a query."


def _agrees(
    function: Callable[..., Any], inputs: tuple[Tensor, ...], where: str, hint: str
) -> None:
    x, y, w_q, w_k, w_v = inputs
    expected = F.scaled_dot_product_attention(x @ w_q.T, y @ w_k.T, y @ w_v.T)
    output = shaped(called(function, *inputs), expected.shape, what=f"its output {where}")
    if not close(output, expected):
        raise Wrong(
            f"its output {where} differs from the right one by"
            f" {(output - expected).abs().max():.2g}: {hint}"
        )


@exercise("projections-3")
def looks_at_on(answer: Any) -> str:
    """A projection (4, 4) with which "cat" looks at "on", while four words look where they did."""
    found = shaped(answer, (4, 4), what="your w_q").to(W_Q)
    new, old = ((X @ w_q.T @ (X @ W_K.T).T / 2).softmax(dim=-1) for w_q in (found, W_Q))
    turned = (X @ found @ (X @ W_K.T).T / 2).softmax(dim=-1)
    changed = [row for row in (0, 2, 3, 4) if not close(new[row], old[row])]
    if turned[1, 3] > 0.9 and (changed or new[1, 3] <= 0.9):
        raise Wrong(
            "your w_q is transposed: a row for each feature of the query, a column for each feature"
            " of the word."
        )
    if changed:
        raise Wrong(
            f"word {changed[0]} looks elsewhere too: change only the column of the feature that cat"
            " has."
        )
    if not new[1, 3] > 0.9:
        raise Wrong(
            f"cat gives {new[1, 3]:.2f} to on; it should be more than 0.9. By which feature is on"
            " found?"
        )
    return f"cat gives {new[1, 3]:.2f} to on: a column says what a feature of the word asks for."


def _attend(words: Tensor, mask: Tensor | None = None) -> Tensor:
    return F.scaled_dot_product_attention(words, words, words, attn_mask=mask)


def _look_near(words: Tensor) -> Tensor:
    return _attend(words, window_mask(len(words), window=1))


def _look_round(words: Tensor) -> Tensor:
    place = torch.arange(len(words))
    apart = (place[:, None] - place) % len(words)
    return _attend(words, (apart <= 1) | (apart == len(words) - 1))


def _mark_last(words: Tensor) -> Tensor:
    return _attend(torch.cat([words[:-1], words[-1:] + 1]))


@exercise("projections-4")
def is_blind(answer: Any) -> str:
    """A function that says whether another one is permutation equivariant."""
    position = random(64, 4, seed=10)
    judged: tuple[tuple[str, bool, Callable[[Tensor], Tensor], str], ...] = (
        (
            "attention alone",
            True,
            _attend,
            "shuffle its output too before you compare, and allow for rounding",
        ),
        ("two layers of it", True, lambda words: _attend(_attend(words)), "allow for rounding"),
        (
            "attention with a causal mask",
            False,
            lambda words: _attend(words, causal_mask(len(words))),
            "shuffle the words",
        ),
        (
            "attention with positions",
            False,
            lambda words: _attend(words + position[: len(words)]),
            "shuffle the words",
        ),
        (
            "attention with a window of one step each way",
            False,
            _look_near,
            "one order is not enough",
        ),
        (
            "attention with such a window that closes to a ring",
            False,
            _look_round,
            "turning all words is not enough",
        ),
        ("attention that marks the last word", False, _mark_last, "one order is not enough"),
    )
    for name, expected, function, hint in judged:
        found = says(answer, function)
        if found != expected:
            raise Wrong(f"your function says {found} of {name}: {hint}.")
    return "One order alone can deceive: a window looks the same in a mirror."
