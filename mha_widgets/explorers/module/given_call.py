"""The call that the reader passes: checked as a whole, and copied."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from mha_widgets.attention.call import Call, Path
from mha_widgets.attention.checks import check_inputs, check_masks
from mha_widgets.attention.trace import effective_mask
from mha_widgets.kit import check_tensor, one_type

INPUTS, MASKS = ("query", "key", "value"), ("key_padding_mask", "attn_mask")
FLAGS = ("need_weights", "average_attn_weights", "is_causal")


def check_call(module: Any, query: Any, key: Any, value: Any, arguments: Mapping[str, Any]) -> Call:
    """Return the reader's call, which stays as it is whatever becomes of the originals;
    or say what is wrong with it.
    """
    if not isinstance(module, nn.MultiheadAttention):
        raise TypeError(
            f"Got a {type(module).__name__}; pass an nn.MultiheadAttention (capture finds those of"
            " a model)."
        )
    _check_names(arguments)
    key = query if key is None else key
    value = key if value is None else value
    call = Call(module, query, key, value, **arguments)
    for name in INPUTS:
        check_tensor(name, getattr(call, name))
    for name, parameter in module.named_parameters():
        check_tensor(f"The module's {name}", parameter)
    for name in MASKS:
        if not _ordinary(mask := getattr(call, name)):
            check_tensor(name, mask)
    copied = call._replace(module=_deepcopy(module))
    weight = (
        copied.module.q_proj_weight
        if copied.module.in_proj_weight is None
        else copied.module.in_proj_weight
    )
    one_type(**{"the module": weight, "query": query, "key": key, "value": value})
    try:
        _check_sizes(copied)
    except (AssertionError, RuntimeError) as error:
        raise refused(error) from error
    copies = {
        id(x): x.detach().clone().requires_grad_(x.requires_grad)
        for x in call
        if isinstance(x, Tensor)
    }
    own: dict[str, Any] = {name: copies.get(id(getattr(call, name))) for name in (*INPUTS, *MASKS)}
    return copied._replace(**own)


def refused(error: Exception) -> ValueError:
    """Return an error that says in one sentence what a call raised."""
    lines = str(error).splitlines() or ["the call was refused"]
    return ValueError(f"{type(error).__name__}: {lines[0].rstrip('.')}.")


def _check_names(arguments: Mapping[str, Any]) -> None:
    known = (*MASKS, *FLAGS)
    for name, value in arguments.items():
        if name not in known:
            raise TypeError(
                f"Got {name}, but besides its inputs nn.MultiheadAttention takes {', '.join(known)}"
                " and nothing else."
            )
        if name in FLAGS and not isinstance(value, bool):
            raise TypeError(f"{name} is of type {type(value).__name__}; pass True or False.")
    if arguments.get("is_causal") and arguments.get("attn_mask") is None:
        raise ValueError(
            "Got is_causal=True without attn_mask, of which it is only a hint; pass the causal mask"
            " too."
        )


def _ordinary(mask: Any) -> bool:
    if not isinstance(mask, Tensor):
        return mask is None
    odd = mask.is_nested or mask.is_meta or mask.is_quantized or mask.is_complex()
    return not odd and mask.layout == torch.strided


def _deepcopy(module: nn.MultiheadAttention) -> nn.MultiheadAttention:
    try:
        return copy.deepcopy(module)
    except Exception as error:
        raise ValueError(
            f"module can't be copied ({type(error).__name__}); if a weight of it is computed from"
            " others, as pruning and the old weight_norm do, call prune.remove or"
            " remove_weight_norm first."
        ) from error


def _check_sizes(call: Call) -> None:
    """Check all shapes against each other, as torch would."""
    module, query, key, value = call[:4]
    separate = module.in_proj_weight is None
    check_inputs(
        query, key, value, module.embed_dim, module.num_heads, module.batch_first, separate
    )
    for name, x, argument in (("key", key, "kdim"), ("value", value, "vdim")):
        width = getattr(module, argument)
        if x.shape[-1] != width:
            raise ValueError(
                f"{name} has shape {tuple(x.shape)}, but the module has {argument}={width}; pass"
                f" {width} features."
            )
    for name in INPUTS:
        if 0 in (shape := tuple(getattr(call, name).shape)):
            raise ValueError(
                f"{name} has shape {shape}; pass at least one sequence, with at least one position."
            )
    N, L, S = sizes(call)
    check_masks(
        call.attn_mask, call.key_padding_mask, query, (N, module.num_heads, L, S), warn=False
    )


def sizes(call: Call) -> tuple[int, int, int]:
    """Return N, L and S of a call; N is 1 for a sequence alone."""
    if call.query.dim() == 2:
        return 1, len(call.query), len(call.key)
    batch, position = (0, 1) if call.module.batch_first else (1, 0)
    return call.query.shape[batch], call.query.shape[position], call.key.shape[position]


def largest_mask_term(call: Call, path: Path) -> Tensor | None:
    """Return the largest number that masks add in each row, (N, H, L, 1):
    -inf where no key is left; None without a mask.
    """
    (N, L, S), H = sizes(call), call.module.num_heads
    # only their sizes are asked for
    q, k = (call.query.new_empty(N, H, length, 0) for length in (L, S))
    mask = effective_mask(call, path, q, k)
    return None if mask is None else mask.amax(dim=-1, keepdim=True).expand(N, H, L, 1)
