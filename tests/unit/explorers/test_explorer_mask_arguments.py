"""What MaskArguments shows: masks by hand, weights against plain torch,
and what torch itself says.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from samples import states_of, words
from torch import nn

from mha_widgets.attention.call import Path
from mha_widgets.explorers import MaskArguments
from mha_widgets.explorers.mask_arguments.explorer import Record

WRONG = {"polarity": "wrong way round"}
INF = np.inf
CAUSAL = np.array([[0, -INF, -INF, -INF], [0, 0, -INF, -INF], [0, 0, 0, -INF], [0, 0, 0, 0]])
PADDED = np.array([[0, 0, -INF, -INF]] * 4)
EXPLORER = MaskArguments()


def record(**state: Any) -> Record:
    return EXPLORER.compute(**EXPLORER.complete(**state))


def own(N: int = 3, L: int = 5, **options: Any) -> dict[str, Any]:
    torch.manual_seed(1)
    return {
        "module": nn.MultiheadAttention(6, 3, dtype=torch.float64, **options),
        "x": torch.randn(N, L, 6).double(),
    }


def test_causal_and_padding_by_hand() -> None:
    found = record()
    for head in (0, 1):
        np.testing.assert_array_equal(found.mask[0, head], CAUSAL)
        np.testing.assert_array_equal(found.mask[1, head], CAUSAL + PADDED)
    assert found.attn_mask.dtype == bool and found.attn_mask.tolist() == (CAUSAL != 0).tolist()
    assert not found.amiss.any() and found.path is Path.NATIVE
    assert words(EXPLORER) == [
        (
            "Sentence 1, every head: 9 of 16 cells are blocked, all that should be and no other, as"
            " everywhere."
        ),
        "In head 1 “birds” looks most at “birds” (1), “sing” at “sing” (0.74).",
        "This call runs as one fused operation, torch's fast path.",
        "True blocks here. F.scaled_dot_product_attention takes the opposite: True = may look.",
        (
            "Both masks become one with a cell for each sentence, head, query and key, (N, H, L, S)"
            " = (2, 2, 4, 4); module.merge_masks calls that type 2."
        ),
        "The rows of padding are still computed: key_padding_mask hides keys, not queries.",
    ]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("mask_type", ["boolean", "float −∞", "float 0/1", "mixed"])
def test_weights_are_the_softmax_of_scores_and_mask(
    training: bool, need_weights: bool, mask_type: str
) -> None:
    found = record(
        training=training, need_weights=need_weights, mask_type=mask_type, attn_mask="3D"
    )
    weights = torch.from_numpy(found.scores + found.mask).softmax(dim=-1)
    np.testing.assert_allclose(found.weights, weights, atol=1e-6)
    native = not training and mask_type == "boolean"
    assert found.path is (Path.NATIVE if native else Path.EXPLICIT if need_weights else Path.SDPA)


def test_the_wrong_way_round_blocks_the_words() -> None:
    found = record(**WRONG)
    assert (
        found.blocked[0].all()
        and np.isnan(found.weights[0]).all()
        and np.isnan(found.output[0]).all()
    )
    np.testing.assert_array_equal(found.mask[1, 0, 0], [-INF, -INF, 0, 0])
    np.testing.assert_array_equal(found.weights[1, 1, 2], [0, 0, 0, 1])
    assert np.isnan(found.weights[1, :, 3]).all()
    facts = words(EXPLORER, **WRONG)
    assert (
        facts[0]
        == "Sentence 1, every head: 11 of 16 cells are blocked; by mistake: 7 blocked, 5 open. "
        "Elsewhere by mistake: 10 blocked in sentence 0."
    )
    left = "No key is left for “the”, “cat”, “sat”, “down” (sentence 0), “<pad>₃” (sentence 1): "
    assert facts[1] == f"{left}NaN as weights and as output."
    assert facts[2].startswith("Careful: key_padding_mask blocks the first key of every sequence")
    assert facts[3].startswith("Careful: attn_mask blocks what a causal mask lets through")
    assert [f"{weight:.2f}" for weight in found.weights[1, 1, :2, 2]] == ["0.99", "0.87"]
    assert facts[4] == "In head 1 “birds” looks most at “<pad>₂” (0.99), “sing” at “<pad>₂” (0.87)."
    assert (
        words(EXPLORER, **WRONG, training=True)[1]
        == f"{left}NaN as weights and as output, and as every gradient."
    )
    assert not any("True blocks here" in fact for fact in facts)
    figure = EXPLORER.view(**WRONG).figure
    assert (
        figure.layout.xaxis2.ticktext
        == figure.layout.yaxis2.ticktext
        == ("birds", "sing", "&lt;pad&gt;₂", "&lt;pad&gt;₃")
    )
    marks = figure.data[0].text
    assert (
        marks[0].tolist() == ["✕!", "✕", "✕", "✕"] * 2
        and marks[4].tolist() == ["✕!", "✕", "!", "!"] * 2
    )


@pytest.mark.parametrize(
    "state, empty",
    [
        ({}, math.nan),
        ({"training": True}, math.nan),
        ({"training": True, "need_weights": False}, 0.0),
    ],
)
def test_a_row_with_no_key_left_on_each_path(state: dict[str, Any], empty: float) -> None:
    found = record(**WRONG, **state)
    np.testing.assert_array_equal(found.weights[0], np.full((2, 4, 4), empty))
    bias = EXPLORER.module.out_proj.bias.detach().numpy()
    np.testing.assert_array_equal(found.output[0], np.broadcast_to(bias + empty, (4, 8)))
    zeros = "weights of zeros, so that only the bias of out_proj, the last step, is their output."
    says = zeros if empty == 0 else "NaN as weights"
    assert f"“<pad>₃” (sentence 1): {says}" in words(EXPLORER, **WRONG, **state)[1]
    assert not any("No key is left" in fact or "NaN" in fact for fact in words(EXPLORER, **state))
    traces = [trace.name for trace in EXPLORER.view(**WRONG, **state, sample=0).figure.data]
    assert ("NaN" in traces) == math.isnan(empty)


def test_repeat_gives_sentences_each_others_masks() -> None:
    state = {"attn_mask": "3D", "key_padding_mask": False}
    right, wrong = record(**state), record(**state, order="repeat")
    both = CAUSAL + PADDED
    np.testing.assert_array_equal(right.mask, [[CAUSAL, CAUSAL], [both, both]])
    np.testing.assert_array_equal(wrong.mask, [[CAUSAL, both], [CAUSAL, both]])
    assert right.attn_mask.shape == (4, 4, 4)
    assert (
        words(EXPLORER, **state, order="repeat", sample=0)[0]
        == "Sentence 0, head 1: 9 of 16 cells are blocked; by mistake: 3 blocked. "
        "Elsewhere by mistake: 3 open in sentence 1, head 0."
    )
    assert (
        words(EXPLORER, **state, order="repeat")[0]
        == "Sentence 1, head 1: 9 of 16 cells are blocked, all that should be and no other. "
        "Elsewhere by mistake: 3 blocked in sentence 0, head 1; 3 open in sentence 1, head 0."
    )
    assert not any("repeat_interleave" in fact for fact in words(EXPLORER, **state))


@pytest.mark.parametrize("key_padding_mask", [False, True])
@pytest.mark.parametrize("mask_type", ["boolean", "float −∞", "float 0/1", "mixed"])
def test_repeat_is_told_whatever_the_type(mask_type: str, key_padding_mask: bool) -> None:
    state = {"attn_mask": "3D", "mask_type": mask_type, "key_padding_mask": key_padding_mask}
    facts = words(EXPLORER, **state, order="repeat")
    (told,) = [fact for fact in facts if "repeat" in fact]
    assert told.startswith("Careful: mask.repeat") and told.endswith(
        "use mask.repeat_interleave(num_heads, dim=0)."
    )
    assert not any("repeat" in fact for fact in words(EXPLORER, **state))
    counted = next(fact for fact in facts if fact.startswith("Sentence 1"))
    assert "Elsewhere by mistake: " in counted and " in sentence 0, head 1" in counted


def test_without_own_sentences_or_heads_repeat_misplaces_nothing() -> None:
    for N, H in ((1, 3), (3, 1)):
        explorer = MaskArguments(
            nn.MultiheadAttention(6, H), torch.ones(N, 2, 6), lengths=[1, 2, 2][:N]
        )
        state = {"attn_mask": "3D", "order": "repeat"}
        assert not explorer.compute(**explorer.complete(**state)).amiss.any()
        assert not any("repeat" in fact for fact in words(explorer, **state))


def test_the_wrong_way_round_in_floats() -> None:
    state = WRONG | {"mask_type": "float −∞"}
    inverted = [fact for fact in words(EXPLORER, **state) if "looks inverted" in fact]
    assert [fact.split()[1] for fact in inverted] == ["key_padding_mask", "attn_mask"]
    assert all(
        fact.endswith("put 0 where a key may be looked at and -inf where it may not.")
        for fact in inverted
    )
    assert not any("gradient" in fact or "~" in fact for fact in words(EXPLORER, **state))
    assert "and as every gradient" in words(EXPLORER, **state, training=True)[1]


def test_without_masks_nothing_is_amiss() -> None:
    state = {"attn_mask": "none", "key_padding_mask": False}
    found = record(**state)
    assert found.wanted.all() and not found.blocked.any()
    facts = words(EXPLORER, **state)
    assert (
        facts[0]
        == "Nothing is blocked, since there is no mask: every query looks at every key, padding and"
        " later words too."
    )
    assert facts[1] == "In head 1 “birds” looks most at “<pad>₂” (0.71), “sing” at “sing” (0.44)."
    assert not any("mistake" in fact for fact in facts)


def test_long_lists_are_cut() -> None:
    torch.manual_seed(2)
    explorer = MaskArguments(nn.MultiheadAttention(4, 2), torch.randn(5, 6, 4), lengths=[6] * 5)
    facts = words(explorer, **WRONG, sample=4, key_padding_mask=False)
    assert facts[0].endswith(
        "Elsewhere by mistake: 21 blocked, 15 open in sentence 0; "
        "21 blocked, 15 open in sentence 1; 21 blocked, 15 open in sentence 2; …."
    )
    assert facts[1].startswith(
        "No key is left for “5” (sentence 0), “5” (sentence 1), “5” (sentence 2), …: NaN"
    )
    assert [
        fact.count(" at “")
        for fact in words(explorer, sample=4)
        if fact.startswith("In head 1 “0” looks most")
    ] == [4]


def test_zeros_and_ones_are_added_and_block_nothing() -> None:
    found = record(mask_type="float 0/1")
    np.testing.assert_array_equal(found.mask[1, 0], (CAUSAL != 0).astype(float) + (PADDED != 0))
    assert found.mask[1, 0].max() == 2 and not found.blocked.any()
    facts = words(EXPLORER, mask_type="float 0/1")
    assert (
        facts[0]
        == "Sentence 1, every head: 0 of 16 cells are blocked; by mistake: 9 open; the mask makes 9"
        " scores larger instead. Elsewhere by mistake: 6 open in sentence 0."
    )
    assert facts[1].startswith(
        "Careful: attn_mask and key_padding_mask are float and hold nothing but 0 and 1: they are"
        " added"
    )
    assert sum("nothing but 0 and 1" in fact for fact in facts) == 1
    alone = words(EXPLORER, mask_type="float 0/1", attn_mask="none")
    assert any(fact.startswith("Careful: key_padding_mask is float and holds") for fact in alone)
    assert EXPLORER.view(mask_type="float 0/1").figure.data[2].text[0].tolist() == [
        "0",
        "+1",
        "+2",
        "+2",
    ]


def test_mixed_types_are_warned_about_and_change_nothing() -> None:
    mixed, boolean = record(mask_type="mixed", training=True), record(training=True)
    assert (mixed.attn_mask.dtype, mixed.key_padding_mask.dtype) == (np.float32, bool)
    np.testing.assert_array_equal(mixed.weights, boolean.weights)
    assert mixed.message.startswith(
        "Support for mismatched key_padding_mask and attn_mask is deprecated."
    )
    facts = words(EXPLORER, mask_type="mixed")
    assert (
        facts[0]
        == "torch warns: Support for mismatched key_padding_mask and attn_mask is deprecated."
    )
    assert not any("deprecates" in fact for fact in facts)
    assert record(mask_type="mixed", key_padding_mask=False).message == ""


@pytest.mark.parametrize(
    "state", [{"training": True}, {"need_weights": False, "mask_type": "float −∞"}]
)
def test_is_causal_alone_raises_off_the_fast_path(state: dict[str, Any]) -> None:
    state |= {"attn_mask": "none", "is_causal": True}
    found = record(**state)
    with pytest.raises(RuntimeError) as raised:
        EXPLORER.module(EXPLORER.x, EXPLORER.x, EXPLORER.x, is_causal=True)
    assert found.message == str(raised.value)
    assert found.path is None and found.output is None and np.isnan(found.weights).all()
    np.testing.assert_array_equal(found.mask[1, 0], PADDED)
    facts = words(EXPLORER, **state)
    assert (
        facts[0] == "torch raises a RuntimeError: Need attn_mask if specifying the is_causal hint."
    )
    reason = (
        "the module is in training mode" if "training" in state else "key_padding_mask is float"
    )
    assert facts[1].startswith(
        "Alone, the hint passes only where torch runs the call as one fused operation, its fast"
        " path"
    )
    assert facts[1].endswith(f"here that way is closed: {reason}.")
    figure = EXPLORER.view(**state).figure
    assert "none: the call raises" in [annotation.text for annotation in figure.layout.annotations]
    assert "NaN" not in [trace.name for trace in figure.data]


def test_is_causal_alone_blocks_nothing_on_the_fast_path() -> None:
    state = {"attn_mask": "none", "is_causal": True, "key_padding_mask": False, "sample": 0}
    found = record(**state)
    assert found.path is Path.NATIVE and not found.mask.any() and (found.weights > 0).all()
    facts = words(EXPLORER, **state)
    assert (
        facts[0].startswith("Nothing is blocked, since there is no mask")
        and found.amiss[0, 0].sum() == 6
    )
    assert facts[1].startswith(
        "Careful: is_causal=True without attn_mask blocks nothing here, where one fused operation"
    )


def test_is_causal_with_another_mask_depends_on_the_path() -> None:
    state = WRONG | {"is_causal": True, "training": True}
    dropped = record(**state, need_weights=False, key_padding_mask=False)
    np.testing.assert_array_equal(dropped.mask[1, 0], CAUSAL)
    inverted = np.where(CAUSAL == 0, -INF, 0.0)
    for kept in (
        record(**state, key_padding_mask=False),
        record(**WRONG, is_causal=True, key_padding_mask=False),
    ):
        np.testing.assert_array_equal(kept.mask[1, 0], inverted)
    merged = record(**state, need_weights=False)
    np.testing.assert_array_equal(merged.mask[1, 0], inverted + np.where(PADDED == 0, -INF, 0.0))
    assert any(
        "your mask is dropped" in fact
        for fact in words(EXPLORER, **state, need_weights=False, key_padding_mask=False)
    )


@pytest.mark.parametrize(
    "state, merged, says",
    [
        (
            {"attn_mask": "none"},
            (1, (2, 4)),
            "which its heads and queries share; module.merge_masks calls that type 1.",
        ),
        (
            {"key_padding_mask": False},
            (2, (2, 2, 4, 4)),
            "attn_mask becomes one mask with a cell for each sentence, head",
        ),
        (
            {"attn_mask": "3D"},
            (2, (2, 2, 4, 4)),
            "Both masks become one with a cell for each sentence, head",
        ),
        ({"attn_mask": "none", "key_padding_mask": False}, None, "since there is no mask"),
    ],
)
def test_the_type_that_merge_masks_gives(state: dict[str, Any], merged: Any, says: str) -> None:
    assert record(**state).merged == merged
    assert any(says in fact for fact in words(EXPLORER, **state))


def test_controls_that_do_nothing_say_why() -> None:
    assert EXPLORER.view().disabled == {"order": "Only a 3D mask has an order."}
    assert EXPLORER.view(attn_mask="3D").disabled == {}
    reasons = EXPLORER.view(attn_mask="none", key_padding_mask=False).disabled
    assert reasons["mask_type"] == reasons["polarity"] == "There is no mask."
    single = MaskArguments(**own(N=1))
    assert single.view(attn_mask="3D").disabled == {
        "order": "With one sentence or one head both orders are the same."
    }


def test_own_data() -> None:
    explorer = MaskArguments(**own(dropout=0.5), lengths=[5, 2, 3], tokens=[list("ab$<e")] * 3)
    state = explorer.complete(attn_mask="3D", sample=1, head=2)
    found = explorer.compute(**state)
    assert found.weights.shape == (3, 3, 5, 5) and found.weights.dtype == np.float64
    assert found.path is Path.EXPLICIT and found.reason == "the number of heads is odd: 3"
    np.testing.assert_array_equal(found.blocked[1, 2, 4], [False, False, True, True, True])
    made: dict[str, Any] = {}
    code = explorer.code(**state)
    exec(code, made)
    assert len(code.splitlines()) <= 15 and made["output"].dtype == torch.float64
    for name in ("attn_mask", "key_padding_mask", "weights", "output"):
        np.testing.assert_allclose(made[name].numpy(), getattr(found, name), atol=1e-12)
    assert explorer.view(**state).figure.layout.xaxis2.ticktext[2:4] == ("&#36;", "&lt;")


@pytest.mark.parametrize(
    "state",
    [
        {"training": True},
        {"mask_type": "mixed", "attn_mask": "3D"},
        {"attn_mask": "none", "is_causal": True},
    ],
)
def test_own_code_is_short_and_gives_the_message(state: dict[str, Any]) -> None:
    explorer = MaskArguments(**own(), lengths=[5, 2, 3])
    state = explorer.complete(**state)
    made: dict[str, Any] = {}
    exec(explorer.code(**state), made)
    assert made.get("message", "") == explorer.compute(**state).message
    assert len(explorer.code(**state).splitlines()) <= 15


@pytest.mark.parametrize(
    "change, error, message",
    [
        (
            {"module": None},
            ValueError,
            "^MaskArguments got x but no module; pass both, or neither.$",
        ),
        ({"x": None}, ValueError, "^MaskArguments got a module but no x"),
        (
            {"x": torch.ones(3, 11, 6).double()},
            ValueError,
            r"^x has N × L = 3 × 11 words, and the module H = 3; pass at most 32",
        ),
        (
            {"lengths": [5, 2]},
            ValueError,
            "^lengths has 2 entries for 3 sentences; pass one for each.$",
        ),
        ({"lengths": [5, 2, 6]}, ValueError, r"^Got lengths \[5, 2, 6\] with S = 5"),
        ({"lengths": [0.5, 1.0, 2.0]}, TypeError, "^Got lengths of torch.float32"),
        ({"tokens": [["a"] * 4] * 3}, ValueError, r"^tokens\[0\] has 4 entries for 5 words"),
    ],
)
def test_what_does_not_fit_is_named(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        MaskArguments(**own() | change)


def test_the_readers_module_gradient_mode_and_random_numbers_stay() -> None:
    data = own(dropout=0.5)
    torch.manual_seed(123)
    draw = torch.random.get_rng_state()
    with torch.no_grad():
        MaskArguments().view()
        explorer = MaskArguments(**data)
        assert (
            explorer.compute(**explorer.complete(training=True)).reason
            == "the module is in training mode"
        )
        assert not torch.is_grad_enabled()
    assert torch.equal(torch.random.get_rng_state(), draw)
    assert (data["module"].dropout, data["module"].batch_first, data["module"].training) == (
        0.5,
        False,
        True,
    )


def test_every_state_has_at_most_six_facts_in_plain_words() -> None:
    for state in states_of(EXPLORER, 120):
        facts = words(EXPLORER, **state)
        assert 2 <= len(facts) <= 6 and not any(
            "SDPA" in fact or "explicit weights" in fact for fact in facts
        )


def test_the_path_comes_with_its_meaning() -> None:
    slower = "; torch's fast path, one fused operation, is closed: the module is in training mode."
    every, none = (
        words(EXPLORER, training=True, need_weights=need_weights)[2]
        for need_weights in (True, False)
    )
    assert every == f"This call works out every weight, to return them (need_weights=True){slower}"
    assert (
        none == "This call uses F.scaled_dot_product_attention, which keeps no weights"
        f" (need_weights=False){slower}"
    )


def test_a_page_leaves_the_heads_to_the_notebook() -> None:
    assert EXPLORER.state["head"] == 1  # the first that repeat gives another sentence's mask
    assert MaskArguments(nn.MultiheadAttention(4, 1), torch.ones(1, 2, 4)).state["head"] == 0
    assert set(EXPLORER.controls) - set(MaskArguments.page_controls) == {"head"}
