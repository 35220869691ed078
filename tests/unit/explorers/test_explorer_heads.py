"""What Heads shows: maps that differ, a mean that hides it, and a join that goes wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from samples import makes_sense, states_of, words
from torch import nn

from mha_widgets import MultiheadAttention, explorers
from mha_widgets.kit.habits import habit, habits

EXAMPLE = explorers.Heads()


def own(**options: Any) -> tuple[nn.MultiheadAttention, torch.Tensor]:
    """Return a module of 5 heads with 3 features each, and 7 positions, in float64."""
    torch.manual_seed(0)
    module = nn.MultiheadAttention(15, 5, dtype=torch.float64, **options)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.7)
    return module, torch.randn(7, 15, dtype=torch.float64)


def record(explorer: explorers.Heads = EXAMPLE, **state: Any) -> Any:
    return explorer.compute(**explorer.complete(**state))


def run(explorer: explorers.Heads, **state: Any) -> dict[str, Any]:
    made: dict[str, Any] = {}
    exec(explorer.code(**explorer.complete(**state)), made)
    return made


def test_each_of_the_four_heads_has_a_habit_of_its_own() -> None:
    per_head = record().per_head
    looked_at = per_head.argmax(axis=-1)
    assert looked_at.tolist() == [
        [0, 1, 2, 3, 4, 5],
        [0, 0, 1, 2, 3, 4],
        [0] * 6,
        [1, 2, 3, 4, 5, 5],
    ]
    # one step on the circle, against none
    neighbour = math.exp(16 * (math.cos(math.pi / 4) - 1) / math.sqrt(2))
    far = [math.exp(16 * (math.cos(steps * math.pi / 4) - 1) / math.sqrt(2)) for steps in (2, 3)]
    np.testing.assert_allclose(
        per_head[0, 2, 2], 1 / (1 + 2 * neighbour + 2 * far[0] + far[1]), rtol=1e-5
    )
    assert (
        words(EXAMPLE)[0]
        == "A head's habit is what gets more than half of the weight in most rows: itself in head 0"
        " (0.94), the previous token in head 1 (0.94), the first token in head 2 (0.96), the"
        " next token in head 3 (0.94)."
    )


@pytest.mark.parametrize("num_heads", [1, 2, 4, 8])
@pytest.mark.parametrize("averaged", [False, True])
def test_the_weights_and_the_output_are_those_of_the_module(num_heads: int, averaged: bool) -> None:
    module = nn.MultiheadAttention(8, num_heads)
    module.load_state_dict(EXAMPLE.module.state_dict())
    x = torch.eye(6, 8)
    mask = torch.ones(6, 6).triu(1).bool()
    output, weights = module(
        x, x, x, attn_mask=mask, average_attn_weights=averaged and num_heads > 1
    )
    shown = record(num_heads=num_heads, average_attn_weights=averaged, attn_mask="causal")
    np.testing.assert_allclose(shown.output, output.detach(), atol=1e-6)
    np.testing.assert_allclose(shown.weights, weights.detach(), atol=1e-6)


def test_one_softmax_has_to_settle_what_two_heads_asked_apart() -> None:
    two = record(num_heads=2).per_head
    # itself and the one before
    np.testing.assert_allclose(two[0, 2], [0, 0.5, 0.5, 0, 0, 0], atol=0.01)
    # the first and the next are opposite: they cancel
    np.testing.assert_allclose(two[1, 3], np.full(6, 1 / 6), atol=1e-5)
    assert words(EXAMPLE, num_heads=2)[0].startswith(
        "Heads 0, 1 have no habit: in most rows no place gets more than half"
    )


def test_a_number_of_heads_that_does_not_divide_says_what_torch_says() -> None:
    with pytest.raises(ValueError) as raised:
        record(num_heads=3)
    assert (
        str(raised.value)
        == "nn.MultiheadAttention(8, 3) says “embed_dim must be divisible by num_heads”: 8 features"
        " can't be cut into 3 heads of one width; choose one of 1, 2, 4, 8."
    )


def test_a_head_that_does_not_exist_is_said() -> None:
    with pytest.raises(
        ValueError, match="^There is no head 5 among 4: choose one from 0 to 3, or all.$"
    ):
        record(head=5)
    assert makes_sense(EXAMPLE, {"num_heads": 8, "head": 5})


def test_the_mean_hides_what_a_head_does_and_a_fact_says_how_far() -> None:
    mean = record(average_attn_weights=True)
    assert mean.weights.shape == (6, 6)
    np.testing.assert_allclose(mean.weights, mean.per_head.mean(axis=0))
    told = words(EXAMPLE, average_attn_weights=True)
    assert told[0].startswith(
        "Behind the mean, a head's habit is what gets more than half of the weight"
    )
    assert "itself in head 0 (0.94)" in told[0]
    assert told[1].startswith(
        "average_attn_weights=True returns one (6, 6) map for 4 heads: in head "
    )
    assert (
        words(EXAMPLE, head=1)[1]
        == "The call returns (4, 6, 6): in head 1 “on” (row 3) gives “sat” (key 2) 0.93, in the"
        " mean over the heads 0.24."
    )
    assert (mean.per_head[1] - mean.mean)[3, 2] == pytest.approx(
        (mean.per_head[1] - mean.mean).max(), abs=1e-5
    )


def test_heads_that_give_the_same_weights_hide_nothing() -> None:
    module, x = nn.MultiheadAttention(4, 2), torch.randn(3, 4)
    nn.init.zeros_(module.in_proj_weight)
    told = words(explorers.Heads(module, x), average_attn_weights=True)
    assert told[:2] == [
        (
            "Heads 0, 1 have no habit: in most rows no place gets more than half of the weight, "
            "be it the token itself, a neighbour or one fixed token."
        ),
        (
            "average_attn_weights=True returns one (3, 3) map for 2 heads; the heads give nearly"
            " the same weights, so their mean hides nothing."
        ),
    ]


def test_forgetting_the_transpose_mixes_positions() -> None:
    wrong, right = record(merge="reshape"), record()
    assert right.whose.tolist() == [[0, 0, 1, 1, 2, 2, 3, 3]] * 6
    assert right.position.tolist() == [[i] * 8 for i in range(6)]
    assert (wrong.whose[0].tolist(), wrong.position[0].tolist()) == (
        [0] * 8,
        [0, 0, 1, 1, 2, 2, 3, 3],
    )
    assert (wrong.whose[1].tolist(), wrong.position[1].tolist()) == (
        [0] * 4 + [1] * 4,
        [4, 4, 5, 5, 0, 0, 1, 1],
    )
    for cell in (
        (0, 2),
        (1, 5),
        (4, 7),
    ):  # each feature of W_v = I hands over itself: where it stood is where it came from
        head, position = wrong.whose[cell], wrong.position[cell]
        source = right.output[position, 2 * head : 2 * head + 2]
        assert wrong.output[cell] == pytest.approx(source[cell[1] % 2])
    assert wrong.damage == pytest.approx(np.abs(wrong.output - right.output).max())
    assert right.damage == 0
    assert (
        words(EXAMPLE, merge="reshape")[3]
        == "Without the transpose 36 of 48 features are another position's, and no error says so:"
        " row 0 holds 1 head for 4 positions instead of 4 heads for its own, and the output is"
        f" off by up to {wrong.damage:.2f}."
    )
    assert words(EXAMPLE)[3].startswith("Joined: (4, 6, 2).transpose(0, 1).reshape(6, 8) puts")


def test_the_wrong_join_is_seen_in_colours_and_in_words() -> None:
    joined = EXAMPLE.view(merge="reshape").figure.data[-1]
    assert joined.name == "Heads joined wrongly"
    assert joined.text[1].tolist() == ["0·4", "0·4", "0·5", "0·5", "1·0", "1·0", "1·1", "1·1"]
    assert joined.z[1].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    assert joined.texttemplate == "%{text}"
    assert EXAMPLE.view().figure.data[-1].name == "Heads joined"


def test_what_is_drawn() -> None:
    def names(**state: Any) -> list[str]:
        return [trace.name for trace in EXAMPLE.view(**state).figure.data]

    assert names() == ["Head 0", "Head 1", "Head 2", "Head 3", "Heads joined"]
    assert names(average_attn_weights=True) == ["Mean", "Heads joined"]
    assert names(head=2, attn_mask="causal") == [
        "Head 2",
        "blocked",
        "Mean",
        "blocked",
        "Heads joined",
    ]
    assert names(num_heads=1) == ["Head 0", "Heads joined"]
    shapes = EXAMPLE.view(num_heads=8).figure.layout.shapes
    assert len({shape.line.color for shape in shapes}) == 8  # a colour for each head


def test_a_mask_is_for_every_head() -> None:
    masked = record(attn_mask="causal")
    assert (masked.per_head[:, masked.mask] == 0).all()
    # whose next token is blocked looks at itself
    assert masked.per_head[3].argmax(axis=-1).tolist() == [
        0,
        1,
        2,
        3,
        4,
        5,
    ]
    assert any(
        fact.startswith("One (6, 6) mask is for every head")
        for fact in words(EXAMPLE, attn_mask="causal")
    )
    assert not any("mask" in fact for fact in words(EXAMPLE))


def test_controls_that_do_nothing_say_why() -> None:
    assert EXAMPLE.view().disabled == {}
    assert EXAMPLE.view(average_attn_weights=True).disabled == {"head": "The heads are averaged."}
    alone = EXAMPLE.view(num_heads=1).disabled
    assert alone == dict.fromkeys(
        ("average_attn_weights", "head", "merge"), "There is only one head."
    )
    one = explorers.Heads(nn.MultiheadAttention(4, 2), torch.ones(1, 4))
    assert one.view().disabled == {"merge": "With one position there is nothing to mix up."}
    assert words(one)[0].endswith("in most rows: itself in heads 0, 1 (1.00, 1.00).")


def test_the_parameters_are_counted() -> None:
    for num_heads in (1, 2, 4, 8):
        told = words(EXAMPLE, num_heads=num_heads)
        assert (
            told[-1]
            == "4·8² + 4·8 = 288 parameters, whatever num_heads is: the same weights are cut"
            " differently."
        )
    assert (
        "head_dim = embed_dim ÷ num_heads = 8 ÷ 2 = 4: each head has 4 features of its own."
        in words(EXAMPLE, num_heads=2)
    )
    module, x = own(bias=False)
    assert words(explorers.Heads(module, x))[-1].startswith("900 parameters, ")


def test_a_habit_gets_more_than_half_in_most_rows() -> None:
    even, previous = np.full((2, 2), 0.5), np.array([[1.0, 0, 0], [1, 0, 0], [0, 1, 0]])
    shared = (
        np.eye(6) + np.eye(6, k=-1)
    ) / 2  # itself and the previous token evenly, which is 0.58 for itself on average
    shared[0, 0] = 1
    assert habit(even, "ab") is None
    assert np.diagonal(shared).mean() > 0.58 and habit(shared, "abcdef") is None
    assert habit(previous, "abc") == ("the previous token", 1.0)
    assert habit(np.eye(3)[[0, 0, 0]], "abc") == ("the first token", 1.0)
    assert habit(np.eye(4)[[3, 3, 3, 3]], "abcd") == ("“d” (key 3)", 1.0)
    assert habit(np.eye(4)[[3, 3, 3, 3]], "0123") == ("key 3", 1.0)
    assert habits({2: np.full((3, 3), 1 / 3)}, "abc", averaged=False)[0].startswith(
        "Head 2 has no habit: "
    )


def test_heads_with_the_same_habit_are_told_together() -> None:
    told = words(EXAMPLE, num_heads=8)[0]
    assert "“sat” (key 2) in heads 1, 3 (0.53, 0.53)" in told and told.count("(key") == len(
        set(told.split("(key")[1:])
    )


def test_a_head_says_which_numbers_of_heads_have_it() -> None:
    plenty = " (num_heads = 8)"
    more = ("2 (num_heads ≥ 4)", "3 (num_heads ≥ 4)", *(f"{head}{plenty}" for head in range(4, 8)))
    assert EXAMPLE.controls["head"].words == ("all", "0", "1", *more)
    module, x = own()
    assert explorers.Heads(module, x).controls["head"].words == (
        "all",
        "0",
        "1",
        "2",
        "3 (num_heads = 5)",
        "4 (num_heads = 5)",
    )


def test_what_to_try_is_there_with_every_number_of_heads() -> None:
    module, x = own()
    assert explorers.Heads(module, x).prompt == EXAMPLE.prompt and EXAMPLE.prompt.endswith(
        "look for what each head was doing."
    )
    assert explorers.Heads(nn.MultiheadAttention(4, 1), torch.ones(3, 4)).prompt.startswith(
        "Try: switch the mask to causal."
    )


@pytest.mark.parametrize("kind", [nn.MultiheadAttention, MultiheadAttention])
@pytest.mark.parametrize("bias", [True, False])
def test_a_module_of_the_readers_own_is_cut_into_every_divisor(kind: Any, bias: bool) -> None:
    reference, x = own(bias=bias)
    module = kind(15, 5, bias=bias, dtype=torch.float64)
    module.load_state_dict(reference.state_dict())
    heads = explorers.Heads(module, x, tokens=list("abcdefg"))
    assert (heads.controls["num_heads"].values, heads.controls["num_heads"].default) == (
        (1, 3, 5),
        5,
    )
    output, weights = reference(x, x, x, average_attn_weights=False)
    shown = record(heads)
    np.testing.assert_allclose(shown.output, output.detach(), atol=1e-12)
    np.testing.assert_allclose(shown.weights, weights.detach(), atol=1e-12)
    for state in states_of(heads, 20):
        complete = heads.complete(**state)
        made, expected = run(heads, **state), heads.compute(**complete)
        assert made["output"].dtype == torch.float64
        np.testing.assert_allclose(made["output"].detach(), expected.output, atol=1e-12)
        np.testing.assert_allclose(made["weights"].detach(), expected.weights, atol=1e-12)
        assert len(heads.code(**complete).splitlines()) <= 15


def test_a_module_stays_as_it_was_and_so_do_random_numbers() -> None:
    module, x = own()
    before = torch.random.get_rng_state()
    heads = explorers.Heads(module, x)
    assert torch.equal(torch.random.get_rng_state(), before)
    expected = record(heads).weights.copy()
    with torch.no_grad():
        module.in_proj_weight.zero_()
        x.zero_()
    assert (module.num_heads, module.training) == (5, True)
    np.testing.assert_array_equal(record(heads).weights, expected)


def test_a_large_module_is_not_spelled_out() -> None:
    torch.manual_seed(0)
    module, x = nn.MultiheadAttention(34, 17), torch.randn(5, 34)
    heads = explorers.Heads(module, x)
    assert heads.controls["head"].default == 0  # 17 maps are too many
    with pytest.raises(
        ValueError, match="^The maps of 17 heads are too many to be looked at together; choose one"
    ):
        record(heads, head="all")
    assert record(heads, average_attn_weights=True).head is None
    joined = heads.view(num_heads=2, head="all").figure.data[-1]
    # every other one
    assert joined.meta["columns"] == [str(feature) for feature in range(0, 34, 2)]
    assert joined.text[4].tolist() == ["0·4"] * 9 + ["1·4"] * 8
    made: dict[str, Any] = {"module": module, "x": x}
    code = heads.code(**heads.complete(num_heads=2, head="all"))
    assert "module.num_heads, module.head_dim = 2, 17" in code
    exec(code, made)
    np.testing.assert_allclose(
        made["weights"].detach(), record(heads, num_heads=2, head="all").weights, atol=1e-6
    )


@pytest.mark.parametrize(
    "module, x, error, message",
    [
        (None, torch.ones(2, 4), ValueError, "^Heads got x but no module; pass both, or neither.$"),
        (
            nn.MultiheadAttention(4, 2),
            None,
            ValueError,
            "^Heads got a module but no x; pass both, or neither.$",
        ),
        (
            nn.Linear(4, 4),
            torch.ones(2, 4),
            TypeError,
            "^module is a Linear; pass an nn.MultiheadAttention",
        ),
        (
            nn.MultiheadAttention(4, 2, add_bias_kv=True),
            torch.ones(2, 4),
            ValueError,
            "^module has add_bias_kv or",
        ),
        (
            nn.MultiheadAttention(4, 2, add_zero_attn=True),
            torch.ones(2, 4),
            ValueError,
            "^module has add_bias_kv or",
        ),
        (
            nn.MultiheadAttention(4, 2, vdim=3),
            torch.ones(2, 4),
            ValueError,
            "^module has embed_dim=4, kdim=4 and vdim=3; pass",
        ),
        (
            nn.MultiheadAttention(4, 2),
            torch.ones(2, 5),
            ValueError,
            r"^x has shape \(2, 5\), but the module has embed_dim=4",
        ),
        (
            nn.MultiheadAttention(4, 2),
            torch.ones(2, 4).double(),
            ValueError,
            "^x is torch.float64 and the module torch.float32",
        ),
        (
            nn.MultiheadAttention(4, 2),
            torch.ones(129, 4),
            ValueError,
            "^x has 129 positions, too many to look at; pass at",
        ),
        (
            nn.MultiheadAttention(4, 2),
            torch.ones(1, 2, 4),
            ValueError,
            r"^x has shape \(1, 2, 4\); pass one sequence, \(L, E\): x\[0\]",
        ),
        (
            nn.MultiheadAttention(4, 2),
            torch.full((2, 4), torch.nan),
            ValueError,
            r"^x holds nan at \(0, 0\); pass",
        ),
    ],
)
def test_data_that_do_not_fit_are_named(
    module: Any, x: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        explorers.Heads(module, x)


def test_weights_that_are_not_finite_and_too_few_tokens_are_named() -> None:
    module, x = own()
    with pytest.raises(
        ValueError, match="^tokens has 2 entries for 7 positions; pass one for each.$"
    ):
        explorers.Heads(module, x, ["a", "b"])
    with torch.no_grad():
        module.out_proj.weight[0, 0] = torch.inf
    with pytest.raises(
        ValueError,
        match=r"^The module's out_proj.weight holds inf at \(0, 0\); pass finite numbers: ",
    ):
        explorers.Heads(module, x)


def test_half_precision_is_shown_in_float32() -> None:
    module, x = nn.MultiheadAttention(4, 2).bfloat16(), torch.randn(3, 4).bfloat16()
    assert record(explorers.Heads(module, x)).weights.dtype == np.float32
