"""Mask makers. Boolean masks say True = may look, as F.scaled_dot_product_attention does.

``nn.MultiheadAttention`` means the opposite, True = blocked: pass it ``~mask``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def causal_mask(
    L: int, S: int | None = None, *, device: torch.device | str | None = None
) -> Tensor:
    """Let each query look at its own position and the ones before it.

    Args:
        L: the number of queries.
        S: the number of keys; L if not given. Query 0 is aligned with key 0, as with
            ``is_causal`` of ``F.scaled_dot_product_attention``.
        device: where the mask is made.

    Returns:
        A boolean mask (L, S), True = may look.

    Raises:
        RuntimeError: a negative size.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html

    >>> causal_mask(3)
    tensor([[ True, False, False],
            [ True,  True, False],
            [ True,  True,  True]])
    """
    return torch.arange(L, device=device)[:, None] >= torch.arange(
        L if S is None else S, device=device
    )


def padding_mask(
    lengths: Tensor | Sequence[int], S: int | None = None, *, side: str = "right"
) -> Tensor:
    """Let everyone look at the real tokens of each sequence and at none of its padding.

    Args:
        lengths: (N,), the number of real tokens in each sequence.
        S: the padded length; the longest of ``lengths`` if not given.
        side: "right" if the padding follows the real tokens, "left" if it precedes them.

    Returns:
        A boolean mask (N, S), True = a real token. Use ``mask[:, None, :]`` to make it
        broadcast against scores (N, L, S).

    Raises:
        TypeError: lengths that are not whole numbers.
        ValueError: lengths that are no list of at least one, a length outside 0 to S, or a
            side that is neither "right" nor "left".

    Source: Hugging Face's ``attention_mask`` is this mask as integers,
    https://huggingface.co/docs/transformers/glossary#attention-mask

    >>> padding_mask([3, 1])
    tensor([[ True,  True,  True],
            [ True, False, False]])
    """
    try:
        lengths = torch.as_tensor(lengths)
    except (TypeError, ValueError):
        raise TypeError(
            f"Got lengths {lengths!r}; they count tokens: give whole numbers, as in [3, 1]."
        ) from None
    if lengths.dim() != 1 or not lengths.numel():
        raise ValueError(
            f"Got lengths of shape {tuple(lengths.shape)}; give one number a sequence, as in"
            " [3, 1]."
        )
    if lengths.dtype == torch.bool or lengths.is_floating_point():
        raise TypeError(
            f"Got lengths of {lengths.dtype}; they count tokens: give whole numbers, as in [3, 1]."
        )
    lengths = lengths.long()  # S may be larger than a narrow integer type can say
    if S is None:
        S = int(lengths.max())
    if lengths.min() < 0 or lengths.max() > S:
        raise ValueError(
            f"Got lengths {lengths.tolist()} with S = {S}; each length must lie from 0 to S."
        )
    if side not in ("right", "left"):
        raise ValueError(f'Got side={side!r}; padding stands on the "right" or on the "left".')
    mask = torch.arange(S, device=lengths.device) < lengths[:, None]
    return mask if side == "right" else mask.flip(-1)


def window_mask(
    L: int, S: int | None = None, *, window: int, device: torch.device | str | None = None
) -> Tensor:
    """Let each query look at keys at most ``window`` positions away, on either side.

    For a causal window, combine: ``causal_mask(L) & window_mask(L, window=2)``.

    Args:
        L: the number of queries.
        S: the number of keys; L if not given.
        window: how many positions each way; 0 leaves only a query's own position.
        device: where the mask is made.

    Returns:
        A boolean mask (L, S), True = may look.

    Raises:
        ValueError: a negative window.
        RuntimeError: a negative size.

    Source: Beltagy et al. 2020, https://arxiv.org/abs/2004.05150, section 3.1.

    >>> window_mask(3, window=1)
    tensor([[ True,  True, False],
            [ True,  True,  True],
            [False,  True,  True]])
    """
    if window < 0:
        raise ValueError(f"Got window={window}; it counts positions each way and starts at 0.")
    everywhere = torch.ones(L, L if S is None else S, dtype=torch.bool, device=device)
    return everywhere.tril(window).triu(-window)


def additive_mask(mask: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
    """Write a boolean mask as the numbers to add to the scores: 0 where True, -inf where False.

    Args:
        mask: boolean, True = may look, of any shape.
        dtype: the floating type of the result; that of the scores it will be added to.

    Returns:
        A mask of the same shape, in ``dtype``.

    Raises:
        TypeError: ``mask`` isn't boolean, or ``dtype`` isn't a floating type.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html

    >>> additive_mask(torch.tensor([True, False]))
    tensor([0., -inf])
    """
    if mask.dtype != torch.bool:
        raise TypeError(
            f"Got a mask of {mask.dtype}; additive_mask turns booleans into floats: use mask != 0"
            " for a 0/1 mask."
        )
    if not dtype.is_floating_point:
        raise TypeError(
            f"Got dtype={dtype}; only a floating type holds -inf: use that of the scores."
        )
    return torch.where(mask, 0.0, -math.inf).to(dtype)
