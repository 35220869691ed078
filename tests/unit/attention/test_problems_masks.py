"""Problems with masks: their meaning, type, shape and order, rows without a key, is_causal."""

from __future__ import annotations

import math
import warnings

import pytest
import torch
from release import OLDEST, RELEASE
from test_problems import KINDS, causal, far, make, no_mask, said, same, says, warned
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import mha_widgets
from mha_widgets import MultiheadAttention, causal_mask, padding_mask

PADDED = torch.tensor([[False, False, True], [False, False, False]])
NO_KEY = "Queries with no key left"


@KINDS
def test_03_true_blocks_here_and_keeps_in_sdpa(kind: type[nn.Module]) -> None:
    module = make(kind, 3, 4, 1, bias=False)
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.eye(4).repeat(3, 1))
        module.out_proj.weight.copy_(torch.eye(4))
    torch.manual_seed(3)
    x = torch.randn(1, 3, 4)
    ours = module(x, x, x, attn_mask=causal(3), need_weights=False)[0]
    for sdpa in (F.scaled_dot_product_attention, mha_widgets.scaled_dot_product_attention):
        same_mask = sdpa(x, x, x, attn_mask=causal(3))
        assert far(ours, same_mask) == pytest.approx(2.145, abs=6e-4)
        assert same_mask[0, 2].tolist() == [0.0] * 4  # all False: nothing to keep
        assert far(ours, sdpa(x, x, x, attn_mask=~causal(3))) < 5e-7
    assert warned(
        "attn_mask blocks what a causal mask lets through", module, x, x, x, attn_mask=~causal(3)
    )
    real = padding_mask([3, 2])
    assert warned("looks inverted", module, *[torch.randn(2, 3, 4)] * 3, key_padding_mask=real)


@KINDS
@pytest.mark.parametrize("name", ["key_padding_mask", "attn_mask"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8])
def test_04_integer_masks_are_refused(kind: type[nn.Module], name: str, dtype: torch.dtype) -> None:
    module, x = make(kind, 4, 4, 2), torch.randn(2, 3, 4)
    keep = torch.tensor([[1, 1, 0], [1, 0, 0]], dtype=dtype)
    mask = keep if name == "key_padding_mask" else torch.zeros(3, 3, dtype=dtype)
    theirs = f"AssertionError: only bool and floating types of {name} are supported"
    expected = (
        theirs
        if kind is nn.MultiheadAttention
        else f"AssertionError: {name} is {dtype}, but must be boolean"
    )
    assert says(said(module, x, x, x, **{name: mask}), expected)
    assert module(x, x, x, key_padding_mask=keep == 0)[1][:, :, 2].tolist() == [[0.0] * 3] * 2


@KINDS
def test_05_a_float_mask_of_0_and_1_is_added_and_boosts_padding(kind: type[nn.Module]) -> None:
    module, x = make(kind, 5, 4, 1).eval(), torch.randn(1, 4, 4)
    padding = torch.tensor([[0.0, 0.0, 1.0, 1.0]])

    def row(mask: Tensor | None) -> Tensor:
        return module(x, x, x, key_padding_mask=mask)[1][0, 0]

    assert same(row(None), [0.276, 0.242, 0.264, 0.218]) and same(row(None)[2:].sum(), 0.481)
    assert same(row(padding), [0.151, 0.133, 0.392, 0.324]) and same(row(padding)[2:].sum(), 0.716)
    assert same(row(padding.bool()), [0.533, 0.467, 0.0, 0.0])
    assert far(row(padding), (row(None).log() + padding[0]).softmax(-1)) < 1e-6
    words = "key_padding_mask is float and holds nothing but 0 and 1"
    assert warned(words, module, x, x, x, key_padding_mask=padding)
    assert not warned(words, module, x, x, x, key_padding_mask=padding.bool())


@KINDS
def test_06_masks_of_different_types_are_deprecated(kind: type[nn.Module]) -> None:
    module, x = make(kind, 6, 4, 2).eval(), torch.randn(2, 3, 4)
    floats = nn.Transformer.generate_square_subsequent_mask(3)
    assert floats.dtype == torch.float32
    with pytest.warns(UserWarning) as caught:
        mixed, _ = module(x, x, x, key_padding_mask=PADDED, attn_mask=floats)
    theirs = (
        "Support for mismatched key_padding_mask and attn_mask is deprecated. Use same type for"
        " both instead."
    )
    ours = (
        "key_padding_mask is torch.bool and attn_mask is torch.float32: torch deprecates masks of"
        " different types; "
    )
    expected = (
        theirs if kind is nn.MultiheadAttention else f"{ours}make both boolean, or both float."
    )
    assert [str(warning.message) for warning in caught] == [expected]
    assert kind is nn.MultiheadAttention or caught[0].filename == __file__  # where it is called
    assert torch.equal(mixed, module(x, x, x, key_padding_mask=PADDED, attn_mask=floats.isinf())[0])
    with pytest.warns(UserWarning):
        assert warned(
            "torch deprecates mixed types",
            module,
            x,
            x,
            x,
            key_padding_mask=PADDED,
            attn_mask=floats,
        )


@KINDS
def test_07_two_boolean_masks_in_encoder_and_decoder_no_longer_warn(kind: type[nn.Module]) -> None:
    torch.manual_seed(7)
    x = torch.randn(2, 3, 8)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 8, 0.0, batch_first=True), 2)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 8, 0.0, batch_first=True), 2)
    for layer in encoder.layers:
        layer.self_attn = kind(8, 2, batch_first=True)
    for layer in decoder.layers:
        layer.self_attn, layer.multihead_attn = (
            kind(8, 2, batch_first=True),
            kind(8, 2, batch_first=True),
        )
    padded = x.clone()
    padded[0, 2] = 9.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        encoded = [encoder(y, mask=causal(3), src_key_padding_mask=PADDED) for y in (x, padded)]
        options = {
            "tgt_mask": causal(3),
            "tgt_key_padding_mask": PADDED,
            "memory_key_padding_mask": PADDED,
        }
        decoded = [decoder(y, y, **options) for y in (x, padded)]
    assert [str(warning.message) for warning in caught] == []
    for before, after in (encoded, decoded):
        assert far(before[~PADDED], after[~PADDED]) < 1e-6 and far(before, after) > 0.1


@KINDS
def test_08_in_a_3d_mask_the_heads_of_a_sample_lie_side_by_side(kind: type[nn.Module]) -> None:
    N, H, L, E = 2, 3, 4, 6
    module, x = make(kind, 8, E, H).eval(), torch.randn(N, L, E)
    each = no_mask(N, L, L)
    each[0, :, 3] = each[1, :, 0] = True

    def blocked(mask: Tensor) -> list[list[list[int]]]:
        unseen = module(x, x, x, attn_mask=mask, average_attn_weights=False)[1].sum(2) == 0
        return [[head.nonzero().flatten().tolist() for head in sample] for sample in unseen]

    assert blocked(each.repeat_interleave(H, 0)) == [[[3], [3], [3]], [[0], [0], [0]]]
    assert blocked(each.repeat(H, 1, 1)) == [[[3], [0], [3]], [[0], [3], [0]]]
    assert warned(
        "use mask.repeat_interleave(num_heads, dim=0)",
        module,
        x,
        x,
        x,
        attn_mask=each.repeat(H, 1, 1),
    )
    assert not warned("repeat_interleave", module, x, x, x, attn_mask=each.repeat_interleave(H, 0))
    one = x[:1]
    repeated, interleaved = each[:1].repeat(H, 1, 1), each[:1].repeat_interleave(H, 0)
    assert torch.equal(
        module(one, one, one, attn_mask=repeated)[0],
        module(one, one, one, attn_mask=interleaved)[0],
    )


@KINDS
@pytest.mark.parametrize("inference", [False, True])
def test_09_a_mask_for_each_sample_is_refused_in_other_words_on_each_path(
    kind: type[nn.Module], inference: bool
) -> None:
    N, H, L, E = 2, 4, 3, 8
    module, x = make(kind, 9, E, H).train(not inference), torch.randn(N, L, E)
    ours = (
        "attn_mask has shape {}, but must be (L, S) = (3, 3) or (N * num_heads, L, S) = (8, 3, 3);"
        " for one mask a sequence, "
    )
    slow = (
        (
            "RuntimeError: The shape of the 3D attn_mask is torch.Size([2, 3, 3]), but should be"
            " (8, 3, 3)."
        ),
        (
            "AssertionError: For batched (3-D) `query`, expected `attn_mask` to be `None`, 2-D or"
            " 3-D but found 4-D tensor instead"
        ),
    )
    fast = (
        "RuntimeError: For mask_type == 2 mask shape should match input shape",
        "RuntimeError: shape '[1, 1, 3, 3]' is invalid for input of size 72",
    )
    expected = fast if inference else slow
    if kind is MultiheadAttention:
        expected = (
            "RuntimeError: " + ours.format((2, 3, 3)),
            "AssertionError: " + ours.format((2, 4, 3, 3)),
        )
    with torch.set_grad_enabled(not inference):
        assert says(said(module, x, x, x, attn_mask=no_mask(N, L, L)), expected[0])
        assert says(said(module, x, x, x, attn_mask=no_mask(N, H, L, L)), expected[1])
        assert far(module(x, x, x, attn_mask=no_mask(N * H, L, L))[0], module(x, x, x)[0]) < 1e-6
        one = x[:1]
        assert (
            far(module(one, one, one, attn_mask=no_mask(H, L, L))[0], module(one, one, one)[0])
            < 1e-6
        )


@KINDS
def test_10_a_row_without_a_key_has_three_answers(kind: type[nn.Module]) -> None:
    module = make(kind, 10, 4, 2)
    nn.init.constant_(module.out_proj.bias, 0.25)
    x, padding = torch.randn(2, 3, 4), torch.tensor([[False] * 3, [True] * 3])
    nan, bias = [[math.nan] * 4] * 3, [[0.25] * 4] * 3
    for inference in (False, True):
        module.train(not inference)
        native = inference and kind is nn.MultiheadAttention
        with torch.set_grad_enabled(not inference):
            output, weights = module(x, x, x, key_padding_mask=padding)
            assert same(output[1], nan) and same(weights[1], [[math.nan] * 3] * 3)
            output, _ = module(x, x, x, key_padding_mask=padding, need_weights=False)
            assert same(output[1], nan if native else bias)
            assert output[0].isfinite().all()
            assert warned(
                f"{NO_KEY} (sequence 1: 0, 1, 2): here they become NaN",
                module,
                x,
                x,
                x,
                key_padding_mask=padding,
            )
            words = (
                f"{NO_KEY} (sequence 1: 0, 1, 2): here they become {'NaN' if native else 'zeros'}"
            )
            assert warned(words, module, x, x, x, key_padding_mask=padding, need_weights=False)


@KINDS
@pytest.mark.parametrize(("need_weights", "nan"), [(True, (48, 16)), (False, (0, 0))])
def test_11_a_row_without_a_key_makes_every_gradient_nan(
    kind: type[nn.Module], need_weights: bool, nan: tuple[int, int]
) -> None:
    torch.manual_seed(11)
    x, padding = torch.randn(2, 3, 4), torch.tensor([[False, False, True], [True] * 3])

    def nans(padding: Tensor) -> tuple[int, int]:
        module = kind(4, 2, batch_first=True)
        module(x, x, x, key_padding_mask=padding, need_weights=need_weights)[0][
            0
        ].sum().backward()  # not sample 1
        return int(module.in_proj_weight.grad.isnan().sum()), int(
            module.out_proj.weight.grad.isnan().sum()
        )

    assert nans(padding) == nan
    assert nans(PADDED) == (0, 0)  # one key left
    words = (
        "so does every gradient behind them"
        if need_weights
        else "zeros before the output projection"
    )
    assert warned(
        words,
        kind(4, 2, batch_first=True),
        x,
        x,
        x,
        key_padding_mask=padding,
        need_weights=need_weights,
    )


@KINDS
def test_12_left_padding_and_a_causal_mask_leave_rows_without_a_key(kind: type[nn.Module]) -> None:
    module, x = make(kind, 12, 4, 2), torch.randn(1, 4, 4)
    masks = {"key_padding_mask": torch.tensor([[True, True, False, False]]), "attn_mask": causal(4)}

    def nan_rows(training: bool, need_weights: bool, **masks: Tensor) -> list[bool]:
        module.train(training)
        with torch.set_grad_enabled(training):
            assert warned(NO_KEY, module, x, x, x, need_weights=need_weights, **masks)
            return (
                module(x, x, x, need_weights=need_weights, **masks)[0][0].isnan().any(-1).tolist()
            )

    native = kind is nn.MultiheadAttention
    pads, none = [True, True, False, False], [False] * 4
    assert nan_rows(True, True, **masks) == nan_rows(False, True, **masks) == pads
    assert nan_rows(True, False, **masks) == none
    assert nan_rows(False, False, **masks) == (pads if native else none)
    row_1 = no_mask(4, 4)
    row_1[1] = True
    assert nan_rows(False, True, attn_mask=row_1) == [False, True, False, False]
    assert nan_rows(False, False, attn_mask=row_1) == [False, native, False, False]
    module.eval()
    assert warned(f"{NO_KEY} (sequence 0: 0, 1)", module, x, x, x, **masks)


@KINDS
def test_13_padding_is_n_by_s_and_a_transposed_square_passes(kind: type[nn.Module]) -> None:
    module, x = make(kind, 13, 4, 2, batch_first=False), torch.randn(5, 2, 4)  # (L, N, E)
    dims = (
        "For batched (3-D) `query`, expected `key_padding_mask` to be `None` or 2-D but found {}-D"
        " tensor instead"
    )
    sizes = {
        (5, 2): "Expected key_padded_mask.shape[0] to be 2, but got 5",
        (2, 6): "Expected key_padded_mask.shape[1] to be 5, but got 6",
    }
    if OLDEST:
        both = "expecting key_padding_mask shape of (2, 5), but got {}"
        sizes = {shape: both.format(torch.Size(shape)) for shape in sizes}
    for shape, theirs in {
        **sizes,
        (5,): dims.format(1),
        (2, 5, 5): dims.format(3),
    }.items():
        expected = (
            theirs
            if kind is nn.MultiheadAttention
            else f"key_padding_mask has shape {shape}, but must be (N, S) = (2, 5)"
        )
        assert says(
            said(module, x, x, x, key_padding_mask=no_mask(*shape)), f"AssertionError: {expected}"
        )
    square, padding = (
        torch.randn(3, 3, 4),
        torch.tensor([[False, True, True], [False] * 3, [False] * 3]),
    )
    weights = module(square, square, square, key_padding_mask=padding.T)[1]
    assert (weights.sum(1) == 0).tolist() == [
        [False] * 3,
        [True, False, False],
        [True, False, False],
    ]
    assert warned(
        "key_padding_mask is (3, 3), square",
        module,
        square,
        square,
        square,
        key_padding_mask=padding,
    )


@KINDS
def test_13_padding_of_a_wrong_shape_on_the_fast_path(kind: type[nn.Module]) -> None:
    module, x = make(kind, 13, 4, 2).eval(), torch.randn(2, 5, 4)
    theirs = "RuntimeError: For mask_type == {} mask shape should"
    with torch.no_grad():
        for shape, mask_type in {(5, 2): 1, (2, 6): 1, (5,): 2}.items():
            ours = (
                f"AssertionError: key_padding_mask has shape {shape}, but must be (N, S) = (2, 5)"
            )
            expected = theirs.format(mask_type) if kind is nn.MultiheadAttention else ours
            assert says(said(module, x, x, x, key_padding_mask=no_mask(*shape)), expected)


@KINDS
@pytest.mark.parametrize("need_weights", [True, False])
def test_15_is_causal_alone_raises_or_does_nothing(
    kind: type[nn.Module], need_weights: bool
) -> None:
    module, x = make(kind, 15, 4, 2), torch.randn(1, 3, 4)
    theirs = (
        "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method"
    )
    words = (
        theirs
        if kind is nn.MultiheadAttention
        else "is_causal=True only says that attn_mask is causal, and there is none"
    )
    assert says(
        said(module, x, x, x, is_causal=True, need_weights=need_weights), f"RuntimeError: {words}"
    )
    module.eval()
    with torch.no_grad():
        if kind is nn.MultiheadAttention:
            assert same(module(x, x, x, is_causal=True)[1][0, 0, 1], 0.296)
            assert torch.equal(module(x, x, x, is_causal=True)[0], module(x, x, x)[0])
            assert warned(
                "is_causal=True without attn_mask blocks nothing", module, x, x, x, is_causal=True
            )
        else:
            assert says(
                said(module, x, x, x, is_causal=True, need_weights=need_weights),
                f"RuntimeError: {words}",
            )


@KINDS
def test_16_is_causal_with_another_mask(kind: type[nn.Module]) -> None:
    module, x = make(kind, 16, 4, 2), torch.randn(1, 4, 4)
    window = ~torch.eye(4, dtype=torch.bool)  # every token sees itself alone
    expected = {"mine": window, "causal": nn.Transformer.generate_square_subsequent_mask(4).isinf()}
    expected = {
        name: module(x, x, x, attn_mask=mask, need_weights=False)[0]
        for name, mask in expected.items()
    }

    def used(training: bool, need_weights: bool, **padding: Tensor) -> str:
        module.train(training)
        options = {"attn_mask": window, "is_causal": True, "need_weights": need_weights, **padding}
        with torch.set_grad_enabled(training):
            output = module(x, x, x, **options)[0]
            (name,) = [
                name for name, other in expected.items() if torch.allclose(output, other, atol=1e-5)
            ]
            words = {
                "causal": "your mask is dropped and a causal one is used",
                "mine": "the hint has no effect, only your mask",
            }
            assert warned(words[name], module, x, x, x, **options)
        return name

    assert used(True, True) == "mine"
    assert used(True, False) == "causal"
    assert used(True, False, key_padding_mask=no_mask(1, 4)) == "mine"
    assert used(False, True) == "mine"
    assert used(False, False) == ("mine" if kind is nn.MultiheadAttention else "causal")


def test_17_sdpa_with_a_mask_and_is_causal() -> None:
    torch.manual_seed(17)
    q, k, v = (torch.randn(1, 2, 4, 8) for _ in range(3))
    mask = ~no_mask(4, 4)
    mask[1:, 0] = False
    both = F.scaled_dot_product_attention(q, k, v, mask & causal_mask(4))
    assert far(both, F.scaled_dot_product_attention(q, k, v, mask)) > 0.1
    assert far(both, F.scaled_dot_product_attention(q, k, v, is_causal=True)) > 0.1
    words = (
        "RuntimeError: _scaled_dot_product_attention: Explicit attn_mask should not be set when"
        " is_causal=True"
    )
    for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(backend):
            if backend is SDPBackend.MATH or RELEASE >= (2, 14):
                assert said(F.scaled_dot_product_attention, q, k, v, mask, is_causal=True) == words
            else:
                found = F.scaled_dot_product_attention(q, k, v, mask, is_causal=True)
                assert far(found, both) < 1e-6
    words = (
        "RuntimeError: Got both attn_mask and is_causal=True; pass one mask that says both:"
        " causal_mask(L, S) & attn_mask."
    )
    ours = mha_widgets.scaled_dot_product_attention
    assert says(said(ours, q, k, v, mask, is_causal=True), words)


@KINDS
def test_24_add_zero_attn_rescues_rows_without_a_key(kind: type[nn.Module]) -> None:
    torch.manual_seed(24)
    x, padding = torch.randn(1, 3, 4), torch.ones(1, 3, dtype=torch.bool)

    def call(module: nn.Module) -> tuple[list[float], list[float], bool]:
        nn.init.constant_(module.out_proj.bias, 0.25)
        output, weights = module(x, x, x, key_padding_mask=padding)
        output.sum().backward()
        return (
            weights[0, 0].tolist(),
            output[0, 0].tolist(),
            module.in_proj_weight.grad.isnan().any().item(),
        )

    weights, output, nan_gradient = call(kind(4, 2, batch_first=True))
    assert all(map(math.isnan, weights + output)) and nan_gradient
    rescued = kind(4, 2, add_zero_attn=True, batch_first=True)
    assert call(rescued) == ([0.0, 0.0, 0.0, 1.0], [0.25] * 4, False)
    assert not warned("no key left", rescued, x, x, x, key_padding_mask=padding)


@KINDS
def test_53_padding_masks_keys_and_not_queries(kind: type[nn.Module]) -> None:
    module, x = make(kind, 53, 4, 2).eval(), torch.randn(1, 4, 4)
    padding = torch.tensor([[False, False, True, True]])
    output, weights = module(x, x, x, key_padding_mask=padding)
    assert same(weights[0, 3], [0.516, 0.484, 0.0, 0.0])
    edited = x.clone()
    edited[0, 2:] = 7.0
    moved = module(edited, edited, edited, key_padding_mask=padding)[0] - output
    assert moved[0, :2].abs().max() < 1e-6 and moved[~padding].mean(0).abs().max() < 1e-6
    assert same(moved[0, 2:].abs().max(), 0.07, 2) and same(moved.mean(1).abs().max(), 0.03, 2)
    nn.init.constant_(module.out_proj.bias, 0.0)
    # pads have an output like any other
    assert module(x, x, x, key_padding_mask=padding)[0][0, 2:].abs().min() > 0


@KINDS
def test_55_large_negative_numbers_are_not_infinity(kind: type[nn.Module]) -> None:
    module, x = make(kind, 55, 4, 1).eval(), torch.randn(1, 3, 4)

    def row(value: float, keys: slice = slice(None)) -> Tensor:
        mask = torch.zeros(1, 3)
        mask[:, keys] = value
        return module(x, x, x, key_padding_mask=mask)[1][0, 0]

    plain = [0.301, 0.316, 0.384]
    assert same(row(0.0), plain) and same(row(-30.0), plain)
    assert same(row(-math.inf), [math.nan] * 3) and same(row(-1e9), [1 / 3] * 3)
    # with a key left there is no difference
    assert torch.equal(row(-1e9, slice(1, 3)), row(-math.inf, slice(1, 3)))
    words = (
        f"RuntimeError: value cannot be converted to type {'at' if OLDEST else 'c10'}::Half without"
        " overflow"
    )
    assert (
        said(torch.zeros(2, dtype=torch.float16).masked_fill, torch.tensor([True, False]), -1e9)
        == words
    )
    assert warned(
        "key_padding_mask holds -1e+09, which is not -inf",
        module,
        x,
        x,
        x,
        key_padding_mask=torch.full((1, 3), -1e9),
    )
