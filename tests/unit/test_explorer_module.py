"""Module, CapturedMaps and explore: the reader's own module, and what torch refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from samples import captured, words
from torch import nn

from mha_widgets import MultiheadAttention, explore, explorers


def test_what_torch_refuses_is_said_with_its_own_words() -> None:
    module = explorers.Module()
    with pytest.raises(ValueError, match=r"^AssertionError: embed_dim must be divisible by num_heads\.$"):
        module.view(num_heads=3)
    with pytest.raises(ValueError, match="^RuntimeError: Need attn_mask if specifying the is_causal hint"):
        module.view(is_causal=True, training=True)


def test_appended_positions_are_named_and_take_weight() -> None:
    module = explorers.Module()
    record = module.compute(**module.complete(add_bias_kv=True, add_zero_attn=True))
    assert record.columns[-2:] == ("bias", "zero")
    assert all((weights[:, -2:] > 0).all() for weights in record.heads.values())
    np.testing.assert_allclose(record.mean.sum(axis=-1), 1, rtol=1e-6)


def test_a_row_without_a_key_and_the_way_of_the_call() -> None:
    module = explorers.Module()
    assert words(module)[2] == "Its way: native fast path."
    slow = "Its way: explicit weights; not the native fast path: the module was made with batch_first=False."
    assert words(module, batch_first=False)[2] == slow
    assert words(module, need_weights=False)[1] == "The call returns output (2, 4, 8) and None for the weights."


@pytest.mark.parametrize("kind", [nn.MultiheadAttention, MultiheadAttention])
@pytest.mark.parametrize("batch_first", [True, False])
def test_one_sequence_of_the_readers_own_batch(kind: type[nn.Module], batch_first: bool) -> None:
    torch.manual_seed(0)
    own = kind(15, 5, batch_first=batch_first, dtype=torch.float64)
    x = torch.randn(3, 7, 15).double()
    padding = torch.arange(7) >= torch.tensor([[7], [5], [2]])
    explorer = explore(own, x if batch_first else x.transpose(0, 1), key_padding_mask=padding, tokens=list("abcdefg"))
    record = explorer.compute(**explorer.complete(sample=1, head=3, average_attn_weights=False))
    with torch.no_grad():
        inputs = [x if batch_first else x.transpose(0, 1)] * 3
        output, weights = own(*inputs, key_padding_mask=padding, average_attn_weights=False)
    np.testing.assert_allclose(record.heads[3], weights[1, 3], rtol=1e-10)
    np.testing.assert_allclose(record.shown, output[1] if batch_first else output[:, 1], rtol=1e-10)
    assert record.rows == tuple("abcdefg") and list(record.heads) == [3]


def test_the_readers_module_is_left_as_it_is() -> None:
    own = nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.5)
    explorer = explore(own, torch.randn(2, 3, 8))
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    explorer.view(training=False)
    explorer.view(training=True)
    assert torch.equal(torch.rand(2), expected)
    assert own.training


def test_large_maps_are_reduced_and_said_to_be() -> None:
    own = nn.MultiheadAttention(16, 8, batch_first=True)
    explorer = explore(own, torch.randn(1, 1024, 16))
    told = words(explorer, head=3, row=700)
    assert explorer.view(head=3).figure.data[0].z.shape == (64, 64)
    assert "Each cell of a map shows the largest weight of 16 × 16; the code gives all of them." in told
    assert "need_weights" in explorer.view().disabled


def test_one_head_of_a_large_call_is_that_of_torch() -> None:
    torch.manual_seed(0)
    own = nn.MultiheadAttention(16, 8, add_bias_kv=True, add_zero_attn=True, batch_first=True, dtype=torch.float64)
    x, mask = torch.randn(2, 740, 16).double(), torch.rand(16, 740, 740) < 0.3
    explorer = explore(own, x, attn_mask=mask)
    record = explorer.compute(**explorer.complete(sample=1, head=5))
    with torch.no_grad():
        output, weights = own(x, x, x, attn_mask=mask, average_attn_weights=False)
    np.testing.assert_allclose(record.heads[5], weights[1, 5], rtol=1e-10)
    np.testing.assert_array_equal(record.blocked[5][:, :-2], mask[8 + 5])
    np.testing.assert_allclose(record.shown, output[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("length", [7, 1024])
def test_another_head_or_query_of_a_call_costs_no_new_one(length: int) -> None:
    made = []
    own = nn.MultiheadAttention(16, 8, batch_first=True)
    own.register_forward_hook(lambda *_: made.append("a call"))
    explorer = explore(own, torch.randn(2, length, 16))
    for state in ({}, {"head": 3}, {"row": 5}, {"head": 1, "row": 2}):
        explorer.view(**state)
    assert made == ["a call"]
    explorer.view(sample=1)
    explorer.view(sample=1, training=False)
    assert len(made) == 3


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        ((nn.Linear(8, 8), torch.ones(2, 3, 8)), TypeError, "^Got a Linear; pass an nn.MultiheadAttention"),
        ((nn.MultiheadAttention(8, 2),), TypeError, "^Got a MultiheadAttention and no query; pass explore"),
        ((nn.MultiheadAttention(8, 2), [1.0]), TypeError, "^query is a list; pass a tensor"),
        ((nn.MultiheadAttention(8, 2), torch.ones(2049, 1, 8)), ValueError, "^Got 2049 queries, 2049 keys"),
        ((nn.MultiheadAttention(8, 2), torch.ones(3, 1, 6)), ValueError, "^AssertionError: .*embed"),
        ((captured(), torch.ones(3)), TypeError, "^Got captured weights and inputs too"),
    ],
)
def test_what_can_not_be_explored_is_said(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        explore(*arguments)


def test_captured_weights_module_by_module_and_call_by_call() -> None:
    weights = captured()
    explorer = explore(weights)
    record = explorer.compute(**explorer.complete(module="multihead_attn", call=1, sample=2, head=1))
    np.testing.assert_array_equal(record.maps[1], weights["multihead_attn"][1][2, 1])
    assert record.weights.shape == (3, 3, 4, 7)
    with pytest.raises(ValueError, match="^row 4 is not in 'self_attn', which has 4; choose one below 4.$"):
        explorer.view(module="self_attn", call=1, row=4)
