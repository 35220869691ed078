"""What explorers ask of the reader's tensors and tokens, and how they write them as code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor


def check_tensor(name: str, tensor: Tensor, letters: str = "") -> None:
    """Say what is wrong with what is no ordinary tensor of real floating-point numbers."""
    if not isinstance(tensor, Tensor):
        raise TypeError(
            f"{name} is a {type(tensor).__name__}; pass a tensor{letters and ' '}{letters}:"
            " torch.as_tensor makes one."
        )
    if tensor.is_nested:
        raise ValueError(f"{name} is a nested tensor; pass one sequence of it, such as {name}[0].")
    if tensor.is_meta:
        raise ValueError(
            f"{name} is on the meta device, where tensors hold no numbers; pass one that holds"
            " some."
        )
    if tensor.is_quantized:
        raise ValueError(f"{name} is quantized; pass {name}.dequantize().")
    if tensor.layout != torch.strided:
        raise ValueError(f"{name} is sparse; pass {name}.to_dense().")
    if not tensor.is_floating_point():
        fix = "" if tensor.is_complex() else f": {name}.float()"
        raise ValueError(
            f"{name} holds {tensor.dtype}; pass {'real ' * tensor.is_complex()}floating-point"
            f" numbers{fix}."
        )


def one_type(**tensors: Tensor) -> None:
    """Say so if not all tensors have one type: torch multiplies no others."""
    first, *_ = tensors
    for name, tensor in tensors.items():
        if tensor.dtype != tensors[first].dtype:
            raise ValueError(
                f"{name} is {tensor.dtype} and {first} {tensors[first].dtype}; pass all in one"
                " type."
            )


def matrix(name: str, tensor: Tensor, letters: str) -> Tensor:
    """Return a 2D tensor of finite numbers, detached and at least float32,
    or say what is wrong with it.
    """
    check_tensor(name, tensor, letters)
    if tensor.dim() != 2:
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}; pass one sequence,"
            f" {letters}{_one_of(name, tensor)}."
        )
    if 0 in tensor.shape:
        raise ValueError(
            f"{name} has shape {tuple(tensor.shape)}; pass at least one position and one feature."
        )
    check_finite(name, tensor)
    return copy_to_cpu(tensor)


def _one_of(name: str, tensor: Tensor) -> str:
    if tensor.dim() == 1:
        return f": {name}[None] is a sequence of one position"
    return (
        f": {name}[{', '.join('0' * (tensor.dim() - 2))}], if batches come first"
        if tensor.dim() > 2
        else ""
    )


def copy_to_cpu(tensor: Tensor) -> Tensor:
    """Return a copy on the CPU, at least float32: numpy has no bfloat16. It stays,
    whatever becomes of the original.
    """
    return tensor.detach().to("cpu", torch.promote_types(tensor.dtype, torch.float32), copy=True)


def check_finite(name: str, tensor: Tensor) -> None:
    """Say so if a tensor holds NaN or infinity, and where first."""
    bad = (~tensor.isfinite()).nonzero()
    if len(bad):
        place = tuple(bad[0].tolist())
        raise ValueError(
            f"{name} holds {tensor[place].item()} at {place}; "
            "pass finite numbers: a NaN or inf there would spread over whole rows."
        )


def check_scores(query: Tensor, key: Tensor) -> None:
    """Say so if finite queries and keys are too large for their dot products."""
    scores = query @ key.T
    if not scores.isfinite().all():
        largest = max(query.abs().max().item(), key.abs().max().item())
        raise ValueError(
            f"query and key hold numbers up to {largest:.2g}, and their dot products overflow"
            f" {query.dtype}; pass smaller numbers or float64."
        )


def labels(
    name: str,
    tokens: Sequence[str] | None,
    length: int,
    what: str,
    *,
    like: Sequence[str] | None = None,
) -> tuple[str, ...]:
    """Return one label for each of some things, or say how many are wanted.

    If none are given they are those that others have, ``like``, if these are as many; else numbers.
    """
    if tokens is None and like is not None and len(like) == length:
        return tuple(like)
    if tokens is None:
        return tuple(map(str, range(length)))
    if isinstance(tokens, str):
        raise TypeError(
            f"{name} is one string; pass a list of {length} strings, one for each of the {what}."
        )
    if not isinstance(tokens, Iterable):
        raise TypeError(
            f"{name} is a {type(tokens).__name__}; pass a list of {length} strings, one for each of"
            f" the {what}."
        )
    tokens = [
        token.item() if isinstance(token, Tensor) and token.dim() == 0 else token
        for token in tokens
    ]
    if any(getattr(token, "ndim", 0) or isinstance(token, (list, tuple)) for token in tokens):
        raise TypeError(
            f"{name} holds lists; pass one flat list of {length} strings, one for each of the"
            f" {what}."
        )
    if len(tokens) != length:
        raise ValueError(
            f"{name} has {len(tokens)} entries for {length} {what}; pass one for each."
        )
    # A lone surrogate can be shown, but not written to a file.
    return tuple(str(token).encode(errors="replace").decode() for token in tokens)


def assignment(name: str, tensor: Tensor) -> str:
    """Write a tensor as a line of Python that rebuilds it exactly.

    >>> assignment("key", torch.tensor([[1.0, -2.0]])), assignment("key", torch.tensor([[0.5]]))
    ('key = torch.tensor([[1, -2]]).float()', 'key = torch.tensor([[0.5]])')
    """
    if (
        tensor.dtype == torch.float32
        and (tensor == tensor.round()).all()
        and tensor.abs().max() < 2**24
    ):
        return f"{name} = torch.tensor({tensor.long().tolist()}).float()"
    dtype = "" if tensor.dtype == torch.float32 else f", dtype={tensor.dtype}"
    return f"{name} = torch.tensor({tensor.tolist()}{dtype})"
