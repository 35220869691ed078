"""A module and a batch, the reader's own or an example: checked, copied, and written as code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mha_widgets.explorers._inputs import assignment, labels
from mha_widgets.explorers._own_module import MOST_NUMBERS, as_code, copied


@dataclass(frozen=True)
class Example:
    """A module of two heads and a batch, both drawn from a seed: what is shown if the reader passes none.

    Attributes:
        seed: the seed.
        sizes: (N, L, E).
    """

    seed: int
    sizes: tuple[int, int, int]

    def made(self) -> tuple[nn.MultiheadAttention, Tensor]:
        """Return the module and the batch (N, L, E)."""
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(self.seed)
            return nn.MultiheadAttention(self.sizes[-1], 2).eval(), 2 * torch.randn(self.sizes)

    def program(self, batch_first: bool) -> list[str]:
        """Return the lines that make them, ending with the batch."""
        module = f"nn.MultiheadAttention(embed_dim={self.sizes[-1]}, num_heads=2, batch_first={batch_first})"
        batch = ", ".join(map(str, self.sizes))
        return [f"torch.manual_seed({self.seed})", f"module = {module}.eval()", f"x = 2 * torch.randn({batch})"]


def both(name: str, module: nn.MultiheadAttention | None, x: Tensor | None) -> tuple[nn.MultiheadAttention, Tensor] | None:
    """Return the reader's module and batch, fit to be shown, or None if there are neither."""
    if module is None and x is None:
        return None
    if module is None or x is None:
        raise ValueError(f"{name} got {'x but no module' if module is None else 'a module but no x'}; pass both, or neither.")
    made = copied(module)
    if made.in_proj_weight is None:
        raise ValueError(
            f"module has kdim={made.kdim} and vdim={made.vdim} beside embed_dim={made.embed_dim}; "
            "pass one without, since the same sentences are queries, keys and values here."
        )
    return made, _batch(x, made)


def _batch(x: Tensor, module: nn.MultiheadAttention) -> Tensor:
    """Return the reader's sentences (N, L, E), or say why this module can't take them."""
    E, dtype = module.embed_dim, module.in_proj_weight.dtype
    if not isinstance(x, Tensor):
        raise TypeError(f"x is a {type(x).__name__}; pass a tensor (N, L, E): torch.as_tensor makes one.")
    if x.dim() != 3 or 0 in x.shape or x.shape[-1] != E:
        raise ValueError(f"x has shape {tuple(x.shape)}; pass sentences (N, L, E) with E = {E}, the module's embed_dim.")
    if x.dtype != torch.float64:
        x = x.float()  # as the copy of the module is
    if x.dtype != dtype:
        raise ValueError(f"x is {x.dtype} and the module {dtype}; pass both in one type.")
    if not x.isfinite().all():
        raise ValueError(f"x holds NaN or inf at {int((~x.isfinite()).sum())} places; pass finite numbers.")
    return x.detach().cpu().clone()


def sentences(tokens: Sequence[Sequence[str]] | None, N: int, L: int) -> tuple[tuple[str, ...], ...]:
    """Return N sentences of L words, numbers if none are given, or say how many are wanted."""
    if tokens is None:
        return (labels("tokens", None, L, "words"),) * N
    if isinstance(tokens, str) or not isinstance(tokens, Sequence):
        raise TypeError(f"tokens is a {type(tokens).__name__}; pass {N} lists of {L} words, one for each sentence.")
    if len(tokens) != N:
        raise ValueError(f"tokens has {len(tokens)} entries for {N} sentences of {L} words; pass one list of words for each.")
    return tuple(labels(f"tokens[{n}]", sentence, L, "words") for n, sentence in enumerate(tokens))


def rebuilt(module: nn.MultiheadAttention, x: Tensor, batch_first: bool) -> list[str]:
    """Write a module and a batch as lines of Python, ending with the batch; large ones stay the reader's own.

    >>> rebuilt(nn.MultiheadAttention(2, 1, bias=False), torch.ones(1, 1, 2), True)[0]
    'module = nn.MultiheadAttention(2, 1, bias=False, batch_first=True).eval()'
    """
    if x.numel() + sum(parameter.numel() for parameter in module.parameters()) > MOST_NUMBERS:
        return ["module = module.eval()  # module and x are your own", f"module.batch_first = {batch_first}", "x = x.detach()"]
    made, loaded = as_code(module, module.num_heads)
    return [f"{made.removesuffix(')')}, batch_first={batch_first}).eval()", loaded, assignment("x", x)]
