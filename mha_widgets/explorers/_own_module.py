"""The reader's own nn.MultiheadAttention: checked, copied, cut anew, and written as code."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from mha_widgets.attention import MultiheadAttention
from mha_widgets.explorers._inputs import matrix

MOST_NUMBERS = 2000  # up to here a module is spelled out in a program


def copied(module: nn.Module) -> nn.MultiheadAttention:
    """Return a copy that stays as it is, for inference, in float32 or float64; or say what is wrong with the module."""
    if not isinstance(module, nn.MultiheadAttention | MultiheadAttention):
        raise TypeError(f"module is a {type(module).__name__}; pass an nn.MultiheadAttention, or the one of mha_widgets.")
    if module.bias_k is not None or module.add_zero_attn:
        raise ValueError(
            "module has add_bias_kv or add_zero_attn, which append keys that are no tokens; "
            "pass one without, or look at it with explorers.Module."
        )
    for name, parameter in module.named_parameters():
        if not parameter.isfinite().all():
            raise ValueError(f"The module's {name} holds NaN or inf; pass a module of finite numbers.")
    made = empty(module.embed_dim, module.num_heads, module.kdim, module.vdim, module.in_proj_bias is not None, dtype_of(module))
    made.load_state_dict(module.state_dict())
    made.batch_first = module.batch_first
    return made.requires_grad_(False)


def dtype_of(module: nn.Module) -> torch.dtype:
    """Return the type that a module is shown in: float64, or float32 for all others."""
    return torch.float64 if module.out_proj.weight.dtype == torch.float64 else torch.float32


def empty(
    embed_dim: int, num_heads: int, kdim: int, vdim: int, bias: bool = True, dtype: torch.dtype = torch.float32
) -> nn.MultiheadAttention:
    """Return a module for inference whose weights are to be set; the reader's random numbers stay as they were."""
    with torch.random.fork_rng(devices=[]):
        module = nn.MultiheadAttention(embed_dim, num_heads, bias=bias, kdim=kdim, vdim=vdim, dtype=dtype)
    return module.eval().requires_grad_(False)


def cut(module: nn.MultiheadAttention, num_heads: int) -> nn.MultiheadAttention:
    """Return a module with the same weights, cut into other heads; or say, with torch's words, why it can't be."""
    try:
        nn.MultiheadAttention(module.embed_dim, num_heads, device="meta")
    except AssertionError as error:
        E = module.embed_dim
        fitting = ", ".join(str(number) for number in range(1, E + 1) if E % number == 0)
        raise ValueError(
            f"nn.MultiheadAttention({E}, {num_heads}) says “{error}”: {E} features can't be cut into {num_heads} heads "
            f"of one width; choose one of {fitting}."
        ) from error
    module = copy.copy(module)
    module.num_heads, module.head_dim = num_heads, module.embed_dim // num_heads
    return module


def as_code(module: nn.MultiheadAttention, num_heads: int) -> list[str]:
    """Write a module as lines of Python, or how to cut the reader's own if it is too large to be spelled out."""
    if sum(parameter.numel() for parameter in module.parameters()) > MOST_NUMBERS:
        lines = ["# module and its inputs are your own"]
        if num_heads != module.num_heads:
            H, D = num_heads, module.embed_dim // num_heads
            lines.append(f"module.num_heads, module.head_dim = {H}, {D}  # the same weights, cut into {H} heads")
        return lines
    options = "" if module.in_proj_bias is not None else ", bias=False"
    if not module._qkv_same_embed_dim:
        options += f", kdim={module.kdim}, vdim={module.vdim}"
    dtype = "" if module.out_proj.weight.dtype == torch.float32 else f", dtype={module.out_proj.weight.dtype}"
    tensors = (f'"{name}": torch.tensor({tensor.tolist()}{dtype})' for name, tensor in module.state_dict().items())
    return [
        f"module = nn.MultiheadAttention({module.embed_dim}, {num_heads}{options}{dtype})",
        f"module.load_state_dict({{{', '.join(tensors)}}})",
    ]


def biases(module: nn.MultiheadAttention) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the thirds of ``in_proj_bias``, or none."""
    return (None, None, None) if module.in_proj_bias is None else module.in_proj_bias.chunk(3)


def thirds(module: nn.MultiheadAttention) -> tuple[Tensor, ...]:
    """Return W_q, W_k and W_v of all heads, be they packed or not."""
    if module.in_proj_weight is None:
        return module.q_proj_weight, module.k_proj_weight, module.v_proj_weight
    return module.in_proj_weight.chunk(3)


def inputs_for(
    module: nn.MultiheadAttention, x: Tensor, key: Tensor | None, value: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the inputs of one call with one sequence, or say what is wrong with them."""
    key = x if key is None else key
    value = key if value is None else value
    made = matrix("x", x, "(L, E)"), matrix("key", key, "(S, kdim)"), matrix("value", value, "(S, vdim)")
    takes = {"x": ("L", "embed_dim"), "key": ("S", "kdim"), "value": ("S", "vdim")}
    for tensor, (name, (letter, argument)) in zip(made, takes.items(), strict=True):
        width = getattr(module, argument)
        if tensor.shape[1] != width:
            shape, wanted = tuple(tensor.shape), f"({letter}, {width})"
            raise ValueError(f"{name} has shape {shape}, but the module has {argument}={width}; pass {name} as {wanted}.")
        if tensor.dtype != dtype_of(module):
            raise ValueError(f"{name} is {tensor.dtype} and the module {dtype_of(module)}; pass both in one type.")
    if len(made[1]) != len(made[2]):
        raise ValueError(f"key has {len(made[1])} positions and value {len(made[2])}; every key needs one value.")
    return made


def all_by_hand(module: nn.MultiheadAttention, names: Sequence[str], length: int) -> list[str]:
    """Write a program that makes a module's output from slices of its weights.

    Args:
        module: the module.
        names: what its inputs are called.
        length: L, how many queries there are.

    >>> print(*all_by_hand(nn.MultiheadAttention(8, 2, bias=False), ["x", "y", "y"], 5)[:3], sep="\\n")
    w_q, w_k, w_v = module.in_proj_weight.chunk(3)
    q, k, v = x @ w_q.T, y @ w_k.T, y @ w_v.T
    q, k, v = (part.view(-1, 2, 4).transpose(0, 1) for part in (q, k, v))  # (H, L, D)
    """
    E, H, letters = module.embed_dim, module.num_heads, "qkv"
    parts = "module.in_proj_weight.chunk(3)"
    if module.in_proj_weight is None:
        parts = ", ".join(f"module.{letter}_proj_weight" for letter in letters)
    biased = module.in_proj_bias is not None
    products = (f"{name} @ w_{letter}.T{f' + b_{letter}' if biased else ''}" for name, letter in zip(names, letters, strict=True))
    return [
        f"w_q, w_k, w_v = {parts}",
        *(["b_q, b_k, b_v = module.in_proj_bias.chunk(3)"] if biased else []),
        f"q, k, v = {', '.join(products)}",
        f"q, k, v = (part.view(-1, {H}, {E // H}).transpose(0, 1) for part in (q, k, v))  # (H, L, D)",
        "heads = nn.functional.scaled_dot_product_attention(q, k, v)",
        f"by_hand = module.out_proj(heads.transpose(0, 1).reshape({length}, {E}))",
        f"print((by_hand - module({', '.join(names)})[0]).abs().max())  # 0, but for rounding",
    ]
