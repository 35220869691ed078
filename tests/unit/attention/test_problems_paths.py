"""Problems with the ways that a call can go: the native fast path, the fused encoder layer,
the cost of weights.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from release import OLDEST
from test_problems import KINDS, Operations, causal, far, make, no_mask, said, same, warned
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

from mha_widgets import MultiheadAttention, fast_path, trace
from mha_widgets.attention.call import Path

NESTED = pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning"
)
PADDED = torch.tensor([[False, False, True, True], [False, False, False, True]])


@pytest.fixture(autouse=True)
def fast_path_is_on_again() -> Iterator[None]:
    before = torch.backends.mha.get_fastpath_enabled()
    yield
    torch.backends.mha.set_fastpath_enabled(before)


def names(call: Any, *args: Any, gradients: bool = False, **kwargs: Any) -> list[str]:
    """Return the names of torch's operations in a call."""
    with torch.set_grad_enabled(gradients), Operations() as operations:
        call(*args, **kwargs)
    return operations.names


@contextmanager
def autocast(device: str | None) -> Iterator[None]:
    """Switch it on, also for a device that this machine hasn't got."""
    if device is not None:
        torch.set_autocast_enabled(device, True)
    try:
        yield
    finally:
        if device is not None:
            torch.set_autocast_enabled(device, False)
            torch.clear_autocast_cache()


def encoder_layer(kind: type[nn.Module], seed: int) -> nn.TransformerEncoderLayer:
    """Return a layer in evaluation; torch's random numbers go on as if ours had not been made."""
    torch.manual_seed(seed)
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True)
    with torch.random.fork_rng():
        attention = kind(8, 2, batch_first=True)
    attention.load_state_dict(layer.self_attn.state_dict())
    layer.self_attn = attention
    return layer.eval()


X = torch.linspace(-1, 1, 2 * 4 * 8).view(2, 4, 8)


@KINDS
@pytest.mark.parametrize(
    ("taken", "build", "call"),
    [
        (True, {}, {}),
        (True, {}, {"attn_mask": no_mask(4, 4), "key_padding_mask": no_mask(2, 4)}),
        (True, {"dropout": 0.1}, {}),
        (True, {}, {"need_weights": False}),
        (False, {}, {"training": True}),
        (False, {}, {"gradients": True}),
        (False, {"num_heads": 1}, {}),
        (False, {"bias": False}, {}),
        (False, {"batch_first": False}, {}),
        (False, {}, {"value": X.clone()}),
        (False, {}, {"x": X[0]}),
        (False, {}, {"attn_mask": torch.zeros(4, 4)}),
        (False, {}, {"key_padding_mask": torch.zeros(2, 4)}),
        (False, {"add_bias_kv": True}, {}),
        (False, {"add_zero_attn": True}, {}),
        (True, {}, {"autocast": "cpu"}),  # the module asks for the autocast of CUDA alone
        (False, {}, {"autocast": "cuda"}),
        (False, {}, {"switched_off": True}),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_30_when_the_fast_path_is_taken(
    kind: type[nn.Module], taken: bool, build: dict[str, Any], call: dict[str, Any]
) -> None:
    call = dict(call)
    x, training, gradients = (
        call.pop("x", X),
        call.pop("training", False),
        call.pop("gradients", False),
    )
    inputs = x, x, call.pop("value", x)
    torch.backends.mha.set_fastpath_enabled(not call.pop("switched_off", False))
    module = make(kind, 30, 8, **{"num_heads": 2} | build).train(training)
    native = kind is nn.MultiheadAttention and taken
    with torch.set_grad_enabled(gradients), autocast(call.pop("autocast", None)):
        assert (
            "_native_multi_head_attention" in names(module, *inputs, gradients=gradients, **call)
        ) is native
        reasons = [reason.words for reason in fast_path(module, *inputs, **call)]
        assert (trace(module, *inputs, **call).path is Path.NATIVE) is native
    ours = (
        "the module is mha_widgets.attention.multihead.MultiheadAttention: "
        "only torch's own forward has a fast path"
    )
    assert (ours in reasons) is (kind is MultiheadAttention)
    assert len(reasons) == (not taken) + (kind is MultiheadAttention)


@KINDS
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_31_training_and_evaluation_give_the_same_numbers(
    kind: type[nn.Module], dtype: torch.dtype
) -> None:
    module, x = make(kind, 31, 64, 8, dtype=dtype), torch.randn(4, 50, 64).to(dtype)
    output, weights = module(x, x, x)
    with torch.no_grad():
        native, native_weights = module.eval()(x, x, x)
    # Measured: 0 in all types but float64, where it was 1e-16.
    # Another processor may round the last digits otherwise.
    eps = torch.finfo(dtype).eps
    assert (
        far(output, native) <= 4 * eps * output.abs().max()
        and far(weights, native_weights) <= 4 * eps * weights.max()
    )
    if dtype == torch.float32:
        other = make(
            MultiheadAttention if kind is nn.MultiheadAttention else nn.MultiheadAttention,
            31,
            64,
            8,
        )
        assert far(other(x, x, x)[0], output) < 1e-6


@KINDS
def test_33_hooks_in_an_encoder_layer_keep_it_off_the_fused_operation(
    kind: type[nn.Module],
) -> None:
    layer, seen = encoder_layer(kind, 33), []

    def fused() -> bool:
        seen.clear()
        return "_transformer_encoder_layer_fwd" in names(layer, X)

    assert fused() and seen == []
    for hooked, calls in ((layer.self_attn, 1), (layer.self_attn.out_proj, 0), (layer.linear1, 1)):
        hook = hooked.register_forward_hook(lambda module, inputs, output: seen.append(output))
        assert not fused() and len(seen) == calls
        if hooked is layer.self_attn:
            # the layer asks for no weights
            assert seen[0][0].shape == X.shape and seen[0][1] is None
        hook.remove()
    assert fused()


@KINDS
def test_34_maps_out_of_an_encoder(kind: type[nn.Module]) -> None:
    encoder = nn.TransformerEncoder(encoder_layer(kind, 34), 2, enable_nested_tensor=False).eval()
    x, maps = torch.randn(1, 4, 8), []
    with torch.no_grad():
        before = encoder(x)

    def force(module: nn.Module, args: Any, kwargs: Any) -> Any:
        return args, {**kwargs, "need_weights": True, "average_attn_weights": False}

    for layer in encoder.layers:
        layer.self_attn.register_forward_pre_hook(force, with_kwargs=True)
        layer.self_attn.register_forward_hook(lambda module, inputs, output: maps.append(output[1]))
    with torch.no_grad():
        assert far(encoder(x), before) < 1e-6
    assert [tuple(each.shape) for each in maps] == [(1, 2, 4, 4)] * 2
    first = encoder.layers[0].self_attn(x, x, x, average_attn_weights=False)[1]
    assert far(maps[0], first) < 1e-6 and far(maps[0].sum(-1), torch.ones(1, 2, 4)) < 1e-6


@NESTED
@KINDS
def test_35_the_nested_path_fills_padding_with_zeros(kind: type[nn.Module]) -> None:
    layer = encoder_layer(kind, 35)
    encoder, x = nn.TransformerEncoder(layer, 1).eval(), torch.randn(2, 4, 8)
    slow = encoder(x, src_key_padding_mask=PADDED)
    with torch.no_grad():
        nested, left = (
            encoder(x, src_key_padding_mask=PADDED),
            encoder(x, src_key_padding_mask=PADDED.flip(1)),
        )
    assert slow.shape == nested.shape == (2, 4, 8)  # though no sequence needs the last position
    assert same(slow[0, 3, :2], [-0.845, -0.968]) and not nested[PADDED].any()
    assert far(slow[~PADDED], nested[~PADDED]) < 2e-6
    assert same(left[0, 0, :2], [1.430, -0.039])
    normed = nn.TransformerEncoder(layer, 1, norm=nn.LayerNorm(8)).eval()
    nn.init.constant_(normed.norm.bias, 3.0)
    with torch.no_grad():
        assert (normed(x, src_key_padding_mask=PADDED)[PADDED] == 3.0).all()


@NESTED
@KINDS
def test_36_a_sample_of_nothing_but_padding_in_an_encoder(kind: type[nn.Module]) -> None:
    layer = encoder_layer(kind, 36)
    encoder, x = nn.TransformerEncoder(layer, 1).eval(), torch.randn(2, 3, 8)
    padding = torch.tensor([[False, False, True], [True, True, True]])
    assert encoder(x, src_key_padding_mask=padding).isfinite().all()
    with torch.no_grad():
        assert not encoder(x, src_key_padding_mask=padding)[1].any()  # nested: zeros
        # the fused operation reads the weights of ours as well
        alone = layer(x, src_key_padding_mask=padding)
        assert alone[0].isfinite().all() and alone[1].isnan().all()
        torch.backends.mha.set_fastpath_enabled(False)
        assert layer(x, src_key_padding_mask=padding).isfinite().all()


@KINDS
def test_37_the_warning_about_nested_tensors(kind: type[nn.Module]) -> None:
    def caught(build: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            build()
        return [str(warning.message) for warning in found]

    words = (
        "enable_nested_tensor is True, but self.use_nested_tensor is False because encoder_layer."
    )
    seq_first, norm_first = (
        nn.TransformerEncoderLayer(8, 2),
        nn.TransformerEncoderLayer(8, 2, batch_first=True, norm_first=True),
    )
    because = "self_attn.batch_first was not True(use batch_first for better inference performance)"
    assert caught(lambda: nn.TransformerEncoder(seq_first, 1)) == [f"{words}{because}"]
    assert caught(lambda: nn.TransformerEncoder(norm_first, 1)) == [f"{words}norm_first was True"]
    assert caught(lambda: nn.TransformerEncoder(norm_first, 1, enable_nested_tensor=False)) == []
    assert caught(lambda: nn.Transformer(8, 2, 1, 1)) == [f"{words}{because}"]
    assert caught(lambda: nn.TransformerEncoder(encoder_layer(kind, 37), 1)) == []


@KINDS
@pytest.mark.parametrize(
    ("need_weights", "largest"), [(True, 4 * 128 * 128), (False, 3 * 128 * 16)]
)
def test_44_weights_cost_a_number_for_each_pair(
    kind: type[nn.Module], need_weights: bool, largest: int
) -> None:
    L, E, H = 128, 16, 4
    torch.backends.mha.set_fastpath_enabled(False)
    module, x = make(kind, 44, E, H).eval(), torch.randn(1, L, E)
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients), Operations() as operations:
            module(x, x, x, need_weights=need_weights)
        assert operations.largest == largest  # H * L * L, or the projections 3 * L * E
        assert (
            "_scaled_dot_product_flash_attention_for_cpu" in operations.names
        ) is not need_weights


def test_63_flex_attention_keeps_where_true_and_has_no_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flex = "torch.nn.attention.flex_attention._WARNINGS_SHOWN"
    monkeypatch.setattr(flex, set(), raising=False)  # it warns once a process
    torch.manual_seed(63)
    q, k, v = (torch.randn(1, 2, 128, 16) for _ in range(3))

    def may_look(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return i >= j

    mask = create_block_mask(may_look, None, None, 128, 128, device="cpu")
    warns = pytest.warns(UserWarning, match="unfused implementation that materializes the full")
    with nullcontext() if OLDEST else warns:
        output = flex_attention(q, k, v, block_mask=mask)
    assert isinstance(output, Tensor) and output.shape == (1, 2, 128, 16)
    assert far(output, F.scaled_dot_product_attention(q, k, v, is_causal=True)) < 5e-6
    blocked = F.scaled_dot_product_attention(q, k, v, attn_mask=causal(128))
    assert far(output, blocked) > 0.5


@pytest.mark.parametrize("fast", [True, False])
def test_64_the_fast_path_holds_a_number_for_each_pair(fast: bool) -> None:
    L, E, H = 128, 16, 4
    torch.backends.mha.set_fastpath_enabled(fast)
    module, x = make(nn.MultiheadAttention, 64, E, H).eval(), torch.randn(1, L, E)
    with torch.no_grad(), torch.profiler.profile(record_shapes=True) as profile:
        module(x, x, x, need_weights=False)
    operations = {event.name for event in profile.events()}
    assert ("aten::_native_multi_head_attention" in operations) is fast
    assert ("aten::_scaled_dot_product_flash_attention_for_cpu" in operations) is not fast
    shapes = [
        shape
        for event in profile.events()
        for shape in event.input_shapes
        if shape and isinstance(shape[0], int)
    ]
    largest = max(map(math.prod, shapes))
    assert largest == (H * L * L if fast else 3 * L * E)


def test_64_ours_holds_no_number_for_each_pair() -> None:
    L, E, H = 128, 16, 4
    module, x = make(MultiheadAttention, 64, E, H).eval(), torch.randn(1, L, E)
    with torch.no_grad(), Operations() as operations:
        module(x, x, x, need_weights=False)
    assert operations.largest == 3 * L * E


def test_70_an_encoder_layer_ignores_a_subclass_in_evaluation() -> None:
    class Twice(nn.MultiheadAttention):
        calls = 0

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            output, weights = super().forward(*args, **kwargs)
            return 2 * output, weights

    torch.manual_seed(70)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    twice = Twice(8, 2, batch_first=True)
    twice.load_state_dict(layer.self_attn.state_dict())
    layer.self_attn, x = twice, torch.randn(1, 3, 8)
    slow = layer.eval()(x)
    assert twice.calls == 1
    with torch.no_grad():
        assert same(far(layer(x), slow), 0.50, 2) and twice.calls == 1
        torch.backends.mha.set_fastpath_enabled(False)
        assert far(layer(x), slow) < 1e-6 and twice.calls == 2


def test_70_what_an_encoder_layer_asks_of_its_attention() -> None:
    asked = (
        "batch_first",
        "in_proj_bias",
        "in_proj_weight",
        "out_proj",
        "num_heads",
        "embed_dim",
        "_qkv_same_embed_dim",
    )

    class NoMerge(nn.Module):
        def __init__(self, attention: nn.Module) -> None:
            super().__init__()
            for name in asked:
                setattr(self, name, getattr(attention, name))

    layer = encoder_layer(MultiheadAttention, 70)
    layer.self_attn = NoMerge(layer.self_attn).eval()
    with torch.no_grad():
        assert said(layer, X) == "AttributeError: 'NoMerge' object has no attribute 'merge_masks'"
    layer = encoder_layer(MultiheadAttention, 70)
    masks = {"src_mask": causal(4), "src_key_padding_mask": PADDED}
    called = layer(X, **masks)
    assert "_transformer_encoder_layer_fwd" in names(layer, X, **masks)
    with torch.no_grad():
        assert far(layer(X, **masks), called) < 1e-6
    assert far(encoder_layer(nn.MultiheadAttention, 70)(X, **masks), called) < 1e-6


def test_30_the_switch_is_named_where_it_matters() -> None:
    module = make(nn.MultiheadAttention, 30, 8, 2).eval()
    torch.backends.mha.set_fastpath_enabled(False)
    with torch.no_grad():
        (reason,) = fast_path(module, X, X, X)
        assert "set_fastpath_enabled(True) switches it on" in reason.words
        assert not warned("", module, X, X, X)
