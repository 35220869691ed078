"""What torch's documentation says and measurement contradicts;
and what the tests of the problems share.

The problems that people really have with multi-head attention are numbered. Each has a test named
after its number, in one of the files ``test_problems_*.py``: what torch's module does, and what
ours does.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from release import RELEASE
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mha_widgets import MultiheadAttention, trace

IDS = [
    "01",
    "02",
    "03",
    "04",
    "05",
    "06",
    "07",
    "08",
    "09",
    "10",
    "11",
    "12",
    "13",
    "15",
    "16",
    "17",
    "19",
    "20",
    "21",
    "22",
    "23",
    "24",
    "26",
    "27",
    "28",
    "30",
    "31",
    "32",
    "33",
    "34",
    "35",
    "36",
    "37",
    "38",
    "39",
    "40",
    "41",
    "42",
    "43",
    "44",
    "45",
    "46",
    "47",
    "48",
    "50",
    "53",
    "55",
    "56",
    "57",
    "58",
    "61",
    "62",
    "63",
    "64",
    "66",
    "67",
    "69",
    "70",
]

# Under one seed both start with the same weights, so one measured number holds for both.
KINDS = pytest.mark.parametrize(
    "kind", [nn.MultiheadAttention, MultiheadAttention], ids=["torch", "ours"]
)


def make(kind: type[nn.Module], seed: int, embed_dim: int, num_heads: int, **build: Any) -> Any:
    """Return a module; the random numbers that follow
    are those that follow in a script with this seed.
    """
    torch.manual_seed(seed)
    return kind(embed_dim, num_heads, **{"batch_first": True} | build)


def causal(L: int) -> Tensor:
    """Return the mask (L, L) of ``nn.MultiheadAttention``: True = blocked."""
    return torch.ones(L, L, dtype=torch.bool).triu(1)


def no_mask(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.bool)


def same(x: Any, expected: Any, digits: int = 3) -> bool:
    """Tell whether ``x`` rounds to the digits given; NaN is NaN."""
    x, expected = torch.as_tensor(x).double(), torch.as_tensor(expected, dtype=torch.float64)
    return x.shape == expected.shape and torch.allclose(
        x, expected, rtol=0, atol=0.6 * 10**-digits, equal_nan=True
    )


def far(x: Tensor, y: Tensor) -> float:
    """Return the largest difference."""
    return (x.double() - y.double()).abs().max().item()


def said(call: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Return the class and the first line of what a call raises."""
    with pytest.raises(Exception) as raised:
        call(*args, **kwargs)
    return f"{raised.typename}: {str(raised.value).strip().splitlines()[0]}"


def says(sentence: str, expected: str) -> bool:
    """Tell whether an error has the class and the words of "class: words";
    ours says torch's words first.
    """
    kind, _, words = expected.partition(": ")
    return sentence.startswith(f"{kind}: ") and words in sentence


def warned(words: str, module: nn.Module, *inputs: Tensor, **forward: Any) -> bool:
    """Tell whether the trace of a call has a warning with these words."""
    return any(words in warning for warning in trace(module, *inputs, **forward).warnings)


class Operations(TorchDispatchMode):
    """The names of torch's operations that run inside,
    and how many numbers the largest result holds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.names.append(func.__name__.partition(".")[0])
        self.largest = max(
            self.largest, *(x.numel() for x in tree_leaves(result) if isinstance(x, Tensor)), 0
        )
        return result


def documented(thing: Any) -> str:
    return " ".join(thing.__doc__.split())


@KINDS
def test_documented_float_padding_is_not_added_to_the_key(kind: type[nn.Module]) -> None:
    words = "For a float mask, it will be directly added to the corresponding ``key`` value."
    assert words in documented(nn.MultiheadAttention.forward)
    module = make(kind, 5, 4, 1)
    x = torch.randn(1, 4, 4)
    padding = torch.tensor([[0.0, 1.0, -2.0, 3.0]])
    scores = trace(module, x, x, x)["scores"][:, 0]
    assert (
        far(module(x, x, x, key_padding_mask=padding)[1], (scores + padding[:, None]).softmax(-1))
        < 1e-6
    )
    shifted = x + padding[..., None]
    assert far(module(x, shifted, shifted)[1], (scores + padding[:, None]).softmax(-1)) > 0.1


@KINDS
@pytest.mark.parametrize("batch_first", [False, True])
def test_documented_appended_positions_are_on_the_axis_of_the_sequence(
    kind: type[nn.Module], batch_first: bool
) -> None:
    assert "adds bias to the key and value sequences at dim=0" in documented(nn.MultiheadAttention)
    assert "adds a new batch of zeros to the key and value sequences at dim=1" in documented(
        nn.MultiheadAttention
    )
    x = torch.randn(2, 3, 4) if batch_first else torch.randn(3, 2, 4)
    for build in ({"add_bias_kv": True}, {"add_zero_attn": True}):
        module = make(kind, 0, 4, 2, batch_first=batch_first, **build)
        output, weights = module(x, x, x)
        assert output.shape == x.shape and weights.shape == (2, 3, 4)  # N, L, S + 1
        traced = trace(module, x, x, x)
        assert traced["k_appended"].shape == (2, 2, 4, 2) and traced.difference < 1e-6


@pytest.mark.parametrize("gradients", [True, False])
def test_documented_is_causal_applies_no_mask_of_its_own(gradients: bool) -> None:
    assert "is_causal: If specified, applies a causal mask as attention mask." in documented(
        nn.MultiheadAttention.forward
    )
    module, x = make(nn.MultiheadAttention, 15, 4, 2).eval(), torch.randn(1, 3, 4)
    with torch.set_grad_enabled(gradients):
        if gradients:
            assert says(said(module, x, x, x, is_causal=True), "RuntimeError: Need attn_mask")
        else:
            assert torch.equal(module(x, x, x, is_causal=True)[1], module(x, x, x)[1])
        ours = make(MultiheadAttention, 15, 4, 2).eval()
        assert says(said(ours, x, x, x, is_causal=True), "RuntimeError: is_causal=True only says")


def test_documented_conditions_of_the_fast_path_are_not_all() -> None:
    text = documented(nn.MultiheadAttention)
    listed = text[
        text.index("MHA will use fastpath inference") : text.index(
            "If the optimized inference fastpath"
        )
    ]
    assert "``add_zero_attn`` is ``False``" in listed
    assert not any(
        word in listed for word in ("num_heads", "even", "``bias``", "float", "need_weights")
    )
    x = torch.randn(2, 4, 8)

    def native(num_heads: int = 2, bias: bool = True, **forward: Any) -> bool:
        module = make(nn.MultiheadAttention, 30, 8, num_heads, bias=bias).eval()
        with torch.no_grad(), Operations() as operations:
            module(x, x, x, **forward)
        return "_native_multi_head_attention" in operations.names

    assert native() and native(need_weights=False)  # the weights are there on the fast path too
    assert not (native(num_heads=1) or native(bias=False) or native(attn_mask=torch.zeros(4, 4)))


def test_documented_error_of_a_mask_with_is_causal_is_not_raised_everywhere() -> None:
    assert "An error is thrown if both attn_mask and is_causal are set." in documented(
        F.scaled_dot_product_attention
    )
    q = torch.randn(1, 2, 4, 8)
    both = {"attn_mask": ~no_mask(4, 4), "is_causal": True}
    if RELEASE >= (2, 14):
        assert "should not be set when is_causal" in said(
            F.scaled_dot_product_attention, q, q, q, **both
        )
    else:
        assert F.scaled_dot_product_attention(q, q, q, **both).isfinite().all()


def test_every_problem_has_a_test() -> None:
    files = sorted(Path(__file__).parent.glob("test_problems_*.py"))
    tested = [
        number
        for file in files
        for number in re.findall(r"^def test_(\d\d)_", file.read_text(), re.MULTILINE)
    ]
    assert len(IDS) == len(set(IDS)) == 58
    assert sorted(set(tested)) == IDS
