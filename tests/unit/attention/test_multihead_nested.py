"""Nested tensors: taken in inference alone, as torch takes them,
and named where they are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from pairs import (
    EXACT,
    KDIM,
    NESTED,
    PROTOTYPE,
    assert_close_to_its_largest,
    assert_one_sentence,
    assert_same,
    failure,
    mask,
    nested,
    pair,
    slow_path,
)
from torch import Tensor
from torch.nn import functional as F


@pytest.mark.filterwarnings(PROTOTYPE)
@pytest.mark.parametrize("lengths", [(5, 3, 7), (5, 5), (1,), (3, 0, 2)])
@pytest.mark.parametrize(
    "forward",
    [{}, {"average_attn_weights": False}, {"need_weights": False}, {"is_causal": True}],
    ids=str,
)
@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("dtype", EXACT)
def test_a_nested_tensor_comes_out_as_one(
    dtype: torch.dtype,
    grad: Callable[[], AbstractContextManager[None]],
    forward: dict[str, Any],
    lengths: tuple[int, ...],
) -> None:
    theirs, ours = pair(**NESTED, dtype=dtype)
    with grad():
        x = nested(*lengths, dtype=dtype)
        expected, their_weights = theirs(x, x, x, **forward)
        output, weights = ours(x, x, x, **forward)
    assert expected.is_nested and output.is_nested
    assert output.layout == expected.layout
    assert_same(output.unbind(), expected.unbind())
    assert_same([weights], [their_weights])


@pytest.mark.filterwarnings(PROTOTYPE)
def test_a_nested_tensor_equals_its_sequences_one_by_one() -> None:
    _, ours = pair(**NESTED)
    x = nested(5, 3, 7)
    with torch.no_grad():
        output, weights = ours(x, x, x, average_attn_weights=False)
        for i, sequence in enumerate(x.unbind()):
            alone, of_alone = ours(sequence, sequence, sequence, average_attn_weights=False)
            assert_same(output.unbind()[i], alone)
            assert_same(weights[i], F.pad(of_alone, (0, 7 - len(sequence), 0, 7 - len(sequence))))


@pytest.mark.filterwarnings(PROTOTYPE)
def test_a_nested_tensor_under_autocast() -> None:
    theirs, ours = pair(**NESTED, dtype=torch.float32)
    x = nested(5, 3, 7, dtype=torch.float32)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        (expected, their_weights), (output, weights) = theirs(x, x, x), ours(x, x, x)
    assert expected.dtype == torch.bfloat16
    assert_close_to_its_largest(output.unbind(), expected.unbind())
    assert_same(weights, their_weights)


NESTED_ERRORS: dict[
    str, tuple[dict[str, Any], Callable[[Tensor], tuple[Any, ...]], dict[str, Any], list[str]]
] = {
    "attn_mask": (
        {},
        lambda x: (x, x, x),
        {"attn_mask": mask(5, 5)},
        ["there is a mask too", "to_padded_tensor"],
    ),
    "key_padding_mask": (
        {},
        lambda x: (x, x, x),
        {"key_padding_mask": mask(2, 5)},
        ["there is a mask too", "to_padded_tensor"],
    ),
    "float mask": (
        {},
        lambda x: (x, x, x),
        {"attn_mask": mask(5, 5).double()},
        ["attn_mask is float", "there is a mask too"],
    ),
    "key alone": (
        {},
        lambda x: (x.to_padded_tensor(0.0), x, x),
        {},
        ["key is a NestedTensor", "key.to_padded_tensor(0.0)"],
    ),
    "value alone": (
        {},
        lambda x: (*[x.to_padded_tensor(0.0)] * 2, x),
        {},
        ["value is a NestedTensor", "value.to_padded_tensor"],
    ),
    "query alone": (
        {},
        lambda x: (x, *[x.to_padded_tensor(0.0)] * 2),
        {},
        ["not one and the same tensor", "inference only"],
    ),
    "key apart": (
        {},
        lambda x: (x, x.clone(), x),
        {},
        ["not one and the same tensor", "inference only"],
    ),
    "key is missing": ({}, lambda x: (x, None, None), {}, ["not one and the same tensor"]),
    "training": (
        {"training": True},
        lambda x: (x, x, x),
        {},
        ["training mode", "module.eval()", "to_padded_tensor(0.0)"],
    ),
    "odd heads": ({"num_heads": 11}, lambda x: (x, x, x), {}, ["number of heads is odd: 11"]),
    "batch second": ({"batch_first": False}, lambda x: (x, x, x), {}, ["batch_first=False"]),
    "no bias": ({"bias": False}, lambda x: (x, x, x), {}, ["bias=False"]),
    "add_bias_kv": ({"add_bias_kv": True}, lambda x: (x, x, x), {}, ["add_bias_kv=True"]),
    "add_zero_attn": ({"add_zero_attn": True}, lambda x: (x, x, x), {}, ["add_zero_attn=True"]),
    "kdim": ({"kdim": KDIM}, lambda x: (x, x, x), {}, ["kdim or vdim differs from embed_dim"]),
    "type": (
        {"dtype": torch.float32},
        lambda x: (x, x, x),
        {},
        ["query is torch.float64", "in_proj_weight is torch.float32"],
    ),
    "no features": (
        {},
        lambda x: (torch.nested.nested_tensor([torch.zeros(5), torch.zeros(3)]),) * 3,
        {},
        ["query has 2 dimensions and not 3"],
    ),
}


@pytest.mark.filterwarnings(PROTOTYPE)
@pytest.mark.parametrize("build, given, masks, words", NESTED_ERRORS.values(), ids=NESTED_ERRORS)
def test_nested_tensors_that_are_refused(
    build: dict[str, Any],
    given: Callable[[Tensor], tuple[Any, ...]],
    masks: dict[str, Tensor],
    words: list[str],
) -> None:
    with torch.no_grad():
        theirs, ours = (
            failure(module, *given(nested(5, 3)), **masks) for module in pair(**NESTED | build)
        )
    assert type(ours) is type(theirs) is AssertionError
    assert_one_sentence(ours, words, theirs)


@pytest.mark.filterwarnings(PROTOTYPE)
@pytest.mark.parametrize("around", [torch.enable_grad, slow_path])
def test_a_nested_tensor_outside_of_inference(
    around: Callable[[], AbstractContextManager[None]],
) -> None:
    x = nested(5, 3)
    with torch.set_grad_enabled(around is torch.enable_grad), around():
        theirs, ours = (failure(module, x, x, x) for module in pair(**NESTED))
    assert type(ours) is type(theirs) is AssertionError
    assert_one_sentence(
        ours,
        [
            "inference only",
            "gradients are recorded" if around is torch.enable_grad else "switched off",
        ],
        theirs,
    )
