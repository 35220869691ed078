"""Narrow types: autocast, and modules of float16 and bfloat16."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pairs import (
    HALF,
    MASKS,
    SEPARATE,
    SEPARATE_X,
    H,
    L,
    N,
    S,
    X,
    assert_close_to_its_largest,
    assert_one_sentence,
    failure,
    inputs,
    pair,
    seeded,
    uniform,
)
from torch import nn

NARROW_MASKS = MASKS | {
    "float": {"attn_mask": uniform(L, S).float()},
    "bfloat16": {"attn_mask": uniform(L, S).bfloat16()},
    "float padding": {"key_padding_mask": uniform(N, S).float()},
    "both float": {
        "attn_mask": uniform(N * H, L, S).float(),
        "key_padding_mask": uniform(N, S).float(),
    },
}
with_all_masks = pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("masks", NARROW_MASKS.values(), ids=NARROW_MASKS)
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("training", [True, False])
def test_autocast(
    training: bool, separate: bool, masks: dict[str, Any], grad: bool, need_weights: bool
) -> None:
    theirs, ours = pair(training, dtype=torch.float32, dropout=0.3, **SEPARATE if separate else {})
    arguments = X | (SEPARATE_X if separate else {}) | masks
    with torch.set_grad_enabled(grad), torch.autocast("cpu", dtype=torch.bfloat16):
        expected, results = (
            seeded(module, **arguments, need_weights=need_weights) for module in (theirs, ours)
        )
    assert expected[0].dtype == torch.bfloat16
    assert_close_to_its_largest(results, expected, 0.03)
    if grad:
        our_gradients, their_gradients = (
            torch.autograd.grad(output.float().sum(), list(module.parameters()))
            for module, (output, _) in ((ours, results), (theirs, expected))
        )
        assert {gradient.dtype for gradient in our_gradients} == {torch.float32}
        assert_close_to_its_largest(our_gradients, their_gradients, 0.03)


@pytest.mark.parametrize("name, shape", [("attn_mask", (L, S)), ("key_padding_mask", (N, S))])
def test_autocast_takes_no_double_mask_with_weights(name: str, shape: tuple[int, ...]) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        theirs, ours = (
            failure(module, **X, **{name: uniform(*shape)}) for module in pair(dtype=torch.float32)
        )
    assert type(ours) is type(theirs) is RuntimeError
    assert_one_sentence(ours, [f"{name} is torch.float64"], theirs)


@pytest.mark.parametrize("need_weights", [True, False])
@with_all_masks
@pytest.mark.parametrize(
    "flags", [{}, {"add_bias_kv": True, "add_zero_attn": True}], ids=["", "appended"]
)
@pytest.mark.parametrize("dtype", HALF)
def test_narrow_modules(
    dtype: torch.dtype, flags: dict[str, bool], masks: dict[str, Any], need_weights: bool
) -> None:
    theirs, ours = pair(dtype=dtype, **flags)
    tensors = [(x / 4).to(dtype) for x in inputs()]
    with torch.no_grad():
        expected, results = (
            module(*tensors, **masks, need_weights=need_weights) for module in (theirs, ours)
        )
    assert_close_to_its_largest(results, expected)


@pytest.mark.parametrize("change", [nn.Module.half, nn.Module.bfloat16, nn.Module.double])
def test_a_module_changes_its_type(change: Callable[[nn.Module], nn.Module]) -> None:
    theirs, ours = (change(module) for module in pair(dtype=torch.float32))
    dtype = ours.out_proj.weight.dtype
    tensors = [(x / 4).to(dtype) for x in inputs()]
    assert dtype != torch.float32
    assert_close_to_its_largest(ours(*tensors), theirs(*tensors))
