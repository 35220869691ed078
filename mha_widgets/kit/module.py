"""The reader's own nn.MultiheadAttention: checked, copied, cut anew, and written as code."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from mha_widgets.attention import MultiheadAttention
from mha_widgets.attention.fresh import fresh_torch
from mha_widgets.kit.tensors import check_finite, check_tensor, matrix

MOST_NUMBERS = 2000  # up to here a module is spelled out in a program


def copy_for_inference(module: nn.Module) -> nn.MultiheadAttention:
    """Return a copy that stays as it is, for inference, in float32 or float64;
    or say what is wrong with the module.
    """
    if not isinstance(module, nn.MultiheadAttention):
        raise TypeError(
            f"module is a {type(module).__name__}; pass an nn.MultiheadAttention, or the one of"
            " mha_widgets."
        )
    if more := _more_than_weights(module):
        raise ValueError(
            f"module {more}, so its weights alone are not what it computes; look at it with"
            " explorers.Module."
        )
    if module.bias_k is not None or module.add_zero_attn:
        raise ValueError(
            "module has add_bias_kv or add_zero_attn, which append keys that are no tokens; "
            "pass one without, or look at it with explorers.Module."
        )
    for name, parameter in module.named_parameters():
        check_tensor(f"The module's {name}", parameter)
        check_finite(f"The module's {name}", parameter)
    made = empty(
        module.embed_dim,
        module.num_heads,
        module.kdim,
        module.vdim,
        module.in_proj_bias is not None,
        dtype_of(module),
    )
    if module.state_dict().keys() != made.state_dict().keys():
        differ = ", ".join(sorted(module.state_dict().keys() ^ made.state_dict().keys()))
        raise ValueError(
            f"module differs from an nn.MultiheadAttention in {differ}; look at it with"
            " explorers.Module."
        )
    made.load_state_dict(module.state_dict())
    made.batch_first = module.batch_first
    return made.requires_grad_(False)


def _more_than_weights(module: nn.Module) -> str:
    if any(map(parametrize.is_parametrized, module.modules())):
        return "is parametrized"
    if module._forward_hooks or module._forward_pre_hooks:
        return "has forward hooks"
    if type(module).forward not in (nn.MultiheadAttention.forward, MultiheadAttention.forward):
        return f"is a {type(module).__name__} with a forward of its own"
    return ""


def check_output(module: nn.MultiheadAttention, *inputs: Tensor) -> None:
    """Say so if what the module makes of finite inputs is not finite."""
    if not module(*inputs)[0].isfinite().all():
        raise ValueError(
            f"What the module makes of its inputs overflows {dtype_of(module)}; pass smaller"
            " numbers or float64."
        )


def dtype_of(module: nn.MultiheadAttention) -> torch.dtype:
    """Return the type that a module is shown in: float64, or float32 for all others."""
    return torch.promote_types(module.out_proj.weight.dtype, torch.float32)


def empty(
    embed_dim: int,
    num_heads: int,
    kdim: int,
    vdim: int,
    bias: bool = True,
    dtype: torch.dtype = torch.float32,
) -> nn.MultiheadAttention:
    """Return a module for inference whose weights are to be set."""
    with fresh_torch():
        module = nn.MultiheadAttention(
            embed_dim, num_heads, bias=bias, kdim=kdim, vdim=vdim, dtype=dtype
        )
    return module.eval().requires_grad_(False)


def cut(module: nn.MultiheadAttention, num_heads: int) -> nn.MultiheadAttention:
    """Return a module with the same weights, cut into other heads; or say, with torch's words,
    why it can't be.
    """
    check_cut(module.embed_dim, num_heads)
    module = copy.copy(module)
    module.num_heads, module.head_dim = num_heads, module.embed_dim // num_heads
    return module


def check_cut(embed_dim: int, num_heads: int) -> None:
    """Say, with torch's words, if features can't be cut into so many heads."""
    try:
        nn.MultiheadAttention(embed_dim, num_heads, device="meta")
    except AssertionError as error:
        E = embed_dim
        fitting = ", ".join(str(number) for number in range(1, E + 1) if E % number == 0)
        raise ValueError(
            f"nn.MultiheadAttention({E}, {num_heads}) says “{error}”: {E} features can't be cut"
            f" into {num_heads} heads of one width; choose one of {fitting}."
        ) from error


def as_code(module: nn.MultiheadAttention, num_heads: int) -> list[str]:
    """Write a module as lines of Python,
    or how to cut the reader's own if it is too large to be spelled out.
    """
    if sum(parameter.numel() for parameter in module.parameters()) > MOST_NUMBERS:
        H, D = num_heads, module.embed_dim // num_heads
        lines = [
            "# module and its inputs are your own",
            "import copy",
            f"module = {write_copy(module)}",
        ]
        return [
            *lines,
            f"module.num_heads, module.head_dim = {H}, {D}  # the same weights, cut into {H} heads",
        ]
    options = "" if module.in_proj_bias is not None else ", bias=False"
    if not module._qkv_same_embed_dim:
        options += f", kdim={module.kdim}, vdim={module.vdim}"
    dtype = (
        ""
        if module.out_proj.weight.dtype == torch.float32
        else f", dtype={module.out_proj.weight.dtype}"
    )
    tensors = (
        f'"{name}": torch.tensor({tensor.tolist()}{dtype})'
        for name, tensor in module.state_dict().items()
    )
    return [
        f"module = nn.MultiheadAttention({module.embed_dim}, {num_heads}{options}{dtype})",
        f"module.load_state_dict({{{', '.join(tensors)}}})",
    ]


def write_copy(module: nn.MultiheadAttention) -> str:
    """Write the reader's own module as it is shown: a copy, for inference."""
    return f'copy.deepcopy(module).to("cpu", {dtype_of(module)}).eval()'


def head_words(cuts: Sequence[int]) -> tuple[str, ...]:
    """Name every head of these numbers of heads; one that not all of them have says which do.

    >>> head_words([1, 2, 4])
    ('0', '1', '2 (num_heads = 4)', '3 (num_heads = 4)')
    >>> head_words([3, 6, 9])[2:4]
    ('2', '3 (num_heads ≥ 6)')
    """
    always = next((H for H in cuts if H > 1), 1)  # with one head there is no choice
    needed = (next(H for H in cuts if head < H) for head in range(cuts[-1]))
    wanted = (f" (num_heads {'=' if cuts[-1] == H else '≥'} {H})" for H in needed)
    return tuple(f"{head}{'' if head < always else more}" for head, more in enumerate(wanted))


def biases(module: nn.MultiheadAttention) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the thirds of ``in_proj_bias``, or none."""
    if module.in_proj_bias is None:
        return None, None, None
    b_q, b_k, b_v = module.in_proj_bias.chunk(3)
    return b_q, b_k, b_v


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
    made = (
        matrix("x", x, "(L, E)"),
        matrix("key", key, "(S, kdim)"),
        matrix("value", value, "(S, vdim)"),
    )
    takes = {"x": ("L", "embed_dim"), "key": ("S", "kdim"), "value": ("S", "vdim")}
    for tensor, (name, (letter, argument)) in zip(made, takes.items(), strict=True):
        width = getattr(module, argument)
        if tensor.shape[1] != width:
            shape, wanted = tuple(tensor.shape), f"({letter}, {width})"
            raise ValueError(
                f"{name} has shape {shape}, but the module has {argument}={width}; pass {name} as"
                f" {wanted}."
            )
    if len(made[1]) != len(made[2]):
        raise ValueError(
            f"key has {len(made[1])} positions and value {len(made[2])}; every key needs one value."
        )
    return made


def all_by_hand(module: nn.MultiheadAttention, names: Sequence[str], length: int) -> list[str]:
    """Write a program that makes a module's output from slices of its weights.

    Args:
        module: the module.
        names: what its inputs are called.
        length: L, how many queries there are.

    >>> lines = all_by_hand(nn.MultiheadAttention(8, 2, bias=False), ["x", "y", "y"], 5)
    >>> print(*lines[:3], sep="\\n")
    w_q, w_k, w_v = module.in_proj_weight.chunk(3)
    q, k, v = x @ w_q.T, y @ w_k.T, y @ w_v.T
    q, k, v = (part.view(-1, 2, 4).transpose(0, 1) for part in (q, k, v))  # (H, L, D)
    """
    E, H, letters = module.embed_dim, module.num_heads, "qkv"
    parts = "module.in_proj_weight.chunk(3)"
    if module.in_proj_weight is None:
        parts = ", ".join(f"module.{letter}_proj_weight" for letter in letters)
    biased = module.in_proj_bias is not None
    products = (
        f"{name} @ w_{letter}.T{f' + b_{letter}' if biased else ''}"
        for name, letter in zip(names, letters, strict=True)
    )
    return [
        f"w_q, w_k, w_v = {parts}",
        *(["b_q, b_k, b_v = module.in_proj_bias.chunk(3)"] if biased else []),
        f"q, k, v = {', '.join(products)}",
        (
            f"q, k, v = (part.view(-1, {H}, {E // H}).transpose(0, 1) for part in (q, k, v))  # (H,"
            " L, D)"
        ),
        "heads = nn.functional.scaled_dot_product_attention(q, k, v)",
        f"by_hand = module.out_proj(heads.transpose(0, 1).reshape({length}, {E}))",
        f"print((by_hand - module({', '.join(names)})[0]).abs().max())  # 0, but for rounding",
    ]
