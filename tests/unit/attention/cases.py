"""Random modules and calls, over all arguments together, for what is compared with torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from mha_widgets import MultiheadAttention

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12}


@dataclass
class Case:
    """A module's arguments, and those of one call of it."""

    build: dict[str, Any]
    training: bool
    inputs: tuple[Tensor, Tensor, Tensor]
    forward: dict[str, Any]

    def modules(self) -> tuple[nn.MultiheadAttention, MultiheadAttention]:
        theirs, ours = nn.MultiheadAttention(**self.build), MultiheadAttention(**self.build)
        with torch.no_grad():
            for seed, parameter in enumerate(
                theirs.parameters()
            ):  # biases too: torch starts them at zero
                parameter.copy_(uniform(*parameter.shape, dtype=parameter.dtype, seed=seed))
        ours.load_state_dict(theirs.state_dict())
        return theirs.train(self.training), ours.train(self.training)


def uniform(*shape: int, dtype: torch.dtype, seed: int) -> Tensor:
    numbers = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (2 * numbers - 1).to(dtype)


@st.composite
def masks(draw: st.DrawFn, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    seed = draw(st.integers(0, 99))
    blocked = uniform(*shape, dtype=dtype, seed=seed) < draw(
        st.sampled_from([-1.0, -0.4, 0.3, 1.0])
    )
    if draw(st.booleans()):
        return blocked
    return uniform(*shape, dtype=dtype, seed=seed + 1).masked_fill(
        blocked, draw(st.sampled_from([0.0, 1.0, -1e9, -math.inf]))
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    dtype = draw(st.sampled_from([torch.float32, torch.float64]))
    num_heads, head_dim = draw(st.sampled_from([1, 2, 3, 5])), draw(st.sampled_from([1, 2, 3, 5]))
    E = num_heads * head_dim
    kind = draw(st.sampled_from(["self", "key is value", "query is key", "apart"]))
    features = st.sampled_from([None, 2, 7, E])
    kdim, vdim = (draw(features), draw(features)) if kind == "apart" else (None, None)
    flag = st.booleans()
    build = {
        "embed_dim": E,
        "num_heads": num_heads,
        "dropout": draw(st.sampled_from([0.0, 0.0, 0.3, 1.0])),
        "bias": draw(flag),
        "add_bias_kv": draw(flag),
        "add_zero_attn": draw(flag),
        "kdim": kdim,
        "vdim": vdim,
        "batch_first": draw(flag),
        "dtype": dtype,
    }
    sizes = st.sampled_from([1, 2, 3, 5, 7])
    N, L = draw(sizes), draw(sizes)
    S = draw(sizes) if kind in ("key is value", "apart") else L
    batched = draw(st.sampled_from([True, True, False]))
    N = N if batched else 1

    def make(length: int, width: int, seed: int) -> Tensor:
        shape = (N, length, width) if build["batch_first"] else (length, N, width)
        return uniform(
            *shape if batched else (length, width), dtype=dtype, seed=seed
        ).requires_grad_()

    query = make(L, E, 10)
    key = query if kind in ("self", "query is key") else make(S, kdim or E, 11)
    value = (
        {"self": query, "key is value": key}[kind]
        if kind in ("self", "key is value")
        else make(S, vdim or E, 12)
    )
    shape = draw(st.sampled_from([(L, S), (N * num_heads, L, S)]))
    causal = torch.ones(shape, dtype=torch.bool).triu(1)
    attn_mask = draw(st.none() | masks(shape, dtype) | st.just(causal))
    forward = {
        "key_padding_mask": draw(st.none() | masks((N, S) if batched else (S,), dtype)),
        "need_weights": draw(flag),
        "attn_mask": attn_mask,
        "average_attn_weights": draw(flag),
        "is_causal": attn_mask is not None and draw(flag),
    }
    for name in ("attn_mask", "key_padding_mask"):
        mask = forward[name]
        if mask is not None and mask.is_floating_point():
            forward[name] = mask.detach().requires_grad_()
    return Case(build, draw(flag), (query, key, value), forward)


def assert_same(ours: list[Tensor | None], theirs: list[Tensor | None], dtype: torch.dtype) -> None:
    for our, their in zip(ours, theirs, strict=True):
        if their is None:
            assert our is None
        else:
            torch.testing.assert_close(
                our, their, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype], equal_nan=True
            )
