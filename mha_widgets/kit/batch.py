"""A module and a batch, the reader's own or an example: checked, copied, and written as code."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from mha_widgets.attention.fresh import fresh_torch
from mha_widgets.kit.module import (
    MOST_NUMBERS,
    as_code,
    check_output,
    copy_for_inference,
    write_copy,
)
from mha_widgets.kit.tensors import (
    assignment,
    check_finite,
    check_tensor,
    copy_to_cpu,
    labels,
    one_type,
)


@dataclass(frozen=True)
class Example:
    """A module of two heads and a batch, both drawn from a seed:
    what is shown if the reader passes none.

    Attributes:
        seed: the seed.
        sizes: (N, L, E).
    """

    seed: int
    sizes: tuple[int, int, int]

    def make(self) -> tuple[nn.MultiheadAttention, Tensor]:
        """Return the module and the batch (N, L, E)."""
        with fresh_torch(self.seed):
            return nn.MultiheadAttention(self.sizes[-1], 2).eval(), 2 * torch.randn(self.sizes)

    def program(self, batch_first: bool) -> list[str]:
        """Return the lines that make them, ending with the batch."""
        module = (
            f"nn.MultiheadAttention(embed_dim={self.sizes[-1]}, num_heads=2,"
            f" batch_first={batch_first})"
        )
        batch = ", ".join(map(str, self.sizes))
        return [
            f"torch.manual_seed({self.seed})",
            f"module = {module}.eval()",
            f"x = 2 * torch.randn({batch})",
        ]


def check_module_and_batch(
    name: str, module: nn.MultiheadAttention | None, x: Tensor | None
) -> tuple[nn.MultiheadAttention, Tensor] | None:
    """Return the reader's module and batch, fit to be shown, or None if there are neither."""
    if module is None and x is None:
        return None
    if module is None or x is None:
        raise ValueError(
            f"{name} got {'x but no module' if module is None else 'a module but no x'}; pass both,"
            " or neither."
        )
    made = copy_for_inference(module)
    if made.in_proj_weight is None:
        raise ValueError(
            f"module has kdim={made.kdim} and vdim={made.vdim} beside embed_dim={made.embed_dim}; "
            "pass one without, since the same sentences are queries, keys and values here."
        )
    sentences = _batch(x, made)
    one_type(**{"the module": module.out_proj.weight, "x": x})
    check_output(made, *[sentences] * 3)
    return made, sentences


def _batch(x: Tensor, module: nn.MultiheadAttention) -> Tensor:
    """Return the reader's sentences (N, L, E), or say why this module can't take them."""
    E = module.embed_dim
    check_tensor("x", x, "(N, L, E)")
    if x.dim() != 3 or 0 in x.shape or x.shape[-1] != E:
        raise ValueError(
            f"x has shape {tuple(x.shape)}; pass sentences (N, L, E) with E = {E}, the module's"
            " embed_dim."
        )
    check_finite("x", x)
    return copy_to_cpu(x)


def sentences(
    tokens: Sequence[Sequence[str]] | None, N: int, L: int
) -> tuple[tuple[str, ...], ...]:
    """Return N sentences of L words, numbers if none are given, or say how many are wanted."""
    if tokens is None:
        return (labels("tokens", None, L, "words"),) * N
    if isinstance(tokens, str) or not isinstance(tokens, Sequence):
        raise TypeError(
            f"tokens is a {type(tokens).__name__}; pass {N} lists of {L} words, one for each"
            " sentence."
        )
    if len(tokens) != N:
        raise ValueError(
            f"tokens has {len(tokens)} entries for {N} sentences of {L} words; pass one list of"
            " words for each."
        )
    return tuple(labels(f"tokens[{n}]", sentence, L, "words") for n, sentence in enumerate(tokens))


def rebuilt(module: nn.MultiheadAttention, x: Tensor, batch_first: bool) -> list[str]:
    """Write a module and a batch as lines of Python, ending with the batch;
    large ones stay the reader's own.

    >>> rebuilt(nn.MultiheadAttention(2, 1, bias=False), torch.ones(1, 1, 2), True)[0]
    'module = nn.MultiheadAttention(2, 1, bias=False, batch_first=True).eval()'
    """
    if x.numel() + sum(parameter.numel() for parameter in module.parameters()) > MOST_NUMBERS:
        lines = ["# module and x are your own", "import copy", f"module = {write_copy(module)}"]
        lines.append(f"module.batch_first, module.dropout = {batch_first}, 0.0")
        return [*lines, f'x = x.detach().to("cpu", {x.dtype})']
    made, loaded = as_code(module, module.num_heads)
    return [
        f"{made.removesuffix(')')}, batch_first={batch_first}).eval()",
        loaded,
        assignment("x", x),
    ]
