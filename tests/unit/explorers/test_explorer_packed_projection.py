"""What PackedProjection shows: which rows belong to whom, and that slices make the whole module."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from samples import words
from torch import nn

from mha_widgets import MultiheadAttention, explorers

EXAMPLE = explorers.PackedProjection()


def record(explorer: explorers.PackedProjection = EXAMPLE, **state: Any) -> Any:
    return explorer.compute(**explorer.complete(**state))


def own(
    num_heads: int = 5, **options: Any
) -> tuple[nn.MultiheadAttention, dict[str, torch.Tensor]]:
    """Return a module of 15 features and its inputs of 7 queries and 3 keys, in float64."""
    torch.manual_seed(0)
    module = nn.MultiheadAttention(15, num_heads, dtype=torch.float64, **options)
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.7)
    sizes = {"x": (7, 15), "key": (3, module.kdim), "value": (3, module.vdim)}
    return module, {name: torch.randn(size, dtype=torch.float64) for name, size in sizes.items()}


@pytest.mark.parametrize("third, num_heads, head, rows", [
    ("query", 2, 0, (0, 4)), ("query", 4, 3, (6, 8)), ("key", 2, 0, (8, 12)),
    ("key", 1, 0, (8, 16)), ("value", 4, 1, (18, 20)),
])  # fmt: skip
def test_the_rows_of_a_slice(third: str, num_heads: int, head: int, rows: tuple[int, int]) -> None:
    shown = record(third=third, num_heads=num_heads, head=head)
    assert shown.rows == rows
    np.testing.assert_array_equal(shown.weight, shown.packed[slice(*rows)])
    np.testing.assert_allclose(shown.projected, shown.x @ shown.weight.T, atol=1e-6)
    told = words(EXAMPLE, third=third, num_heads=num_heads, head=head)[0]
    assert told.startswith(
        f"The {third} of head {head} comes from in_proj_weight[{rows[0]}:{rows[1]}]: its third"
        " starts at row "
    )
    frames = EXAMPLE.view(third=third, num_heads=num_heads, head=head).figure.layout.shapes
    assert [(round(frame.y0 + 0.4), round(frame.y1 + 0.6)) for frame in frames] == [
        (0, 8),
        (8, 16),
        (16, 24),
        rows,
    ]
    assert len({frame.line.color for frame in frames}) == 4


@pytest.mark.parametrize("kdim, vdim", [(5, 8), (8, 3), (5, 3)])
def test_other_widths_have_a_matrix_each(kdim: int, vdim: int) -> None:
    shown = record(kdim=kdim, vdim=vdim, third="value", head=1)
    assert shown.packed is None
    assert [weight.shape for weight in shown.separate] == [(8, 8), (8, kdim), (8, vdim)]
    assert shown.rows == (4, 8)
    np.testing.assert_array_equal(shown.weight, shown.separate[2][4:8])
    np.testing.assert_allclose(shown.projected, shown.x[:, :vdim] @ shown.weight.T, atol=1e-6)
    told = words(EXAMPLE, kdim=kdim, vdim=vdim, third="value", head=1)
    assert (
        told[0]
        == "The value of head 1 comes from v_proj_weight[4:8]: inputs of different widths need a"
        f" matrix each: (8, 8), (8, {kdim}), (8, {vdim})."
    )
    assert told[4].startswith(
        f"state_dict: q_proj_weight (8, 8), k_proj_weight (8, {kdim}), v_proj_weight (8, {vdim}), "
    )
    names = [trace.name for trace in EXAMPLE.view(kdim=kdim, vdim=vdim, third="value").figure.data]
    assert names == [
        "q_proj_weight",
        "k_proj_weight",
        "v_proj_weight",
        "x" if vdim == 8 else "x[:, :3]",
        "× sliceᵀ",
        "= value",
    ]


def test_all_by_hand_is_what_the_module_returns() -> None:
    for kdim, vdim, bias, num_heads in itertools.product((8, 5), (8, 3), (True, False), (1, 2, 4)):
        torch.manual_seed(0)
        x = torch.randn(6, 8)
        module = nn.MultiheadAttention(8, num_heads, bias=bias, kdim=kdim, vdim=vdim)
        shown = record(kdim=kdim, vdim=vdim, bias=bias, num_heads=num_heads)
        np.testing.assert_allclose(
            shown.by_hand, module(x, x[:, :kdim], x[:, :vdim])[0].detach(), atol=1e-6
        )
        assert shown.missed < 1e-6
    assert (
        words(EXAMPLE)[3]
        == "By hand, from slices like this one, the module's output is off by 0, but for rounding."
    )


def test_packed_numbers_start_smaller() -> None:
    bound, alone = math.sqrt(6 / (8 + 24)), math.sqrt(6 / (8 + 8))
    assert 0.9 * bound < np.abs(record().packed).max() < bound
    assert bound < np.abs(record(kdim=5).separate[0]).max() < alone
    assert bound < np.abs(record(kdim=5).separate[1]).max() < math.sqrt(6 / (8 + 5))
    assert (
        words(EXAMPLE)[2]
        == "in_proj_weight starts with numbers within ±√(6 ⁄ (8 + 24)) = ±0.43, since all 24 rows"
        " count; those of a matrix (8, 8) alone would be within ±√(6 ⁄ (8 + 8)) = ±0.61."
    )
    assert (
        words(EXAMPLE, kdim=5)[2]
        == "k_proj_weight starts with numbers within ±√(6 ⁄ (8 + 5)) = ±0.68; "
        "in a packed matrix they would be within ±√(6 ⁄ (8 + 24)) = ±0.43."
    )


@pytest.mark.parametrize("state, total, biased", [
    ({}, "288", "biases among them, which start at 0"),
    ({"bias": False}, "256", "no biases"),
    ({"kdim": 5, "vdim": 3}, "224", "biases among them, which start at 0"),
    ({"kdim": 5, "vdim": 3, "bias": False}, "192", "no biases"),
])  # fmt: skip
def test_parameters_are_counted(state: dict[str, Any], total: str, biased: str) -> None:
    assert (
        words(EXAMPLE, **state)[5]
        == f"{total} parameters, {biased}; num_heads only decides where they are cut."
    )
    assert ("in_proj_bias (24,)" in words(EXAMPLE, **state)[4]) == state.get("bias", True)


def test_the_product_is_told_and_drawn() -> None:
    shown = record()
    first = ", ".join(f"{number:.2f}".replace("-", "−") for number in shown.projected[0])
    assert words(EXAMPLE)[1] == f"“the” → [{first}]: 8 features become its key in head 0."
    figure = EXAMPLE.view().figure
    assert [trace.name for trace in figure.data] == ["in_proj_weight", "x", "× sliceᵀ", "= key"]
    source, weight, projected = (np.array(trace.z, dtype=float) for trace in figure.data[1:])
    # drawn with two or three digits
    np.testing.assert_allclose(source @ weight, projected, atol=0.03)
    assert figure.data[2].meta["columns"] == ["8", "9", "10", "11"]
    rows = figure.layout.yaxis
    assert [rows.labelalias[str(row)] for row in rows.tickvals] == [
        "q 0",
        "q 4",
        "k 8",
        "k 12",
        "v 16",
        "v 20",
    ]
    assert rows.labelalias["9"] == "k 9"
    assert figure.layout.yaxis.scaleratio == 0.8  # rows are flatter than columns are wide


def test_heads_that_do_not_exist_are_said_and_the_only_one_needs_no_choice() -> None:
    with pytest.raises(ValueError, match="^There is no head 3 among 2: choose one from 0 to 1.$"):
        record(head=3)
    assert EXAMPLE.controls["head"].words == ("0", "1", "2 (num_heads = 4)", "3 (num_heads = 4)")
    assert EXAMPLE.view().disabled == {}
    assert EXAMPLE.view(num_heads=1).disabled == {"head": "There is only one head."}


def test_random_numbers_stay_as_they_were() -> None:
    before = torch.random.get_rng_state()
    EXAMPLE.view(kdim=5)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize("kind", [nn.MultiheadAttention, MultiheadAttention])
@pytest.mark.parametrize(
    "options",
    [{}, {"bias": False}, {"kdim": 11}, {"kdim": 11, "vdim": 2}, {"vdim": 2, "bias": False}],
)
def test_a_module_of_the_readers_own(kind: Any, options: dict[str, Any]) -> None:
    reference, inputs = own(**options)
    module = kind(15, 5, dtype=torch.float64, **options)
    module.load_state_dict(reference.state_dict())
    packed = explorers.PackedProjection(module, **inputs, key_tokens=["a", "b", "c"])
    assert list(packed.controls) == ["num_heads", "head", "third"]
    assert (
        packed.prompt
        == "Try: choose query, then value. At which row does the framed slice start, and why there?"
    )
    assert packed.controls["num_heads"].values == (1, 3, 5)
    expected = reference(*inputs.values())[0].detach()
    for third, head in itertools.product(("query", "key", "value"), (0, 4)):
        state = {"third": third, "head": head}
        shown, made = record(packed, **state), {}
        exec(packed.code(**packed.complete(**state)), made)
        np.testing.assert_allclose(shown.by_hand, expected, atol=1e-12)
        np.testing.assert_allclose(made["weight"].detach(), shown.weight)
        np.testing.assert_allclose(made["projected"].detach(), shown.projected, atol=1e-12)
        assert made["projected"].dtype == torch.float64
        assert len(packed.code(**packed.complete(**state)).splitlines()) <= 15
        subtitle = packed.view(**state).figure.layout.annotations[-1].text
        assert (
            subtitle == f"head {head},"
            f" {'bias added' if options.get('bias', True) else shown.projected.shape}"
        )
    assert words(packed)[1].startswith("“a” → ")


def test_self_attention_needs_one_input_only_and_a_large_module_is_not_spelled_out() -> None:
    torch.manual_seed(0)
    module, x = nn.MultiheadAttention(34, 2), torch.randn(5, 34)
    packed = explorers.PackedProjection(module, x, tokens=list("abcde"))
    made: dict[str, Any] = {"module": module, "x": x}
    exec(packed.code(**packed.complete(third="value", head=1)), made)
    np.testing.assert_allclose(
        made["projected"].detach(), record(packed, third="value", head=1).projected, atol=1e-6
    )
    assert words(packed, third="value")[1].startswith("“a” → ")
    assert len(packed.view(num_heads=1).figure.layout.yaxis.tickvals) == 3
    wide = (
        explorers.PackedProjection(nn.MultiheadAttention(64, 64), torch.randn(2, 64))
        .view()
        .figure.layout
    )
    assert len(wide.yaxis.tickvals) <= 24


def test_one_tensor_in_several_places_keeps_its_name() -> None:
    module, inputs = own()
    x, key = inputs["x"], inputs["key"]
    for given, names in (
        ((x, key), ["x", "key", "key"]),
        ((x, key, key), ["x", "key", "key"]),
        ((x, x, x), ["x", "x", "x"]),
    ):
        assert explorers.PackedProjection(module, *given).names == names
    assert explorers.PackedProjection(module, x, x.clone(), x).names == ["x", "key", "x"]


@pytest.mark.parametrize(
    "options, change, error, message",
    [
        (
            {},
            {"module": None},
            ValueError,
            "^PackedProjection got x but no module; pass both, or neither.$",
        ),
        (
            {},
            {"x": None},
            ValueError,
            "^PackedProjection got a module but no x; pass both, or neither.$",
        ),
        (
            {},
            {"module": nn.Linear(15, 15)},
            TypeError,
            "^module is a Linear; pass an nn.MultiheadAttention, or the one of",
        ),
        (
            {"add_zero_attn": True},
            {},
            ValueError,
            "^module has add_bias_kv or add_zero_attn, which append keys that are no",
        ),
        (
            {},
            {"x": torch.ones(7, 4).double()},
            ValueError,
            r"^x has shape \(7, 4\), but the module has embed_dim=15; pass x as",
        ),
        (
            {"kdim": 11},
            {"key": None},
            ValueError,
            r"^key has shape \(7, 15\), but the module has kdim=11; pass key as \(S, 11\)",
        ),
        (
            {"vdim": 2},
            {"value": None},
            ValueError,
            r"^value has shape \(3, 15\), but the module has vdim=2; pass value as",
        ),
        (
            {},
            {"x": torch.ones(7, 15)},
            ValueError,
            "^x is torch.float32 and the module torch.float64; pass all in one type.$",
        ),
        (
            {},
            {"value": torch.ones(2, 15).double()},
            ValueError,
            "^key has 3 positions and value 2; every key needs one value.$",
        ),
        (
            {},
            {"key_tokens": ["a"]},
            ValueError,
            "^key_tokens has 1 entries for 3 keys; pass one for each.$",
        ),
        (
            {},
            {"tokens": ["a"]},
            ValueError,
            "^tokens has 1 entries for 7 positions of x; pass one for each.$",
        ),
    ],
)
def test_data_that_do_not_fit_are_named(
    options: dict[str, Any], change: dict[str, Any], error: type[Exception], message: str
) -> None:
    module, inputs = own(**options)
    with pytest.raises(error, match=message):
        explorers.PackedProjection(**{"module": module, **inputs} | change)


def test_a_matrix_that_is_too_large_is_said() -> None:
    with pytest.raises(
        ValueError,
        match=(
            "^module has embed_dim=129, a matrix too large to look at; pass one with at most 128.$"
        ),
    ):
        explorers.PackedProjection(nn.MultiheadAttention(129, 3), torch.ones(2, 129))
