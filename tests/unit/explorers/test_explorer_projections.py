"""What Projections shows: three roles by hand, what the identity does,
and that order does nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from samples import states_of, words
from torch.nn import functional as F

from mha_widgets import explorers

EXAMPLE = explorers.Projections()


def own() -> dict[str, torch.Tensor]:
    """Return 5 words and 7 others, with 3 features, in float64."""
    torch.manual_seed(0)
    sizes = {"x": (5, 3), "w_q": (3, 3), "w_k": (3, 3), "w_v": (3, 3), "y": (7, 3)}
    return {name: torch.randn(size, dtype=torch.float64) for name, size in sizes.items()}


def record(explorer: explorers.Projections = EXAMPLE, **state: Any) -> Any:
    return explorer.compute(**explorer.complete(**state))


def test_a_word_in_three_roles_by_hand() -> None:
    shown = record()
    assert shown.x[3].tolist() == [0, 0, 2, 1]  # “on”
    assert shown.query[3].tolist() == [1, 0, 2, 0]
    assert shown.key[3].tolist() == [0, 0, 2, 0]
    assert shown.value[3].tolist() == [2, 0, 4, -1]
    assert (shown.scores[3] * 2).tolist() == [0, 2, 0, 4, 0, 5]
    exponentials = np.exp([0, 1, 0, 2, 0, 2.5])
    np.testing.assert_allclose(shown.weights[3], exponentials / exponentials.sum(), rtol=1e-6)
    expected = F.scaled_dot_product_attention(
        *map(torch.tensor, (shown.query, shown.key, shown.value))
    )
    np.testing.assert_allclose(shown.output, expected, rtol=1e-5)
    assert words(EXAMPLE)[:2] == [
        (
            "“sat” is [0, 2, 0, 0] in X: it asks for [2, 0, 0, 0], can be found by [0, 4, 0, 0] and"
            " hands over [0, 2, 0, 0]."
        ),
        (
            "“mat” asks for [0, 3, 1, 0], “sat” offers [0, 4, 0, 0]: “mat” looks mostly at “sat”"
            " (0.98), then at “on” (0.01)."
        ),
    ]


def test_under_the_identity_words_look_at_themselves_or_at_longer_ones() -> None:
    shown = record(w_q=True, w_k=True)
    np.testing.assert_array_equal(shown.scores, shown.x @ shown.x.T / 2)
    assert shown.weights[[0, 2, 3, 5]].argmax(axis=1).tolist() == [0, 2, 3, 5]
    assert shown.weights[4, 0] == shown.weights[4, 4]  # “the” and its double
    assert shown.weights[1].argmax() == 5  # “cat” at “mat”
    facts = words(EXAMPLE, w_q=True, w_k=True)
    assert facts[2:] == [
        (
            "W_q = W_k = identity: Q is X, K is X; 5 of 6 words look at nothing more than at"
            " themselves, but “cat” at “mat”, which is longer (q·k ÷ √4 is 3 instead of 2)."
        ),
        "Scores have no direction here: from one word to another they are the same as back.",
    ]


def test_words_of_one_length_look_at_themselves() -> None:
    eye = torch.eye(3)
    facts = words(explorers.Projections(eye, eye, eye, eye))
    assert (
        facts[1]
        == "“0” asks for [1, 0, 0], “0” offers [1, 0, 0]: “0” looks mostly at “0” (0.47), then at"
        " “1” and “2” (0.26 each)."
    )
    facts = words(explorers.Projections(eye, eye, eye, eye), w_q=True, w_k=True)
    assert (
        facts[2]
        == "W_q = W_k = identity: Q is X, K is X; no word looks at another more than at itself."
    )


@pytest.mark.parametrize("name, title", [("w_q", "Q"), ("w_k", "K"), ("w_v", "V")])
def test_one_identity_leaves_one_role_as_it_is(name: str, title: str) -> None:
    shown = record(**{name: True})
    role = {"w_q": "query", "w_k": "key", "w_v": "value"}[name]
    np.testing.assert_array_equal(getattr(shown, role), shown.x)
    assert not np.array_equal(shown.key if role != "key" else shown.query, shown.x)
    assert f"W_{name[-1]} = identity: {title} is X, word for word." in words(
        EXAMPLE, **{name: True}
    )
    assert f"{title} = X" in [trace.name for trace in EXAMPLE.view(**{name: True}).figure.data]


def test_scores_have_a_direction_unless_the_projections_say_otherwise() -> None:
    told = "Scores, q·k ÷ √4, have a direction: “the” → “mat” 3, “mat” → “the” 0."
    scores = record().scores
    assert (scores[0, 5], scores[5, 0]) == (3, 0)
    assert (scores - scores.T).max() == 3
    assert words(EXAMPLE)[-1] == told
    assert not any("direction" in fact for fact in words(EXAMPLE, key_from="other"))


def test_the_other_sentence_gives_keys_and_values_only() -> None:
    shown = record(key_from="other")
    assert (shown.query.shape, shown.key.shape, shown.value.shape, shown.weights.shape) == (
        (6, 4),
        (4, 4),
        (4, 4),
        (6, 4),
    )
    np.testing.assert_array_equal(shown.query, record().query)
    assert shown.columns == ("le", "chat", "est", "là")
    facts = words(EXAMPLE, key_from="other", w_q=True, w_k=True)
    assert (
        facts[0]
        == "“chat” is [3, 0, 0, 0] in Y: it can be found by [3, 0, 0, 0] and hands over [3, 0,"
        " 0, 0]."
    )
    assert facts[2:] == [
        (
            "W_q = W_k = identity: Q is X, K is Y; scores compare the words of both sentences as"
            " they are."
        ),
        (
            "6 queries come from X, 4 keys and values from Y: weights (L, S) = (6, 4), and 6 rows"
            " of output."
        ),
    ]


@pytest.mark.parametrize(
    "shuffle, order", [("swap", [1, 0, 2, 3, 4, 5]), ("reverse", [5, 4, 3, 2, 1, 0])]
)
def test_shuffling_moves_rows_and_columns_and_changes_nothing(
    shuffle: str, order: list[int]
) -> None:
    before, after = record(), record(shuffle=shuffle)
    np.testing.assert_array_equal(after.x, before.x[order])
    np.testing.assert_allclose(after.weights, before.weights[order][:, order], atol=1e-6)
    np.testing.assert_allclose(after.output, before.output[order], atol=1e-6)
    assert after.moved < 1e-6
    assert after.rows == after.columns == tuple(before.rows[i] for i in order)
    assert (
        words(EXAMPLE, shuffle=shuffle)[-1]
        == "Only the order changed: with rows and columns put back, weights and output differ from"
        " those before by 0, but for rounding; attention alone is blind to order."
    )


def test_shuffling_the_other_sentence_leaves_the_output_in_place() -> None:
    before, after = record(key_from="other"), record(key_from="other", shuffle="reverse")
    np.testing.assert_allclose(after.output, before.output, atol=1e-6)
    np.testing.assert_allclose(after.weights, before.weights[:, ::-1], atol=1e-6)
    assert after.rows == before.rows and after.columns == before.columns[::-1]
    told = words(EXAMPLE, key_from="other", shuffle="reverse")[-1]
    assert (
        told
        == "Y changed its order: the columns of the weights moved with it, the output changed by 0,"
        " but for rounding."
    )


def test_a_random_order_is_another_order() -> None:
    assert sorted(map(tuple, record(shuffle="random").x.tolist())) == sorted(
        map(tuple, record().x.tolist())
    )
    assert record(shuffle="random").rows not in {
        record(shuffle=other).rows for other in ("none", "swap", "reverse")
    }


def test_what_is_drawn() -> None:
    def names(**state: Any) -> list[str]:
        return [trace.name for trace in EXAMPLE.view(**state).figure.data]

    assert names() == ["X", "Q = X·W_qᵀ", "K = X·W_kᵀ", "V = X·W_vᵀ", "Weights", "Output"]
    assert names(key_from="other", w_v=True) == [
        "X",
        "Q = X·W_qᵀ",
        "Y",
        "K = Y·W_kᵀ",
        "V = Y",
        "Weights",
        "Output",
    ]
    vectors = EXAMPLE.view(key_from="other").figure.data
    # one scale for all, to compare by eye
    assert {trace.zmax for trace in vectors if trace.name != "Weights"} == {6}
    axes = EXAMPLE.view(key_from="other").figure.layout
    assert [axes[f"yaxis{i or ''}"].title.text for i in ("", 2, 3, 4)] == [
        "word",
        "query",
        "word",
        "key",
    ]


def test_controls_that_do_nothing_say_why() -> None:
    assert EXAMPLE.view().disabled == {}
    one = torch.ones(1, 2)
    alone = explorers.Projections(one, torch.eye(2), torch.eye(2), torch.eye(2))
    assert alone.view().disabled == {
        "key_from": "There is no other sentence: pass y.",
        "shuffle": "One word has only one order.",
    }
    assert record(alone, key_from="other").y is None
    assert (
        words(alone)[1] == "“0” asks for [1, 1], “0” offers [1, 1]: “0” looks mostly at “0” (1.00)."
    )


def test_data_of_the_readers_own() -> None:
    data = own()
    shown = explorers.Projections(**data)
    cross = record(shown, key_from="other", shuffle="reverse", w_k=True)
    y = data["y"].flip(0)
    np.testing.assert_allclose(cross.key, y)
    np.testing.assert_allclose(cross.value, F.linear(y, data["w_v"]))
    np.testing.assert_allclose(
        cross.output,
        F.scaled_dot_product_attention(
            F.linear(data["x"], data["w_q"]), y, F.linear(y, data["w_v"])
        ),
        rtol=1e-10,
    )
    assert cross.output.dtype == np.float64
    for state in states_of(shown, 20):
        made: dict[str, Any] = {}
        exec(shown.code(**shown.complete(**state)), made)
        np.testing.assert_allclose(made["output"], record(shown, **state).output, atol=1e-12)
        assert made["output"].dtype == torch.float64


@pytest.mark.parametrize(
    "change, error, message",
    [
        (
            {"w_v": None},
            ValueError,
            "^Projections got no w_v; pass x, w_q, w_k and w_v, or nothing.$",
        ),
        (
            {"x": None, "w_q": None},
            ValueError,
            "^Projections got no x and no w_q; pass x, w_q, w_k and w_v, or nothing.$",
        ),
        (
            {"w_k": torch.ones(2, 3).double()},
            ValueError,
            r"^w_k has shape \(2, 3\), but x has 3 features; pass w_k as \(3",
        ),
        (
            {"y": torch.ones(7, 2).double()},
            ValueError,
            r"^y has shape \(7, 2\), but x has 3 features; pass y as \(S, 3\).$",
        ),
        (
            {"w_q": torch.ones(3, 3)},
            ValueError,
            "^w_q is torch.float32 and x torch.float64; pass all in one type.$",
        ),
        (
            {"y": torch.ones(7, 3)},
            ValueError,
            "^y is torch.float32 and x torch.float64; pass all in one type.$",
        ),
        ({"x": [[1.0]]}, TypeError, r"^x is a list; pass a tensor \(L, E\)"),
        (
            {"tokens": "abcde"},
            TypeError,
            "^tokens is one string; pass a list of 5 strings, one for each of the positions of x.$",
        ),
        (
            {"key_tokens": ["a"]},
            ValueError,
            "^key_tokens has 1 entries for 7 positions of y; pass one for each.$",
        ),
        (
            {"x": torch.full((5, 3), 1e200, dtype=torch.float64)},
            ValueError,
            "and their dot products overflow torch.float64",
        ),
    ],
)
def test_data_that_do_not_fit_are_named(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        explorers.Projections(**own() | change)


def test_numbers_that_overflow_under_the_identity_only_are_found_too() -> None:
    x, small = torch.full((2, 2), 1e25), torch.eye(2) * 1e-20
    with pytest.raises(ValueError, match="dot products overflow torch.float32"):
        explorers.Projections(x, small, small, small)
