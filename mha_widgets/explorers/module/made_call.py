"""A call that was made, and what stays of it when another head or another query is looked at."""

from __future__ import annotations

import functools
import math
import warnings as python_warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils import parametrize

from mha_widgets.attention import trace
from mha_widgets.attention.call import Call, Path
from mha_widgets.attention.steps import (
    append_positions,
    attention_weights,
    merge_heads,
)
from mha_widgets.attention.trace import called, difference, effective_mask, unlike
from mha_widgets.explorers.module.example_call import ExampleCall
from mha_widgets.explorers.module.own_call import SEED, OwnCall


@dataclass(frozen=True)
class CallResult:
    """A call, and all that is shown of it.

    Attributes:
        call, path, reasons, warnings: the call, its way, and what there is to say about both.
        output: what the call returns first.
        weights: what it returns second, (N, L, S) or (N, H, L, S); None without ``need_weights``.
        shapes: of the inputs, and of what is made of them.
        look: from a sample and a head to the weights (L, S) and the mask, or None.
    """

    call: Call
    path: Path
    reasons: Sequence[Any]
    warnings: Sequence[str]
    output: Tensor
    weights: Tensor | None
    shapes: str
    look: Callable[[int, int], tuple[Tensor, Tensor | None]]


def make_call(source: ExampleCall | OwnCall, *settings: tuple[str, Any]) -> CallResult:
    """Make the call of these settings, under the caller's gradient mode;
    the reader's own draws from a seed.
    """
    state = dict(settings)
    call = source.call(state)
    if isinstance(source, OwnCall):
        torch.default_generator.manual_seed(SEED)
        if call.query.is_cuda:
            torch.cuda.manual_seed_all(SEED)
    with python_warnings.catch_warnings():  # the facts say in words what they say
        python_warnings.simplefilter("ignore")
        if isinstance(source, OwnCall) and source.large:
            return _large(source, state, call)
        return _traced(source, state, call)


def _traced(source: ExampleCall | OwnCall, state: dict[str, Any], call: Call) -> CallResult:
    traced = trace(*call)
    output, weights = traced.returned
    every = traced["weights_after_dropout"].detach()  # (N, H, L, S)
    mask = next((step.tensor.detach() for step in traced.steps if step.name == "mask"), None)
    if weights is not None:
        weights = weights.detach() if call.query.dim() == 3 else weights.detach()[None]
        every = every if call.average_attn_weights else weights
    told = traced.warnings
    if isinstance(source, OwnCall):
        told = (*unlike(traced.difference, traced.path, traced["joined"]), *source.warnings(state))
    shapes = (
        f"q_heads {tuple(traced['q_heads'].shape)} → weights {tuple(every.shape)} → output"
        f" {tuple(output.shape)}."
    )

    def look(n: int, head: int) -> tuple[Tensor, Tensor | None]:
        return every[n, head], None if mask is None else mask[n, head]

    shapes = _start(source, state, call) + shapes
    return CallResult(
        call, traced.path, traced.why_not_fast_path, told, output.detach(), weights, shapes, look
    )


def _start(source: ExampleCall | OwnCall, state: dict[str, Any], call: Call) -> str:
    return source.alone(state) + f"query {tuple(call.query.shape)}, key {tuple(call.key.shape)} → "


def _large(source: OwnCall, state: dict[str, Any], call: Call) -> CallResult:
    """Make a call whose weights are too many to be held together:
    those of one head at a time are computed.
    """
    with parametrize.cached():  # some weights change with every reading
        path = call.path()
        with torch.random.fork_rng():
            output = called(call)[0].detach()
        with torch.no_grad():
            q, k, v = call.projections()
            joined = _joined(call, path, q, k, v)
            # (1, L, E)
            ours = F.linear(joined, call.module.out_proj.weight, call.module.out_proj.bias)
    if call.query.dim() == 2:
        ours = ours.squeeze(0)
    elif not call.module.batch_first:
        ours = ours.transpose(0, 1)
    told = (*unlike(difference("output", ours, output), path, joined), *source.warnings(state))
    look = functools.partial(_one_head, call, path, q, k)
    return CallResult(
        call,
        path,
        (),
        told,
        output,
        None,
        f"{_start(source, state, call)}output {tuple(output.shape)}.",
        look,
    )


def _joined(call: Call, path: Path, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return the heads (1, L, E) side by side, made without holding their weights."""
    module, mask = call.module, effective_mask(call, path, q, k)
    k, v = (
        append_positions(x, bias, module.add_zero_attn)
        for x, bias in ((k, module.bias_k), (v, module.bias_v))
    )
    dropped = module.dropout if module.training else 0.0
    heads = F.scaled_dot_product_attention(q, k, v, mask, dropped)
    return merge_heads(
        heads if mask is None else heads.masked_fill(_empty(mask), _in_place_of_a_row(path))
    )


def _empty(mask: Tensor) -> Tensor:
    return (mask == -math.inf).all(dim=-1, keepdim=True)


def _in_place_of_a_row(path: Path) -> float:
    return 0.0 if path is Path.SDPA else math.nan


def _one_head(
    call: Call, path: Path, q: Tensor, k: Tensor, _: int, head: int
) -> tuple[Tensor, Tensor | None]:
    """Return the weights (L, S) of one head of one sequence, before dropout, and its mask."""
    q, k = q[:, head : head + 1], k[:, head : head + 1]
    if call.attn_mask is not None and call.attn_mask.dim() == 3:
        call = call._replace(attn_mask=call.attn_mask[head : head + 1])
    mask = effective_mask(call, path, q, k)
    bias = (
        None
        if call.module.bias_k is None
        else call.module.bias_k.chunk(call.module.num_heads, dim=-1)[head]
    )
    with torch.no_grad():
        k = append_positions(k, bias, call.module.add_zero_attn)
        weights = attention_weights(q, k, mask)
        if mask is not None:
            weights = weights.masked_fill(_empty(mask), _in_place_of_a_row(path))
    return weights[0, 0], None if mask is None else mask[0, 0].expand(weights.shape[2:])
