"""What Dropout shows: weights before and after, rows that no longer sum to 1,
and the mean that comes back.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from release import OLDEST
from samples import words
from torch.nn import functional as F

from mha_widgets import explorers
from mha_widgets.explorers.dropout import Dropout, Record
from mha_widgets.hosts import markup
from mha_widgets.kit import sentence

torch.manual_seed(0)
OWN = {"weights": torch.randn(5, 7).double().softmax(dim=-1)}


def record(explorer: Dropout | None = None, **state: Any) -> Record:
    explorer = explorer or Dropout()
    return explorer.compute(**explorer.complete(**state))


def test_the_weights_before_are_those_of_the_books_sentence() -> None:
    attention = explorers.Attention()
    np.testing.assert_allclose(
        record().weights, attention.compute(**attention.complete()).weights, rtol=1e-6
    )


@pytest.mark.parametrize("explorer", [Dropout(), Dropout(**OWN)])
@pytest.mark.parametrize("p", [0.1, 0.2, 0.4, 0.6])
def test_each_weight_is_dropped_or_divided(explorer: Dropout, p: float) -> None:
    for seed in range(3):
        r = record(explorer, p=p, seed=seed)
        np.testing.assert_allclose(
            r.dropped[~r.crossed], (r.weights / (1 - p))[~r.crossed], rtol=1e-6
        )
        assert (r.dropped[r.crossed] == 0).all() and r.dropped.dtype == r.weights.dtype
        np.testing.assert_allclose(r.row_sums, r.dropped.sum(axis=1), rtol=1e-6)


def test_the_first_thing_seen_is_that_rows_no_longer_sum_to_1() -> None:
    torch.manual_seed(0)
    dropped = F.dropout((sentence.QUERY @ sentence.KEY.T / 2).softmax(dim=-1), p=0.4)
    assert record().dropped.tolist() == dropped.tolist()
    sums = dropped.sum(dim=-1)
    low, high = int(sums.argmin()), int(sums.argmax())
    row, column = divmod(int(dropped.argmax()), 6)
    assert sums[low] < 0.5 and sums[high] > 1.5 and dropped.max() > 1
    token = sentence.TOKENS
    assert words(Dropout())[:3] == [
        (
            f"Dropped: {int((dropped == 0).sum())} of 36 weights; the others are divided by 1 − 0.4"
            " = 0.60."
        ),
        (
            f"The rows no longer sum to 1: “{token[low]}” (row {low}) to {sums[low]:.2f}, "
            f"“{token[high]}” (row {high}) to {sums[high]:.2f}."
        ),
        f"“{token[row]}” → “{token[column]}” is now {dropped.max():.2f}: a single weight above 1.",
    ]


def test_a_module_that_trains_returns_dropped_weights() -> None:
    torch.manual_seed(1)
    mha, x = torch.nn.MultiheadAttention(4, 1, dropout=0.4, batch_first=True), torch.randn(1, 5, 4)
    whole = mha.eval()(x, x, x)[1].detach()[0]
    torch.manual_seed(2)
    returned = mha.train()(x, x, x)[1].detach()[0]
    np.testing.assert_allclose(record(Dropout(whole), p=0.4, seed=2).dropped, returned, rtol=1e-5)
    fact = words(Dropout(), p=0.4)[-1]
    assert fact.startswith(
        "While nn.MultiheadAttention(…, dropout=0.4) trains, it returns weights like these; after"
        " eval()"
    )


@pytest.mark.parametrize(
    "state, why",
    [
        ({"training": False}, "In evaluation dropout does nothing"),
        ({"p": 0.0, "seed": 2}, "p = 0 drops nothing"),
    ],
)
def test_in_evaluation_and_at_0_nothing_happens(state: dict[str, Any], why: str) -> None:
    r = record(**state)
    assert r.dropped.tolist() == r.weights.tolist() and not r.crossed.any()
    np.testing.assert_allclose(r.row_sums, 1, rtol=1e-6)
    assert words(Dropout(), **state) == [
        f"{why}: the weights stay as they were, and every row still sums to 1.",
        "Call it again and you get the same: no random number is drawn.",
    ]
    torch.manual_seed(2)
    expected = torch.rand(1)
    torch.manual_seed(2)
    F.dropout(OWN["weights"], record(**state).p, record(**state).training)
    assert torch.rand(1) == expected


@pytest.mark.parametrize("draws", [10, 100, 1000])
def test_the_mean_of_many_draws_comes_back_to_the_weights(draws: int) -> None:
    torch.manual_seed(2)
    every = F.dropout(torch.tensor(record().weights).expand(draws, 6, 6), p=0.2)
    r = record(p=0.2, seed=2, draws=draws)
    np.testing.assert_allclose(r.dropped, every.mean(dim=0), rtol=1e-6)
    deviation = r.weights.max() * (0.2 / 0.8 / draws) ** 0.5  # of a mean of draws: 0 or w ÷ 0.8
    assert np.abs(r.dropped - r.weights).max() < 4 * deviation
    share, sums = (every == 0).float().mean(), every.mean(dim=0).sum(dim=-1)
    facts = words(Dropout(), p=0.2, seed=2, draws=draws)
    assert (
        facts[0]
        == f"Over {draws} draws {share:.1%} of the weights were dropped; each time, the others were"
        " × 1.25."
    )
    assert (
        facts[1]
        == f"The mean row sums lie between {sums.min():.2f} and {sums.max():.2f}: the more draws,"
        " the closer to 1."
    )
    row, column = divmod(int(np.abs(r.dropped - r.weights).argmax()), 6)
    off = f"{r.dropped[row, column]:.2f} instead of {r.weights[row, column]:.2f}."
    assert facts[2].endswith(f"“{sentence.TOKENS[row]}” → “{sentence.TOKENS[column]}”, {off}")


def test_rows_that_have_lost_every_key_are_told() -> None:
    one = Dropout(torch.eye(3), tokens=["a", "b", "c"])
    found = set()
    for p, seed in itertools.product((0.1, 0.2, 0.4, 0.6), range(3)):
        r = record(one, p=p, seed=seed)
        lost = int((r.row_sums == 0).sum())
        facts = words(one, p=p, seed=seed)
        assert facts[0].startswith(f"Dropped: {lost} of 3 weights;")
        token = "abc"[int(r.row_sums.argmin())]
        single = f"“{token}” has lost every key: its output is zeros."
        assert (single in facts) == (lost == 1)
        assert (f"{lost} rows have lost every key: their outputs are zeros." in facts) == (lost > 1)
        assert any("above 1" in fact for fact in facts) == (lost < 3)
        assert ("Every row now sums to 0.00." in facts) == (lost == 3)
        assert (f"Every row now sums to {1 / (1 - p):.2f}." in facts) == (lost == 0)
        found.add(lost)
    assert found == {0, 1, 2} | ({3} if not OLDEST else set())  # it draws other numbers


def test_one_row_is_called_the_row_and_weights_that_were_0_are_not_counted() -> None:
    one = Dropout(torch.tensor([[0.5, 0.0, 0.5]]))
    for seed in range(3):
        r = record(one, seed=seed)
        facts = words(one, seed=seed)
        assert facts[0].startswith(
            f"Dropped: {int((r.dropped[0, [0, 2]] == 0).sum())} of 2 weights;"
        )
        assert facts[1] == f"The row now sums to {r.row_sums[0]:.2f}." and not r.crossed[0, 1]


def test_dropped_weights_are_crossed_in_the_map_and_in_its_table() -> None:
    r, figure = record(), Dropout().view().figure
    after = figure.data[1]
    crosses = figure.data[2]
    assert np.stack([crosses.y, crosses.x], axis=-1).tolist() == np.argwhere(r.crossed).tolist()
    assert (np.array(after.text) == "").tolist() == r.crossed.tolist()
    assert after.text[1][2] == f"{r.dropped[1, 2]:.2f}" and (after.zmin, after.zmax) == (0, 1)
    assert markup.tables(figure).count(
        "<td>dropped</td>"
    ) == r.crossed.sum() and "blocked" not in markup.tables(figure)
    big = Dropout(torch.full((40, 40), 1 / 40))  # too small for numbers
    assert markup.tables(big.view().figure).count("<td>dropped</td>") == record(big).crossed.sum()


def test_the_bars_lie_beside_their_rows() -> None:
    figure, r = Dropout().view().figure, record()
    bars, one, numbers = (trace for trace in figure.data if trace.yaxis == "y3")
    assert (bars.orientation, list(one.x)) == ("h", [1, 1])
    np.testing.assert_allclose(
        [float(number) for number in numbers.text], r.row_sums, atol=0.0051, rtol=0
    )
    np.testing.assert_allclose(bars.x, r.row_sums, atol=1e-3)
    layout = figure.layout
    assert layout.yaxis3.domain == layout.yaxis.domain and layout.yaxis3.range == layout.yaxis.range
    assert layout.yaxis3.ticktext == layout.yaxis.ticktext
    assert layout.xaxis3.range[1] > 2.5  # the most that a row can sum to


def test_controls_that_do_nothing_say_why() -> None:
    dropout = Dropout()
    assert dropout.view(training=False).disabled == dict.fromkeys(
        ("p", "seed", "draws"), "In evaluation nothing is dropped."
    )
    assert dropout.view(p=0.0).disabled == dict.fromkeys(("seed", "draws"), "p = 0 drops nothing.")
    assert dropout.view().disabled == {}


def test_it_leaves_the_random_numbers_of_the_reader_alone() -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    Dropout().view(draws=10)
    assert torch.rand(3).tolist() == expected.tolist()


def test_own_weights_and_tokens() -> None:
    own = Dropout(**OWN, tokens=list("abcdefg"), query_tokens=["<pad>", "v", "w", "x", "y"])
    r = record(own, seed=2)
    assert r.dropped.shape == (5, 7) and r.dropped.dtype == np.float64
    assert own.view().figure.layout.yaxis3.ticktext[0] == "&lt;pad&gt;"
    half = Dropout(torch.rand(3, 5).softmax(dim=-1).bfloat16())
    assert record(half, training=False).dropped.dtype == np.float32


@pytest.mark.parametrize(
    "data, error, message",
    [
        ({"weights": [[1.0]]}, TypeError, r"^weights is a list; pass a tensor \(L, S\)"),
        (
            {"weights": torch.ones(2, 3, 5) / 5},
            ValueError,
            r"^weights has shape \(2, 3, 5\); pass one sequence, \(L, S\)",
        ),
        (
            {"weights": torch.tensor([[1.5, -0.5]])},
            ValueError,
            "^weights holds -0.5; pass weights after the softmax",
        ),
        (
            {"weights": torch.tensor([[0.5, 0.5], [0.5, 0.7]])},
            ValueError,
            "^Row 1 of weights sums to 1.2; pass rows that",
        ),
        (
            {"weights": torch.tensor([[torch.nan, 1.0]])},
            ValueError,
            r"^weights holds nan at \(0, 0\)",
        ),
        (
            {**OWN, "tokens": ["a"]},
            ValueError,
            "^tokens has 1 entries for 7 keys; pass one for each.$",
        ),
        (
            {**OWN, "query_tokens": ["a"]},
            ValueError,
            "^query_tokens has 1 entries for 5 queries; pass one for each.$",
        ),
    ],
)
def test_data_that_do_not_fit_are_named(
    data: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Dropout(**data)
