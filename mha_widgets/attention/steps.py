"""The steps of multi-head attention, each a function: N sequences, L queries, S keys,
H heads of D features.
"""

from __future__ import annotations

import math
from functools import reduce

import torch
from torch import Tensor
from torch.nn import functional as F

from mha_widgets.attention.masks import additive_mask

SEPARATE = ("q_proj_weight", "k_proj_weight", "v_proj_weight")


def split_heads(x: Tensor, num_heads: int, tables: int = 1, *, batch_first: bool = True) -> Tensor:
    """Cut the features of every position into heads, and put the heads before the positions.

    Args:
        x: (N, L, tables * H * D), or (L, N, tables * H * D) without ``batch_first``.
        num_heads: H.
        tables: how many projections lie side by side in the features: 3 for queries, keys and
            values.
        batch_first: which of the first two sizes is N.

    Returns:
        A view of shape (tables, N, H, L, D): head h has the features from h * D on, next to each
        other.

    Raises:
        RuntimeError: the features can't be cut into that many parts.

    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.2.2.

    >>> split_heads(torch.arange(8.0).view(1, 1, 8), num_heads=2)[0, 0]  # (H, L, D) = (2, 1, 4)
    tensor([[[0., 1., 2., 3.]],
    <BLANKLINE>
            [[4., 5., 6., 7.]]])
    """
    first, second, features = x.shape
    x = x.view(first, second, tables, num_heads, features // (tables * num_heads))
    return x.permute(2, 0, 3, 1, 4) if batch_first else x.permute(2, 1, 3, 0, 4)


def merge_heads(heads: Tensor, *, batch_first: bool = True) -> Tensor:
    """Put the heads of every position side by side again: what :func:`split_heads` undoes.

    Args:
        heads: (N, H, L, D).
        batch_first: return (N, L, H * D), otherwise (L, N, H * D).

    Returns:
        The joined features, head after head.

    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.2.2: Concat(head_1,
    ..., head_h).

    >>> x = torch.randn(2, 5, 8)
    >>> torch.equal(merge_heads(split_heads(x, num_heads=4)[0]), x)
    True
    """
    N, H, L, D = heads.shape
    if batch_first:
        return heads.transpose(1, 2).reshape(N, L, H * D)
    return heads.permute(2, 0, 1, 3).reshape(L, N, H * D)


def in_projection(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    weight: Tensor | tuple[Tensor, Tensor, Tensor],
    bias: Tensor | None,
    num_heads: int,
    *,
    batch_first: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Project queries, keys and values, and split them into heads.

    Inputs that are one tensor are projected by one matrix product.

    Args:
        query: (N, L, E), or (L, N, E) without ``batch_first``, or (L, E) for N = 1.
        key: (N, S, Ek), likewise.
        value: (N, S, Ev), likewise.
        weight: (3E, E), the tables of query, key and value one above the other; or three tables
            (E, E), (E, Ek) and (E, Ev).
        bias: (3E,) or None.
        num_heads: H.
        batch_first: the layout of the inputs.

    Returns:
        Queries (N, H, L, D), keys (N, H, S, D) and values (N, H, S, D), with D = E / H.

    Raises:
        RuntimeError: an input has another number of features than its table takes.

    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.2.2.

    >>> x, y = torch.randn(2, 5, 8), torch.randn(2, 7, 8)
    >>> q, k, v = in_projection(x, y, y, torch.randn(24, 8), None, num_heads=4)
    >>> q.shape, k.shape, v.shape
    (torch.Size([2, 4, 5, 2]), torch.Size([2, 4, 7, 2]), torch.Size([2, 4, 7, 2]))
    """

    def project(
        x: Tensor, table: Tensor, bias: Tensor | None, tables: int = 1
    ) -> tuple[Tensor, ...]:
        if x.dim() == 2:
            rows = F.linear(x, table, bias)[None]
        elif batch_first and bias is not None and bias.dtype != table.dtype:
            # F.linear takes such a bias if x is not contiguous, as a batch turned around by torch
            rows = F.linear(x.transpose(0, 1), table, bias).transpose(0, 1)
        else:
            rows = F.linear(x, table, bias)
        return split_heads(rows, num_heads, tables, batch_first=batch_first).unbind(0)

    if isinstance(weight, Tensor):
        if query is key and key is value:
            q, k, v = project(query, weight, bias, 3)
            return q, k, v
        E = weight.shape[1]
        if key is value:
            (w_q, w_kv), (b_q, b_kv) = (
                weight.split((E, 2 * E)),
                (None, None) if bias is None else bias.split((E, 2 * E)),
            )
            (q,), (k, v) = project(query, w_q, b_q), project(key, w_kv, b_kv, 2)
            return q, k, v
        w_q, w_k, w_v = weight.chunk(3)
        weight = (w_q, w_k, w_v)
    biases = (None, None, None) if bias is None else bias.chunk(3)
    q, k, v = (
        part
        for x, table, b in zip((query, key, value), weight, biases, strict=True)
        for part in project(x, table, b)
    )
    return q, k, v


def append_positions(heads: Tensor, bias: Tensor | None, zero: bool) -> Tensor:
    """Append what ``add_bias_kv`` and ``add_zero_attn`` add to keys or values:
    after the last position.

    Args:
        heads: (N, H, S, D), keys or values.
        bias: the learned position, E = H * D numbers in any shape, or None.
        zero: append a position of zeros, after the learned one.

    Returns:
        (N, H, S + 1, D), or S + 2 with both.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html; its
    "dim=0" and "dim=1" are both the positions, at two points of torch's code.

    >>> append_positions(torch.ones(2, 4, 5, 2), torch.full((1, 1, 8), 3.0), True)[0, 0]
    tensor([[1., 1.],
            [1., 1.],
            [1., 1.],
            [1., 1.],
            [1., 1.],
            [3., 3.],
            [0., 0.]])
    """
    if bias is not None:
        N, H, _, D = heads.shape
        heads = torch.cat([heads, bias.view(H, 1, D).expand(N, H, 1, D)], dim=2)
    return F.pad(heads, (0, 0, 0, 1)) if zero else heads


def merge_masks(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, num_heads: int, dtype: torch.dtype
) -> Tensor | None:
    """Write both masks of ``nn.MultiheadAttention`` as one, to be added to the scores.

    Args:
        attn_mask: (L, S) or (N * H, L, S), boolean with True = blocked, or float; or None.
        key_padding_mask: (N, S) or (S,), likewise.
        num_heads: H.
        dtype: the floating type of a mask that was boolean.

    Returns:
        A float mask of four dimensions that broadcasts to (N, H, L, S), or None if there is none.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html

    >>> merge_masks(None, torch.tensor([[False, True]]), 4, torch.float32)
    tensor([[[[0., -inf]]]])
    """

    if attn_mask is None and key_padding_mask is None:
        return None
    if attn_mask is not None:
        attn_mask = (
            attn_mask[None, None]
            if attn_mask.dim() == 2
            else attn_mask.unflatten(0, (-1, num_heads))
        )
    if key_padding_mask is not None:
        key_padding_mask = (
            key_padding_mask[..., None, None, :]
            if key_padding_mask.dim() == 2
            else key_padding_mask[None, None, None]
        )
    masks = [mask for mask in (attn_mask, key_padding_mask) if mask is not None]
    if all(mask.dtype == torch.bool for mask in masks):
        masks = [reduce(torch.logical_or, masks)]
    masks = [additive_mask(~mask, dtype) if mask.dtype == torch.bool else mask for mask in masks]
    return reduce(torch.add, masks)


def attention_weights(q: Tensor, k: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute ``softmax(q @ k.T / sqrt(D) + mask)`` for every head.

    Args:
        q: (N, H, L, D).
        k: (N, H, S, D).
        mask: to be added to the scores, of four dimensions; or None.

    Returns:
        The weights (N, H, L, S): every row sums to 1. A row whose keys are all blocked is NaN.

    Raises:
        RuntimeError: a mask of another type than ``q``.

    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, equation 1.

    >>> q, k = torch.zeros(1, 1, 1, 2), torch.zeros(1, 1, 3, 2)
    >>> attention_weights(q, k, torch.tensor([[[[0.0, 0.0, -torch.inf]]]]))
    tensor([[[[0.5000, 0.5000, 0.0000]]]])
    """
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-2, -1)
    if mask is not None:
        scores = scores + mask.to(scores.dtype)  # autocast may have made the scores narrower
    return _softmax(scores)


def _softmax(scores: Tensor) -> Tensor:
    # These are the most numbers that attention holds: where no gradient will ask for them,
    # they are overwritten.
    if not torch.is_grad_enabled():
        try:
            if not torch.is_autocast_enabled(
                scores.device.type
            ):  # it may want another type than that of the scores
                return torch.softmax(scores, dim=-1, out=scores)
        except RuntimeError:  # torch.func's transforms have no out=, and some devices no autocast
            pass
    return torch.softmax(scores, dim=-1)
