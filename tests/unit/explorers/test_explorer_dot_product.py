"""What DotProduct shows: the arithmetic of two dot products, and who wins and why."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from samples import words

from mha_widgets import explorers
from mha_widgets.explorers.dot_product import DotProduct, Record
from mha_widgets.hosts import markup


def record(explorer: DotProduct | None = None, **state: Any) -> Record:
    explorer = explorer or DotProduct()
    return explorer.compute(**explorer.complete(**state))


def told(explorer: DotProduct, r: Record, number: int) -> str:
    """Return one fact as plain text, without drawing a figure."""
    return "".join(
        word if isinstance(word, str) else word.text for word in explorer.facts(r)[number]
    )


def test_the_first_thing_seen_is_that_the_nearer_direction_wins() -> None:
    r = record()
    assert r.between == [15, 45]
    np.testing.assert_allclose(
        r.scores, [4 * math.cos(math.radians(15)), 4 * math.cos(math.radians(45))], rtol=1e-6
    )
    assert words(DotProduct()) == [
        "query · A = 2 × 2 × cos 15° = 3.86.",
        "query · B = 2 × 2 × cos 45° = 2.83.",
        "Shares: e^3.86 ÷ (e^3.86 + e^2.83) = 0.74 for A, 0.26 for B.",
        "A wins by its direction: it is 15° from the query, B 45°.",
        (
            "Lengthening the query sharpens the shares and never swaps them: A has 0.63 at length 1"
            " and 0.83 at 3."
        ),
    ]


def test_a_long_key_wins_although_the_query_points_at_the_other() -> None:
    state = {"angle": 30, "length_a": 1, "length_b": 3}
    r = record(**state)
    np.testing.assert_allclose(r.scores, [2, 3], rtol=1e-6)
    np.testing.assert_allclose(r.weights, np.exp([2, 3]) / np.exp([2, 3]).sum(), rtol=1e-6)
    assert (
        words(DotProduct(), **state)[3]
        == "B wins by its length: it is 60° from the query, A 0°, and it is 3 times as long."
    )


def test_past_a_right_angle_the_dot_product_is_negative_and_length_counts_against_a_key() -> None:
    state = {"angle": 240, "length_a": 1, "length_b": 3}
    facts = words(DotProduct(), **state)
    assert facts[1] == "query · B = 2 × 3 × cos 150° = −5.20: they point apart."
    assert (
        facts[3]
        == "A wins by its shortness: both point away (150° and 150° from the query), so length"
        " counts against B."
    )


def test_at_a_right_angle_the_number_shown_is_zero() -> None:
    r = record(angle=0)
    assert r.scores[1] != 0 and r.clean[1] == 0 and math.copysign(1, r.clean[1]) == 1
    assert (
        words(DotProduct(), angle=0)[1]
        == "query · B = 2 × 2 × cos 90° = 0: at a right angle neither sees the other."
    )


@pytest.mark.parametrize(
    "state", [{"angle": 60}, {"angle": 30, "length_a": 1, "length_b": 2}, {"angle": 240}]
)
def test_a_tie_is_called_one(state: dict[str, Any]) -> None:
    assert words(DotProduct(), **state)[3:] == [
        "It is a tie: both keys reach equally far along the query.",
        "Lengthening the query leaves a tie as it is.",
    ]
    np.testing.assert_allclose(record(**state).weights, 0.5, atol=1e-6)


@pytest.mark.parametrize(
    "explorer",
    [DotProduct(), DotProduct([37.5, -101.0]), DotProduct([20, 20]), DotProduct([0, 180])],
)
def test_the_reason_why_a_key_wins_holds_in_every_state(explorer: DotProduct) -> None:
    for state in explorer.states():
        r = explorer.compute(**state)
        why = told(explorer, r, 3)
        first = int(r.scores.argmax())
        near, far = r.between[first], r.between[1 - first]
        longer = r.lengths[first] / r.lengths[1 - first]
        assert ("tie" in why) == (abs(r.scores[0] - r.scores[1]) < 1e-4)
        if "direction" in why:
            assert near < far
        elif "its length" in why:
            assert near >= far and longer > 1 and r.scores[first] > 0
        elif "shortness" in why:
            assert near >= far and longer < 1 and near > 90 and far > 90
        assert ("although" in why) == (not r.tie and near < far and longer < 1 and far < 90)


def test_a_longer_query_sharpens_the_shares_and_keeps_their_order() -> None:
    explorer = DotProduct()
    for state in explorer.states(("angle", "length_a", "length_b")):
        short, long = (explorer.compute(**state | {"length": length}) for length in (1, 3))
        if not short.tie:
            first = short.weights.argmax()
            assert long.weights.argmax() == first and long.weights[first] >= short.weights[first]
            shares = (
                f"has {short.weights[first]:.2f} at length 1 and {long.weights[first]:.2f} at 3."
            )
            assert told(explorer, short, 4).endswith(f"{explorer.names[first]} {shares}")


def test_the_dotted_lines_meet_the_query_at_a_right_angle() -> None:
    figure = DotProduct().view(angle=75, length_a=3, length_b=2).figure
    x, y = (np.asarray(v, dtype=float) for v in (figure.data[3].x, figure.data[3].y))
    query = record(angle=75).query
    for start in (3, 6):  # each key's line: its tip, then its foot
        assert abs(np.dot([x[start] - x[start + 1], y[start] - y[start + 1]], query)) < 0.03
        assert abs(x[start + 1] * query[1] - y[start + 1] * query[0]) < 0.03


def test_names_stand_apart_even_where_arrows_lie_on_each_other() -> None:
    places = {
        trace.name: trace.textposition for trace in DotProduct().view(angle=30).figure.data[:3]
    }
    assert places == {"A": "top right", "B": "top center", "q": "top center"}
    assert DotProduct().view(angle=75).figure.data[2].textposition == "top right"


def test_the_tables_hold_every_arrow_and_number() -> None:
    tables = markup.tables(DotProduct().view(angle=30, length_a=1, length_b=3).figure)
    for cells in (
        '<th scope="row">A</th><td>0.87</td><td>0.5</td>',
        '<th scope="row">B</th><td>0</td><td>3</td>',
        '<th scope="row">q</th><td>1.73</td><td>1</td>',
        '<th scope="row">q·k</th><td>2</td><td>3</td>',
        '<th scope="row">share</th><td>0.27</td><td>0.73</td>',
    ):
        assert cells in tables


def test_own_directions_and_names() -> None:
    own = DotProduct(np.array([37.5, -101.0], dtype=np.float32), ["<mat>", "$cat$"])
    assert own.directions == (37.5, -101) and "arrow(2, 37.5), arrow(2, -101)" in own.view().code
    r = record(own, angle=330, length=3, length_a=2, length_b=1)
    np.testing.assert_allclose(
        r.scores, [6 * math.cos(math.radians(67.5)), 3 * math.cos(math.radians(71))], rtol=1e-5
    )
    assert words(own, angle=330)[0] == "query · <mat> = 2 × 2 × cos 67.50° = 1.53."
    assert own.controls["length_b"].label == "Length of $cat$, at -101°"
    figure = own.view().figure
    assert [trace.text[1] for trace in figure.data[:3]] == ["&lt;mat&gt;", "&#36;cat&#36;", "q"]


@pytest.mark.parametrize(
    "data, error, message",
    [
        ({"directions": 30}, TypeError, "^directions is 30; pass two numbers, the degrees"),
        ({"directions": "30"}, TypeError, "^directions is '30'; pass two numbers, the degrees"),
        ({"directions": [30, "90"]}, TypeError, "^directions holds '90'; pass two numbers"),
        ({"directions": [30, True]}, TypeError, "^directions holds True; pass two numbers"),
        (
            {"directions": [30, 90, 150]},
            ValueError,
            r"^directions is \(30, 90, 150\); pass two finite numbers",
        ),
        (
            {"directions": [30, math.nan]},
            ValueError,
            r"^directions is \(30, nan\); pass two finite numbers",
        ),
        ({"names": ["A"]}, ValueError, "^names has 1 entries for 2 keys; pass one for each.$"),
        ({"names": "AB"}, TypeError, "^names is one string; pass a list of 2 strings"),
        (
            {"names": ["A", "A"]},
            ValueError,
            r"^names are \('A', 'A'\); pass two different ones, neither of them 'q'",
        ),
        (
            {"names": ["q", "A"]},
            ValueError,
            r"^names are \('q', 'A'\); pass two different ones, neither of them 'q'",
        ),
    ],
)
def test_data_that_do_not_fit_are_named(
    data: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        explorers.catalog()["DotProduct"](**data)
