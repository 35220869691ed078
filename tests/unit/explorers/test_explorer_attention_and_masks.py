"""What Attention and Masks show, and what they say about data that don't fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from samples import OWN_DATA, words

from mha_widgets import explorers

CATALOG = {"Attention": explorers.Attention, "Masks": explorers.Masks}


@pytest.mark.parametrize("name", CATALOG)
def test_wrong_token_counts_are_said(name: str) -> None:
    with pytest.raises(ValueError, match="^tokens has 2 entries for 7 keys; pass one for each.$"):
        CATALOG[name](**OWN_DATA[name], tokens=["a", "b"])
    with pytest.raises(
        ValueError, match="^query_tokens has 1 entries for 5 queries; pass one for each.$"
    ):
        CATALOG[name](**OWN_DATA[name], query_tokens=["a"])
    with pytest.raises(TypeError, match="^tokens is one string; pass a list of 7 strings"):
        CATALOG[name](**OWN_DATA[name], tokens="abcdefg")


@pytest.mark.parametrize("name", CATALOG)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_numbers_that_are_not_finite_are_found(name: str, bad: float) -> None:
    key = OWN_DATA[name]["key"].clone()
    key[4, 1] = bad
    with pytest.raises(ValueError, match=rf"^key holds {bad} at \(4, 1\); pass finite numbers"):
        CATALOG[name](**OWN_DATA[name] | {"key": key})


@pytest.mark.parametrize("name", CATALOG)
@pytest.mark.parametrize(
    "key, error, message",
    [
        ([[1.0]], TypeError, r"key is a list; pass a tensor \(S, E\)"),
        (
            torch.ones(2, 7, 3),
            ValueError,
            r"key has shape \(2, 7, 3\); pass one sequence, \(S, E\)",
        ),
        (
            torch.ones(7, 3, dtype=torch.int64),
            ValueError,
            "key holds torch.int64; pass floating-point numbers: key.float()",
        ),
        (torch.ones(0, 3), ValueError, r"key has shape \(0, 3\); pass at least one position"),
        (torch.ones(7, 4).double(), ValueError, r"key \(7, 4\).* the(ir)? (same )?last size"),
        (torch.ones(7, 3), ValueError, "torch.float32.* type"),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    name: str, key: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        CATALOG[name](**OWN_DATA[name] | {"key": key})


def test_a_missing_tensor_is_named() -> None:
    with pytest.raises(
        ValueError, match="^Attention got no value; pass query, key and value, or none of them.$"
    ):
        explorers.Attention(torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(
        ValueError, match="^Masks got a key but no query; pass both, or the query alone.$"
    ):
        explorers.Masks(key=torch.ones(2, 3))


def test_tensors_that_require_grad_or_are_half_precision_are_taken() -> None:
    query = torch.randn(3, 5, requires_grad=True)
    assert explorers.Masks(query).view(row=2).figure.data[0].z.shape == (3, 3)
    half = torch.randn(3, 5).bfloat16()
    assert words(explorers.Attention(half, half, half), step="softmax")


def test_attention_by_hand() -> None:
    record = explorers.Attention().compute(step="output", row=2)
    assert record.scores[2].tolist() == [0, 6, 0, 0, 0, 3]
    assert record.scaled[2].tolist() == [0, 3, 0, 0, 0, 1.5]
    exponentials = np.exp([0, 3, 0, 0, 0, 1.5])
    np.testing.assert_allclose(record.weights[2], exponentials / exponentials.sum(), rtol=1e-6)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.tensor, (record.query, record.key, record.value))
    )
    np.testing.assert_allclose(record.output, expected, rtol=1e-5)


def test_attention_tells_the_arithmetic_of_the_row() -> None:
    attention = explorers.Attention()
    assert (
        words(attention, step="scores")[0]
        == "“sat” · “cat” = 3×2 + 0×0 + 0×−1 + 0×0 = 6, the largest score of its row."
    )
    assert words(attention, step="scale")[0] == "“sat” · “cat”: 6 ÷ √4 = 6 ÷ 2 = 3."
    assert "= 20.09 ÷ 28.57 = 0.70." in words(attention, step="softmax")[0]
    assert words(attention, step="output")[0].endswith("= [2.46, 0.84, 0.61].")


def test_large_scores_keep_the_arithmetic_finite() -> None:
    big = torch.tensor([[1000.0, 0.0], [0.0, 1000.0]])
    told = words(explorers.Attention(big, big, big), step="softmax", row=0)[0]
    assert told.startswith(
        "“0” → “0”: e^0 ÷ (e^0 + e^−7.07e+05) = 1.00 ÷ 1.00 = 1.00. (The largest score, 7.07e+05,"
    )


def test_dot_products_that_overflow_are_said() -> None:
    huge = torch.full((2, 2), 1e20)
    for explorer in (lambda: explorers.Masks(huge), lambda: explorers.Attention(huge, huge, huge)):
        with pytest.raises(
            ValueError,
            match="^query and key hold numbers up to 1e\\+20, and their dot products overflow",
        ):
            explorer()
    assert explorers.Masks(huge.double()).view()


def test_equal_weights_are_called_even() -> None:
    same = torch.ones(3, 2)
    assert (
        words(explorers.Masks(same), attn_mask="none", row=0)[0]
        == "“0” looks evenly at 3 keys (0.33 each)."
    )


def test_in_cross_attention_padding_has_no_row_of_its_own() -> None:
    masks = explorers.Masks(torch.eye(3), torch.ones(5, 3))
    assert "Nobody looks at padding (key 3, 4)." in words(masks, attn_mask="padding", padding=2)


def test_padding_is_told_by_position_since_other_tokens_may_be_pads_too() -> None:
    masks = explorers.Masks(torch.eye(5), tokens=["hi", "there", "<pad>", "<pad>", "<pad>"])
    facts = words(masks, attn_mask="padding", padding=2)
    assert (
        "Nobody looks at padding (key 3, 4); its own row is still computed: a mask hides keys, not"
        " queries." in facts
    )


def test_each_step_shows_the_matrices_that_take_part() -> None:
    attention = explorers.Attention()
    shown = {
        step: [trace.name for trace in attention.view(step=step).figure.data]
        for step in attention.controls["step"].values
    }
    assert shown == {
        "Q, K, V": ["Q", "K", "V"],
        "scores": ["Q", "× Kᵀ", "= scores"],
        "scale": ["Scores", "÷ √E = scaled"],
        "softmax": ["Scaled scores", "→ softmax = weights"],
        "output": ["Weights", "× V", "= output"],
    }


def weights(**state: Any) -> np.ndarray:
    masks = explorers.Masks()
    return masks.compute(**masks.complete(**state)).weights


def test_a_causal_mask_leaves_the_first_row_its_own_key() -> None:
    assert weights(attn_mask="causal")[0].tolist() == [1, 0, 0, 0, 0, 0]


def test_left_padding_under_a_causal_mask_leaves_rows_without_keys() -> None:
    state = {"attn_mask": "causal + padding", "padding_side": "left", "padding": 2}
    assert np.isnan(weights(**state)).all(axis=1).tolist() == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]
    assert weights(**state, empty_row="zeros")[:2].tolist() == [[0] * 6] * 2
    facts = words(explorers.Masks(), **state, row=0)
    assert facts[0] == "2 rows (0, 1) have no key left: the softmax divides 0 by 0 and gives NaN."
    assert (
        "F.scaled_dot_product_attention makes the weights zeros"
        in words(explorers.Masks(), **state, empty_row="zeros")[1]
    )


def test_a_row_without_keys_shouts() -> None:
    figure = (
        explorers.Masks().view(attn_mask="causal + padding", padding_side="left", padding=1).figure
    )
    words_of_nan = [trace for trace in figure.data if trace.name == "NaN"]
    assert [(trace.y.tolist(), trace.x.tolist()) for trace in words_of_nan] == [
        ([0] * 6, list(range(6)))
    ]


def test_blocked_cells_are_crossed_and_hold_no_small_number() -> None:
    figure = explorers.Masks().view(attn_mask="causal").figure
    heatmap, crosses = (
        trace
        for trace in figure.data
        if trace.xaxis == "x3" and trace.name in ("Weights", "blocked")
    )
    blocked = {(r, c) for r in range(6) for c in range(6) if c > r}
    assert set(zip(crosses.y.tolist(), crosses.x.tolist(), strict=True)) == blocked
    assert {tuple(cell) for cell in np.argwhere(np.equal(heatmap.z, None)).tolist()} == blocked


def test_a_float_mask_shows_the_numbers_to_add() -> None:
    figure = explorers.Masks().view(attn_mask="causal", mask_type="float").figure
    mask = next(trace for trace in figure.data if trace.name == "Mask")
    assert mask.text[0].tolist() == ["0"] + ["−∞"] * 5
    assert mask.texttemplate == "%{text}"


def test_controls_that_do_nothing_say_why() -> None:
    masks = explorers.Masks()
    assert masks.view(attn_mask="none").disabled.keys() == {
        "padding",
        "padding_side",
        "window",
        "empty_row",
    }
    assert masks.view(attn_mask="padding", padding=6).disabled.keys() == {"window"}
    assert masks.view(attn_mask="padding", padding=0).disabled.keys() == {
        "padding_side",
        "window",
        "empty_row",
    }
    assert masks.view(attn_mask="window").disabled["padding"] == "This mask blocks no padding."


def test_one_position_is_enough() -> None:
    one = torch.ones(1, 1)
    for explorer in (explorers.Masks(one), explorers.Attention(one, one, one)):
        assert all(words(explorer, **state) for state in explorer.states())
