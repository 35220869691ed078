"""What a call costs, counted so that it comes out the same everywhere: no seconds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mha_widgets.attention.call import Call


@contextmanager
def fast_path_enabled(enabled: bool) -> Iterator[None]:
    """Switch the fast path on or off for a while."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(enabled)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def cost(call: Call) -> tuple[int, int]:
    """Make a call, and return how many operations Python dispatches
    and the bytes of the largest tensor that they make.

    >>> from torch import nn
    >>> module, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.ones(3, 100, 8)
    >>> cost(Call(module, x, x, x))[1] == 3 * 2 * 100 * 100 * 4  # the weights, 4 bytes each
    True
    """
    with _Counter() as counter:
        call.module(*call[1:])
    return counter.operations, counter.largest


class _Counter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.operations, self.largest = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.operations += 1
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, Tensor) and not func.is_view:
                self.largest = max(self.largest, tensor.nbytes)
        return made
