"""The exercises of the chapter on calling the module."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from mha_widgets.exercises._checking import (
    Wrong,
    called,
    close,
    exercise,
    keeping,
    random,
    several,
    shape_of,
    shaped,
)

SHAPES = {"a": (5, 7, 9), "b": (5, 3, 7, 9), "c": (3, 7, 9)}


@exercise("calling-the-module-1")
def shapes_of_weights(answer: Any) -> str:
    """The shapes of the weights of three calls with N = 5, H = 3, L = 7 and S = 9."""
    for (name, right), given in zip(
        SHAPES.items(), several(answer, 3, "give three shapes, (a, b, c)"), strict=True
    ):
        found = shape_of(given)
        if found == right:
            continue
        if 12 in found:
            raise Wrong(
                f"({name}) is not {found}: weights have no features; those are added up in the"
                " scores."
            )
        if found == (*right[:-2], 9, 7):
            raise Wrong(f"({name}) is not {found}: a row is a query, L, and a column is a key, S.")
        if name == "a" and len(found) == 4:
            raise Wrong(f"(a) is not {found}: by default the weights are averaged over the heads.")
        if name == "b" and found == (3, 5, 7, 9):
            raise Wrong("(b) is not (3, 5, 7, 9): the batch comes first, then the heads.")
        if name == "c" and found[:1] in ((1,), (5,)):
            raise Wrong(
                f"(c) is not {found}: one sequence has no batch axis, and neither have its weights."
            )
        raise Wrong(
            f"({name}) is not {found}: which of N, H, L and S are there, and in which order?"
        )
    return "(N, L, S), (N, H, L, S) and, without a batch, (H, L, S)."


@exercise("calling-the-module-2")
def attention_received(answer: Any) -> str:
    """A function of a module with batch_first=True and x (N, L, E): the sum over the queries,
    (N, H, S).
    """
    module = nn.MultiheadAttention(6, 3, batch_first=True).requires_grad_(False)
    x = 2 * random(2, 5, 6, seed=3)
    weights = module(x, x, x, average_attn_weights=False)[1]
    hints = {
        (2, 5): "the heads are averaged; ask for each",
        (2, 5, 5): "the heads are added up; add up over the queries",
        (3, 5): "the sentences are added up too",
        (2, 3): "the keys are added up too",
        (2, 3, 5, 5): "add up over the queries",
    }
    found = shaped(called(answer, module, x), (2, 3, 5), hints, what="what your function returns")
    if close(found, torch.ones(2, 3, 5)):
        raise Wrong("these are the sums over the keys, 1 for every query; add up over the queries.")
    if close(found, weights.mean(dim=-2)):
        raise Wrong("this is the mean over the queries; their sum is asked for.")
    if not close(found, weights.sum(dim=-2)):
        raise Wrong("these are not the sums over the queries of weights (N, H, L, S).")
    return "The sums over the keys are 1 for every query; over the queries they are 1 on average."


@exercise("calling-the-module-3")
def self_attention(answer: Any) -> str:
    """A class of a module that returns the output alone,
    keeps sentences apart and computes no maps.
    """
    if isinstance(answer, nn.Module):
        raise Wrong("this is a module already; pass the class itself, without calling it.")
    x = 2 * random(3, 64, 8, seed=3)
    made = called(answer, 8, 2)
    inside = (
        [part for part in made.modules() if isinstance(part, nn.MultiheadAttention)]
        if isinstance(made, nn.Module)
        else []
    )
    if len(inside) != 1:
        raise Wrong(
            "SelfAttention(8, 2) should make a module with one nn.MultiheadAttention in it."
        )
    if (inside[0].embed_dim, inside[0].num_heads) != (8, 2):
        raise Wrong(
            f"SelfAttention(8, 2) makes {inside[0].embed_dim} features and {inside[0].num_heads}"
            " heads."
        )
    output, kept = keeping(deepcopy(made).eval(), x)
    if isinstance(output, (tuple, list)):
        raise Wrong(
            f"it returns {len(output)} things, and nn.Sequential would hand on all; return the"
            " output alone."
        )
    if not isinstance(output, Tensor) or not output.requires_grad:
        raise Wrong("its output lets no gradient through, so it could never be trained.")
    if not close(shaped(output, (3, 64, 8), what="its output"), _one_by_one(inside[0], x)):
        raise Wrong(
            "its output is not what each sentence gives alone; do you pass x three times, with"
            " batch_first=True?"
        )
    if kept >= 3 * 2 * 64 * 64:
        raise Wrong(
            "the output is right, but maps of N · H · L · S numbers are kept; pass"
            " need_weights=False."
        )
    return "It returns the output alone, and no map was stored."


def _one_by_one(module: nn.MultiheadAttention, x: Tensor) -> Tensor:
    """Attend in each sentence alone, with the weights
    of a module that may be of a class of its own.
    """
    plain = nn.MultiheadAttention(8, 2, bias=module.in_proj_bias is not None)
    plain.load_state_dict(module.state_dict())
    return torch.stack([plain.eval()(sentence, sentence, sentence)[0] for sentence in x]).detach()
