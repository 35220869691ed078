"""Torch as a fresh interpreter has it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_ALONE = threading.RLock()  # random numbers and default types are the whole process's


@contextmanager
def fresh_torch(seed: int | None = None) -> Iterator[None]:
    """Make tensors on the CPU, in float32 and without autocast for a while,
    whatever the reader has set.

    Their random numbers go on afterwards as if nothing had been.

    Args:
        seed: what to draw from meanwhile, if anything is drawn.

    >>> with fresh_torch(seed=0):
    ...     drawn = torch.randn(1)
    >>> drawn == torch.randn(1, generator=torch.Generator().manual_seed(0))
    tensor([True])
    """
    with _ALONE, _as_new(seed):
        yield


@contextmanager
def _as_new(seed: int | None) -> Iterator[None]:
    dtype, autocast = (
        torch.get_default_dtype(),
        {device: torch.is_autocast_enabled(device) for device in ("cpu", "cuda")},
    )
    try:
        torch.set_default_dtype(torch.float32)
        for device in autocast:
            torch.set_autocast_enabled(device, False)
        # A default device is a mode of torch functions.
        with torch._C.DisableTorchFunction(), torch.random.fork_rng(devices=()):
            if seed is not None:
                # torch.manual_seed would reset the GPUs' too
                torch.default_generator.manual_seed(seed)
            yield
    finally:
        torch.set_default_dtype(dtype)
        for device, enabled in autocast.items():
            torch.set_autocast_enabled(device, enabled)
