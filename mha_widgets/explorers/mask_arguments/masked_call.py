"""A call of nn.MultiheadAttention with masks, right and wrong, and the program that makes it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mha_widgets.attention import causal_mask
from mha_widgets.attention.call import Call
from mha_widgets.view import Choice, Control, Toggle

RIGHT, WRONG = "right", "wrong way round"
INTERLEAVE, REPEAT = "repeat_interleave", "repeat"
BOOLEAN, INFINITE, ONES, MIXED = "boolean", "float −∞", "float 0/1", "mixed"


def controls(N: int, H: int) -> dict[str, Control]:
    """Return the controls for N sentences and H heads."""
    return {
        "attn_mask": Choice(
            "attn_mask",
            ("none", "2D", "3D"),
            "2D",
            "Causal (L, S), or one a sentence, with its padding.",
        ),
        "key_padding_mask": Toggle(
            "key_padding_mask", default=True, help="(N, S), blocks padding as a key."
        ),
        "mask_type": Choice(
            "Mask type",
            (BOOLEAN, INFINITE, ONES, MIXED),
            BOOLEAN,
            "How masks are written; mixed: attn_mask is float.",
        ),
        "polarity": Choice(
            "Polarity", (RIGHT, WRONG), RIGHT, "Right: True, −∞ or 1 where a key is to be blocked."
        ),
        "order": Choice(
            *("Order of a 3D mask", (INTERLEAVE, REPEAT), INTERLEAVE),
            "How a mask for each sentence becomes N·H: the heads of a sentence side by side, or the"
            " sentences over and over.",
        ),
        "is_causal": Toggle("is_causal", help="A hint that attn_mask is causal."),
        "need_weights": Toggle(
            "need_weights", default=True, help="Whether the call returns weights."
        ),
        "training": Toggle(
            "training", help="Training with gradients, or else evaluation under torch.no_grad()."
        ),
        "sample": Choice("Sentence", tuple(range(N)), N - 1, "The sentence to look at."),
        # 1: the first that repeat misplaces
        "head": Choice("Head", tuple(range(H)), min(1, H - 1), "The head to look at."),
    }


def wanted(padding: Tensor, state: Mapping[str, Any]) -> Tensor:
    """Return who is meant to look at whom in a state, (N, L, S), for padding (N, S); all,
    if nothing is to be blocked.
    """
    N, L = padding.shape
    if state["attn_mask"] == "none" and not state["key_padding_mask"] and not state["is_causal"]:
        return torch.ones(N, L, L, dtype=torch.bool)
    causal = state["attn_mask"] != "none" or state["is_causal"]
    keep = (causal_mask(L) if causal else torch.ones(L, L, dtype=torch.bool)).expand(N, L, L)
    return keep & ~padding[:, None]


def masks(
    padding: Tensor, H: int, dtype: torch.dtype, state: Mapping[str, Any]
) -> tuple[Tensor | None, Tensor | None]:
    """Return ``attn_mask`` and ``key_padding_mask`` of a state, for padding (N, S) and H heads."""
    attn_mask = key_padding_mask = None
    if state["attn_mask"] != "none":
        attn_mask = ~causal_mask(padding.shape[1])
        if state["attn_mask"] == "3D":
            attn_mask = attn_mask | padding[:, None]
            attn_mask = (
                attn_mask.repeat(H, 1, 1)
                if state["order"] == REPEAT
                else attn_mask.repeat_interleave(H, dim=0)
            )
        attn_mask = _typed(attn_mask, _type(state, INFINITE), dtype, state)
    if state["key_padding_mask"]:
        key_padding_mask = _typed(padding, _type(state, BOOLEAN), dtype, state)
    return attn_mask, key_padding_mask


def _type(state: Mapping[str, Any], when_mixed: str) -> str:
    return when_mixed if state["mask_type"] == MIXED else state["mask_type"]


def _typed(blocked: Tensor, kind: str, dtype: torch.dtype, state: Mapping[str, Any]) -> Tensor:
    blocked = blocked if state["polarity"] == RIGHT else ~blocked
    if kind == BOOLEAN:
        return blocked
    return blocked.to(dtype) if kind == ONES else torch.where(blocked, -torch.inf, 0.0).to(dtype)


def make_call(call: Call) -> tuple[Tensor | None, str]:
    """Make a call; return its output, or None if torch refuses, and what torch says to it."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            output, _ = call.module(*call[1:])
        except RuntimeError as error:
            return None, str(error)
    return output, str(caught[0].message) if caught else ""


def merged(call: Call) -> tuple[int, tuple[int, ...]] | None:
    """Return the type and the shape of the mask that the module makes of its two,
    or None without any.
    """
    mask, kind = call.module.merge_masks(call.attn_mask, call.key_padding_mask, call.query)
    return None if mask is None or kind is None else (kind, tuple(mask.shape))


def program(
    setting: Sequence[str], padding: Tensor, H: int, state: Mapping[str, Any], raises: bool
) -> str:
    """Write the call of a state, with what torch says as ``message``.

    Args:
        setting: the lines that make ``module``, in evaluation, and ``x``.
        padding: (N, S), True where a key is padding.
        H: the number of heads.
        state: a complete state.
        raises: whether torch refuses the call.

    Returns:
        The program.
    """
    warns = (
        state["mask_type"] == MIXED and state["attn_mask"] != "none" and state["key_padding_mask"]
    )
    L, lines, options = (
        padding.shape[1],
        [*(["import warnings"] if warns else []), "import torch", "from torch import nn"],
        [],
    )
    lines += (
        [line.replace(".eval()", ".train()") for line in setting] if state["training"] else setting
    )
    if state["key_padding_mask"] or state["attn_mask"] == "3D":
        lines.append(f"padding = torch.tensor({padding.tolist()})")
    if state["attn_mask"] != "none":
        lines.append(
            f"future = torch.ones({L}, {L}, dtype=torch.bool).triu(1)  # the keys after each query"
        )
        blocked = "future | padding[:, None]" if state["attn_mask"] == "3D" else "future"
        lines.append(f"attn_mask = {_written(blocked, _type(state, INFINITE), state)}")
        options.append("attn_mask=attn_mask")
    if state["attn_mask"] == "3D":
        repeated = (
            f"repeat({H}, 1, 1)" if state["order"] == REPEAT else f"repeat_interleave({H}, dim=0)"
        )
        lines.append(f"attn_mask = attn_mask.{repeated}  # (N * num_heads, L, S)")
    if state["key_padding_mask"]:
        lines.append(f"key_padding_mask = {_written('padding', _type(state, BOOLEAN), state)}")
        options.append("key_padding_mask=key_padding_mask")
    options.append("average_attn_weights=False" if state["need_weights"] else "need_weights=False")
    options += ["is_causal=True"] if state["is_causal"] else []
    call = (
        f"output, {'weights' if state['need_weights'] else '_'} = module(x, x, x,"
        f" {', '.join(options)})"
    )
    if raises:
        return "\n".join(
            [
                *lines,
                "try:",
                f"    {call}",
                "except RuntimeError as error:",
                "    message = str(error)",
            ]
        )
    around = [] if state["training"] else ["torch.no_grad()"]
    if warns:
        around.append("warnings.catch_warnings(record=True) as caught")
        call = f'warnings.simplefilter("always")\n    {call}'
    lines += [f"with {', '.join(around)}:", f"    {call}"] if around else [call]
    return "\n".join(lines + (["message = str(caught[0].message)"] if warns else []))


def _written(blocked: str, kind: str, state: Mapping[str, Any]) -> str:
    wrong = state["polarity"] == WRONG
    if not blocked.isidentifier() and (wrong or kind == ONES):
        blocked = f"({blocked})"
    blocked = f"~{blocked}" if wrong else blocked
    note = ", the wrong way round" if wrong else ""
    if kind == BOOLEAN:
        return f"{blocked}  # True = blocked{note}"
    if kind == ONES:
        blocked = f"({blocked})" if wrong else blocked
        return f"{blocked}.to(x.dtype)  # 0 and 1, added to the scores{note}"
    return f"torch.where({blocked}, -torch.inf, 0.0).to(x.dtype)  # added to the scores{note}"
