"""Memory: without weights nothing grows with the square of the length."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pairs import (
    E,
    H,
    N,
    assert_same,
    blocked,
    pair,
    uniform,
)
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


class Largest(TorchDispatchMode):
    """Keep what every operation returns, so that no memory is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Tensor] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **kwargs or {})
        returned = result if isinstance(result, (tuple, list)) else [result]
        self.kept += [x for x in returned if isinstance(x, Tensor)]
        return result

    def numbers(self) -> int:
        """Count the numbers of the largest tensor; a view counts as what it shows."""
        return max(x.numel() for x in self.kept)

    def memories(self, numbers: int) -> int:
        """Count the pieces of memory that hold at least that many numbers."""
        storages = [
            x.untyped_storage()
            for x in self.kept
            if x.untyped_storage().nbytes() >= numbers * x.element_size()
        ]
        return len({storage.data_ptr() for storage in storages})


LONG = 128  # so that L * S is more than anything else: 3 E L


def largest_of(length: int, grad: bool, padding: bool, need_weights: bool, **build: Any) -> int:
    """Attend, forwards and, with gradients, backwards;
    count the numbers of the largest tensor on the way.
    """
    _, ours = pair(**build)
    x = uniform(N, length, E).requires_grad_(grad)
    mask = blocked(N, length) if padding else None
    with torch.set_grad_enabled(grad), Largest() as largest:
        output, _ = ours(x, x, x, key_padding_mask=mask, need_weights=need_weights)
        if grad:
            torch.autograd.grad(output.sum(), [x, *ours.parameters()])
    return largest.numbers()


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize(
    "build", [{}, {"add_bias_kv": True, "add_zero_attn": True}, {"kdim": E, "bias": False}], ids=str
)
@pytest.mark.parametrize("padding", [False, True])
def test_without_weights_nothing_grows_with_the_square_of_the_length(
    padding: bool, build: dict[str, Any], grad: bool
) -> None:
    once, twice = (largest_of(length, grad, padding, False, **build) for length in (LONG, 2 * LONG))
    assert once <= 3 * E * N * (LONG + 2)
    assert twice <= 2 * once
    once, twice = (largest_of(length, grad, padding, True, **build) for length in (LONG, 2 * LONG))
    assert once >= N * H * LONG**2
    assert twice > 3.9 * once


def test_a_causal_mask_is_not_looked_at_without_weights() -> None:
    _, ours = pair()
    x, causal = uniform(N, LONG, E), torch.ones(LONG, LONG, dtype=torch.bool).triu(1)
    with Largest() as largest:
        ours(x, x, x, attn_mask=causal, is_causal=True, need_weights=False)
    assert largest.numbers() <= 3 * E * N * LONG


@pytest.mark.parametrize(
    "masks, copies", [({}, 1), ({"attn_mask": blocked(LONG, LONG)}, 2)], ids=["no mask", "mask"]
)
def test_in_inference_the_weights_overwrite_the_scores(
    masks: dict[str, Tensor], copies: int
) -> None:
    """One piece of memory for scores and weights, and one for scores and mask together."""
    theirs, ours = pair()
    x = uniform(N, LONG, E)
    for grad, more in (False, 0), (True, 1):
        with torch.set_grad_enabled(grad), Largest() as largest:
            results = ours(x, x, x, **masks)
        assert largest.memories(N * H * LONG * LONG) == copies + more
        assert_same(results, theirs(x, x, x, **masks))
