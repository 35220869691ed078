"""How results lie in memory: as torch's do, so that a dropout behind drops the same numbers."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from pairs import (
    PROTOTYPE,
    SEPARATE,
    E,
    L,
    N,
    S,
    assert_same,
    blocked,
    inputs,
    nested,
    pair,
    seeded,
    slow_path,
    uniform,
)
from torch import Tensor, nn
from torch.nn import functional as F

EVEN = {"embed_dim": 22, "num_heads": 2}
X = uniform(N, L, 22)
# A module's arguments, and the masks of a call: all that the fast path asks about, one by one.
CALLS: dict[str, tuple[dict[str, Any], dict[str, Tensor]]] = {
    "fast": ({}, {}),
    "boolean masks": ({}, {"attn_mask": blocked(L, L), "key_padding_mask": blocked(N, L)}),
    "float attn_mask": ({}, {"attn_mask": uniform(L, L)}),
    "float key_padding_mask": ({}, {"key_padding_mask": uniform(N, L)}),
    "odd heads": ({"num_heads": 11}, {}),
    "no bias": ({"bias": False}, {}),
    "add_bias_kv": ({"add_bias_kv": True}, {}),
    "add_zero_attn": ({"add_zero_attn": True}, {}),
    "batch second": ({"batch_first": False}, {}),
}
ways = pytest.mark.parametrize("need_weights", [True, False])


def strides(results: tuple[Tensor, Tensor | None]) -> list[tuple[int, ...] | None]:
    return [None if x is None else x.stride() for x in results]


def assert_alike(modules: Any, *tensors: Tensor, **forward: Any) -> None:
    """Compare the strides of both modules' results, and what a dropout leaves of their outputs."""
    expected, results = (module(*tensors, **forward) for module in modules)
    assert strides(results) == strides(expected)
    assert_same(
        *(seeded(F.dropout, output, 0.5) for output, _ in (results, expected)),
    )


@pytest.mark.parametrize("average", [True, False])
@ways
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("build, masks", CALLS.values(), ids=CALLS)
def test_self_attention(
    build: dict[str, Any],
    masks: dict[str, Tensor],
    grad: bool,
    training: bool,
    need_weights: bool,
    average: bool,
) -> None:
    x = X if build.get("batch_first", True) else X.transpose(0, 1)
    options = {"need_weights": need_weights, "average_attn_weights": average}
    with torch.set_grad_enabled(grad):
        modules = pair(training, **EVEN | build)
        for query in x, x[:1], x[:, :1]:
            fitting = {} if query is not x else masks
            assert_alike(modules, query, query, query, **fitting, **options)


@ways
@pytest.mark.parametrize("around", [nullcontext, slow_path], ids=["", "fast path off"])
@pytest.mark.parametrize("frozen", [True, False])
@pytest.mark.parametrize("contiguous", [True, False])
def test_inference(contiguous: bool, frozen: bool, around: Any, need_weights: bool) -> None:
    modules = [module.requires_grad_(not frozen) for module in pair(**EVEN)]
    x = X if contiguous else X.mT.contiguous().mT
    with around():
        assert_alike(modules, x, x, x, need_weights=need_weights)
        assert_alike(modules, x, x, x.clone(), need_weights=need_weights)
        x = x.clone().requires_grad_()
        assert_alike(modules, x, x, x, need_weights=need_weights)


@ways
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("build", [{}, SEPARATE], ids=["packed", "separate"])
@pytest.mark.parametrize("grad", [True, False])
def test_keys_of_another_length(
    grad: bool, build: dict[str, Any], batch_first: bool, need_weights: bool
) -> None:
    modules = pair(batch_first=batch_first, **build)
    tensors = inputs(kdim=build.get("kdim", E), vdim=build.get("vdim", E))
    with torch.set_grad_enabled(grad):
        one = [x[0] for x in tensors]
        assert_alike(modules, *one, need_weights=need_weights)
        assert_alike(modules, *one, attn_mask=blocked(L, S), need_weights=need_weights)
        if not batch_first:
            tensors = [x.transpose(0, 1) for x in tensors]
        assert_alike(modules, *tensors, need_weights=need_weights)


@ways
@pytest.mark.filterwarnings(PROTOTYPE)
def test_a_nested_tensor(need_weights: bool) -> None:
    x = nested(5, 3, 7)
    with torch.no_grad():
        expected, results = (module(x, x, x, need_weights=need_weights) for module in pair(**EVEN))
    for output, their_output in zip(results[0].unbind(), expected[0].unbind(), strict=True):
        assert output.stride() == their_output.stride()
    assert strides(results[1:]) == strides(expected[1:])
    assert_same(*(seeded(F.dropout, one[0], 0.5).unbind() for one in (results, expected)))


@pytest.mark.parametrize("device", ["meta"])
def test_a_device_without_a_fast_path(device: str) -> None:
    with torch.no_grad():
        x = X.to(device)
        theirs, ours = (module.to(device) for module in pair(**EVEN))
        assert strides(ours(x, x, x)) == strides(theirs(x, x, x))


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_training_layer_drops_the_same_numbers(norm_first: bool) -> None:
    layer = nn.TransformerEncoderLayer(
        22, 2, 13, dropout=0.3, batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    expected = seeded(layer, X)
    theirs, layer.self_attn = layer.self_attn, pair(True, **EVEN, dropout=0.3)[1]
    layer.self_attn.load_state_dict(theirs.state_dict())
    assert_same(seeded(layer, X), expected)
