"""What torch asks before it hands a call of nn.MultiheadAttention to its native operation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.activation import _is_make_fx_tracing


class Reason(NamedTuple):
    """One thing that keeps a call off the fast path.

    Attributes:
        words: what it is, and what would lift it.
        condition: the condition as torch's source has it; what must hold for the fast path is its
            opposite.
    """

    words: str
    condition: str


def conditions(
    module: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
) -> tuple[Reason, ...]:
    """List the reasons that torch's source knows, whatever class the module has."""
    return tuple(
        Reason(*reason)
        for holds, *reason in _asked(module, query, key, value, key_padding_mask, attn_mask)
        if holds
    )


def leaves_contiguous(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    num_heads: int,
    parameters: tuple[Tensor | None, ...],
) -> bool:
    """Say whether torch has its native operation do this call, whose output is contiguous.

    It asks what is left of :func:`conditions` in evaluation, with the batch first and nothing
    appended, and without words: these would cost a tenth of a small call.
    """
    weight, bias = parameters[:2]
    return (
        query is key
        and key is value
        and weight is not None
        and bias is not None
        and query.dtype == weight.dtype == bias.dtype
        and num_heads % 2 == 0
        and (key_padding_mask is None or not key_padding_mask.is_floating_point())
        and (attn_mask is None or not attn_mask.is_floating_point())
        and torch.backends.mha.get_fastpath_enabled()
        and not torch.is_autocast_enabled()
        and not torch.jit.is_tracing()  # it compares the graph with one made without gradients
        and not torch.overrides.has_torch_function((query, *parameters))
        and query.device.type in _devices()
        and not (torch.is_grad_enabled() and any(_needs_grad(x) for x in (query, *parameters)))
    )


def _needs_grad(x: Tensor | None) -> bool:
    return x is not None and x.requires_grad


def _devices() -> tuple[str, str, str]:
    return "cpu", "cuda", torch.utils.backend_registration._privateuse1_backend_name


def _asked(
    module: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
) -> Iterator[tuple[bool, str, str]]:
    float_masks = [
        name
        for name, mask in {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask}.items()
        if mask is not None and mask.is_floating_point()
    ]
    yield (
        bool(float_masks),
        (
            f"{' and '.join(float_masks)} {'are' if len(float_masks) > 1 else 'is'} float; what"
            " only blocks can be a boolean mask"
        ),
        (
            "attn_mask is not None and torch.is_floating_point(attn_mask) or "
            "key_padding_mask is not None and torch.is_floating_point(key_padding_mask)"
        ),
    )
    yield (
        not torch.backends.mha.get_fastpath_enabled(),
        (
            "the fast path is switched off; torch.backends.mha.set_fastpath_enabled(True) switches"
            " it on"
        ),
        "not torch.backends.mha.get_fastpath_enabled()",
    )
    yield (
        query.dim() != 3,
        (
            f"query has {query.dim()} dimensions and not 3; a sequence alone becomes a batch by"
            " query[None]"
        ),
        "not query.dim() == 3",
    )
    yield (
        query is not key or key is not value,
        "query, key and value are not one and the same tensor",
        "query is not key or key is not value",
    )
    weight, bias = module.in_proj_weight, module.in_proj_bias
    yield (
        bias is not None and query.dtype != bias.dtype,
        f"query is {query.dtype} and in_proj_bias is {bias.dtype if bias is not None else None}",
        "self.in_proj_bias is not None and query.dtype != self.in_proj_bias.dtype",
    )
    yield (
        weight is None,
        "kdim or vdim differs from embed_dim, so that there is no in_proj_weight",
        "self.in_proj_weight is None",
    )
    yield (
        weight is not None and query.dtype != weight.dtype,
        (
            f"query is {query.dtype} and in_proj_weight is"
            f" {weight.dtype if weight is not None else None}"
        ),
        "query.dtype != self.in_proj_weight.dtype",
    )
    yield module.training, "the module is in training mode; call module.eval()", "self.training"
    yield (
        module.num_heads % 2 != 0,
        f"the number of heads is odd: {module.num_heads}",
        "(self.num_heads % 2) != 0",
    )
    yield (
        not module.batch_first,
        "the module was made with batch_first=False",
        "not self.batch_first",
    )
    yield (
        module.bias_k is not None,
        "the module was made with add_bias_kv=True",
        "self.bias_k is not None",
    )
    yield module.add_zero_attn, "the module was made with add_zero_attn=True", "self.add_zero_attn"
    yield (
        query.is_nested and (key_padding_mask is not None or attn_mask is not None),
        "query is a NestedTensor, which says itself what is padding, and there is a mask too",
        "query.is_nested and (key_padding_mask is not None or attn_mask is not None)",
    )
    yield (
        torch.is_autocast_enabled(),
        "autocast is on for CUDA; torch does not ask about the CPU's",
        "torch.is_autocast_enabled()",
    )
    args = (query, key, value, weight, bias, module.out_proj.weight, module.out_proj.bias)
    tensors = [x for x in args if x is not None]
    yield (
        torch.overrides.has_torch_function(tensors),
        "an input or a weight is of a class that overrides torch's functions",
        "torch.overrides.has_torch_function(tensor_args)",
    )
    devices = _devices()
    yield (
        any(x.device.type not in devices for x in tensors),
        f"a tensor is on a device other than {', '.join(devices)}",
        "not all(_check_arg_device(x) for x in tensor_args)",
    )
    yield (
        torch.is_grad_enabled() and any(x.requires_grad for x in tensors),
        (
            "gradients are recorded for an input or a weight; use torch.no_grad() or"
            " torch.inference_mode()"
        ),
        "torch.is_grad_enabled() and any(_arg_requires_grad(x) for x in tensor_args)",
    )
    yield _is_make_fx_tracing(), "the call is being traced or exported", "_is_make_fx_tracing()"
    yield bias is None, "the module was made with bias=False", "self.in_proj_bias is None"
