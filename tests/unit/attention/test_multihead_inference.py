"""Inference: torch's fast path where it has the same numbers,
its slow path where the two differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from pairs import (
    EXACT,
    NESTED,
    PADDING,
    SOURCE,
    assert_one_sentence,
    assert_same,
    blocked,
    failure,
    pair,
    slow_path,
)
from torch import Tensor


@pytest.mark.parametrize("average_attn_weights", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("shape", [None, (5, 5), (6, 5, 5)])
@pytest.mark.parametrize("dtype", EXACT)
def test_inference_equals_torch_s_fast_path(
    dtype: torch.dtype,
    shape: tuple[int, ...] | None,
    padding: bool,
    need_weights: bool,
    average_attn_weights: bool,
) -> None:
    theirs, ours = pair(**NESTED, dtype=dtype, dropout=0.3)
    x = SOURCE.to(dtype)
    masks = {
        "attn_mask": None if shape is None else blocked(*shape),
        "key_padding_mask": PADDING if padding else None,
    }
    returned = {"need_weights": need_weights, "average_attn_weights": average_attn_weights}
    with torch.no_grad():
        expected, results = (module(x, x, x, **masks, **returned) for module in (theirs, ours))
    assert not expected[0].isnan().any()
    assert_same(results, expected)


BLOCKED_ROW = torch.zeros(5, 5, dtype=torch.bool).index_fill(0, torch.tensor([3]), True)
BLOCKED_SEQUENCE = torch.arange(3)[:, None].expand(3, 5) == 1


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("grad", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize(
    "masks, rows",
    [
        ({"attn_mask": BLOCKED_ROW}, (slice(None), 3)),
        ({"key_padding_mask": BLOCKED_SEQUENCE}, (1, slice(None))),
    ],
    ids=["row", "sequence"],
)
@pytest.mark.parametrize("as_float", [False, True])
def test_a_row_whose_keys_are_all_blocked(
    as_float: bool,
    masks: dict[str, Tensor],
    rows: tuple[Any, Any],
    grad: Callable[[], AbstractContextManager[None]],
    training: bool,
) -> None:
    """NaN with weights, the bias of out_proj without: torch's slow path, in every mode.
    Its fast path has NaN for both.
    """
    theirs, ours = pair(training, **NESTED)
    if as_float:
        masks = {
            name: torch.zeros(x.shape).double().masked_fill(x, -math.inf)
            for name, x in masks.items()
        }
    blocked_rows = torch.zeros(3, 5, dtype=torch.bool)
    blocked_rows[rows] = True
    with grad():
        output, weights = ours(SOURCE, SOURCE, SOURCE, **masks)
        alone, _ = ours(SOURCE, SOURCE, SOURCE, **masks, need_weights=False)
        with slow_path():
            assert_same([output, weights], theirs(SOURCE, SOURCE, SOURCE, **masks))
            assert_same(alone, theirs(SOURCE, SOURCE, SOURCE, **masks, need_weights=False)[0])
    assert torch.equal(output.isnan().all(-1), blocked_rows)
    assert torch.equal(output.isnan().any(-1), blocked_rows)
    assert torch.equal(weights.isnan().all(-1), blocked_rows)
    assert torch.equal(alone[rows], ours.out_proj.bias.expand(alone[rows].shape))
    assert not alone.isnan().any()
    with torch.no_grad():
        fast, _ = theirs.eval()(SOURCE, SOURCE, SOURCE, **masks, need_weights=False)
    # float masks take the slow path
    assert torch.equal(fast.isnan().all(-1), blocked_rows & (not as_float))


@pytest.mark.parametrize("need_weights", [True, False])
def test_is_causal_alone_raises_in_inference_too(need_weights: bool) -> None:
    theirs, ours = pair(**NESTED)
    with torch.no_grad():
        fast = theirs(SOURCE, SOURCE, SOURCE, is_causal=True, need_weights=need_weights)
        # torch's fast path masks nothing
        assert_same(fast, theirs(SOURCE, SOURCE, SOURCE, need_weights=need_weights))
        with slow_path():
            error = failure(
                theirs, SOURCE, SOURCE, SOURCE, is_causal=True, need_weights=need_weights
            )
        ours_error = failure(
            ours, SOURCE, SOURCE, SOURCE, is_causal=True, need_weights=need_weights
        )
    assert type(ours_error) is type(error) is RuntimeError
    assert_one_sentence(ours_error, ["is_causal=True", "pass the causal mask too"])
