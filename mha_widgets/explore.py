"""The shortest way from the reader's module and tensors to an explorer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from mha_widgets.attention import Captured, MultiheadAttention
from mha_widgets.explorer import Explorer
from mha_widgets.explorers.captured_maps import CapturedMaps
from mha_widgets.explorers.module.explorer import Module


def explore(
    module: nn.MultiheadAttention | MultiheadAttention | Captured,
    query: Tensor | None = None,
    key: Tensor | None = None,
    value: Tensor | None = None,
    *,
    tokens: Sequence[Any] | None = None,
    **forward_arguments: Any,
) -> Explorer:
    """Show a call of your own module, or what ``capture`` collected from your model.

    Args:
        module: an ``nn.MultiheadAttention``, or ours; or what ``capture`` gives, alone.
        query: as for ``module(query, key, value)``, in its layout.
        key: likewise; ``query`` if not given.
        value: likewise; ``key`` if not given.
        tokens: labels for the keys (and for the queries, if there are as many).
        forward_arguments: the other arguments of the call, such as masks.

    Returns:
        An explorer, :class:`~mha_widgets.explorers.module.Module` or
        :class:`~mha_widgets.explorers.captured_maps.CapturedMaps`; at the end of a cell it is
        shown.

    Raises:
        TypeError: something that is neither, inputs or masks that are no tensors, or an argument
            that the call doesn't take.
        ValueError: a call that torch refuses, more than 2,048 positions or 64 heads, or tokens that
            don't fit.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html

    >>> import torch
    >>> explore(nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(3, 5, 8))
    Module explorer: need_weights, average_attn_weights, training, no_grad, sample, head, row
    """
    if isinstance(module, Captured):
        if any(x is not None for x in (query, key, value)) or forward_arguments:
            raise TypeError(
                "Got captured weights and inputs too; pass the captured weights alone, and tokens"
                " if you like."
            )
        return CapturedMaps(module, tokens=tokens)
    if query is None:
        raise TypeError(
            f"Got a {type(module).__name__} and no query; pass explore(module, query), or what"
            " capture(model) gives."
        )
    return Module(module, query, key, value, tokens=tokens, **forward_arguments)
