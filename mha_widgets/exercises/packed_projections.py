"""The exercises of the chapter on packed projections."""

from __future__ import annotations

import math
import re
import reprlib
from typing import Any

import torch
from torch import nn

from mha_widgets.exercises._checking import (
    Wrong,
    as_number,
    called,
    close,
    exercise,
    expect,
    random,
    several,
    shaped,
)


@exercise("packed-projections-1")
def rows(answer: Any) -> str:
    """The width of a slice for E = 8 and 2 heads; the rows of two slices for E = 12 and 3 heads."""
    width, key, value = several(
        answer, 3, "give three answers, (a, b, c): a number, and rows as (start, stop) twice"
    )
    hints = {
        8: "all heads together have 8 features",
        2: "2 is the number of heads",
        16: "no slice is wider than the whole",
    }
    expect(as_number(width, "(a)"), 4, "(a) is", "the 8 features are shared by 2 heads", hints)
    for name, given, right, third in (("b", key, (20, 24), 12), ("c", value, (24, 28), 24)):
        found = _rows(name, given)
        if found == (right[0], right[1] - 1):
            raise Wrong(f"({name}) is not {found}: the last row is excluded, as in a slice.")
        if found != right:
            raise Wrong(
                f"({name}) is not {found}: its third starts at row {third}, and each head has 4"
                " rows."
            )
    return "Heads take the rows of a third in order, D each."


def _rows(name: str, given: Any) -> tuple[int, int]:
    if isinstance(given, (slice, range)):
        given = (given.start or 0, given.stop)
    if isinstance(given, str):
        given = re.findall(r"\d+", given)
    try:
        start, stop = (int(one) for one in given)
    except (TypeError, ValueError, OverflowError):
        raise Wrong(f"({name}) is {reprlib.repr(given)}; give the rows as (start, stop).") from None
    return start, stop


def _module() -> nn.MultiheadAttention:
    """Return a module of two heads whose parameters are all random."""
    module = nn.MultiheadAttention(8, 2, batch_first=True).requires_grad_(False)
    for seed, parameter in enumerate(module.parameters()):
        parameter.copy_(random(*parameter.shape, seed=seed) / 2)
    return module


def _changed(function: Any, module: nn.MultiheadAttention) -> nn.MultiheadAttention:
    """Call a function that changes a module in place, and may return nothing,
    or another module in its place.
    """

    def run(module: nn.MultiheadAttention) -> tuple[Any, bool]:
        return function(module), True

    returned, _ = called(run if callable(function) else function, module)
    return returned if isinstance(returned, nn.MultiheadAttention) else module


@exercise("packed-projections-2")
def swapped(answer: Any) -> str:
    """A function of a module of two heads that exchanges them,
    in place or in the module that it returns.
    """
    module, x = _module(), 2 * random(2, 5, 8, seed=9)
    output, maps = module(x, x, x, average_attn_weights=False)
    bias = module.out_proj.bias.clone()
    swapped_module = _changed(answer, module)
    swapped_output, swapped_maps = swapped_module(x, x, x, average_attn_weights=False)
    if close(swapped_maps, maps):
        raise Wrong("the maps of the two heads have not changed places.")
    if not close(swapped_maps, maps.flip(1)):
        raise Wrong(
            "the maps are not those of the other head; do the biases of the projections move along?"
        )
    if not close(swapped_output, output):
        if swapped_module.out_proj.bias is None or not close(swapped_module.out_proj.bias, bias):
            raise Wrong(
                "the bias of out_proj changed too; it is added to what comes out, which belongs to"
                " no head."
            )
        hint = "do the values move along, and are the slices of out_proj rows or columns?"
        raise Wrong(f"the maps are right, but the output moved; {hint}")
    return (
        "Rows of the projections, their biases, and columns of out_proj: then the order of the"
        " heads doesn't count."
    )


@exercise("packed-projections-3")
def to_packed(answer: Any) -> str:
    """A function to_packed(stored, num_heads) for rows (H, 3, D), of a weight and of a bias."""
    for what, shape in (("the weight", (24, 8)), ("the bias", (24,))):
        for num_heads in (2, 4):
            stored = random(*shape, seed=1)
            found = shaped(
                called(answer, stored.clone(), num_heads), shape, what=f"what it returns for {what}"
            )
            cut = stored.view(num_heads, 3, 8 // num_heads, *shape[1:])
            if close(found, cut.transpose(0, 1).reshape(shape)):
                continue
            undone = stored.view(3, num_heads, -1, *shape[1:]).transpose(0, 1)
            dealt = cut.permute(1, 2, 0, *range(3, cut.dim()))
            known = {
                "the rows still stand head by head": stored,
                "this goes the other way, from torch's order to head by head": undone.reshape(
                    shape
                ),
                "each third is in torch's place, but not its rows: head 0 first, D rows of it": (
                    dealt.reshape(shape)
                ),
            }
            told = [hint for hint, wrong in known.items() if close(found, wrong)]
            hint = (
                told[0]
                if told
                else (
                    "the D rows of a head's query stay together, and so do those of its key and"
                    " value"
                )
            )
            raise Wrong(
                f"what it returns for {what} of {num_heads} heads is not in torch's order: {hint}."
            )
    return "(H, 3, D) becomes (3, H, D), for weights and biases."


@exercise("packed-projections-4")
def restarted(answer: Any) -> str:
    """A function of a packed module that draws its three matrices one by one, in place."""
    E = 64
    module = nn.MultiheadAttention(E, 4)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    module = _changed(answer, module)
    after = module.state_dict()
    if after.keys() != before.keys() or any(
        after[name].shape != before[name].shape for name in before
    ):
        raise Wrong("the module should keep its parameters, with their names and shapes.")
    if moved := [
        name
        for name in before
        if name != "in_proj_weight" and not torch.equal(after[name], before[name])
    ]:
        raise Wrong(f"{moved[0]} changed too; only the projections should.")
    if torch.equal(after["in_proj_weight"], before["in_proj_weight"]):
        raise Wrong("in_proj_weight has not changed; write into it in place.")
    thirds = after["in_proj_weight"].chunk(3)
    if torch.equal(thirds[0], thirds[1]) or torch.equal(thirds[1], thirds[2]):
        raise Wrong("two of the three matrices hold the same numbers; draw each by itself.")
    bounds = {rows: math.sqrt(6 / (rows + E)) for rows in (E, 3 * E)}
    for name, third in zip(("W_q", "W_k", "W_v"), thirds, strict=True):
        largest, spread = third.abs().max(), third.std() * math.sqrt(3)
        if largest <= bounds[3 * E] * 1.001:
            raise Wrong(
                f"{name} is still within ±{bounds[3 * E]:.3f}, the bound for 3E rows; a matrix (E,"
                " E) has a larger one."
            )
        if not 0.95 * bounds[E] < spread < 1.05 * bounds[E] or largest > bounds[E] * 1.001:
            raise Wrong(
                f"the largest number of {name} is {largest:.3f}; drawn evenly, all should lie"
                f" within ±{bounds[E]:.3f}."
            )
    return "All three now start as matrices of their own, and the scores spread by 1."
