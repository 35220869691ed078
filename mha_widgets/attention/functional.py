"""Softmax and scaled dot-product attention, written out."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_widgets.attention.masks import additive_mask, causal_mask


def softmax(scores: Tensor, dim: int = -1) -> Tensor:
    """Turn scores into positive shares that sum to 1 along ``dim``.

    ``softmax(s)[j] = exp(s[j]) / sum(exp(s))``. The largest score is subtracted first: the
    result is the same, and no exponential overflows. A row of nothing but ``-inf`` has no
    largest score to subtract, so it comes out as NaN, as in :func:`torch.softmax`.

    Args:
        scores: real numbers of any shape, in a floating type.
        dim: the axis that is to sum to 1.

    Returns:
        Shares in ``[0, 1]``, of the shape and type of ``scores``.

    Raises:
        TypeError: ``scores`` is not a tensor.
        RuntimeError: ``scores`` are not floating-point numbers.
        IndexError: ``scores`` have no axis ``dim``.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.softmax.html

    >>> softmax(torch.tensor([[0.0, 0.0], [1.0, -torch.inf]]))
    tensor([[0.5000, 0.5000],
            [1.0000, 0.0000]])
    """
    _check_tensors(scores=scores)
    if not scores.is_floating_point():
        raise RuntimeError(f"softmax needs floating-point scores, but got {scores.dtype}; convert them with .float().")
    if scores.numel():  # an empty axis has no largest score
        scores = scores - scores.amax(dim, keepdim=True).detach()
    exponentials = scores.exp()
    return exponentials / exponentials.sum(dim, keepdim=True)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    need_weights: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Average the values, weighted by how well each key matches each query.

    ``softmax(query @ key.T * scale + mask) @ value``: the same numbers as
    :func:`torch.nn.functional.scaled_dot_product_attention`, which never shows its weights;
    ``need_weights=True`` returns them too. A row whose keys are all blocked becomes zeros,
    as it does there. Everything is computed in the type given; torch's kernels widen float16
    and bfloat16 on the way, so those agree only to their few digits.

    Args:
        query: (..., L, E), what each of L positions looks for.
        key: (..., S, E), what each of S positions offers to be found by.
        value: (..., S, Ev), what each of the S positions hands over.
        attn_mask: boolean, True = may look, or float, added to the scores; any shape that
            broadcasts to the (..., L, S) of the scores. Note that ``nn.MultiheadAttention`` reads booleans
            the other way round.
        dropout_p: the probability, from 0 to 1, with which each weight is set to 0 (the rest
            is divided by ``1 - dropout_p``). Applied whenever it is above 0.
        is_causal: block every key that comes after its query.
        scale: the factor on the scores; ``1 / sqrt(E)`` if not given.
        need_weights: also return the weights, after dropout.

    Returns:
        The output (..., L, Ev), or ``(output, weights)`` with weights (..., L, S).

    Raises:
        TypeError: an input or a mask that is not a tensor.
        RuntimeError: sizes or types that don't fit together, a mask together with
            ``is_causal``, or a ``dropout_p`` that is no probability.

    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, equation 1, and
    https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html

    >>> query, key, value = torch.zeros(2, 3, 8), torch.zeros(2, 5, 8), torch.ones(2, 5, 7)
    >>> output, weights = scaled_dot_product_attention(query, key, value, need_weights=True)
    >>> output.shape, weights.shape
    (torch.Size([2, 3, 7]), torch.Size([2, 3, 5]))
    """
    _check(query, key, value, dropout_p)
    _check_mask(attn_mask, query, key, is_causal)
    L, E = query.shape[-2:]
    S = key.shape[-2]
    scores = query @ key.transpose(-2, -1)  # (..., L, S)
    scores = scores * (1 / math.sqrt(max(E, 1)) if scale is None else scale)  # with E = 0 all scores are 0
    if is_causal:
        attn_mask = causal_mask(L, S, device=query.device)
    if attn_mask is not None:
        scores = scores + (additive_mask(attn_mask, query.dtype) if attn_mask.dtype == torch.bool else attn_mask)
    no_key_left = (scores == -math.inf).all(dim=-1, keepdim=True)  # softmax would make these rows NaN
    weights = softmax(scores.masked_fill(no_key_left, 0.0)).masked_fill(no_key_left, 0.0)
    weights = weights.to(query.dtype)  # a float32 mask widens float16 scores, as in torch
    if dropout_p > 0:
        weights = F.dropout(weights, dropout_p)
    output = weights @ value  # (..., L, Ev)
    return (output, weights) if need_weights else output


def _check_tensors(**given: object) -> None:
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a tensor, but got {type(tensor).__name__}; use torch.tensor({name}).")


def _check(query: Tensor, key: Tensor, value: Tensor, dropout_p: float) -> None:
    _check_tensors(query=query, key=key, value=value)
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)} and value {tuple(value.shape)}"
    if min(query.dim(), key.dim(), value.dim()) < 2:
        raise RuntimeError(f"Got {shapes}; each needs at least 2 dimensions, (L, E), (S, E) and (S, Ev).")
    if not query.is_floating_point() or not query.dtype == key.dtype == value.dtype:
        raise RuntimeError(
            f"Got query {query.dtype}, key {key.dtype} and value {value.dtype}; "
            "all three need one floating type: convert them with .to(dtype)."
        )
    if query.shape[-1] != key.shape[-1]:
        raise RuntimeError(f"Got {shapes}; query and key need the same last size E: a dot product pairs their entries.")
    if key.shape[-2] != value.shape[-2]:
        raise RuntimeError(f"Got {shapes}; key and value need the same length S: every key comes with one value.")
    if _broadcast(query.shape[:-2], key.shape[:-2], value.shape[:-2]) is None:
        raise RuntimeError(f"Got {shapes}; the sizes before the last two must be the same, or 1 to be repeated.")
    if not 0 <= dropout_p <= 1:
        raise RuntimeError(f"dropout_p is a probability from 0 to 1, but got {dropout_p}.")


def _check_mask(attn_mask: Tensor | None, query: Tensor, key: Tensor, is_causal: bool) -> None:
    if attn_mask is None:
        return
    _check_tensors(attn_mask=attn_mask)
    if is_causal:
        both = "causal_mask(L, S) & attn_mask"
        if attn_mask.dtype != torch.bool:
            both = "additive_mask(causal_mask(L, S)) + attn_mask"
        raise RuntimeError(f"Got both attn_mask and is_causal=True; pass one mask that says both: {both}.")
    if attn_mask.dtype not in (torch.bool, torch.float32, query.dtype):
        fix = f"use mask.to({query.dtype})" if attn_mask.is_floating_point() else "for a 0/1 mask, use mask != 0"
        raise RuntimeError(
            f"Got an attn_mask of {attn_mask.dtype}; it is either boolean (True = may look) "
            f"or float like the query ({query.dtype}): {fix}."
        )
    wanted = (*torch.broadcast_shapes(query.shape[:-2], key.shape[:-2]), query.shape[-2], key.shape[-2])
    if _broadcast(attn_mask.shape, wanted) != wanted:
        raise RuntimeError(
            f"Got an attn_mask of shape {tuple(attn_mask.shape)}; it must broadcast to (..., L, S) = {wanted}: "
            f"give it size 1 where it is to be repeated; for a padding mask (N, S), use mask[:, {'None, ' * (query.dim() - 2)}:]."
        )


def _broadcast(*shapes: Sequence[int]) -> tuple[int, ...] | None:
    try:
        return tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        return None
