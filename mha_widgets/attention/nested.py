"""NestedTensors as padded ones, and back."""

from __future__ import annotations

import torch
from torch import Tensor


def pad_nested(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return a NestedTensor of (L_n, E) sequences as (N, L, E), and its padding (N, L),
    True = padded.
    """
    padded = x.to_padded_tensor(0.0)
    lengths = torch.tensor([len(sequence) for sequence in x.unbind()], device=x.device)
    return padded, torch.arange(padded.shape[1], device=x.device) >= lengths[:, None]


def nest(padded: Tensor, padding: Tensor) -> Tensor:
    """Return (N, L, E) without its padding as a NestedTensor: what :func:`pad_nested` undoes."""
    return torch.nested.as_nested_tensor(
        [sequence[~pad] for sequence, pad in zip(padded, padding, strict=True)]
    )
