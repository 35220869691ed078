"""Why a call of nn.MultiheadAttention does not take its native fast path."""

from __future__ import annotations

from torch import Tensor, nn

from mha_widgets.attention.checks import check_tensors
from mha_widgets.attention.multihead import MultiheadAttention
from mha_widgets.attention.native import Reason, conditions


def fast_path(
    module: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Reason, ...]:
    """List every reason why this call would not take the native fast path.

    In evaluation ``nn.MultiheadAttention`` may hand the whole call to one native operation,
    ``torch._native_multi_head_attention``. The reasons hold for this moment: they depend on
    ``module.training``, on whether gradients are recorded, and on autocast.

    Args:
        module: an ``nn.MultiheadAttention``. Ours has no fast path: for it this is a reason more.
        query: as for ``module(query, key, value)``, and so are all other arguments.
        key: see ``query``; the same tensor, not an equal one, is needed for the fast path.
        value: see ``key``.
        key_padding_mask: boolean or float.
        need_weights: makes no difference.
        attn_mask: boolean or float.
        average_attn_weights: makes no difference.
        is_causal: makes no difference, and has no effect on the fast path either.

    Returns:
        The reasons, in the order in which torch asks; empty if the call takes the fast path.

    Raises:
        TypeError: a module that is no multi-head attention, or a mask that is no tensor.
        AttributeError: a query, key or value that is no tensor.

    Source: ``forward`` in https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/modules/activation.py

    >>> import torch
    >>> module = nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.zeros(1, 3, 8)
    >>> [reason.condition for reason in fast_path(module, x, x, x)]
    ['self.training', 'torch.is_grad_enabled() and any(_arg_requires_grad(x) for x in tensor_args)']
    >>> with torch.no_grad():
    ...     fast_path(module.eval(), x, x, x)
    ()
    """
    if not hasattr(module, "in_proj_weight"):
        raise TypeError(
            f"fast_path looks at an nn.MultiheadAttention, but got {type(module).__name__}; give"
            " one that it holds."
        )
    check_tensors(
        query=query, key=key, value=value, attn_mask=attn_mask, key_padding_mask=key_padding_mask
    )
    reasons = conditions(module, query, key, value, key_padding_mask, attn_mask)
    if not isinstance(module, MultiheadAttention):
        return reasons
    name = f"{type(module).__module__}.{type(module).__qualname__}"
    words = f"the module is {name}: only torch's own forward has a fast path"
    return (Reason(words, "isinstance(self, mha_widgets.MultiheadAttention)"), *reasons)
