"""The exercises of the chapter on the fast path."""

from __future__ import annotations

import re
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn

from mha_widgets.exercises._checking import (
    Wrong,
    as_number,
    called,
    close,
    exercise,
    random,
    shaped,
)

NATIVE = "_native_multi_head_attention"
WHY = {
    "a": (
        "(a) takes it: inference_mode switches gradients off, 4 heads are even, and asking for"
        " weights doesn't matter"
    ),
    "b": "(b) has 1 head, and an odd number of heads keeps a call off",
    "c": "(c) takes it: gradients are on, but neither x nor a parameter asks for one",
    "d": "(d) passes another tensor as value; an equal one is not the same one",
    "e": "(e) takes it: boolean masks may go along, and dropout rests in evaluation",
    "f": "(f) has a float mask, and float masks keep a call off",
}


@exercise("fast-path-1")
def calls_on_the_fast_path(answer: Any) -> str:
    """The letters of the calls that take the fast path, of six."""
    if isinstance(answer, (tuple, list, set)):
        answer = " ".join(map(str, answer))
    if not isinstance(answer, str):
        raise Wrong('give letters, such as "ab".')
    letters = set(re.findall(r"[^\W_]", re.sub(r"\band\b", "", answer.lower())))
    if letters - WHY.keys():
        raise Wrong(
            f"there is no call {', '.join(sorted(letters - WHY.keys()))}; the calls are (a) to (f)."
        )
    missed = letters ^ set("ace")
    if missed:
        raise Wrong(f"{WHY[min(missed)]}.")
    return "An odd number of heads, another tensor and a float mask keep the other three off."


@exercise("fast-path-2")
def block(answer: Any) -> str:
    """A function block(module, norm, x) that normalises, attends on the fast path and adds."""
    module, x = _example()
    with torch.no_grad():
        norm = nn.LayerNorm(4, bias=False)
        norm.weight.copy_(torch.tensor([1.0, 2.0, 0.5, -1.0]))
        normed = norm(x)
        expected, unnormed = module(normed, normed, normed)[0], module(x, x, x)[0] + x
        with mock.patch.object(torch, NATIVE, wraps=getattr(torch, NATIVE)) as native:
            made = called(answer, module, norm, x)
        if isinstance(made, tuple):
            raise Wrong("your function returns several things; return x + attended alone.")
        output = shaped(made, (3, 5, 4), what="its output")
        if close(output, unnormed):
            raise Wrong("the module gets x as it is; what is normalised should go in.")
        if close(output, expected):
            raise Wrong("x is not added to what comes back.")
        if close(output, normed + expected):
            raise Wrong("x itself should be added, not what is normalised.")
        if not close(output, x + expected):
            raise Wrong("its output is not the one that the broken function returns.")
    if native.call_count == 0:
        raise Wrong(
            "its output is right, but the fast path is not taken: are query, key and value one"
            " tensor?"
        )
    return "Normalise once, and pass that one tensor three times."


@exercise("fast-path-3")
def unpadded(answer: Any) -> str:
    """A function of a module, x (N, L, E) and N lengths: the output by a NestedTensor,
    zeros on padding.
    """
    module, x = _example()
    lengths = [2, 4, 1]
    padding = torch.arange(5) >= torch.tensor(lengths)[:, None]
    with torch.no_grad():
        expected = module(x, x, x, key_padding_mask=padding)[0]
    with mock.patch.object(torch, NATIVE, wraps=getattr(torch, NATIVE)) as native:
        made = called(answer, module, x, lengths)
    if isinstance(made, tuple):
        raise Wrong("your function returns several things; return the output alone.")
    if isinstance(made, Tensor) and made.is_nested:
        raise Wrong("its output is still nested; torch.nested.to_padded_tensor fills it up.")
    filled = "it is filled up to the longest sentence only; give output_size"
    output = shaped(made, (3, 5, 4), {(3, 4, 4): filled}, what="its output")
    if (output[padding] != 0).any():
        raise Wrong("its output is not 0 on the padding.")
    if not close(output[~padding], expected[~padding]):
        raise Wrong(
            "on the real positions its output is not what each sentence gives alone; are the"
            " lengths right?"
        )
    if not any(call.args[0].is_nested for call in native.call_args_list):
        raise Wrong("its output is right, but no NestedTensor went through the fast path.")
    return "No mask, and nothing but real words was projected."


@exercise("fast-path-4")
def first_length_of_maps(answer: Any) -> str:
    """The smallest L with N·H·L·L above N·L·3E, for E = 32 and H = 4."""
    length = as_number(answer)
    if length == 24:
        raise Wrong(
            "at 24 both hold as many numbers; the maps are the larger ones from the next length on."
        )
    if length in (96, 97):
        raise Wrong(
            f"{length:g} is the bound for one head; here there are 4 maps for each sentence."
        )
    if length in (8, 9):
        raise Wrong(
            f"{length:g} compares the maps with the queries alone; queries, keys and values lie"
            " side by side, 3E."
        )
    if length != 25:
        raise Wrong("compare H · L · L with L · 3E; N is in both.")
    return (
        "The maps are the largest as soon as L is above 3 · E / H, three times the width of a head."
    )


def _example() -> tuple[nn.MultiheadAttention, Tensor]:
    """Return a module in evaluation and a batch (N, L, E) = (3, 5, 4)."""
    return nn.MultiheadAttention(4, 2, batch_first=True).eval(), random(3, 5, 4, seed=3)
