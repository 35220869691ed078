"""The mask makers: values by hand, and the meaning torch gives to them."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from mha_widgets.attention.functional import scaled_dot_product_attention
from mha_widgets.attention.masks import additive_mask, causal_mask, padding_mask, window_mask

examples = settings(deadline=None, derandomize=True, max_examples=60)
sizes = st.integers(0, 7)


def assert_same(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def tensors(*shapes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]


def drawn(mask: Tensor) -> list[str]:
    """Write each row of a boolean mask as text: x may look, . may not."""
    assert mask.dtype == torch.bool
    return ["".join("x" if cell else "." for cell in row) for row in mask.tolist()]


# causal and window


@pytest.mark.parametrize(
    "mask, rows",
    [
        (causal_mask(3), ["x..", "xx.", "xxx"]),
        (causal_mask(2, 4), ["x...", "xx.."]),
        (causal_mask(4, 2), ["x.", "xx", "xx", "xx"]),
        (causal_mask(1), ["x"]),
        (causal_mask(2, 0), ["", ""]),
        (causal_mask(0), []),
        (window_mask(4, window=1), ["xx..", "xxx.", ".xxx", "..xx"]),
        (window_mask(3, window=0), ["x..", ".x.", "..x"]),
        (window_mask(2, 5, window=2), ["xxx..", "xxxx."]),
        (window_mask(5, 2, window=1), ["xx", "xx", ".x", "..", ".."]),
        (window_mask(2, window=9), ["xx", "xx"]),
        (causal_mask(4) & window_mask(4, window=1), ["x...", "xx..", ".xx.", "..xx"]),
    ],
)
def test_by_hand(mask: Tensor, rows: list[str]) -> None:
    assert drawn(mask) == rows


@examples
@given(sizes, sizes, st.integers(0, 8))
def test_window_by_definition(L: int, S: int, window: int) -> None:
    expected = [[abs(i - j) <= window for j in range(S)] for i in range(L)]
    assert window_mask(L, S, window=window).tolist() == expected


@examples
@given(st.integers(1, 7), st.integers(1, 7))
def test_causal_is_what_torch_means_by_is_causal(L: int, S: int) -> None:
    query, key = tensors((L, 3), (S, 3))
    value = torch.eye(S, dtype=torch.float64)  # the output is then the weights
    weights = F.scaled_dot_product_attention(query, key, value, is_causal=True)
    assert torch.equal(causal_mask(L, S), weights > 0)
    assert_same(F.scaled_dot_product_attention(query, key, value, causal_mask(L, S)), weights)


@pytest.mark.parametrize("make", [causal_mask, lambda *sizes: window_mask(*sizes, window=1)])
@pytest.mark.parametrize("sizes", [(-1,), (2, -3)])
def test_negative_sizes(make: Callable[..., Tensor], sizes: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError):
        make(*sizes)


def test_negative_window() -> None:
    with pytest.raises(ValueError, match="window=-1; .* starts at 0"):
        window_mask(3, window=-1)


def test_masks_are_made_where_they_are_wanted() -> None:
    meta = torch.device("meta")
    masks = [causal_mask(2, device=meta), window_mask(2, window=1, device=meta)]
    masks.append(additive_mask(masks[0]))
    assert [(mask.device, tuple(mask.shape)) for mask in masks] == [(meta, (2, 2))] * 3
    assert causal_mask(2).device == window_mask(2, window=1).device == torch.empty(0).device


# padding


@pytest.mark.parametrize("kind", [list, tuple, torch.tensor])
def test_padding_by_hand(kind: Callable[[list[int]], list[int] | tuple[int, ...] | Tensor]) -> None:
    lengths = kind([3, 0, 1])
    assert drawn(padding_mask(lengths)) == ["xxx", "...", "x.."]
    assert drawn(padding_mask(lengths, side="left")) == ["xxx", "...", "..x"]
    assert drawn(padding_mask(lengths, 4)) == ["xxx.", "....", "x..."]
    assert drawn(padding_mask(lengths, 4, side="left")) == [".xxx", "....", "...x"]


@examples
@given(st.lists(sizes, min_size=1, max_size=4), st.integers(0, 3))
def test_padding_by_definition(lengths: list[int], extra: int) -> None:
    S = max(lengths) + extra
    assert padding_mask(lengths, S).tolist() == [[j < n for j in range(S)] for n in lengths]
    assert padding_mask(lengths, S, side="left").tolist() == [
        [j >= S - n for j in range(S)] for n in lengths
    ]
    assert padding_mask(lengths).shape == (len(lengths), max(lengths))


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_lengths_of_a_narrow_type(dtype: torch.dtype, side: str) -> None:
    mask = padding_mask(torch.tensor([100, 3], dtype=dtype), 300, side=side)
    assert mask.sum(-1).tolist() == [100, 3]
    assert mask[:, 0 if side == "right" else -1].all()


@pytest.mark.parametrize("side, real", [("right", slice(0, 3)), ("left", slice(2, 5))])
def test_padding_has_no_say(side: str, real: slice) -> None:
    query, key, value = tensors((2, 4, 3), (2, 5, 3), (2, 5, 7))
    mask = padding_mask([5, 3], side=side)[:, None, :]
    padded = F.scaled_dot_product_attention(query, key, value, mask)
    alone = F.scaled_dot_product_attention(query[1], key[1, real], value[1, real])
    assert_same(padded[1], alone)
    assert_same(padded[0], F.scaled_dot_product_attention(query[0], key[0], value[0]))


@pytest.mark.parametrize(
    "lengths, S, side, error, words",
    [
        ([3, 1], 2, "right", ValueError, r"\[3, 1\] with S = 2; .* from 0 to S"),
        ([-1, 2], None, "right", ValueError, r"\[-1, 2\] with S = 2; .* from 0 to S"),
        ([2], None, "top", ValueError, "side='top'; .*right.*left"),
        ([], None, "right", ValueError, r"shape \(0,\); give one number a sequence"),
        (3, None, "right", ValueError, r"shape \(\); give one number a sequence"),
        ([[3, 1]], None, "right", ValueError, r"shape \(1, 2\); give one number a sequence"),
        ([2.5], 3, "left", TypeError, "torch.float32; .* whole numbers"),
        ([True, False], None, "left", TypeError, "torch.bool; .* whole numbers"),
    ],
)
def test_padding_errors(
    lengths: object, S: int | None, side: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        padding_mask(lengths, S, side=side)


# additive, and which way round booleans are read


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_additive_by_hand(dtype: torch.dtype) -> None:
    mask = torch.tensor([[True, False, True], [False, False, False]])
    expected = torch.tensor([[0, -math.inf, 0], [-math.inf] * 3], dtype=dtype)
    assert additive_mask(mask, dtype).dtype == dtype
    assert torch.equal(additive_mask(mask, dtype), expected)
    assert additive_mask(mask).dtype == torch.float32


def test_additive_says_the_same_to_torch() -> None:
    query, key, value = tensors((5, 3), (7, 3), (7, 2))
    mask = causal_mask(5, 7) | window_mask(5, 7, window=1)
    added = additive_mask(mask, torch.float64)
    expected = F.scaled_dot_product_attention(query, key, value, mask)
    assert_same(F.scaled_dot_product_attention(query, key, value, added), expected)


@pytest.mark.parametrize(
    "mask, dtype, words",
    [
        (torch.tensor([1, 0]), torch.float32, "mask of torch.int64; .* mask != 0"),
        (torch.tensor([1.0, 0.0]), torch.float32, "mask of torch.float32; .* mask != 0"),
        (torch.tensor([True, False]), torch.bool, "dtype=torch.bool; .* floating type"),
        (torch.tensor([True, False]), torch.int64, "dtype=torch.int64; .* floating type"),
    ],
)
def test_additive_errors(mask: Tensor, dtype: torch.dtype, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        additive_mask(mask, dtype)


@pytest.mark.parametrize("which", ["attn_mask", "key_padding_mask"])
def test_the_module_reads_booleans_the_other_way_round(which: str) -> None:
    torch.manual_seed(0)
    module = torch.nn.MultiheadAttention(
        embed_dim=6, num_heads=2, batch_first=True, dtype=torch.float64
    )
    (x,) = tensors((3, 5, 6))
    if which == "attn_mask":
        mask = broadcast = causal_mask(5) & window_mask(5, window=2)
    else:
        mask = padding_mask([5, 2, 3], side="left")
        broadcast = mask[:, None, None, :]
    _, theirs = module(x, x, x, average_attn_weights=False, **{which: ~mask})

    query, key, value = (
        part.unflatten(-1, (2, 3)).transpose(1, 2)  # (N, L, E) → (N, H, L, E / H)
        for part in F.linear(x, module.in_proj_weight, module.in_proj_bias).chunk(3, dim=-1)
    )
    _, ours = scaled_dot_product_attention(query, key, value, broadcast, need_weights=True)
    assert_same(ours, theirs)
    assert torch.equal(theirs > 0, broadcast.expand_as(theirs))
