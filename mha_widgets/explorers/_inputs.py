"""What explorers ask of the reader's tensors and tokens, and how they write them as code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def matrix(name: str, tensor: Tensor, letters: str) -> Tensor:
    """Return a 2D tensor of finite numbers, detached and at least float32, or say what is wrong with it."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is a {type(tensor).__name__}; pass a tensor {letters}: torch.as_tensor makes one.")
    if tensor.dim() != 2:
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}; pass one sequence, {letters}: pick a sample (and a head) of a batch."
        )
    if 0 in tensor.shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; pass at least one position and one feature.")
    if not tensor.is_floating_point():
        raise ValueError(f"{name} holds {tensor.dtype}; pass floating-point numbers: {name}.float().")
    tensor = tensor.detach().cpu().clone()  # what is shown stays, whatever becomes of the original
    if tensor.dtype != torch.float64:
        tensor = tensor.float()  # numpy has no bfloat16
    bad = (~tensor.isfinite()).nonzero()
    if len(bad):
        place = tuple(bad[0].tolist())
        raise ValueError(
            f"{name} holds {tensor[place].item()} at {place}; "
            "pass finite numbers: a NaN or inf there would spread over whole rows."
        )
    return tensor


def check_scores(query: Tensor, key: Tensor) -> None:
    """Say so if finite queries and keys are too large for their dot products."""
    if not (query @ key.T).isfinite().all():
        largest = max(query.abs().max().item(), key.abs().max().item())
        raise ValueError(
            f"query and key hold numbers up to {largest:.2g}, and their dot products overflow {query.dtype}; "
            "pass smaller numbers or float64."
        )


def labels(name: str, tokens: Sequence[str] | None, length: int, what: str) -> tuple[str, ...]:
    """Return one label for each of some things, numbers if none are given, or say how many are wanted."""
    if tokens is None:
        return tuple(map(str, range(length)))
    if isinstance(tokens, str):
        raise TypeError(f"{name} is one string; pass a list of {length} strings, one for each of the {what}.")
    if not isinstance(tokens, Iterable):
        raise TypeError(f"{name} is a {type(tokens).__name__}; pass a list of {length} strings, one for each of the {what}.")
    tokens = list(tokens)
    if len(tokens) != length:
        raise ValueError(f"{name} has {len(tokens)} entries for {length} {what}; pass one for each.")
    return tuple(map(str, tokens))


def assignment(name: str, tensor: Tensor) -> str:
    """Write a tensor as a line of Python that rebuilds it exactly.

    >>> assignment("key", torch.tensor([[1.0, -2.0]])), assignment("key", torch.tensor([[0.5]]))
    ('key = torch.tensor([[1, -2]]).float()', 'key = torch.tensor([[0.5]])')
    """
    if tensor.dtype == torch.float32 and (tensor == tensor.round()).all() and tensor.abs().max() < 2**24:
        return f"{name} = torch.tensor({tensor.long().tolist()}).float()"
    dtype = "" if tensor.dtype == torch.float32 else f", dtype={tensor.dtype}"
    return f"{name} = torch.tensor({tensor.tolist()}{dtype})"
