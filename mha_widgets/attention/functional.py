"""Softmax, scaled dot-product and multi-head attention, written out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_widgets.attention.checks import (
    check_inputs,
    check_masks,
    check_merged,
    check_packed,
    check_separate,
    check_static,
    in_words_of,
)
from mha_widgets.attention.masks import additive_mask, causal_mask
from mha_widgets.attention.native import leaves_contiguous
from mha_widgets.attention.steps import (
    append_positions,
    attention_weights,
    in_projection,
    merge_heads,
    merge_masks,
)


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
        raise RuntimeError(
            f"softmax needs floating-point scores, but got {scores.dtype}; convert them with"
            " .float()."
        )
    if scores.numel():  # an empty axis has no largest score
        scores = scores - scores.amax(dim, keepdim=True).detach()
    exponentials = scores.exp()
    return exponentials / exponentials.sum(dim, keepdim=True)


@in_words_of(
    lambda *args, need_weights=False, **kwargs: F.scaled_dot_product_attention(*args, **kwargs)
)
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
            broadcasts to the (..., L, S) of the scores, and (1, N, L, S) for inputs of three
            dimensions, which torch takes from 2.14 on. Note that ``nn.MultiheadAttention`` reads
            booleans the other way round.
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
    if isinstance(attn_mask, Tensor) and attn_mask.dim() == 4 and query.dim() == 3:
        attn_mask = attn_mask.squeeze(0)
    _check_mask(attn_mask, query, key, is_causal)
    L, E = query.shape[-2:]
    S = key.shape[-2]
    scores = query @ key.transpose(-2, -1)  # (..., L, S)
    # with E = 0 all scores are 0
    scores = scores * (1 / math.sqrt(max(E, 1)) if scale is None else scale)
    if is_causal:
        attn_mask = causal_mask(L, S, device=query.device)
    if attn_mask is not None:
        scores = scores + (
            additive_mask(attn_mask, query.dtype) if attn_mask.dtype == torch.bool else attn_mask
        )
    # softmax would make these rows NaN
    no_key_left = (scores == -math.inf).all(dim=-1, keepdim=True)
    weights = softmax(scores.masked_fill(no_key_left, 0.0)).masked_fill(no_key_left, 0.0)
    weights = weights.to(query.dtype)  # a float32 mask widens float16 scores, as in torch
    if dropout_p > 0:
        weights = F.dropout(weights, dropout_p)
    output = weights @ value  # (..., L, Ev)
    return (output, weights) if need_weights else output


def _torchs_forward(
    query: Tensor, key: Tensor, value: Tensor, *args: Any, batch_first: bool = False, **kwargs: Any
) -> tuple[Tensor, Tensor | None]:
    """Call torch's function, which knows no ``batch_first``."""
    if batch_first and query.dim() == 3:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
    return F.multi_head_attention_forward(query, key, value, *args, **kwargs)


@in_words_of(_torchs_forward)
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
    *,
    batch_first: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Attend with several heads: project, split, attend, join, project.

    Takes the arguments of ``torch.nn.functional.multi_head_attention_forward``, in its order, and
    returns its numbers. L queries and S keys, N sequences, E = embed_dim features, H heads.

    Args:
        query: (L, N, E), or (N, L, E) with ``batch_first``, or (L, E) for one sequence alone.
        key: (S, N, Ek), in the same layout; Ek = E unless the projections are separate.
        value: (S, N, Ev), in the same layout.
        embed_dim_to_check: E, as the weights have it.
        num_heads: H; each head works on E / H features.
        in_proj_weight: (3E, E), the projections of query, key and value, one above the other.
        in_proj_bias: (3E,), their biases; None for none.
        bias_k: (1, 1, E), a learned key that is appended to every sequence, or None.
        bias_v: (1, 1, E), the value that goes with it.
        add_zero_attn: append a key and a value of zeros (after those of ``bias_k``).
        dropout_p: the share of weights that are set to 0; only if ``training``.
        out_proj_weight: (E, E), what the joined heads are multiplied with.
        out_proj_bias: (E,) or None.
        training: apply dropout.
        key_padding_mask: (N, S), or (S,) for one sequence. Boolean, True = blocked, or float, added
            to the scores.
        need_weights: return the weights, and so compute them one by one. Without them the call goes
            through :func:`torch.nn.functional.scaled_dot_product_attention`, which can do without
            the L x S numbers of the weights; with dropout in training it may still hold them, and
            two masks together are merged into one of N * H * L * S numbers.
        attn_mask: (L, S), or (N * H, L, S) with the heads of a sequence side by side. Boolean, True
            = blocked, or float, added to the scores.
        use_separate_proj_weight: take the three following weights and not ``in_proj_weight``.
        q_proj_weight: (E, E).
        k_proj_weight: (E, Ek).
        v_proj_weight: (E, Ev).
        static_k: (N * H, S, E / H), keys that are projected and split already, in place of
            ``key``'s.
        static_v: (N * H, S, E / H), values likewise.
        average_attn_weights: return the mean of the weights over the heads.
        is_causal: a hint that ``attn_mask`` is causal. It builds no mask. Without weights and
            padding it replaces ``attn_mask`` by a causal one, whatever that was; otherwise it has
            no effect.
        batch_first: ours alone: query, key, value and output have the batch first.

    Returns:
        ``(output, weights)``. The output has the shape of ``query``. The weights, after dropout,
        are (N, L, S), or (N, H, L, S) if not averaged, without N for one sequence, with S larger by
        the appended positions; None without ``need_weights``. A row whose keys are all blocked is
        NaN with ``need_weights``, and zeros before the output projection without.

    Raises:
        AssertionError: dimensions, features or mask types that don't fit, as torch raises it.
        RuntimeError: mask shapes, batch sizes or types that don't fit; ``is_causal`` without a
            mask.
        ValueError: a ``dropout_p`` that is no probability.

    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.2.2, and
    https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html

    >>> x = torch.ones(5, 2, 8)  # (L, N, E)
    >>> output, weights = multi_head_attention_forward(
    ...     *(x, x, x, 8, 4, torch.eye(8).repeat(3, 1)),
    ...     *(None, None, None, False, 0.0, torch.eye(8), None),
    ... )
    >>> output.shape, weights.shape
    (torch.Size([5, 2, 8]), torch.Size([2, 5, 5]))
    """
    check_inputs(
        query, key, value, embed_dim_to_check, num_heads, batch_first, use_separate_proj_weight
    )
    batched = query.dim() == 3
    batch_first = batch_first or not batched
    N, L, S = 1, query.shape[0], key.shape[0]
    if batched:
        N, L, S = (
            (*query.shape[:2], key.shape[1])
            if batch_first
            else (query.shape[1], query.shape[0], key.shape[0])
        )
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "is_causal=True only says that attn_mask is causal, and there is none; pass the causal"
            " mask too."
        )
    contiguous = (
        batch_first
        and batched
        and not (training or use_separate_proj_weight or add_zero_attn or bias_k is not None)
        and leaves_contiguous(
            query,
            key,
            value,
            key_padding_mask,
            attn_mask,
            num_heads,
            (in_proj_weight, in_proj_bias, out_proj_weight, out_proj_bias),
        )
    )
    is_causal = is_causal and not need_weights and key_padding_mask is None
    if attn_mask is not None or key_padding_mask is not None:
        static = None if static_k is None else static_k.shape[1]
        check_masks(
            attn_mask,
            key_padding_mask,
            query,
            (N, num_heads, L, S),
            used=not is_causal,
            static=static,
        )
    if is_causal:
        attn_mask = None
    if use_separate_proj_weight:
        tables = (q_proj_weight, k_proj_weight, v_proj_weight)
        weight: Tensor | tuple[Tensor, Tensor, Tensor] = check_separate(
            query, key, value, *tables, in_proj_bias
        )
    else:
        weight = check_packed(in_proj_weight)

    # (N, H, L, D)
    q, k, v = in_projection(
        query, key, value, weight, in_proj_bias, num_heads, batch_first=batch_first
    )
    if static_k is not None or static_v is not None or bias_k is not None or bias_v is not None:
        k, v = check_static(k, v, static_k, static_v, bias_k, bias_v)
    mask = merge_masks(attn_mask, key_padding_mask, num_heads, query.dtype)
    if mask is not None and need_weights:
        check_merged(mask, query, attn_mask, key_padding_mask)
    if bias_k is not None or add_zero_attn:
        k, v = (
            append_positions(k, bias_k, add_zero_attn),
            append_positions(v, bias_v, add_zero_attn),
        )
        if mask is not None:
            mask = F.pad(mask, (0, k.shape[2] - mask.shape[3]))  # nobody is kept from looking there

    if not training:
        dropout_p = 0.0
    weights = None
    if need_weights:
        weights = attention_weights(q, k, mask)
        if dropout_p > 0:
            weights = F.dropout(weights, dropout_p)
        heads = weights @ v
        if average_attn_weights:
            weights = weights.mean(dim=1)
    else:
        heads = F.scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal)
    if contiguous:
        output = F.linear(merge_heads(heads), out_proj_weight, out_proj_bias)
    else:  # one row for each position of each sequence, the batch second, as torch lays them out
        rows = merge_heads(heads, batch_first=False).flatten(0, 1)
        output = F.linear(rows, out_proj_weight, out_proj_bias).view(L, N, len(out_proj_weight))
        if batch_first:
            output = output.transpose(0, 1)
    if not batched:
        output, weights = output.squeeze(0), None if weights is None else weights.squeeze(0)
    return output, weights


def _check_tensors(**given: object) -> None:
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"{name} must be a tensor, but got {type(tensor).__name__}; use"
                f" torch.tensor({name})."
            )


def _check(query: Tensor, key: Tensor, value: Tensor, dropout_p: float) -> None:
    _check_tensors(query=query, key=key, value=value)
    shapes = f"query {tuple(query.shape)}, key {tuple(key.shape)} and value {tuple(value.shape)}"
    if min(query.dim(), key.dim(), value.dim()) < 2:
        raise RuntimeError(
            f"Got {shapes}; each needs at least 2 dimensions, (L, E), (S, E) and (S, Ev)."
        )
    if not query.is_floating_point() or not query.dtype == key.dtype == value.dtype:
        raise RuntimeError(
            f"Got query {query.dtype}, key {key.dtype} and value {value.dtype}; "
            "all three need one floating type: convert them with .to(dtype)."
        )
    if query.shape[-1] != key.shape[-1]:
        raise RuntimeError(
            f"Got {shapes}; query and key need the same last size E: a dot product pairs their"
            " entries."
        )
    if key.shape[-2] != value.shape[-2]:
        raise RuntimeError(
            f"Got {shapes}; key and value need the same length S: every key comes with one value."
        )
    if _broadcast(query.shape[:-2], key.shape[:-2], value.shape[:-2]) is None:
        raise RuntimeError(
            f"Got {shapes}; the sizes before the last two must be the same, or 1 to be repeated."
        )
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
        raise RuntimeError(
            f"Got both attn_mask and is_causal=True; pass one mask that says both: {both}."
        )
    if attn_mask.dtype not in (torch.bool, torch.float32, query.dtype):
        fix = (
            f"use mask.to({query.dtype})"
            if attn_mask.is_floating_point()
            else "for a 0/1 mask, use mask != 0"
        )
        raise RuntimeError(
            f"Got an attn_mask of {attn_mask.dtype}; it is either boolean (True = may look) "
            f"or float like the query ({query.dtype}): {fix}."
        )
    wanted = (
        *torch.broadcast_shapes(query.shape[:-2], key.shape[:-2]),
        query.shape[-2],
        key.shape[-2],
    )
    if _broadcast(attn_mask.shape, wanted) != wanted:
        raise RuntimeError(
            f"Got an attn_mask of shape {tuple(attn_mask.shape)}; it must broadcast to (..., L, S)"
            f" = {wanted}: give it size 1 where it is to be repeated; for a padding mask (N, S),"
            f" use mask[:, {'None, ' * (query.dim() - 2)}:]."
        )


def _broadcast(*shapes: Sequence[int]) -> tuple[int, ...] | None:
    try:
        return tuple(torch.broadcast_shapes(*shapes))
    except RuntimeError:
        return None
