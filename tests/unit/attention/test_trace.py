"""trace: its steps against the module itself, its path, and its warnings one by one."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from cases import TOLERANCE, Case, cases, uniform
from hypothesis import given
from torch import Tensor, nn
from torch.nn.utils import prune

from mha_widgets import MultiheadAttention, causal_mask, fast_path, trace
from mha_widgets.attention.call import Path

N, L, E, H = 3, 5, 14, 2
MODULES = pytest.mark.parametrize("kind", [nn.MultiheadAttention, MultiheadAttention])


def make(kind: type[nn.Module] = nn.MultiheadAttention, **build: Any) -> Any:
    torch.manual_seed(0)
    return kind(
        **{"embed_dim": E, "num_heads": H, "batch_first": True, "dtype": torch.float64} | build
    )


def data(*shape: int, seed: int = 0) -> Tensor:
    return uniform(*(shape or (N, L, E)), dtype=torch.float64, seed=seed)


def warnings_of(module: Any, *inputs: Tensor, **forward: Any) -> tuple[str, ...]:
    x = inputs or (data(),) * 3
    return trace(module, *x, **forward).warnings


@pytest.mark.filterwarnings(
    "ignore:.*mismatched key_padding_mask:UserWarning",
    "ignore:.*masks of different types:UserWarning",
)
@given(cases())
def test_the_last_steps_are_what_the_module_returns(case: Case) -> None:
    for module in case.modules():
        for gradients in (True, False):
            with torch.set_grad_enabled(gradients):
                traced = trace(module, *case.inputs, **case.forward)
            assert traced.difference <= TOLERANCE[case.build["dtype"]]
            assert traced.output.shape == case.inputs[0].shape


@MODULES
def test_every_step_by_name_in_order_with_its_shape(kind: type[nn.Module]) -> None:
    x, y = data(), data(N, 7, E, seed=1)
    traced = trace(
        make(kind, add_bias_kv=True, add_zero_attn=True),
        x,
        y,
        y,
        key_padding_mask=torch.zeros(N, 7).bool(),
    )
    D = E // H
    assert [(step.name, step.letters, tuple(step.tensor.shape)) for step in traced.steps] == [
        ("q", "(N, L, E)", (N, L, E)),
        ("k", "(N, S, E)", (N, 7, E)),
        ("v", "(N, S, E)", (N, 7, E)),
        ("q_heads", "(N, H, L, D)", (N, H, L, D)),
        ("k_heads", "(N, H, S, D)", (N, H, 7, D)),
        ("v_heads", "(N, H, S, D)", (N, H, 7, D)),
        ("k_appended", "(N, H, S + 2, D)", (N, H, 9, D)),
        ("v_appended", "(N, H, S + 2, D)", (N, H, 9, D)),
        ("scores", "(N, H, L, S + 2)", (N, H, L, 9)),
        ("mask", "(N, H, L, S + 2)", (N, H, L, 9)),
        ("weights", "(N, H, L, S + 2)", (N, H, L, 9)),
        ("weights_after_dropout", "(N, H, L, S + 2)", (N, H, L, 9)),
        ("heads", "(N, H, L, D)", (N, H, L, D)),
        ("joined", "(N, L, E)", (N, L, E)),
        ("output", "(N, L, E)", (N, L, E)),
    ]


def test_the_steps_follow_from_each_other() -> None:
    module, x = make(add_bias_kv=True), data()
    mask = ~causal_mask(L)
    traced = trace(module, x, x, x, attn_mask=mask)
    W, b = module.in_proj_weight, module.in_proj_bias
    close = torch.testing.assert_close
    close(traced["v"], x @ W[2 * E :].T + b[2 * E :])
    close(traced["k_heads"][1, 1], traced["k"][1, :, E // H :])
    close(traced["k_appended"][2, 0, -1], module.bias_k[0, 0, : E // H])
    close(
        traced["scores"][0, 1, 2, 3],
        traced["q_heads"][0, 1, 2] @ traced["k_heads"][0, 1, 3] / math.sqrt(E // H),
    )
    assert traced["mask"][0, 0].tolist() == [
        [-math.inf if k > q and k < L else 0.0 for k in range(L + 1)] for q in range(L)
    ]
    close(traced["weights"], (traced["scores"] + traced["mask"]).softmax(-1))
    close(traced["heads"], traced["weights"] @ traced["v_appended"])
    close(traced["joined"][..., E // H :], traced["heads"][:, 1])
    close(traced.output, traced["joined"] @ module.out_proj.weight.T + module.out_proj.bias)


@MODULES
def test_dropout_is_that_of_the_call_and_random_numbers_go_on_as_after_it(
    kind: type[nn.Module],
) -> None:
    module, x = make(kind, dropout=0.4), data()
    torch.manual_seed(7)
    output, weights = module(x, x, x, average_attn_weights=False)
    after = torch.rand(3)
    torch.manual_seed(7)
    traced = trace(module, x, x, x)
    assert torch.equal(torch.rand(3), after)
    torch.testing.assert_close(traced["weights_after_dropout"], weights, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(traced["weights"].sum(-1), torch.ones(N, H, L, dtype=torch.float64))
    torch.testing.assert_close(traced.output, output, rtol=1e-12, atol=1e-12)


def test_steps_keep_their_gradients() -> None:
    x = data()
    traced = trace(make(), x, x, x)
    assert torch.autograd.grad(traced.output.sum(), traced["weights"])[0].abs().sum() > 0


def test_a_difference_is_told() -> None:
    module, x = make(), data()
    module.out_proj.bias.data += 1
    forward = module.forward
    module.forward = lambda *args, **options: (
        forward(*args, **options)[0] + 0.25,
        forward(*args, **options)[1],
    )
    traced = trace(module, x, x, x)
    assert traced.difference == pytest.approx(0.25)
    assert traced.warnings[0].startswith("The module returns something else, by up to 0.25")
    module.forward = lambda *args, **options: (
        forward(*args, **options)[0],
        forward(*args, **options)[1] * math.nan,
    )
    traced = trace(module, x, x, x)
    assert math.isnan(traced.difference) and traced.warnings[0].startswith(
        "The module returns something else"
    )


def test_nobody_is_blamed_for_numbers_that_are_not_finite() -> None:
    module, x = make(), data()
    module.in_proj_weight.data[0, 0] = math.nan
    traced = trace(module, x, x, x, need_weights=False)
    torch.testing.assert_close(
        traced.returned[0], module(x, x, x, need_weights=False)[0], equal_nan=True
    )
    assert not math.isfinite(traced.difference) and "hook" not in "".join(traced.warnings)
    assert traced.warnings[0].startswith(
        "The steps hold NaN or inf where what the module returns holds none"
    )


@pytest.mark.parametrize(
    "hook, message",
    [
        (
            lambda _, __, output: output[0],
            r"^The module returned one Tensor, not \(output, weights\); look at its hooks",
        ),
        (
            lambda _, __, output: (*output, None),
            "^The module returned a tuple of Tensor, Tensor, NoneType, not",
        ),
        (
            lambda _, __, output: (output[0][..., :3], None),
            r"^The module returned output \(3, 5, 3\), not \(3, 5, 14\);",
        ),
    ],
)
def test_a_hook_that_returns_something_of_another_kind_is_named(
    hook: Callable[..., Any], message: str
) -> None:
    module, x = make(), data()
    module.register_forward_hook(hook)
    with pytest.raises(TypeError, match=message):
        trace(module, x, x, x)


def test_weights_that_a_hook_makes_before_the_call() -> None:
    module, x = make(), data()
    prune.l1_unstructured(module, "in_proj_weight", 0.3)
    with torch.no_grad():
        module.in_proj_weight_orig += 1
    traced = trace(module, x, x, x)
    assert traced.difference < 1e-12 and traced.warnings == ()


def test_weights_that_change_with_every_reading_are_read_once() -> None:
    module = nn.utils.parametrizations.spectral_norm(make(), "in_proj_weight")
    twin, x = copy.deepcopy(module), data()
    trace(module, x, x, x)
    with nn.utils.parametrize.cached():
        twin(x, x, x)
    (mine,), (theirs,) = (m.parametrizations.in_proj_weight[0]._u[None] for m in (module, twin))
    assert torch.equal(mine, theirs)


def test_it_is_a_mapping_of_names_to_numbers() -> None:
    x = data()
    traced = trace(make(), x, x, x)
    assert "weights" in traced and "mask" not in traced
    assert list(traced) == [step.name for step in traced.steps] and len(traced) == len(traced.steps)
    assert dict(traced)["output"] is traced.output
    assert traced != trace(make(), x, x, x)


def test_the_path_and_what_keeps_a_call_off_the_fast_one() -> None:
    module, x = make().eval(), data()
    with torch.no_grad():
        assert trace(module, x, x, x).path is Path.NATIVE
        assert trace(module, x, x, x).why_not_fast_path == ()
        assert trace(make(MultiheadAttention).eval(), x, x, x).path is Path.EXPLICIT
    assert trace(module, x, x, x).path is Path.EXPLICIT
    assert trace(module, x, x, x, need_weights=False).path is Path.SDPA
    assert trace(module, x, x, x).why_not_fast_path == fast_path(module, x, x, x)


def test_what_the_call_raises_is_raised() -> None:
    x = data()
    with pytest.raises(AssertionError, match=r"query needs embed_dim = 14"):
        trace(make(), x[..., :4], x, x)
    with pytest.raises(RuntimeError, match="attn_mask"):
        trace(make(), x, x, x, is_causal=True)
    with pytest.raises(
        TypeError, match="but got TransformerEncoderLayer; .*see capture for whole models"
    ):
        trace(nn.TransformerEncoderLayer(8, 2), x, x, x)
    with pytest.raises(
        AttributeError, match="^query must be a tensor, but got ndarray; use torch.as_tensor"
    ):
        trace(make(), x.numpy(), x, x)
    with pytest.raises(
        TypeError, match="^attn_mask must be a tensor, but got list; use torch.as_tensor"
    ):
        trace(make(), x, x, x, attn_mask=[[True]])
    with pytest.raises(KeyError, match="no step 'mask'; it has q, k, v"):
        trace(make(), x, x, x)["mask"]


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@MODULES
def test_nested_tensors(kind: type[nn.Module]) -> None:
    module = make(kind).eval()
    nested = torch.nested.nested_tensor([data(3, E), data(L, E)])
    with torch.no_grad():
        traced = trace(module, nested, nested, nested)
        assert traced.difference < 1e-12
        assert [tuple(part.shape) for part in traced.output.unbind()] == [(3, E), (L, E)]
        assert (
            traced["weights"][0, :, :3, 3:].abs().sum()
            == traced["weights"][0, :, 3:].abs().sum()
            == 0
        )
        assert "output                 (N, L, E) = [(3, 14), (5, 14)]" in repr(traced)


def test_its_text_and_its_table() -> None:
    x = data()
    traced = trace(make(dropout=0.5), x, x, x, attn_mask=torch.zeros(L, L, dtype=x.dtype))
    text, table = repr(traced), traced._repr_html_()
    assert text.startswith(
        "MultiheadAttention(embed_dim=14, num_heads=2) in training\n"
        "  q                      (N, L, E) = (3, 5, 14)  "
    )
    assert "\npath: explicit weights\n" in text
    assert (
        "\nnot the fast path: attn_mask is float; what only blocks can be a boolean mask\n" in text
    )
    assert "\nwarning: Dropout 0.5 is at work" in text
    assert table.count("<tr>") == len(traced.steps) + 1
    assert (
        "<code>scores</code>" in table and ">(N, H, L, S)<" in table and ">(3, 2, 5, 5)<" in table
    )
    assert "<strong>warning</strong>: Dropout 0.5 is at work" in table


# Warnings, each with a call that has it and one that hasn't


def test_an_innocent_call_has_no_warning() -> None:
    padding = torch.arange(L) >= torch.tensor([[5], [3], [2]])
    for attn_mask in (None, ~causal_mask(L), ~causal_mask(L).expand(N * H, L, L)):
        assert warnings_of(make(), key_padding_mask=padding, attn_mask=attn_mask) == ()
    assert warnings_of(make(), data(), data(N, 7, E), data(N, 7, E)) == ()


@MODULES
def test_rows_without_a_key_and_what_they_become_on_each_path(kind: type[nn.Module]) -> None:
    padding = torch.zeros(N, L, dtype=torch.bool)
    padding[1] = True
    padding[2, 0] = True
    module, options = make(kind).eval(), {"key_padding_mask": padding, "attn_mask": ~causal_mask(L)}
    nn.init.constant_(module.out_proj.bias, 0.25)
    x = data()
    (explicit,) = warnings_of(module, **options)
    assert (
        "Queries with no key left (sequence 1: 0, 1, 2, 3, 4; sequence 2: 0): here they become NaN"
        in explicit
    )
    assert trace(module, x, x, x, **options).output[1].isnan().all()
    (sdpa,) = warnings_of(module, **options, need_weights=False)
    assert "here they become zeros before the output projection" in sdpa
    output = trace(module, x, x, x, **options, need_weights=False).output
    assert (
        (output[1] == 0.25).all()
        and (output[2, 0] == 0.25).all()
        and not (output[2, 1] == 0.25).any()
    )
    with torch.no_grad():
        if kind is nn.MultiheadAttention:
            (native,) = warnings_of(module, **options, need_weights=False)
            assert "here they become NaN; off the fast path" in native
    one_head = torch.zeros(N * H, L, L, dtype=torch.bool)
    one_head[1, 2] = True
    assert (
        "with no key left in some of the heads (sequence 0: 2)"
        in warnings_of(module, attn_mask=one_head)[0]
    )


def test_a_batch_as_large_as_a_sequence_is_long() -> None:
    x = data(L, L, E)
    # the other layout would not pass
    assert warnings_of(make(), x, data(L, 7, E), data(L, 7, E)) == ()
    (warning,) = warnings_of(make(batch_first=False), x, x, x)
    assert (
        warning.startswith("query is (5, 5, 14)")
        and "batch_first=False reads it as (L, N, E)" in warning
    )
    padding = torch.arange(L).expand(L, L) >= torch.arange(5, 0, -1)[:, None]
    assert (
        "key_padding_mask is (5, 5), square"
        in warnings_of(make(), x, x, x, key_padding_mask=padding)[1]
    )
    assert warnings_of(make(), x[:1], x[:1], x[:1]) == ()


@pytest.mark.parametrize(
    "real",
    [[5, 3, 2], [4, 3, 2], [2, 2, 2], [5, 5, 5]],
    ids=["padded to the longest", "padded beyond", "as long as each other", "no padding"],
)
def test_padding_the_wrong_way_round(real: list[int]) -> None:
    real_tokens = torch.arange(L) < torch.tensor(real)[:, None]
    assert any(
        "key_padding_mask" in w and "looks inverted" in w
        for w in warnings_of(make(), key_padding_mask=real_tokens)
    )
    assert warnings_of(make(), key_padding_mask=~real_tokens) == ()


def test_a_causal_mask_the_wrong_way_round() -> None:
    minus_inf = torch.zeros(L, L, dtype=torch.float64).masked_fill(causal_mask(L), -math.inf)
    for mask in (causal_mask(L), minus_inf, causal_mask(L).expand(N * H, L, L)):
        (inverted,) = [w for w in warnings_of(make(), attn_mask=mask) if "looks inverted" in w]
        assert inverted.startswith("attn_mask blocks what a causal mask lets through")
        assert inverted.endswith(
            "pass ~attn_mask." if mask.dtype is torch.bool else "and -inf where it may not."
        )


def test_float_padding_the_wrong_way_round() -> None:
    real = torch.arange(L) < torch.tensor([5, 3, 2])[:, None]
    minus_inf = [
        torch.zeros(N, L, dtype=torch.float64).masked_fill(blocked, -math.inf)
        for blocked in (real, ~real)
    ]
    (inverted,) = [
        w for w in warnings_of(make(), key_padding_mask=minus_inf[0]) if "looks inverted" in w
    ]
    assert inverted.startswith("key_padding_mask blocks the first key") and inverted.endswith(
        "and -inf where it may not."
    )
    assert "~" not in inverted and warnings_of(make(), key_padding_mask=minus_inf[1]) == ()
    assert (
        warnings_of(
            make(), *(data(0, L, E),) * 3, key_padding_mask=torch.zeros(0, L, dtype=torch.float64)
        )
        == ()
    )


def test_gradients_are_spoken_of_where_there_are_some() -> None:
    nothing_left = torch.ones(N, L, dtype=torch.bool)
    assert (
        "and so does every gradient behind them"
        in warnings_of(make(), key_padding_mask=nothing_left)[0]
    )
    with torch.no_grad():
        without = warnings_of(make(), key_padding_mask=nothing_left)[0]
    assert "here they become NaN; with need_weights=False" in without and "gradient" not in without
    assert warnings_of(make(), attn_mask=torch.eye(L).bool()) == ()  # everyone but oneself


def test_float_masks_that_look_boolean() -> None:
    mask = causal_mask(L).double()
    (warning,) = warnings_of(make(), attn_mask=mask)
    assert warning.startswith("attn_mask is float and holds nothing but 0 and 1")
    (warning,) = warnings_of(make(), key_padding_mask=(torch.arange(L) < 3).double().expand(N, L))
    assert warning.startswith("key_padding_mask is float") and "key_padding_mask == 0" in warning
    (both,) = warnings_of(
        make(), attn_mask=mask, key_padding_mask=(torch.arange(L) < 3).double().expand(N, L)
    )
    assert both.startswith("attn_mask and key_padding_mask are float and hold nothing but 0 and 1")
    assert "pass attn_mask.bool() and key_padding_mask.bool()" in both
    assert (
        warnings_of(make(), attn_mask=mask * 0) == warnings_of(make(), attn_mask=mask * 0.5) == ()
    )


def test_large_numbers_in_place_of_infinity() -> None:
    mask = torch.zeros(L, L, dtype=torch.float64).masked_fill(~causal_mask(L), -1e9)
    assert warnings_of(make(), attn_mask=mask)[0].startswith(
        "attn_mask holds -1e+09, which is not -inf"
    )
    assert warnings_of(make(), attn_mask=mask.clamp(min=-30)) == ()
    assert warnings_of(make(), attn_mask=mask.masked_fill(mask < 0, -math.inf)) == ()


def test_a_mask_that_holds_nan() -> None:
    mask = (~causal_mask(L)).double() * -math.inf  # 0 * -inf
    (warning,) = warnings_of(make(), attn_mask=mask)
    assert warning.startswith("attn_mask holds NaN or +inf")


@pytest.mark.filterwarnings("ignore:.*mismatched key_padding_mask:UserWarning")
def test_masks_of_different_types() -> None:
    padding = torch.zeros(N, L, dtype=torch.bool)
    (warning,) = warnings_of(
        make(), key_padding_mask=padding, attn_mask=torch.zeros(L, L, dtype=torch.float64)
    )
    assert warning.startswith("attn_mask is torch.float64 and key_padding_mask is torch.bool")


def test_masks_in_the_wrong_order_of_heads() -> None:
    padding = torch.arange(L) >= torch.tensor([5, 3, 2])[:, None]
    each = padding[:, None].expand(N, L, L)
    (warning,) = warnings_of(make(), attn_mask=each.repeat(H, 1, 1))
    assert warning.startswith("attn_mask repeats itself every 3 masks")
    assert warnings_of(make(), attn_mask=each.repeat_interleave(H, 0)) == ()
    # each head its own, for all sequences
    of_heads = torch.stack([causal_mask(L).double(), -causal_mask(L).double()])
    x = data(4, L, E)
    assert warnings_of(make(), x, x, x, attn_mask=of_heads.repeat(4, 1, 1) / 2) == ()
    assert (
        warnings_of(
            make(), data(1, L, E), data(1, L, E), data(1, L, E), attn_mask=each[1:2].repeat(H, 1, 1)
        )
        == ()
    )


def test_masks_that_repeat_may_belong_to_the_heads() -> None:
    x = data(2, 4, E)
    each = torch.stack(
        [torch.ones(4, 4).triu(1 + i % 2) for i in range(4)]
    ).bool()  # 2 heads, each its own
    for padding in (
        None,
        torch.tensor([[False] * 4, [False, False, True, True]]),
        torch.zeros(2, 4, dtype=torch.bool),
    ):
        assert warnings_of(make(), x, x, x, attn_mask=each, key_padding_mask=padding) == ()
    minus_inf = torch.zeros(4, 4, 4, dtype=torch.float64).masked_fill(each, -math.inf)
    assert warnings_of(make(), x, x, x, attn_mask=minus_inf) == ()
    other, last = data(2, 5, E), torch.tensor([[False] * 4 + [True], [False] * 5])
    each = torch.stack(
        [torch.ones(4, 5).triu(1 + i % 2) for i in range(4)]
    ).bool()  # head 0 does not see the last key
    for padding in (None, last):
        assert warnings_of(make(), x, other, other, attn_mask=each, key_padding_mask=padding) == ()


@pytest.mark.parametrize("dtype", [torch.bool, torch.float64])
@pytest.mark.parametrize("heads", [2, 14])
def test_masks_that_repeat_and_hide_the_padding_belong_to_the_sequences(
    heads: int, dtype: torch.dtype
) -> None:
    # as many sequences as heads, or a divisor of their number
    x, module = (
        data(2, 4, E),
        make(num_heads=heads),
    )
    for first, second in (("....", "..xx"), ("xx..", "....")):
        padding = torch.tensor([[letter == "x" for letter in row] for row in (first, second)])
        masks = padding[:, None].expand(2, 4, 4)
        if dtype is not torch.bool:
            masks = torch.zeros(2, 4, 4, dtype=dtype).masked_fill(masks, -math.inf)
            padding = torch.zeros(2, 4, dtype=dtype).masked_fill(padding, -math.inf)
        (warning,) = warnings_of(
            module, x, x, x, attn_mask=masks.repeat(heads, 1, 1), key_padding_mask=padding
        )
        assert (
            warning.startswith("attn_mask repeats itself every 2 masks")
            and "use mask.repeat_interleave" in warning
        )
        assert (
            warnings_of(
                module,
                x,
                x,
                x,
                attn_mask=masks.repeat_interleave(heads, 0),
                key_padding_mask=padding,
            )
            == ()
        )


def test_masks_that_repeat_and_look_like_padding_are_asked_about() -> None:
    x, padding = data(2, 4, E), torch.tensor([[False] * 4, [False, False, True, True]])
    for masks in (padding[:, None].expand(2, 4, 4), padding[:, None] | ~causal_mask(4)):
        (warning,) = warnings_of(make(), x, x, x, attn_mask=masks.repeat(H, 1, 1))
        assert (
            "Are they masks of the sequences? If so, " in warning
            and "use mask.repeat_interleave" in warning
        )
    # one head the start, the other the end
    halves = torch.stack([padding[1], ~padding[1]])[:, None].expand(2, 4, 4)
    assert warnings_of(make(), x, x, x, attn_mask=halves.repeat(2, 1, 1)) == ()


def test_padding_that_carries_nan() -> None:
    x = data()
    x[1, 3:] = math.nan
    padding = torch.arange(L) >= torch.tensor([5, 3, 2])[:, None]
    (warning,) = warnings_of(make(), x, x, x, key_padding_mask=padding)
    assert warning.startswith("query holds NaN or inf at 2 of 15 positions, all of them padding")
    assert trace(make(), x, x, x, key_padding_mask=padding).output[1].isnan().all()
    (warning,) = warnings_of(make(), data(), x, x, key_padding_mask=padding)
    assert warning.startswith("key holds NaN or inf at 2 of 15 positions, all of them padding")
    (warning,) = warnings_of(make(), data(), data(), x)
    assert warning == "value holds NaN or inf at 2 of 15 positions."
    seq_first = x.transpose(0, 1)
    (warning,) = warnings_of(
        make(batch_first=False), seq_first, seq_first, seq_first, key_padding_mask=padding
    )
    assert "all of them padding" in warning


def test_dropout_at_work() -> None:
    assert warnings_of(make(dropout=0.4))[0].startswith("Dropout 0.4 is at work")
    assert warnings_of(make(dropout=0.4).eval()) == ()


@MODULES
def test_hooks_on_the_output_projection(kind: type[nn.Module]) -> None:
    module, calls = make(kind), []
    module.out_proj.register_forward_hook(lambda *_: calls.append(1))
    assert warnings_of(module)[0].startswith("out_proj is never called")
    assert not calls
    other = make(kind)
    other.out_proj.forward = lambda x: x
    assert warnings_of(other)[0].startswith("out_proj is never called")


def test_is_causal_that_is_ignored() -> None:
    module, own = make(), torch.eye(L).bool().roll(1, dims=1)
    (explicit,) = warnings_of(module, attn_mask=own, is_causal=True)
    (sdpa,) = warnings_of(module, attn_mask=own, is_causal=True, need_weights=False)
    assert (
        "the hint has no effect" in explicit
        and "your mask is dropped and a causal one is used" in sdpa
    )
    x = data()
    assert (
        trace(module, x, x, x, attn_mask=own, is_causal=True, need_weights=False)["weights"][
            :, :, 0, 1:
        ].sum()
        == 0
    )
    with torch.no_grad():
        (native,) = warnings_of(module.eval(), attn_mask=own, is_causal=True, need_weights=False)
        assert "the hint has no effect" in native
        (alone,) = warnings_of(module, is_causal=True)
        assert (
            "blocks nothing here, where one fused operation does it all (the native fast path), and"
            " raises" in alone
        )
    for mask in (
        ~causal_mask(L),
        torch.zeros(L, L, dtype=torch.float64).masked_fill(~causal_mask(L), -math.inf),
    ):
        assert warnings_of(module, attn_mask=mask, is_causal=True) == ()
    lowest = torch.zeros(L, L, dtype=torch.float64).masked_fill(
        ~causal_mask(L), torch.finfo(torch.float64).min
    )
    assert not any("not causal" in w for w in warnings_of(module, attn_mask=lowest, is_causal=True))


@pytest.mark.parametrize(
    "build", [{"add_bias_kv": True}, {"add_zero_attn": True}], ids=["bias", "zero"]
)
def test_the_hint_hides_what_is_appended(build: dict[str, bool]) -> None:
    module, x, plain = make(**build), data(), make()
    plain.load_state_dict(module.state_dict(), strict=False)
    hint = {"is_causal": True, "need_weights": False}
    mask = ~causal_mask(L)
    (warning,) = warnings_of(module, attn_mask=mask, **hint)
    assert f"over all {L + 1} keys, which hides the appended keys from every query" in warning
    traced = trace(module, x, x, x, attn_mask=mask, **hint)
    assert torch.allclose(traced.output, plain(x, x, x, attn_mask=mask)[0])
    assert warnings_of(module, attn_mask=mask, is_causal=True) == ()  # with weights
    # as many queries as keys, and one more
    longer, wide = (
        data(N, L + 2, E),
        ~causal_mask(L + 2, L),
    )
    found = warnings_of(module, longer, x, x, attn_mask=wide, **hint)
    assert "from some queries" in found[0]


def test_what_torch_says_comes_first() -> None:
    x = data()
    for kind in (nn.MultiheadAttention, MultiheadAttention):
        with pytest.raises(
            AssertionError, match=r"^was expecting embedding .*\. Got query "
        ) as raised:
            trace(make(kind), x[..., :4], x, x)
        assert str(raised.value).count("was expecting") == 1
        assert str(raised.value).count("Got query") == 1
