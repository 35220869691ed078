"""What attention can't work with, said in one sentence; the classes are those that torch raises."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor

Function = TypeVar("Function", bound=Callable[..., Any])


def put_first(words: str, error: Exception) -> None:
    """Let what an error says begin with these words."""
    ours = str(error)
    error.args = (words if ours in words else f"{words.removesuffix('.')}. {ours}",)


def in_words_of(theirs: Callable[..., object]) -> Callable[[Function], Function]:
    """Decorate what stands in for a function of torch's: its errors begin with torch's words."""

    def decorate(ours: Function) -> Function:
        @wraps(ours)
        def function(*args: Any, **kwargs: Any) -> Any:
            try:
                return ours(*args, **kwargs)
            except Exception as error:
                _put_first_what_is_said_by(theirs, error, *args, **kwargs)
                raise

        return function  # type: ignore[return-value]

    return decorate


def _put_first_what_is_said_by(
    theirs: Callable[..., object], error: Exception, *args: Any, **kwargs: Any
) -> None:
    try:
        with warnings.catch_warnings(action="ignore"):
            theirs(*args, **kwargs)
    except type(error) as said:
        put_first(str(said), error)
    except Exception:  # another one: it is not about what ours is about
        pass


def check_tensors(**given: Tensor | None) -> None:
    """Check that inputs and masks are tensors; a mask may be None."""
    for name, tensor in given.items():
        if not isinstance(tensor, Tensor) and not (tensor is None and name.endswith("mask")):
            kind = TypeError if name.endswith("mask") else AttributeError  # as torch raises them
            raise kind(
                f"{name} must be a tensor, but got {type(tensor).__name__}; use"
                f" torch.as_tensor({name})."
            )


def check_inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_heads: int,
    batch_first: bool,
    separate: bool,
) -> None:
    """Check the sizes of query, key and value against each other;
    see multi_head_attention_forward.
    """
    check_tensors(query=query, key=key, value=value)
    for name, tensor in {"query": query, "key": key, "value": value}.items():
        if tensor.is_nested:
            raise AssertionError(
                f"{name} is a NestedTensor; use {name}.to_padded_tensor(0.0) and a key_padding_mask"
                " here."
            )
    dims = query.dim()
    if dims not in (2, 3) or key.dim() != dims or value.dim() != dims:
        layout = "(N, L, E)" if batch_first else "(L, N, E)"
        raise AssertionError(
            f"Got {_shapes(query, key, value)}; give all three as {layout}, or as (L, E) for one"
            " sequence."
        )
    if query.shape[-1] != embed_dim:
        raise AssertionError(
            f"Got {_shapes(query, key, value)}; the query needs embed_dim = {embed_dim} features."
        )
    if embed_dim % num_heads:
        raise AssertionError(
            f"{embed_dim} features can't be cut into {num_heads} heads; choose a num_heads that"
            " divides them."
        )
    if key is not value and (
        key.shape[:-1] != value.shape[:-1] if separate else key.shape != value.shape
    ):
        raise AssertionError(
            f"Got {_shapes(query, key, value)}; key and value need the same shape: every key has"
            " one value."
        )
    if key is not query:
        if not separate and key.shape[-1] != embed_dim:
            raise RuntimeError(
                f"Got {_shapes(query, key, value)}; key and value need {embed_dim} features too, "
                "or a module that was made with their number as kdim and vdim."
            )
        batch = 0 if batch_first else 1
        if dims == 3 and key.shape[batch] != query.shape[batch]:
            other = (
                "the batch second; did you mean batch_first=True?"
                if batch == 1
                else "the batch first (batch_first=True)."
            )
            raise RuntimeError(
                f"Got {_shapes(query, key, value)}: {query.shape[batch]} sequences of queries and"
                f" {key.shape[batch]} of keys, with {other}"
            )


def check_separate(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    q_proj: Tensor | None,
    k_proj: Tensor | None,
    v_proj: Tensor | None,
    bias: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Check that the three separate weights are (E, E), (E, Ek) and (E, Ev), and return them."""
    E, checked = query.shape[-1], []
    if bias is not None and bias.shape != (3 * E,):
        raise AssertionError(
            f"in_proj_bias has shape {tuple(bias.shape)}, but must be (3E,) = ({3 * E},)."
        )
    for name, weight, x in (
        ("q_proj_weight", q_proj, query),
        ("k_proj_weight", k_proj, key),
        ("v_proj_weight", v_proj, value),
    ):
        if weight is None or weight.shape != (E, x.shape[-1]):
            got = "is missing" if weight is None else f"has shape {tuple(weight.shape)}"
            raise AssertionError(
                f"{name} {got}, but for {_shapes(query, key, value)} it must be {(E, x.shape[-1])};"
                " kdim and vdim of the module are the features of key and value."
            )
        checked.append(weight)
    return checked[0], checked[1], checked[2]


def check_packed(weight: Tensor | None) -> Tensor:
    """Check that the packed weight is there, and return it."""
    if weight is None:
        raise AssertionError(
            "in_proj_weight is missing; give it, or use_separate_proj_weight=True and three"
            " separate weights."
        )
    return weight


def check_static(
    k: Tensor,
    v: Tensor,
    static_k: Tensor | None,
    static_v: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """Return keys and values (N, H, S, D), static ones (N * H, S, D) in place of the projected."""
    if (bias_k is None) != (bias_v is None):
        raise AssertionError(
            "One of bias_k and bias_v is missing; an appended position needs both a key and a"
            " value."
        )
    N, H, _, D = k.shape
    for name, static in {"static_k": static_k, "static_v": static_v}.items():
        if static is not None and bias_k is not None:
            raise AssertionError(
                f"Got {name} and bias_k; append the learned position to {name} yourself."
            )
        if static is not None and (static.shape[0] != N * H or static.shape[2] != D):
            raise AssertionError(
                f"{name} has shape {tuple(static.shape)}, but must be (N * H, S, D) = ({N * H}, S,"
                f" {D})."
            )
    k = k if static_k is None else static_k.unflatten(0, (N, H))
    v = v if static_v is None else static_v.unflatten(0, (N, H))
    if k.shape[2] != v.shape[2]:
        raise RuntimeError(
            f"With static_k or static_v there are {k.shape[2]} keys and {v.shape[2]} values; every"
            " key needs one value: give both."
        )
    return k, v


def check_masks(
    attn_mask: Tensor | None,
    key_padding_mask: Tensor | None,
    query: Tensor,
    sizes: tuple[int, int, int, int],
    *,
    used: bool = True,
    static: int | None = None,
    warn: bool = True,
) -> None:
    """Check types and shapes of both masks against (N, H, L, S); warn if their types differ,
    as torch does.

    An attn_mask that is not ``used`` is looked at less closely, as torch does. ``static`` is the
    length of keys that replace the projected ones.
    """
    check_tensors(attn_mask=attn_mask, key_padding_mask=key_padding_mask)
    N, num_heads, L, S = sizes
    batched = query.dim() == 3
    for name, mask in {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask}.items():
        if mask is None:
            continue
        if mask.dtype != torch.bool and not mask.is_floating_point():
            raise AssertionError(
                f"{name} is {mask.dtype}, but must be boolean (True = blocked) or float (added to"
                " the scores); if it holds 1 for a real token, as Hugging Face's attention_mask"
                f" does, use {name} == 0."
            )
    if attn_mask is not None:
        dims = attn_mask.dim()
        fits = attn_mask.shape == ((L, S) if dims == 2 else (N * num_heads, L, S))
        if not fits and (used or dims not in (2, 3) or dims == 3 and not batched):
            kind = RuntimeError if dims == 2 or dims == 3 and batched else AssertionError
            raise kind(
                f"attn_mask has shape {tuple(attn_mask.shape)}, but must be (L, S) = {(L, S)} or "
                f"(N * num_heads, L, S) = {(N * num_heads, L, S)}; for one mask a sequence, use "
                "mask.repeat_interleave(num_heads, dim=0)."
            )
    if key_padding_mask is not None:
        S = S if static is None else static
        wanted = (N, S) if batched else (S,)
        if key_padding_mask.shape != wanted:
            letters = "(N, S)" if batched else "(S,)"
            raise AssertionError(
                f"key_padding_mask has shape {tuple(key_padding_mask.shape)}, but must be {letters}"
                f" = {wanted}: one entry for each key of each sequence, without the positions that"
                " the module appends."
            )
        if warn and attn_mask is not None and attn_mask.dtype != key_padding_mask.dtype:
            warnings.warn(
                f"key_padding_mask is {key_padding_mask.dtype} and attn_mask is {attn_mask.dtype}: "
                "torch deprecates masks of different types; make both boolean, or both float.",
                stacklevel=7,  # where the module is called
            )


def check_merged(
    mask: Tensor, query: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None
) -> None:
    """Check that a mask can be added to the scores: it is of their type,
    or autocast narrows both.
    """
    if (
        mask.dtype == query.dtype
        or torch.is_autocast_enabled(query.device.type)
        and mask.dtype != torch.float64
    ):
        return
    given = {
        name: x
        for name, x in (("attn_mask", attn_mask), ("key_padding_mask", key_padding_mask))
        if x is not None
    }
    wrong = [name for name, x in given.items() if x.dtype not in (torch.bool, query.dtype)]
    fix = " and ".join(f"{name}.to(query.dtype)" for name in wrong)
    raise RuntimeError(
        f"{wrong[0]} is {given[wrong[0]].dtype} and the query {query.dtype}; use {fix}, or"
        " booleans."
    )


def _shapes(query: Tensor, key: Tensor, value: Tensor) -> str:
    return f"query {tuple(query.shape)}, key {tuple(key.shape)} and value {tuple(value.shape)}"
