"""The exercises of the chapter that builds the module."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_widgets.attention.steps import merge_heads, split_heads
from mha_widgets.exercises._checking import (
    Wrong,
    as_number,
    called,
    close,
    exercise,
    expect,
    keeping,
    random,
    says,
    several,
    shaped,
)


@exercise("build-the-module-1")
def counts(answer: Any) -> str:
    """The parameters for E = 12 and 3 or 6 heads, and the weights of a call with N = 2,
    L = S = 5 and 6 heads.
    """
    parts = several(answer, 3, "give three numbers, (a, b, c)")
    a, b, c = (as_number(given, f"({name})") for name, given in zip("abc", parts, strict=True))
    hints = {
        4 * 12 * 12: "these are the four matrices; each has a bias of E numbers too",
        3 * (12 * 12 + 12): "these are the three projections; out_proj learns too",
    }
    expect(a, 624, "(a) is", "four matrices (E, E), and four biases of E numbers", hints)
    expect(
        b,
        624,
        "(b) is",
        "the heads share the features, so their number only says where they are cut",
    )
    hints = {2 * 5 * 5: "each head has a map of its own; the mean is taken later"}
    expect(c, 300, "(c) is", "one number for each sentence, head, query and key", hints)
    return "4E² + 4E parameters whatever H is, and N · H · L · S weights, which are no parameters."


@exercise("build-the-module-2")
def by_einsum(answer: Any) -> str:
    """A function attention(module, x): the output of self-attention, without a transpose."""
    for num_heads in (1, 3):
        module, x = _module(num_heads), random(2, 5, 12, seed=1)
        output_name = f"its output for {num_heads} head{'s' * (num_heads > 1)}"
        q, k, v = split_heads(
            F.linear(x, module.in_proj_weight, module.in_proj_bias), num_heads, 3
        ).unbind(0)
        heads = F.scaled_dot_product_attention(q, k, v)
        right = module.out_proj(merge_heads(heads))
        known = {
            "the last reshape still joins words, not heads": module.out_proj(
                heads.reshape(2, 5, 12)
            ),
            "feature 0 of all heads comes first; h must stand before d": module.out_proj(
                heads.permute(0, 2, 3, 1).flatten(2)
            ),
        }
        output = shaped(called(answer, module, x), (2, 5, 12), what=output_name)
        if close(output, right):
            continue
        told = [hint for hint, wrong in known.items() if close(output, wrong)]
        hint = told[0] if told else "only one line has a bug; follow the letters of each axis"
        raise Wrong(f"{output_name} is not that of the module: {hint}.")
    return "The heads must stand before their features when both are put together."


def _module(num_heads: int) -> nn.MultiheadAttention:
    """Return a module whose parameters are all random."""
    module = nn.MultiheadAttention(12, num_heads, batch_first=True).requires_grad_(False)
    for seed, parameter in enumerate(module.parameters()):
        parameter.copy_(random(*parameter.shape, seed=seed) / 3)
    return module


@exercise("build-the-module-3")
def quick(answer: Any) -> str:
    """A class whose modules return the output alone, without a map, for need_weights=False."""
    if isinstance(answer, nn.Module):
        raise Wrong("this is a module already; pass the class itself, without calling it.")
    theirs = _module(3)
    made = called(answer, 12, 3)
    if not isinstance(made, nn.Module):
        raise Wrong(
            "Quick(12, 3) should make a module, but it made an object of type"
            f" {type(made).__name__}."
        )
    made = deepcopy(made)  # it may be one that the reader still uses
    try:
        made.load_state_dict(theirs.state_dict())
    except RuntimeError:
        names = ", ".join(theirs.state_dict())
        raise Wrong(
            f"its parameters don't have the names and shapes of our module's, {names}."
        ) from None
    query, memory, mask = (
        random(2, 40, 12, seed=6),
        random(2, 50, 12, seed=7),
        random(40, 50, seed=8),
    )
    for options in ({}, {"attn_mask": mask}):
        where = " with a mask" if options else ""
        expected, weights = theirs(query, memory, memory, **options)
        for need in (True, False):
            returned, kept = keeping(made, query, memory, memory, need_weights=need, **options)
            if not isinstance(returned, (tuple, list)) or len(returned) != 2:
                raise Wrong("it should return two things: the output, and the weights or None.")
            if not close(shaped(returned[0], (2, 40, 12), what="its output"), expected):
                raise Wrong(f"its output{where} for need_weights={need} is not that of our module.")
            if not isinstance(returned[0], Tensor) or not returned[0].requires_grad:
                raise Wrong("its output lets no gradient through, so it could never be trained.")
            second = "its second result"
            if need and (
                returned[1] is None
                or not close(shaped(returned[1], (2, 40, 50), what=second), weights)
            ):
                raise Wrong(
                    f"its weights{where} are not the mean over the heads that our module returns."
                )
            if not need and returned[1] is not None:
                raise Wrong("with need_weights=False the second result should be None.")
            if not need and kept >= 2 * 3 * 40 * 50:
                raise Wrong(
                    "the results are right, but maps of N · H · L · S numbers are kept; let torch"
                    " attend."
                )
    return "The same output, and without weights no map is kept."


class _Right(nn.Module):
    """The chapter's module, in pieces that can be spoilt one by one."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * embed_dim, embed_dim))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * embed_dim))
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        nn.init.xavier_uniform_(self.in_proj_weight)
        nn.init.zeros_(self.out_proj.bias)

    def project(self, *inputs: Tensor) -> list[Tensor]:
        tables = zip(inputs, self.in_proj_weight.chunk(3), self.in_proj_bias.chunk(3), strict=True)
        return [F.linear(*table) for table in tables]

    def weigh(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        scores = q @ k.mT / q.shape[-1] ** 0.5
        return torch.softmax(scores if mask is None else scores + mask, dim=-1)

    def merge(self, heads: Tensor) -> Tensor:
        return merge_heads(heads)

    def show(self, weights: Tensor) -> Tensor:
        return weights

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
    ) -> tuple[Tensor, Tensor]:
        q, k, v = (split_heads(t, self.num_heads)[0] for t in self.project(query, key, value))
        weights = self.weigh(q, k, attn_mask)
        shown = self.show(weights)
        return self.out_proj(self.merge(weights @ v)), (
            shown.mean(dim=1) if average_attn_weights else shown
        )


class _ByTorch(_Right):
    def merge(self, heads: Tensor) -> Tensor:
        return torch.cat(heads.unbind(1), dim=-1)

    def weigh(self, q: Tensor, k: Tensor, mask: Tensor | None) -> Tensor:
        eye = torch.eye(k.shape[2], dtype=k.dtype).expand(*k.shape[:2], -1, -1)
        return F.scaled_dot_product_attention(q, k, eye, attn_mask=mask)


def _reshaped(heads: Tensor) -> Tensor:
    N, H, L, D = heads.shape
    return heads.reshape(N, L, H * D)


SPOILT: dict[str, tuple[str, Callable[..., Any]]] = {
    "leaves out the bias of the values": (
        "project",
        lambda self, *inputs: [
            *_Right.project(self, *inputs)[:2],
            F.linear(inputs[2], self.in_proj_weight.chunk(3)[2]),
        ],
    ),
    "takes its values from the keys": (
        "project",
        lambda self, query, key, value: _Right.project(self, query, key, key),
    ),
    "divides the scores by √E": (
        "weigh",
        lambda self, q, k, mask: _Right.weigh(self, q / self.num_heads**0.5, k, mask),
    ),
    "ignores the mask": ("weigh", lambda self, q, k, mask: _Right.weigh(self, q, k, None)),
    "lets no gradient through the weights": (
        "weigh",
        lambda self, q, k, mask: _Right.weigh(self, q, k, mask).detach(),
    ),
    "merges without the transpose": ("merge", lambda self, heads: _reshaped(heads)),
    "mixes the sentences of a batch when it merges": (
        "merge",
        lambda self, heads: heads.permute(2, 0, 1, 3).reshape(_reshaped(heads).shape),
    ),
    "shows the maps of the heads in another order": ("show", lambda self, weights: weights.flip(1)),
}


@exercise("build-the-module-4")
def comparison(answer: Any) -> str:
    """A function of a class that says whether its modules are as good as torch's."""
    if not all(says(answer, kind) for kind in (_Right, _ByTorch)):
        hint = "load the same parameters into both modules, and compute in float64: float32 rounds"
        raise Wrong(f"it refuses a class that is right; {hint}.")
    for name, (piece, spoilt) in SPOILT.items():
        if says(answer, type("Spoilt", (_Right,), {piece: spoilt})):
            raise Wrong(f"it accepts a class that {name}.")
    return f"It accepts both right classes and none of the {len(SPOILT)} wrong ones."
