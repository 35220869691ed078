"""merge_masks, the module's own method."""

from __future__ import annotations

import pytest
import torch
from pairs import (
    E,
    H,
    L,
    N,
    S,
    blocked,
    failure,
    mask,
    pair,
    uniform,
)
from torch import Tensor


@pytest.mark.parametrize("padding", [None, torch.bool, torch.float64])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float64])
@pytest.mark.parametrize("shape", [None, (L, L), (N * H, L, L)])
def test_merge_masks(
    shape: tuple[int, ...] | None, dtype: torch.dtype, padding: torch.dtype | None
) -> None:
    attn_mask = (
        None
        if shape is None
        else (uniform(*shape, seed=50) > 0).to(dtype) * (1 if dtype == torch.bool else -7.0)
    )
    key_padding_mask = None if padding is None else (uniform(N, L, seed=51) > 0).to(padding)
    theirs, ours = pair()
    query = uniform(N, L, E)
    (expected, their_type), (merged, mask_type) = (
        m.merge_masks(attn_mask, key_padding_mask, query) for m in (theirs, ours)
    )
    assert mask_type == their_type
    assert (merged is None) == (expected is None)
    if expected is not None:
        assert merged.dtype == expected.dtype
        assert torch.equal(merged, expected)


def test_merge_masks_blocks_where_either_blocks() -> None:
    attn_mask, padding = blocked(L, L), blocked(N, L)
    merged, mask_type = pair()[1].merge_masks(attn_mask, padding, uniform(N, L, E))
    assert mask_type == 2
    assert merged.tolist() == (attn_mask | padding[:, None, None, :]).expand(N, H, L, L).tolist()


@pytest.mark.parametrize(
    "masks",
    [(mask(L, S), None), (mask(L, L), mask(L, N + 1)), (mask(N * H + 1, L, L), None)],
    ids=str,
)
def test_merge_masks_of_wrong_shapes(masks: tuple[Tensor, Tensor | None]) -> None:
    theirs, ours = (failure(module.merge_masks, *masks, uniform(N, L, E)) for module in pair())
    assert type(ours) is type(theirs) is RuntimeError
