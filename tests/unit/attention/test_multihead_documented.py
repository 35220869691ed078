"""What torch's documentation says of MultiheadAttention, and that nothing given is changed."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from pairs import (
    E,
    H,
    L,
    N,
    S,
    X,
    assert_same,
    blocked,
    inputs,
    mask,
    pair,
    uniform,
)
from torch import Tensor


def test_the_formula_by_hand() -> None:
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W_o,
    each head on its own rows of the tables.
    """
    _, ours = pair()
    query, key, value = inputs()
    output, weights = ours(query, key, value, average_attn_weights=False)
    D = E // H
    heads = []
    for h in range(H):
        # of query, key and value
        rows = [slice(table * E + h * D, table * E + (h + 1) * D) for table in range(3)]
        Q, K, V = (
            x @ ours.in_proj_weight[part].T + ours.in_proj_bias[part]
            for x, part in zip((query, key, value), rows, strict=True)
        )
        of_head = torch.softmax(Q @ K.mT / math.sqrt(D), dim=-1)
        assert_same(weights[:, h], of_head)
        heads.append(of_head @ V)
    assert_same(output, torch.cat(heads, dim=-1) @ ours.out_proj.weight.T + ours.out_proj.bias)


@pytest.mark.parametrize("batch_first", [True, False])
def test_shapes(batch_first: bool) -> None:
    _, ours = pair(batch_first=batch_first)
    tensors = inputs() if batch_first else [x.transpose(0, 1) for x in inputs()]
    output, weights = ours(*tensors)
    assert output.shape == ((N, L, E) if batch_first else (L, N, E))
    assert weights.shape == (N, L, S)
    assert ours(*tensors, average_attn_weights=False)[1].shape == (N, H, L, S)
    assert ours(*tensors, need_weights=False)[1] is None
    one, of_one = ours(*(x[0] for x in inputs()))  # batch_first is ignored
    assert (one.shape, of_one.shape) == ((L, E), (L, S))
    assert ours(*(x[0] for x in inputs()), average_attn_weights=False)[1].shape == (H, L, S)
    assert_same(one, output[0] if batch_first else output[:, 0])
    assert_same(of_one, weights[0])


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_blocked_key_is_ignored_and_a_float_is_added(need_weights: bool) -> None:
    _, ours = pair()
    query, key, value = inputs()
    padding = torch.zeros(N, S, dtype=torch.bool)
    padding[:, 4] = True
    changed_key, changed_value = key.clone(), value.clone()
    changed_key[:, 4], changed_value[:, 4] = 9.0, -9.0
    for masks in {"key_padding_mask": padding}, {"attn_mask": padding[0].expand(L, S)}:
        output, weights = ours(query, key, value, **masks, need_weights=need_weights)
        others = [i for i in range(S) if i != 4]
        assert_same(
            output, ours(query, key[:, others], value[:, others], need_weights=need_weights)[0]
        )
        assert_same(
            output, ours(query, changed_key, changed_value, **masks, need_weights=need_weights)[0]
        )
        if need_weights:
            assert weights[..., 4].count_nonzero() == 0
            # of 1.0 here, not of nothing
            added = {name: 0.7 * mask.double() for name, mask in masks.items()}
            free, raised = (
                ours(query, key, value, **m, average_attn_weights=False)[1] for m in ({}, added)
            )
            odds = raised[..., 4] / raised[..., 0] / (free[..., 4] / free[..., 0])
            assert_same(odds, torch.full((N, H, L), math.exp(0.7), dtype=torch.float64), 1e-10)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("masks", [{}, {"key_padding_mask": blocked(N, S)}], ids=["", "padding"])
@pytest.mark.parametrize("shape", [(L, S), (N * H, L, S)], ids=str)
def test_a_wrong_is_causal_counts_without_weights_and_padding_only(
    shape: tuple[int, ...], masks: dict[str, Tensor], need_weights: bool
) -> None:
    theirs, ours = pair()
    attn_mask = blocked(*shape)
    results = ours(
        *inputs(), attn_mask=attn_mask, is_causal=True, need_weights=need_weights, **masks
    )
    assert_same(
        results,
        theirs(*inputs(), attn_mask=attn_mask, is_causal=True, need_weights=need_weights, **masks),
    )
    causal = torch.ones(L, S, dtype=torch.bool).triu(1)
    counts = not need_weights and not masks
    assert_same(
        results,
        ours(
            *inputs(), attn_mask=causal if counts else attn_mask, need_weights=need_weights, **masks
        ),
    )


@pytest.mark.parametrize("shape", [(S, L), (1, 1), (L, S + 1), (N, L, S), (1, L, S)], ids=str)
def test_the_shape_of_a_mask_that_is_causal_replaces_does_not_matter(
    shape: tuple[int, ...],
) -> None:
    theirs, ours = pair()
    hint = {
        "attn_mask": torch.ones(shape, dtype=torch.bool),
        "is_causal": True,
        "need_weights": False,
    }
    expected = theirs(*inputs(), **hint)
    assert not expected[0].isnan().any()
    assert_same(ours(*inputs(), **hint), expected)


def test_masks_of_different_types_warn_once() -> None:
    masks = {"attn_mask": torch.zeros(L, S), "key_padding_mask": mask(N, S)}
    theirs, ours = pair(dtype=torch.float32)
    with pytest.warns(UserWarning, match="mismatched key_padding_mask and attn_mask"):
        expected = theirs(*X.values(), **masks)
    with pytest.warns(
        UserWarning, match="key_padding_mask is torch.bool and attn_mask is torch.float32"
    ) as warned:
        results = ours(*X.values(), **masks)
    assert len(warned) == 1
    assert_same(results, expected)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("sizes", [(0, L, S), (N, 0, S), (N, L, 0), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_empty_inputs(training: bool, sizes: tuple[int, int, int], need_weights: bool) -> None:
    theirs, ours = pair(training)
    n, length, keys = sizes
    tensors = uniform(n, length, E), uniform(n, keys, E, seed=1), uniform(n, keys, E, seed=2)
    expected = theirs(*tensors, need_weights=need_weights)
    assert expected[0].shape == (n, length, E)
    assert_same(ours(*tensors, need_weights=need_weights), expected)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_inputs_masks_and_parameters_stay_as_they_are(grad: bool, need_weights: bool) -> None:
    """Whatever lies how in memory: none of these is contiguous."""
    theirs, ours = pair()
    tensors = [x.mT.contiguous().mT.requires_grad_(grad) for x in inputs()]
    masks = {"attn_mask": uniform(S, L).mT, "key_padding_mask": uniform(S, N).mT}
    before = copy.deepcopy([*tensors, *masks.values(), *ours.parameters()])
    with torch.set_grad_enabled(grad):
        results = ours(*tensors, **masks, need_weights=need_weights)
        assert_same(results, theirs(*tensors, **masks, need_weights=need_weights))
    for now, then in zip([*tensors, *masks.values(), *ours.parameters()], before, strict=True):
        assert torch.equal(now, then)
