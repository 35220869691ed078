"""How MultiheadAttention starts: initial values, state dicts, copies and signatures are torch's."""

from __future__ import annotations

import copy
import inspect
import itertools
import pickle
from typing import Any

import pytest
import torch
from pairs import (
    EXACT,
    HALF,
    KDIM,
    VDIM,
    E,
    H,
    assert_same,
    fill,
    inputs,
    pair,
)
from torch import Tensor, nn
from torch.nn import functional as F

from mha_widgets.attention.functional import multi_head_attention_forward
from mha_widgets.attention.multihead import MultiheadAttention

BUILDS = [
    {"bias": bias, "add_bias_kv": add_bias_kv, "kdim": kdim, "vdim": vdim}
    for bias, add_bias_kv in itertools.product([True, False], repeat=2)
    for kdim, vdim in [(None, None), (E, E), (KDIM, None), (None, VDIM), (KDIM, VDIM)]
]
every_build = pytest.mark.parametrize(
    "build", BUILDS, ids=lambda build: "-".join(map(str, build.values()))
)


def started(kind: type[nn.Module], **build: Any) -> tuple[nn.Module, Tensor]:
    """Make a module from seed 0; return the state of the generator afterwards too."""
    torch.manual_seed(0)
    return kind(E, H, **build), torch.get_rng_state()


@every_build
@pytest.mark.parametrize("dtype", [None, *EXACT, *HALF])
def test_the_same_seed_gives_the_same_parameters(
    dtype: torch.dtype | None, build: dict[str, Any]
) -> None:
    theirs, their_state = started(nn.MultiheadAttention, dtype=dtype, **build)
    ours, our_state = started(MultiheadAttention, dtype=dtype, **build)
    assert list(ours.state_dict()) == list(theirs.state_dict())  # in the same order
    assert [name for name, _ in ours.named_parameters()] == [
        name for name, _ in theirs.named_parameters()
    ]
    for our, their in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert our.dtype == their.dtype == (dtype or torch.float32)
        assert torch.equal(our, their)
    assert torch.equal(our_state, their_state)


@every_build
def test_what_is_not_there_is_registered_alike(build: dict[str, Any]) -> None:
    theirs, ours = pair(**build)
    assert {name for name, p in ours._parameters.items() if p is None} == {
        name for name, p in theirs._parameters.items() if p is None
    }
    # bias_k = None is one
    public = {name: value for name, value in vars(theirs).items() if not name.startswith("_")}
    assert {name: vars(ours)[name] for name in public} == public
    # nn.TransformerEncoderLayer asks for it
    assert ours._qkv_same_embed_dim == theirs._qkv_same_embed_dim
    assert [type(module) for module in ours.children()] == [
        type(module) for module in theirs.children()
    ]
    assert repr(ours) == repr(theirs)


def test_parameters_are_made_on_the_device() -> None:
    ours = MultiheadAttention(E, H, add_bias_kv=True, kdim=KDIM, device="meta")
    theirs = nn.MultiheadAttention(E, H, add_bias_kv=True, kdim=KDIM, device="meta")
    assert {name: (p.shape, p.device) for name, p in ours.named_parameters()} == {
        name: (p.shape, torch.device("meta")) for name, p in theirs.named_parameters()
    }


@every_build
@pytest.mark.parametrize("dtype", EXACT)
def test_state_dicts_load_both_ways(dtype: torch.dtype, build: dict[str, Any]) -> None:
    theirs, ours = (
        kind(E, H, batch_first=True, dtype=dtype, **build)
        for kind in (nn.MultiheadAttention, MultiheadAttention)
    )
    tensors = inputs(dtype, build["kdim"] or E, build["vdim"] or E)
    for source, target in (
        (fill(theirs), ours),
        (fill(ours.apply(nn.Module.float).to(dtype)), theirs),
    ):
        with torch.no_grad():
            target.out_proj.weight.zero_()
        assert target.load_state_dict(source.state_dict()) == ([], [])
        assert_same(ours(*tensors), theirs(*tensors))


@every_build
def test_copies_give_the_same_results(build: dict[str, Any]) -> None:
    theirs, ours = pair(add_zero_attn=True, **build)
    tensors = inputs(kdim=build["kdim"] or E, vdim=build["vdim"] or E)
    expected = theirs(*tensors)
    for twin in copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)):
        assert type(twin) is MultiheadAttention and not twin.training
        assert list(twin.state_dict()) == list(theirs.state_dict())
        assert_same(twin(*tensors), expected)
        fill(twin.train())  # shares nothing with ours
        assert_same(ours(*tensors), expected)


@pytest.mark.parametrize("name", ["__init__", "forward", "merge_masks"])
def test_signatures(name: str) -> None:
    theirs, ours = (
        inspect.signature(getattr(kind, name))
        for kind in (nn.MultiheadAttention, MultiheadAttention)
    )
    assert [(p.name, p.kind, p.default) for p in ours.parameters.values()] == [
        (p.name, p.kind, p.default) for p in theirs.parameters.values()
    ]


def test_signature_of_the_functional() -> None:
    theirs, ours = map(
        inspect.signature, (F.multi_head_attention_forward, multi_head_attention_forward)
    )
    *shared, extra = ours.parameters.values()
    assert [(p.name, p.kind, p.default) for p in shared] == [
        (p.name, p.kind, p.default) for p in theirs.parameters.values()
    ]
    assert (extra.name, extra.kind, extra.default) == (
        "batch_first",
        inspect.Parameter.KEYWORD_ONLY,
        False,
    )
