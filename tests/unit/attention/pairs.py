"""Torch's module and ours with the same parameters, and what a test asks of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mha_widgets.attention.multihead import MultiheadAttention

# Distinct primes, but for E = 3 heads of 11: a swapped axis can't pass.
N, H, L, S, E = 2, 3, 5, 7, 33
KDIM, VDIM = 13, 17
EXACT = [torch.float32, torch.float64]
HALF = [torch.float16, torch.bfloat16]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5} | {
    dtype: 2 * torch.finfo(dtype).eps for dtype in HALF
}
# From the first construction of a nested tensor:
PROTOTYPE = "ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning"
MISMATCHED = (
    "ignore:.*mismatched key_padding_mask:UserWarning",
    "ignore:.*masks of different types:UserWarning",
)


def uniform(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    numbers = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (2 * numbers - 1).to(dtype)


def fill(module: nn.Module) -> nn.Module:
    """Give every parameter numbers of its own: torch starts the biases at zero."""
    with torch.no_grad():
        for seed, parameter in enumerate(module.parameters()):
            parameter.copy_(uniform(*parameter.shape, seed=seed))
    return module


def pair(training: bool = False, **build: Any) -> tuple[nn.MultiheadAttention, MultiheadAttention]:
    """Make torch's module and ours with the same parameters."""
    build = {"embed_dim": E, "num_heads": H, "batch_first": True, "dtype": torch.float64} | build
    theirs = fill(nn.MultiheadAttention(**build))
    ours = MultiheadAttention(**build)
    ours.load_state_dict(theirs.state_dict())
    return theirs.train(training), ours.train(training)


def inputs(
    dtype: torch.dtype = torch.float64, kdim: int = E, vdim: int = E
) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = (
        uniform(N, L, E, seed=10),
        uniform(N, S, kdim, seed=11),
        uniform(N, S, vdim, seed=12),
    )
    return query.to(dtype), key.to(dtype), value.to(dtype)


def blocked(*shape: int) -> Tensor:
    """A mask, True = blocked, that leaves every query its first key."""
    mask = uniform(*shape, seed=20) > 0.2
    mask[..., 0] = False
    return mask


def mask(*shape: int, dtype: torch.dtype = torch.bool) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


def narrow(x: Tensor) -> Tensor:
    """The same tensor without its last feature."""
    return x[..., :-1]


def nested(*lengths: int, features: int = 22, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.nested.nested_tensor(
        [uniform(length, features, dtype=dtype, seed=i) for i, length in enumerate(lengths)]
    )


def seeded(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    torch.manual_seed(0)
    return function(*args, **kwargs)


def failure(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Exception:
    with pytest.raises(Exception) as raised:
        function(*args, **kwargs)
    return raised.value


@contextmanager
def slow_path() -> Iterator[None]:
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


def assert_same(ours: Any, theirs: Any, tolerance: float | None = None) -> None:
    """Compare numbers and types, of one tensor or of several."""
    if not isinstance(theirs, Tensor):
        assert len(ours) == len(theirs)
        for our, their in zip(ours, theirs, strict=True):
            assert (our is None) == (their is None)
            if their is not None:
                assert_same(our, their, tolerance)
        return
    atol = TOLERANCE[theirs.dtype] if tolerance is None else tolerance
    torch.testing.assert_close(ours, theirs, rtol=atol, atol=atol, equal_nan=True)


def assert_close_to_its_largest(ours: Any, theirs: Any, tolerance: float | None = None) -> None:
    """Compare as shares of the largest number."""
    for our, their in zip(ours, theirs, strict=True):
        assert (our is None) == (their is None)
        if their is not None:
            scale = their.abs().max()
            assert_same(our / scale, their / scale, tolerance)


def assert_one_sentence(ours: Exception, words: list[str], theirs: Exception | None = None) -> None:
    """Ours says all that torch's error says, if there is one, and then one sentence of its own."""
    message, first = str(ours), "" if theirs is None else str(theirs)
    assert message.startswith(first), message
    assert [word for word in words if word not in message] == [], message
    sentence = message.removeprefix(first).removeprefix(".").removeprefix(" ")
    assert "\n" not in sentence
    assert not any(end in sentence for end in (". ", "? ", "! ")), message


def assert_fails_alike(
    build: dict[str, Any], changes: dict[str, Any], words: list[str], need_weights: bool
) -> None:
    """Both modules raise the same class, and ours says what torch's says, and these words."""
    arguments = X | {"need_weights": need_weights} | changes
    theirs, ours = (
        failure(module, **arguments)
        for module in pair(training=True, **{"dtype": torch.float32} | build)
    )
    assert type(ours) is type(theirs)
    assert_one_sentence(ours, words, theirs)


QUERY, KEY, VALUE = inputs(torch.float32)
X = {"query": QUERY, "key": KEY, "value": VALUE}
ONE = {name: x[0] for name, x in X.items()}
SEPARATE = {"kdim": KDIM, "vdim": VDIM}
SEPARATE_X = {"key": uniform(N, S, KDIM).float(), "value": uniform(N, S, VDIM).float()}
MASKS: dict[str, dict[str, Tensor]] = {
    "none": {},
    "boolean": {"attn_mask": blocked(L, S)},
    "for each head": {"attn_mask": blocked(N * H, L, S)},
    "padding": {"key_padding_mask": blocked(N, S)},
    "both": {"attn_mask": blocked(L, S), "key_padding_mask": blocked(N, S)},
    "causal": {"attn_mask": torch.ones(L, S, dtype=torch.bool).triu(1), "is_causal": True},
}
NESTED = {"embed_dim": 22, "num_heads": 2}  # an even number of heads, as the fast path needs it
PADDING = torch.arange(5) >= torch.tensor([5, 2, 3])[:, None]  # (3, 5)
SOURCE = uniform(3, 5, 22, seed=30)

# A module's arguments, those of the call in place of right ones, and what the message has to say.
Wrong = tuple[dict[str, Any], dict[str, Any], list[str]]
