"""MultiheadAttention in place of torch's inside torch's own layers and models."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from pairs import (
    PADDING,
    PROTOTYPE,
    SOURCE,
    assert_same,
    fill,
    pair,
    seeded,
    uniform,
)
from torch import Tensor, nn
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy

from mha_widgets.attention.multihead import MultiheadAttention


def replaced(model: nn.Module) -> nn.Module:
    """Copy a model, with our module in place of each of torch's."""
    model = copy.deepcopy(model)
    for parent in list(model.modules()):
        for name, theirs in list(parent.named_children()):
            if type(theirs) is nn.MultiheadAttention:
                sizes = theirs.embed_dim, theirs.num_heads, theirs.dropout
                bias, dtype = theirs.in_proj_bias is not None, theirs.out_proj.weight.dtype
                ours = MultiheadAttention(
                    *sizes, bias=bias, batch_first=theirs.batch_first, dtype=dtype
                ).train(theirs.training)
                ours.load_state_dict(theirs.state_dict())
                setattr(parent, name, ours)
    assert not any(type(module) is nn.MultiheadAttention for module in model.modules())
    return model


LAYER = {"d_model": 22, "nhead": 2, "dim_feedforward": 13, "dropout": 0.3, "dtype": torch.float64}
TARGET = uniform(3, 7, 22, seed=31)
CAUSAL = torch.ones(7, 7, dtype=torch.bool).triu(1)
MODELS: dict[str, tuple[Callable[..., nn.Module], tuple[Tensor, ...], dict[str, Any]]] = {
    "encoder layer": (nn.TransformerEncoderLayer, (SOURCE,), {}),
    "encoder layer, padding": (
        nn.TransformerEncoderLayer,
        (SOURCE,),
        {"src_key_padding_mask": PADDING},
    ),
    "encoder layer, both": (
        nn.TransformerEncoderLayer,
        (TARGET,),
        {
            "src_mask": CAUSAL,
            "src_key_padding_mask": torch.arange(7) >= torch.tensor([7, 4, 1])[:, None],
        },
    ),
    "encoder layer, causal": (
        nn.TransformerEncoderLayer,
        (TARGET,),
        {"src_mask": CAUSAL, "is_causal": True},
    ),
    "decoder layer": (nn.TransformerDecoderLayer, (TARGET, SOURCE), {}),
    "decoder layer, masks": (
        nn.TransformerDecoderLayer,
        (TARGET, SOURCE),
        {"tgt_mask": CAUSAL, "tgt_is_causal": True, "memory_key_padding_mask": PADDING},
    ),
}
in_both_modes = pytest.mark.parametrize("training", [True, False])
with_and_without_gradients = pytest.mark.parametrize("grad", [True, False])


def assert_same_model(
    theirs: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Any], training: bool, grad: bool
) -> None:
    """Compare outputs and gradients, with the same dropout."""
    ours = replaced(fill(theirs).train(training))
    args = tuple(x.clone().requires_grad_(grad) for x in args)
    with torch.set_grad_enabled(grad):
        expected, output = (seeded(model, *args, **kwargs) for model in (theirs, ours))
    assert_same(output, expected)
    if grad:
        upstream = uniform(*expected.shape, seed=32)
        assert_same(
            torch.autograd.grad(output, args, upstream),
            torch.autograd.grad(expected, args, upstream),
        )


@in_both_modes
@with_and_without_gradients
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("build, args, kwargs", MODELS.values(), ids=MODELS)
def test_inside_a_layer(
    build: Callable[..., nn.Module],
    args: tuple[Tensor, ...],
    kwargs: dict[str, Any],
    norm_first: bool,
    grad: bool,
    training: bool,
) -> None:
    model = build(**LAYER, batch_first=True, norm_first=norm_first)
    assert_same_model(model, args, kwargs, training, grad)


@in_both_modes
@with_and_without_gradients
@pytest.mark.parametrize("bias", [True, False])
def test_inside_a_layer_with_the_batch_second(bias: bool, grad: bool, training: bool) -> None:
    model = nn.TransformerEncoderLayer(**LAYER, bias=bias)
    assert_same_model(
        model, (SOURCE.transpose(0, 1),), {"src_key_padding_mask": PADDING}, training, grad
    )


def test_tools_that_look_for_torch_s_class_find_ours() -> None:
    """FSDP, for one, wraps nothing inside: out_proj is not called, so its weight would stay cut."""
    _, ours = pair()
    assert isinstance(ours, nn.MultiheadAttention)
    layer = nn.TransformerEncoderLayer(8, 2)
    layer.self_attn = ours
    looks_inside = partial(size_based_auto_wrap_policy, recurse=True, nonwrapped_numel=10**9)
    assert looks_inside(layer) and not looks_inside(layer.self_attn)


def encoder() -> nn.TransformerEncoder:
    return nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**LAYER, batch_first=True), 2, enable_nested_tensor=True
    )


@pytest.mark.filterwarnings(PROTOTYPE)
@in_both_modes
@with_and_without_gradients
def test_inside_an_encoder_that_nests_padded_sequences(grad: bool, training: bool) -> None:
    assert_same_model(encoder(), (SOURCE,), {"src_key_padding_mask": PADDING}, training, grad)


@pytest.mark.filterwarnings(PROTOTYPE)
def test_a_hook_makes_the_encoder_call_our_module_with_a_nested_tensor() -> None:
    theirs = fill(encoder().eval())
    ours = replaced(theirs)
    seen: list[Tensor] = []
    for model in theirs, ours:  # any hook keeps a layer off its fused operation
        for layer in model.layers:
            layer.self_attn.register_forward_hook(
                lambda module, args, output: seen.append(output[0])
            )
    with torch.no_grad():
        expected, output = (model(SOURCE, src_key_padding_mask=PADDING) for model in (theirs, ours))
    assert_same(output, expected)
    assert [x.is_nested for x in seen] == [True] * 4  # one call for each layer
    for their, our in zip(seen[:2], seen[2:], strict=True):
        assert_same(our.unbind(), their.unbind())


@pytest.mark.filterwarnings(PROTOTYPE)
@in_both_modes
@with_and_without_gradients
@pytest.mark.parametrize("masked", [True, False])
def test_inside_a_transformer(masked: bool, grad: bool, training: bool) -> None:
    kwargs = (
        {"tgt_mask": CAUSAL, "tgt_is_causal": True, "src_key_padding_mask": PADDING}
        if masked
        else {}
    )
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 2, "batch_first": True}
    assert_same_model(nn.Transformer(**LAYER, **layers), (SOURCE, TARGET), kwargs, training, grad)
