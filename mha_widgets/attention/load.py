"""Weights from other layouts, as a state dict of ``nn.MultiheadAttention``: names to tensors.

``in_proj_weight`` (3E, E) holds the projections of query, key and value; if kdim or vdim differ
from E, they are ``q_proj_weight`` (E, E), ``k_proj_weight`` (E, kdim) and ``v_proj_weight`` (E,
vdim). The biases are ``in_proj_bias`` (3E,) and ``out_proj.bias`` (E,), both or none. No layout
says how many heads there are. Every result is a copy in its own type.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from mha_widgets.attention.steps import SEPARATE

Module = TypeVar("Module", bound=nn.Module)
# How far two right ways to compute may drift apart, as a share of the largest number in the output.
# Measured for E from 15 to 1024: rounding up to 4e-15, 5e-7, 1e-3, 8e-3; wrong layouts near 1,
# but 2e-3 for E = 15 and weights of 0.02.
TOLERANCES = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 5e-3, torch.bfloat16: 3e-2}


def packed(state_dict: Mapping[str, Any]) -> dict[str, Tensor]:
    """Stack separate projections into one ``in_proj_weight``; every other entry stays.

    Args:
        state_dict: with ``q_proj_weight``, ``k_proj_weight`` and ``v_proj_weight``, each (E, E).

    Returns:
        The state dict with ``in_proj_weight`` (3E, E) in their place.

    Raises:
        ValueError: one of the three is missing, or isn't (E, E).
        TypeError: ``state_dict`` is no mapping.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html

    >>> weights = {f"{name}_proj_weight": torch.eye(8) for name in "qkv"}
    >>> packed(weights)["in_proj_weight"].shape
    torch.Size([24, 8])
    """
    weights = _take(
        state_dict, SEPARATE, "give the state dict of a module with separate projections"
    )
    if {weight.shape for weight in weights} != {(len(weights[0]), len(weights[0]))}:
        raise ValueError(
            f"Got {', '.join(SEPARATE)} of shapes {_shapes(weights)}; only three of one shape (E,"
            " E) can be stacked: make the module with kdim= and vdim=, which keeps them separate."
        )
    return {"in_proj_weight": torch.cat(weights)} | {
        name: _copy(x) for name, x in state_dict.items() if name not in SEPARATE
    }


def separate(state_dict: Mapping[str, Any]) -> dict[str, Tensor]:
    """Cut ``in_proj_weight`` into the projections of query, key and value; every other entry stays.

    Args:
        state_dict: with ``in_proj_weight`` (3E, E).

    Returns:
        The state dict with ``q_proj_weight``, ``k_proj_weight`` and ``v_proj_weight``, each (E, E),
        in its place.

    Raises:
        ValueError: ``in_proj_weight`` is missing, or isn't (3E, E).
        TypeError: ``state_dict`` is no mapping.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html

    >>> list(separate(torch.nn.MultiheadAttention(8, 2, bias=False).state_dict()))
    ['q_proj_weight', 'k_proj_weight', 'v_proj_weight', 'out_proj.weight']
    """
    (stacked,) = _take(
        state_dict, ["in_proj_weight"], "give the state dict of a module with packed projections"
    )
    rest = {name: _copy(x) for name, x in state_dict.items() if name != "in_proj_weight"}
    return dict(zip(SEPARATE, map(_copy, _thirds(stacked)), strict=True)) | rest


def from_linears(
    state_dict: Mapping[str, Any],
    query: str = "self.query",
    key: str = "self.key",
    value: str = "self.value",
    output: str = "output.dense",
) -> dict[str, Tensor]:
    """Take the weights of four ``nn.Linear``, by the names they have.

    The defaults are the names in a ``BertAttention`` of Hugging Face; BART, CLIP and OPT have
    ``q_proj``, ``k_proj``, ``v_proj`` and ``out_proj``. In a whole model's state dict they start
    with the path of the layer. Everything else is left out, such as a norm of the queries or a LoRA
    that is not merged.

    Args:
        state_dict: names to tensors (or numpy arrays), such as ``layer.state_dict()`` or a
            safetensors file.
        query: the name of the Linear with ``weight`` (E, E) and perhaps ``bias`` (E,).
        key: likewise, (E, Ek).
        value: likewise, (E, Ev).
        output: likewise, (E, E).

    Returns:
        The state dict; separate if Ek or Ev isn't E. If only some Linears have a bias, the others
        get zeros.

    Raises:
        ValueError: a missing name, or a shape that torch has no twin for.
        TypeError: ``state_dict`` is no mapping.

    Source: https://huggingface.co/docs/transformers/model_doc/bert

    >>> names = ("q_proj", "k_proj", "v_proj", "out_proj")
    >>> layer = torch.nn.ModuleDict({name: torch.nn.Linear(8, 8) for name in names})
    >>> module = into(torch.nn.MultiheadAttention(8, 2), from_linears(layer.state_dict(), *names))
    >>> torch.equal(module.in_proj_weight[8:16], layer["k_proj"].weight)
    True
    """
    fix = (
        "say what the four Linears are called (query=, key=, value=, output=), with the path of the"
        " layer"
    )
    names = (query, key, value, output)
    return _join(
        _take(state_dict, [f"{name}.weight" for name in names], fix),
        [_bias(state_dict, name) for name in names],
    )


def from_qkv(
    state_dict: Mapping[str, Any], qkv: str = "qkv", output: str = "proj"
) -> dict[str, Tensor]:
    """Take the weights of one ``nn.Linear`` for query, key and value together,
    and one for the output.

    The defaults are the names in timm's ``Attention``, whose rows are all of query, then key, then
    value. Everything else is left out, also what torch has no place for, such as timm's ``q_norm``.

    Args:
        state_dict: names to tensors (or numpy arrays).
        qkv: the name of the Linear with ``weight`` (3E, E) and perhaps ``bias`` (3E,).
        output: the name of the Linear with ``weight`` (E, E) and perhaps ``bias`` (E,).

    Returns:
        The state dict. If only one Linear has a bias (timm's ``qkv_bias=False``), the other gets
        zeros.

    Raises:
        ValueError: a missing name, or a shape that doesn't fit.
        TypeError: ``state_dict`` is no mapping.

    Source: https://github.com/huggingface/pytorch-image-models/blob/main/timm/layers/attention.py

    >>> qkv, proj = torch.nn.Linear(8, 24, bias=False), torch.nn.Linear(8, 8)
    >>> layer = torch.nn.ModuleDict({"qkv": qkv, "proj": proj})
    >>> [(name, tuple(tensor.shape)) for name, tensor in from_qkv(layer.state_dict()).items()][:2]
    [('in_proj_weight', (24, 8)), ('in_proj_bias', (24,))]
    """
    fix = "say what the two Linears are called (qkv=, output=), with the path of the layer"
    weight, out = _take(state_dict, [f"{qkv}.weight", f"{output}.weight"], fix)
    bias = _bias(state_dict, qkv)
    return _join(
        [*_thirds(weight), out],
        [*([None] * 3 if bias is None else bias.chunk(3)), _bias(state_dict, output)],
    )


def from_keras(weights: Sequence[Any]) -> dict[str, Tensor]:
    """Take the weights of a ``keras.layers.MultiHeadAttention``,
    in the order of its ``get_weights()``.

    Args:
        weights: numpy arrays or tensors: query kernel (E, H, D) and bias (H, D), key kernel (Ek, H,
            D) and bias (H, D), value kernel (Ev, H, D) and bias (H, D), output kernel (H, D, E) and
            bias (E,); or the four kernels alone, of a layer with ``use_bias=False``. H * D must be
            E.

    Returns:
        The state dict, separate if Ek or Ev isn't E, of a module with ``num_heads=H`` and
        ``batch_first=True``.

    Raises:
        ValueError: another number of weights, or shapes that torch has no twin for.

    Source: https://keras.io/api/layers/attention_layers/multi_head_attention/

    >>> shapes = (8, 2, 4), (8, 2, 4), (7, 2, 4), (2, 4, 8)
    >>> kernels = [torch.ones(shape) for shape in shapes]
    >>> [(name, tuple(tensor.shape)) for name, tensor in from_keras(kernels).items()][1:3]
    [('k_proj_weight', (8, 8)), ('v_proj_weight', (8, 7))]
    """
    if len(weights) not in (4, 8):
        raise ValueError(
            f"Got {len(weights)} weights; give the 8 of get_weights(), or the 4 kernels of"
            " use_bias=False."
        )
    tensors = [_copy(weight) for weight in weights]
    kernels, biases = (tensors[::2], tensors[1::2]) if len(weights) == 8 else (tensors, [])
    query, key, value, output = kernels
    E, *heads = query.shape
    fits = len(heads) == 2 and all(kernel.shape[1:] == query.shape[1:] for kernel in (key, value))
    if not fits or output.shape != (*heads, E) or math.prod(heads) != E:
        raise ValueError(
            f"Got kernels of shapes {_shapes(kernels)}; expected (E, H, D), (Ek, H, D), (Ev, H, D)"
            " and (H, D, E) with H * D = E, as nn.MultiheadAttention has no twin of others: give"
            " them in the order of get_weights(), of a Keras layer with key_dim = value_dim = E /"
            " num_heads."
        )
    # (E, H, D) → (E, H * D) → (H * D, E)
    flat = [kernel.flatten(1).T for kernel in (query, key, value)]
    return _join([*flat, output.flatten(0, 1).T], [bias.flatten() for bias in biases] or [None] * 4)


def into(
    module: Module, state_dict: Mapping[str, Any], reference: Sequence[Any] | None = None
) -> Module:
    """Load weights into a module, all or none, and check that it then computes what it should.

    Many a wrong layout has the right shapes; an output of the layer that the weights come from
    tells it. Take random inputs with S > 1 (a single key gets all the weight) in float32 or float64
    (16 bits are too coarse).

    Args:
        module: an ``nn.MultiheadAttention``, or any module with its parameters and its call.
        state_dict: such as the other functions here return.
        reference: ``(x, output)`` or ``(query, key, value, output)`` in the module's own layout and
            type: inputs, and what the layer that the weights come from makes of them, without a
            mask.

    Returns:
        The module.

    Raises:
        ValueError: names or shapes that don't fit, or an output that isn't the reference's. After
            any error the module has the weights that it had before.
        TypeError: ``state_dict`` is no mapping.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.load_state_dict

    >>> trained, module = torch.nn.MultiheadAttention(8, 2), torch.nn.MultiheadAttention(8, 2)
    >>> x = torch.randn(5, 3, 8)  # (L, N, E)
    >>> into(module, trained.state_dict(), reference=(x, trained(x, x, x)[0])) is module
    True
    """
    own = module.state_dict()
    fix = (
        "convert the weights (packed, separate, from_...), and give the module the bias=, kdim= and"
        " vdim= they need"
    )
    given = dict(zip(own, _take(state_dict, own, fix), strict=True))
    if unknown := [name for name in state_dict if name not in own]:
        raise ValueError(f"Got {_some(unknown)}, but the module has {_some(own)} alone; {fix}.")
    if any(tensor.is_meta for tensor in own.values()):
        raise ValueError(
            "The module is on the meta device, which holds no numbers; use"
            " module.to_empty(device=...) first."
        )
    if wrong := [name for name in own if given[name].shape != own[name].shape]:
        raise ValueError(
            f"Got {', '.join(wrong)} of shapes {_shapes(given[name] for name in wrong)}, but the"
            f" module has {_shapes(own[name] for name in wrong)}; make it with the embed_dim=,"
            " kdim= and vdim= of the weights."
        )
    before = {name: tensor.clone() for name, tensor in own.items()}
    try:
        module.load_state_dict(given)
        if reference is not None:
            _check_output(module, reference)
    except BaseException:
        module.load_state_dict(before)
        raise
    return module


def _check_output(module: nn.Module, reference: Sequence[Any]) -> None:
    if len(reference) not in (2, 4):
        raise ValueError(
            f"Got a reference of {len(reference)} parts; give (x, output) or (query, key, value,"
            " output)."
        )
    if not all(isinstance(part, Tensor | np.ndarray) for part in reference):
        raise ValueError(
            "Got a reference with a part that is no tensor; of what a module returns, give the"
            " output: module(...)[0]."
        )
    *inputs, expected = map(_copy, reference)
    inputs = [x.to(next(module.parameters())) for x in inputs]
    modes = [(part, part.training) for part in module.modules()]
    try:
        with torch.no_grad():
            output, _ = module.eval()(*(inputs * 3)[:3], need_weights=False)
    finally:
        for part, mode in modes:
            part.training = mode
    if output.shape != expected.shape:
        raise ValueError(
            f"Got a reference output of shape {tuple(expected.shape)}, but the module's is"
            f" {tuple(output.shape)}; give what the whole layer returns, in the module's own layout"
            " (batch_first)."
        )
    difference = (output - expected.to(output)).abs().max()
    limit = (
        max(TOLERANCES.get(tensor.dtype, 0.0) for tensor in (output, expected))
        * expected.abs().max()
    )
    if not difference <= limit:  # nor is NaN
        raise ValueError(
            f"The module's output differs from the reference by up to {difference:.1e} (rounding"
            f" explains {limit:.1e}), so it keeps the weights it had; look for queries, keys and"
            " values interleaved head by head, weights transposed (as in Keras or GPT-2's Conv1D),"
            " another num_heads, inputs in the other layout (batch_first), or a part torch lacks."
        )


def _join(weights: Sequence[Tensor], biases: Sequence[Tensor | None]) -> dict[str, Tensor]:
    """Name the weights and biases of query, key,
    value and output as ``nn.MultiheadAttention`` does.
    """
    if integer := [weight.dtype for weight in weights if not weight.is_floating_point()]:
        raise ValueError(
            f"Got weights of {integer[0]}; quantised ones need their scales: give them as"
            " floating-point numbers."
        )
    E = len(weights[0])
    fits = weights[0].shape == weights[3].shape == (E, E) and all(
        w.dim() == 2 and len(w) == E for w in weights
    )
    if not fits or any(bias is not None and bias.shape != (E,) for bias in biases):
        raise ValueError(
            f"Got weights of shapes {_shapes(weights)} and biases of {_shapes(biases)} for query,"
            " key, value and output; expected (E, E), (E, Ek), (E, Ev), (E, E) and (E,):"
            " nn.MultiheadAttention has no twin of a layer with fewer key heads, or with heads"
            " that together have another size than E."
        )
    *inner, out = (weight.contiguous() for weight in weights)
    stack = all(weight.shape == (E, E) for weight in inner)
    named = (
        {"in_proj_weight": torch.cat(inner)} if stack else dict(zip(SEPARATE, inner, strict=True))
    )
    if all(bias is None for bias in biases):
        return named | {"out_proj.weight": out}
    *inner, bias = (out.new_zeros(E) if bias is None else bias for bias in biases)
    return named | {"in_proj_bias": torch.cat(inner), "out_proj.weight": out, "out_proj.bias": bias}


def _take(state_dict: Mapping[str, Any], names: Iterable[str], fix: str) -> list[Tensor]:
    if not isinstance(state_dict, Mapping):
        raise TypeError(
            f"Got a state dict of type {type(state_dict).__name__}; it maps names to tensors: use"
            " .state_dict(), or safetensors.torch.load_file(path)."
        )
    if missing := [name for name in names if name not in state_dict]:
        near = difflib.get_close_matches(missing[0], state_dict, n=4, cutoff=0.0)
        raise ValueError(
            f"Found no {_some(missing)} among {len(state_dict)} names, such as {_some(near)};"
            f" {fix}."
        )
    return [_copy(state_dict[name]) for name in names]


def _bias(state_dict: Mapping[str, Any], name: str) -> Tensor | None:
    bias = state_dict.get(f"{name}.bias")
    return None if bias is None else _copy(bias)


def _thirds(stacked: Tensor) -> Sequence[Tensor]:
    if stacked.dim() != 2 or len(stacked) != 3 * stacked.shape[1]:
        raise ValueError(
            f"Got {_shapes([stacked])} as the weight of query, key and value together; expected"
            " (3E, E): transpose both weights if they are stored as in GPT-2's Conv1D, (E, 3E) and"
            " (E, E)."
        )
    return stacked.chunk(3)


def _copy(weight: Any) -> Tensor:
    """Copy a tensor or an array, in C order:
    a view of ``state_dict()`` would change as its module is loaded.
    """
    if isinstance(weight, Tensor):
        return weight.detach().clone(memory_format=torch.contiguous_format)
    return torch.tensor(weight)


def _shapes(tensors: Iterable[Tensor | None]) -> str:
    return ", ".join("None" if tensor is None else str(tuple(tensor.shape)) for tensor in tensors)


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
