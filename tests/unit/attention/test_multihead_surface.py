"""MultiheadAttention against torch's own where random calls don't reach: start, errors, inside models, tracing, memory."""

from __future__ import annotations

import copy
import inspect
import itertools
import math
import pickle
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from mha_widgets.attention.functional import multi_head_attention_forward
from mha_widgets.attention.multihead import MultiheadAttention

N, H, L, S, E = (
    2,
    3,
    5,
    7,
    33,
)  # distinct primes, but for E = 3 heads of 11: a swapped axis can't pass
KDIM, VDIM = 13, 17
EXACT = [torch.float32, torch.float64]
HALF = [torch.float16, torch.bfloat16]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5} | {
    dtype: 2 * torch.finfo(dtype).eps for dtype in HALF
}

PROTOTYPE = "ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning"  # from their first construction
MISMATCHED = (
    "ignore:.*mismatched key_padding_mask:UserWarning",
    "ignore:.*masks of different types:UserWarning",
)
EAGER = {"backend": "eager", "fullgraph": True}


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


@contextmanager
def slow_path() -> Iterator[None]:
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


# the start: initial values, state dicts, copies

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
    public = {
        name: value for name, value in vars(theirs).items() if not name.startswith("_")
    }  # bias_k = None is one
    assert {name: vars(ours)[name] for name in public} == public
    assert (
        ours._qkv_same_embed_dim == theirs._qkv_same_embed_dim
    )  # nn.TransformerEncoderLayer asks for it
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


# what the documentation of torch says


def test_the_formula_by_hand() -> None:
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W_o, each head on its own rows of the tables."""
    _, ours = pair()
    query, key, value = inputs()
    output, weights = ours(query, key, value, average_attn_weights=False)
    D = E // H
    heads = []
    for h in range(H):
        rows = [
            slice(table * E + h * D, table * E + (h + 1) * D) for table in range(3)
        ]  # of query, key and value
        Q, K, V = (
            x @ ours.in_proj_weight[part].T + ours.in_proj_bias[part]
            for x, part in zip((query, key, value), rows, strict=True)
        )
        of_head = torch.softmax(Q @ K.mT / math.sqrt(D), dim=-1)
        assert_same(weights[:, h], of_head)
        heads.append(of_head @ V)
    assert_same(output, torch.cat(heads, dim=-1) @ ours.out_proj.weight.T + ours.out_proj.bias)


@pytest.mark.parametrize("batch_first", [True, False])
def test_shapes(batch_first: bool) -> None:
    _, ours = pair(batch_first=batch_first)
    tensors = inputs() if batch_first else [x.transpose(0, 1) for x in inputs()]
    output, weights = ours(*tensors)
    assert output.shape == ((N, L, E) if batch_first else (L, N, E))
    assert weights.shape == (N, L, S)
    assert ours(*tensors, average_attn_weights=False)[1].shape == (N, H, L, S)
    assert ours(*tensors, need_weights=False)[1] is None
    one, of_one = ours(*(x[0] for x in inputs()))  # batch_first is ignored
    assert (one.shape, of_one.shape) == ((L, E), (L, S))
    assert ours(*(x[0] for x in inputs()), average_attn_weights=False)[1].shape == (H, L, S)
    assert_same(one, output[0] if batch_first else output[:, 0])
    assert_same(of_one, weights[0])


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_blocked_key_is_ignored_and_a_float_is_added(need_weights: bool) -> None:
    _, ours = pair()
    query, key, value = inputs()
    padding = torch.zeros(N, S, dtype=torch.bool)
    padding[:, 4] = True
    changed_key, changed_value = key.clone(), value.clone()
    changed_key[:, 4], changed_value[:, 4] = 9.0, -9.0
    for masks in {"key_padding_mask": padding}, {"attn_mask": padding[0].expand(L, S)}:
        output, weights = ours(query, key, value, **masks, need_weights=need_weights)
        others = [i for i in range(S) if i != 4]
        assert_same(
            output, ours(query, key[:, others], value[:, others], need_weights=need_weights)[0]
        )
        assert_same(
            output, ours(query, changed_key, changed_value, **masks, need_weights=need_weights)[0]
        )
        if need_weights:
            assert weights[..., 4].count_nonzero() == 0
            added = {
                name: 0.7 * mask.double() for name, mask in masks.items()
            }  # of 1.0 here, not of nothing
            free, raised = (
                ours(query, key, value, **m, average_attn_weights=False)[1] for m in ({}, added)
            )
            odds = raised[..., 4] / raised[..., 0] / (free[..., 4] / free[..., 0])
            assert_same(odds, torch.full((N, H, L), math.exp(0.7), dtype=torch.float64), 1e-10)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("masks", [{}, {"key_padding_mask": blocked(N, S)}], ids=["", "padding"])
@pytest.mark.parametrize("shape", [(L, S), (N * H, L, S)], ids=str)
def test_a_wrong_is_causal_counts_without_weights_and_padding_only(
    shape: tuple[int, ...], masks: dict[str, Tensor], need_weights: bool
) -> None:
    theirs, ours = pair()
    attn_mask = blocked(*shape)
    results = ours(
        *inputs(), attn_mask=attn_mask, is_causal=True, need_weights=need_weights, **masks
    )
    assert_same(
        results,
        theirs(*inputs(), attn_mask=attn_mask, is_causal=True, need_weights=need_weights, **masks),
    )
    causal = torch.ones(L, S, dtype=torch.bool).triu(1)
    counts = not need_weights and not masks
    assert_same(
        results,
        ours(
            *inputs(), attn_mask=causal if counts else attn_mask, need_weights=need_weights, **masks
        ),
    )


@pytest.mark.parametrize("shape", [(S, L), (1, 1), (L, S + 1), (N, L, S), (1, L, S)], ids=str)
def test_the_shape_of_a_mask_that_is_causal_replaces_does_not_matter(
    shape: tuple[int, ...],
) -> None:
    theirs, ours = pair()
    hint = {
        "attn_mask": torch.ones(shape, dtype=torch.bool),
        "is_causal": True,
        "need_weights": False,
    }
    expected = theirs(*inputs(), **hint)
    assert not expected[0].isnan().any()
    assert_same(ours(*inputs(), **hint), expected)


def test_masks_of_different_types_warn_once() -> None:
    masks = {"attn_mask": torch.zeros(L, S), "key_padding_mask": mask(N, S)}
    theirs, ours = pair(dtype=torch.float32)
    with pytest.warns(UserWarning, match="mismatched key_padding_mask and attn_mask"):
        expected = theirs(*X.values(), **masks)
    with pytest.warns(
        UserWarning, match="key_padding_mask is torch.bool and attn_mask is torch.float32"
    ) as warned:
        results = ours(*X.values(), **masks)
    assert len(warned) == 1
    assert_same(results, expected)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("sizes", [(0, L, S), (N, 0, S), (N, L, 0), (0, 0, 0)], ids=str)
@pytest.mark.parametrize("training", [True, False])
def test_empty_inputs(training: bool, sizes: tuple[int, int, int], need_weights: bool) -> None:
    theirs, ours = pair(training)
    n, length, keys = sizes
    tensors = uniform(n, length, E), uniform(n, keys, E, seed=1), uniform(n, keys, E, seed=2)
    expected = theirs(*tensors, need_weights=need_weights)
    assert expected[0].shape == (n, length, E)
    assert_same(ours(*tensors, need_weights=need_weights), expected)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_inputs_masks_and_parameters_stay_as_they_are(grad: bool, need_weights: bool) -> None:
    """Whatever lies how in memory: none of these is contiguous."""
    theirs, ours = pair()
    tensors = [x.mT.contiguous().mT.requires_grad_(grad) for x in inputs()]
    masks = {"attn_mask": uniform(S, L).mT, "key_padding_mask": uniform(S, N).mT}
    before = copy.deepcopy([*tensors, *masks.values(), *ours.parameters()])
    with torch.set_grad_enabled(grad):
        results = ours(*tensors, **masks, need_weights=need_weights)
        assert_same(results, theirs(*tensors, **masks, need_weights=need_weights))
    for now, then in zip([*tensors, *masks.values(), *ours.parameters()], before, strict=True):
        assert torch.equal(now, then)


# the samples that torch tests itself with


def module_samples(dtype: torch.dtype, requires_grad: bool, training: bool) -> list[Any]:
    from torch.testing._internal.common_modules import (
        module_db,
    )  # here, since it freezes torch.backends for all

    (info,) = (info for info in module_db if info.module_cls is nn.MultiheadAttention)
    torch.manual_seed(0)
    return info.module_inputs_func(
        info, device="cpu", dtype=dtype, requires_grad=requires_grad, training=training
    )


def functional_samples(dtype: torch.dtype, requires_grad: bool) -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    (info,) = (info for info in op_db if info.name == "nn.functional.multi_head_attention_forward")
    assert info.dtypes == {*EXACT, *HALF}
    torch.manual_seed(0)
    return list(info.sample_inputs("cpu", dtype, requires_grad=requires_grad))


def seeded(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    torch.manual_seed(0)
    return function(*args, **kwargs)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", EXACT)
def test_module_samples(dtype: torch.dtype, training: bool, requires_grad: bool) -> None:
    """64 samples, which are the same in both modes: 128 a type, and 512 calls with and without gradients of the inputs."""
    samples = module_samples(dtype, requires_grad, training)
    assert len(samples) == 64
    for sample in samples:
        theirs, ours = pair(training, dtype=dtype, **sample.constructor_input.kwargs)
        args, kwargs = sample.forward_input.args, sample.forward_input.kwargs
        expected, results = theirs(*args, **kwargs), ours(*args, **kwargs)
        assert_same(results, expected)
        assert_same(results, sample.reference_fn(ours, *args, **kwargs))
        leaves = [*(args if requires_grad else ()), *ours.parameters()]
        their_leaves = [*(args if requires_grad else ()), *theirs.parameters()]
        assert_same(
            torch.autograd.grad(results[0].sum(), leaves),
            torch.autograd.grad(expected[0].sum(), their_leaves),
        )


# Not the narrow types with weights: they round scores of hundreds before the softmax, so that torch itself is 10 % off.
@pytest.mark.parametrize(
    "dtype, need_weights",
    [
        (dtype, need)
        for dtype in (*EXACT, *HALF)
        for need in (True, False)
        if dtype in EXACT or not need
    ],
)
def test_functional_samples(dtype: torch.dtype, need_weights: bool) -> None:
    """192 samples a type, half of them with dropout: six times 192 calls."""
    samples = functional_samples(dtype, False)
    assert len(samples) == 192
    assert sum(sample.kwargs["training"] for sample in samples) == 96
    for sample in samples:
        call = sample.input, *sample.args
        kwargs = sample.kwargs | {"need_weights": need_weights}
        expected = seeded(F.multi_head_attention_forward, *call, **kwargs)
        tolerance = (
            1e-4 if dtype == torch.float32 else TOLERANCE[dtype]
        )  # scores of hundreds leave 4 digits
        scale = expected[0].abs().max().clamp_min(1).item()  # outputs are hundreds too
        output, weights = seeded(multi_head_attention_forward, *call, **kwargs)
        assert_same(output / scale, expected[0] / scale, tolerance)
        assert_same([weights], [expected[1]], tolerance)


@pytest.mark.parametrize("dtype", EXACT)
def test_the_functional_sample_with_gradients(dtype: torch.dtype) -> None:
    (sample,) = functional_samples(dtype, True)
    call = sample.input, *sample.args
    leaves = [x for x in (*call, *sample.kwargs.values()) if isinstance(x, Tensor)]
    assert len(leaves) == 10
    gradients = [
        torch.autograd.grad(seeded(function, *call, **sample.kwargs)[0].sum(), leaves)
        for function in (multi_head_attention_forward, F.multi_head_attention_forward)
    ]
    assert_same(*gradients)


# invalid calls: the class that torch's slow path raises, and one sentence with what came and what is expected

QUERY, KEY, VALUE = inputs(torch.float32)
X = {"query": QUERY, "key": KEY, "value": VALUE}
ONE = {name: x[0] for name, x in X.items()}
SEPARATE = {"kdim": KDIM, "vdim": VDIM}
SEPARATE_X = {"key": uniform(N, S, KDIM).float(), "value": uniform(N, S, VDIM).float()}


def narrow(x: Tensor) -> Tensor:
    """The same tensor without its last feature."""
    return x[..., :-1]


def mask(*shape: int, dtype: torch.dtype = torch.bool) -> Tensor:
    return torch.zeros(shape, dtype=dtype)


def failure(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Exception:
    with pytest.raises(Exception) as raised:
        function(*args, **kwargs)
    return raised.value


def assert_one_sentence(error: Exception, words: list[str]) -> None:
    message = str(error)
    assert [word for word in words if word not in message] == [], message
    assert "\n" not in message
    assert not any(end in message for end in (". ", "? ", "! ")), message


# A module's arguments, those of the call in place of right ones, and what the message has to say.
Wrong = tuple[dict[str, Any], dict[str, Any], list[str]]
DIMENSIONS: dict[str, Wrong] = {
    "query 1-D": (
        {},
        {"query": QUERY[0, 0]},
        ["query (33,), key (2, 7, 33) and value (2, 7, 33)", "(N, L, E), or as (L, E)"],
    ),
    "query 2-D": (
        {},
        {"query": QUERY[0]},
        ["query (5, 33), key (2, 7, 33)", "(N, L, E), or as (L, E)"],
    ),
    "query 4-D": ({}, {"query": QUERY[None]}, ["query (1, 2, 5, 33)", "(N, L, E), or as (L, E)"]),
    "key 1-D": (
        {"batch_first": False},
        {"key": KEY[0, 0]},
        ["key (33,) and value (2, 7, 33)", "(L, N, E), or as (L, E)"],
    ),
    "key 2-D": (
        {},
        {"key": KEY[0]},
        ["key (7, 33) and value (2, 7, 33)", "(N, L, E), or as (L, E)"],
    ),
    "key 4-D": (
        {},
        {"key": KEY[None]},
        ["key (1, 2, 7, 33) and value (2, 7, 33)", "(N, L, E), or as (L, E)"],
    ),
    "value 1-D": (
        {"batch_first": False},
        {"value": VALUE[0, 0]},
        ["value (33,)", "(L, N, E), or as (L, E)"],
    ),
    "value 2-D": (
        {},
        {"value": VALUE[0]},
        ["key (2, 7, 33) and value (7, 33)", "(N, L, E), or as (L, E)"],
    ),
    "value 4-D": ({}, {"value": VALUE[None]}, ["value (1, 2, 7, 33)", "(N, L, E), or as (L, E)"]),
    "key and value 2-D": (
        {},
        {"key": KEY[0], "value": VALUE[0]},
        ["query (2, 5, 33), key (7, 33) and value (7, 33)"],
    ),
    "query of one sequence": (
        {},
        ONE | {"key": KEY},
        ["query (5, 33), key (2, 7, 33) and value (7, 33)"],
    ),
    "all 1-D": (
        {},
        {name: x[0, 0] for name, x in X.items()},
        ["query (33,), key (33,) and value (33,)", "or as (L, E)"],
    ),
    "all 4-D": (
        {},
        {name: x[None] for name, x in X.items()},
        ["query (1, 2, 5, 33), key (1, 2, 7, 33)", "(N, L, E)"],
    ),
}
FEATURES: dict[str, Wrong] = {
    "query": ({}, {"query": narrow(QUERY)}, ["query (2, 5, 32)", "embed_dim = 33 features"]),
    "query of one sequence": (
        {},
        ONE | {"query": narrow(QUERY[0])},
        ["query (5, 32)", "embed_dim = 33 features"],
    ),
    "query, separate": (
        SEPARATE,
        SEPARATE_X | {"query": narrow(QUERY)},
        ["query (2, 5, 32)", "embed_dim = 33 features"],
    ),
    "key": ({}, {"key": narrow(KEY)}, ["key (2, 7, 32) and value (2, 7, 33)", "the same shape"]),
    "value": (
        {},
        {"value": narrow(VALUE)},
        ["key (2, 7, 33) and value (2, 7, 32)", "the same shape"],
    ),
    "key and value": (
        {},
        {"key": narrow(KEY), "value": narrow(VALUE)},
        [
            "query (2, 5, 33), key (2, 7, 32) and value (2, 7, 32)",
            "need 33 features",
            "kdim and vdim",
        ],
    ),
    "key is value": (
        {},
        dict.fromkeys(["key", "value"], narrow(KEY)),
        ["key (2, 7, 32)", "need 33 features", "kdim and vdim"],
    ),
    "self": (
        {},
        dict.fromkeys(X, narrow(QUERY)),
        ["query (2, 5, 32), key (2, 5, 32)", "embed_dim = 33 features"],
    ),
    "kdim": (
        SEPARATE,
        SEPARATE_X | {"key": KEY},
        ["k_proj_weight has shape (33, 13)", "must be (33, 33)", "kdim and vdim"],
    ),
    "vdim": (
        SEPARATE,
        SEPARATE_X | {"value": VALUE},
        ["v_proj_weight has shape (33, 17)", "must be (33, 33)"],
    ),
    "both": (
        SEPARATE,
        {"key": SEPARATE_X["value"], "value": SEPARATE_X["key"]},
        [
            "k_proj_weight has shape (33, 13)",
            "key (2, 7, 17) and value (2, 7, 13)",
            "must be (33, 17)",
        ],
    ),
    "kdim = 0": ({"kdim": 0}, {}, ["k_proj_weight has shape (33, 0)", "must be (33, 33)"]),
}
SIZES: dict[str, Wrong] = {
    "values": (
        {},
        {"value": VALUE[:, :5]},
        ["key (2, 7, 33) and value (2, 5, 33)", "every key has one value"],
    ),
    "keys": (
        {},
        {"key": KEY[:, :5]},
        ["key (2, 5, 33) and value (2, 7, 33)", "every key has one value"],
    ),
    "values, separate": (
        SEPARATE,
        SEPARATE_X | {"value": uniform(N, 5, VDIM).float()},
        ["key (2, 7, 13) and value (2, 5, 17)", "every key has one value"],
    ),
    "values of one sequence": (
        {},
        ONE | {"value": VALUE[0, :5]},
        ["key (7, 33) and value (5, 33)", "every key has one value"],
    ),
    "batch of values": (
        {},
        {"value": VALUE[[0, 0, 1]]},
        ["key (2, 7, 33) and value (3, 7, 33)", "every key has one value"],
    ),
    "batch of keys": (
        {},
        {"key": KEY[[0, 0, 1]]},
        ["key (3, 7, 33) and value (2, 7, 33)", "every key has one value"],
    ),
    "batch of values, separate": (
        SEPARATE,
        SEPARATE_X | {"value": uniform(3, S, VDIM).float()},
        ["key (2, 7, 13) and value (3, 7, 17)", "every key has one value"],
    ),
    "batch of both": (
        {},
        {"key": KEY[[0, 0, 1]], "value": VALUE[[0, 0, 1]]},
        [
            "query (2, 5, 33), key (3, 7, 33)",
            "2 sequences of queries and 3 of keys",
            "the batch first (batch_first=True)",
        ],
    ),
    "batch of both, one tensor": (
        {},
        dict.fromkeys(["key", "value"], KEY[:1]),
        ["2 sequences of queries and 1 of keys"],
    ),
    "batch of both, separate": (
        SEPARATE,
        {name: x[[0, 0, 1]] for name, x in SEPARATE_X.items()},
        ["2 sequences of queries and 3 of keys"],
    ),
    "batch_first forgotten": (
        {"batch_first": False},
        {},
        [
            "query (2, 5, 33), key (2, 7, 33)",
            "5 sequences of queries and 7 of keys",
            "second; did you mean batch_first=True?",
        ],
    ),
}
TYPES: dict[str, Wrong] = {
    **{
        f"{name}: {dtype}": (
            {},
            {name: mask(*shape, dtype=dtype)},
            [f"{name} is {dtype}", "boolean (True = bl", f"{name} == 0"],
        )
        for name, shape in {"attn_mask": (L, S), "key_padding_mask": (N, S)}.items()
        for dtype in (torch.int64, torch.int32, torch.uint8, torch.complex64)
    },
    **{
        f"{name}: {dtype}, weights": (
            {},
            {name: mask(*shape, dtype=dtype), "need_weights": True},
            [f"{name} is {dtype} and the query torch.float32", f"use {name}.to(query.dtype)"],
        )
        for name, shape in {"attn_mask": (L, S), "key_padding_mask": (N, S)}.items()
        for dtype in (torch.float64, torch.float16)
    },
    **{
        f"{name}: double, no weights": (
            {},
            {name: mask(*shape, dtype=torch.float64), "need_weights": False},
            ["double", "float"],
        )
        for name, shape in {"attn_mask": (N * H, L, S), "key_padding_mask": (N, S)}.items()
    },
    "both masks: double": (
        {},
        {
            "attn_mask": mask(L, S, dtype=torch.float64),
            "key_padding_mask": mask(N, S, dtype=torch.float64),
            "need_weights": True,
        },
        ["attn_mask is torch.float64 and the query torch.float32"],
    ),
    **{
        f"{name}: float, module: {dtype}": (
            {"dtype": dtype},
            {n: x.to(dtype) for n, x in X.items()}
            | {name: mask(*shape).float(), "need_weights": True},
            [f"{name} is torch.float32 and the query {dtype}"],
        )
        for name, shape in {"attn_mask": (L, S), "key_padding_mask": (N, S)}.items()
        for dtype in (torch.bfloat16, torch.float64)
    },
    "all integers": ({}, {name: x.long() for name, x in X.items()}, ["Long and Float"]),
    "query of integers": ({}, {"query": QUERY.long()}, ["Long and Float"]),
    "key of integers": ({}, {"key": KEY.long()}, ["Long and Float"]),
    "value of integers": ({}, {"value": VALUE.long()}, ["Long and Float"]),
    "all double": ({}, {name: x.double() for name, x in X.items()}, ["Double and Float"]),
    "module: bfloat16": ({"dtype": torch.bfloat16}, {}, ["Float and BFloat16"]),
    **{
        f"{name}: {type(wrong).__name__}": (
            {},
            {name: wrong},
            [f"{name} must be a tensor", f"got {type(wrong).__name__}", f"torch.as_tensor({name})"],
        )
        for name in X
        for wrong in (None, QUERY.tolist(), QUERY.numpy(), 3)
    },
    "all lists": (
        {},
        {name: x.tolist() for name, x in X.items()},
        ["query must be a tensor", "list", "as_tensor(query)"],
    ),
}
SHAPES: dict[str, Wrong] = {
    **{
        f"attn_mask {shape}": (
            {},
            {"attn_mask": mask(*shape)},
            [
                f"attn_mask has shape {shape}",
                "(L, S) = (5, 7)",
                "(N * num_heads, L, S) = (6, 5, 7)",
                "repeat_interleave(",
            ],
        )
        for shape in [
            (),
            (S,),
            (L,),
            (S, L),
            (L, S + 1),
            (1, S),
            (L, 1),
            (N, L, S),
            (H, L, S),
            (1, L, S),
            (6, S, L),
            (6, 1, S),
        ]
        + [(6, L, 1), (N, H, L, S), (1, 1, L, S), (N, 1, 1, L, S)]
    },
    "attn_mask, float": (
        {},
        {"attn_mask": mask(N, L, S).float()},
        ["has shape (2, 5, 7)", "(6, 5, 7)"],
    ),
    "attn_mask and padding": (
        {},
        {"attn_mask": mask(N, L, S), "key_padding_mask": mask(N, S)},
        ["attn_mask has shape (2, 5, 7)", "(N * num_heads, L, S) = (6, 5, 7)"],
    ),
    **{
        f"attn_mask {shape}, one sequence": (
            {},
            ONE | {"attn_mask": mask(*shape)},
            [
                f"attn_mask has shape {shape}",
                "(L, S) = (5, 7)",
                "(N * num_heads, L, S) = (3, 5, 7)",
            ],
        )
        for shape in [(S,), (L, L), (N, L, S), (6, L, S), (1, L, S), (H, S, L), (1, H, L, S)]
    },
    **{
        f"key_padding_mask {shape}": (
            {},
            {"key_padding_mask": mask(*shape)},
            [
                f"key_padding_mask has shape {shape}",
                "must be (N, S) = (2, 7)",
                "one entry for each key",
            ],
        )
        for shape in [
            (),
            (S,),
            (N,),
            (S, N),
            (1, S),
            (N, 1),
            (N, S + 1),
            (N, L),
            (N + 1, S),
            (N, 1, S),
            (N, 1, 1, S),
        ]
    },
    "key_padding_mask, float": (
        {},
        {"key_padding_mask": mask(S, N).float()},
        ["has shape (7, 2)", "(N, S) = (2, 7)"],
    ),
    "key_padding_mask and attn_mask": (
        {},
        {"key_padding_mask": mask(S, N), "attn_mask": mask(L, S)},
        ["key_padding_mask has shape (7, 2)", "(N, S) = (2, 7)"],
    ),
    **{
        f"key_padding_mask {shape}, one sequence": (
            {},
            ONE | {"key_padding_mask": mask(*shape)},
            [f"key_padding_mask has shape {shape}", "must be (S,) = (7,)"],
        )
        for shape in [(), (1, S), (N, S), (S + 1,), (1,), (L,)]
    },
    **{
        f"{flag}: a column more in {name}": (
            {flag: True},
            {name: mask(rows, S + 1)},
            [f"{name} has shape ({rows}, 8)", expected],
        )
        for flag in ("add_bias_kv", "add_zero_attn")
        for name, rows, expected in (
            ("attn_mask", L, "(L, S) = (5, 7)"),
            ("key_padding_mask", N, "without the positions that"),
        )
    },
}
OTHERS: dict[str, Wrong] = {
    "is_causal alone": (
        {},
        {"is_causal": True},
        ["is_causal=True", "attn_mask", "pass the causal mask too"],
    ),
    "is_causal alone, padding": (
        {},
        {"is_causal": True, "key_padding_mask": mask(N, S)},
        ["is_causal=True", "there is none"],
    ),
    "is_causal and a wrong mask": (
        {},
        {"is_causal": True, "attn_mask": mask(S, L), "need_weights": True},
        ["attn_mask has shape (7, 5)", "(L, S) = (5, 7)"],
    ),
    "dropout 1.5": ({"dropout": 1.5}, {}, ["between 0 and 1", "but got 1.5"]),
}
NO_TENSORS: dict[str, Wrong] = {
    f"{name}: {type(wrong).__name__}": (
        {},
        {name: wrong},
        [f"{name} must be a tensor", f"got {type(wrong).__name__}"],
    )
    for name, shape in {"attn_mask": (L, S), "key_padding_mask": (N, S)}.items()
    for wrong in (mask(*shape).tolist(), mask(*shape).numpy(), True)
}
WRONG = {
    f"{group}, {name}": case
    for group, cases in {
        "dimensions": DIMENSIONS,
        "features": FEATURES,
        "sizes": SIZES,
        "types": TYPES,
    }.items()
    for name, case in cases.items()
} | {name: case for cases in (SHAPES, OTHERS, NO_TENSORS) for name, case in cases.items()}


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("build, changes, words", WRONG.values(), ids=WRONG)
def test_invalid_calls(
    build: dict[str, Any], changes: dict[str, Any], words: list[str], need_weights: bool
) -> None:
    assert_fails_alike(build, changes, words, need_weights)


def assert_fails_alike(
    build: dict[str, Any], changes: dict[str, Any], words: list[str], need_weights: bool
) -> None:
    """Both modules raise the same class, and ours says these words."""
    arguments = X | {"need_weights": need_weights} | changes
    theirs, ours = (
        failure(module, **arguments)
        for module in pair(training=True, **{"dtype": torch.float32} | build)
    )
    assert type(ours) is type(theirs)
    assert_one_sentence(ours, words)


IGNORED: dict[str, Wrong] = {  # is_causal replaces these masks, but torch looks at them first
    "integers": (
        {},
        {"attn_mask": mask(L, S).long()},
        ["attn_mask is torch.int64", "attn_mask == 0"],
    ),
    "1-D": ({}, {"attn_mask": mask(S)}, ["attn_mask has shape (7,)", "(L, S) = (5, 7)"]),
    "4-D": (
        {},
        {"attn_mask": mask(N, H, L, S)},
        ["attn_mask has shape (2, 3, 5, 7)", "(L, S) = (5, 7)"],
    ),
    "another sequence's": (
        {},
        ONE | {"attn_mask": mask(N * H, L, S)},
        ["attn_mask has shape (6, 5, 7)", "= (3, 5, 7)"],
    ),
}


@pytest.mark.parametrize("build, changes, words", IGNORED.values(), ids=IGNORED)
def test_invalid_masks_that_is_causal_replaces(
    build: dict[str, Any], changes: dict[str, Any], words: list[str]
) -> None:
    assert_fails_alike(build, changes | {"is_causal": True}, words, need_weights=False)


@pytest.mark.filterwarnings(*MISMATCHED)
@pytest.mark.parametrize("narrow", HALF)
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("other", [torch.bool, torch.float32])
@pytest.mark.parametrize("attn_is_narrow", [True, False])
def test_a_narrow_mask_beside_a_wider_one_is_taken(
    attn_is_narrow: bool, other: torch.dtype, need_weights: bool, narrow: torch.dtype
) -> None:
    attn_type, padding_type = (narrow, other) if attn_is_narrow else (other, narrow)
    masks = {
        "attn_mask": blocked(L, S).to(attn_type),
        "key_padding_mask": blocked(N, S).to(padding_type),
    }
    theirs, ours = pair(dtype=torch.float32)
    expected = theirs(*X.values(), **masks, need_weights=need_weights)  # both together are float32
    assert_same(ours(*X.values(), **masks, need_weights=need_weights), expected)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("dropout", [1.5, -0.5])
def test_dropout_is_looked_at_in_training_only(dropout: float, need_weights: bool) -> None:
    theirs, ours = pair(dropout=dropout)
    assert_same(
        ours(*inputs(), need_weights=need_weights), theirs(*inputs(), need_weights=need_weights)
    )


CONSTRUCTOR: dict[str, tuple[dict[str, Any], list[str]]] = {
    "embed_dim = 0": ({"embed_dim": 0}, ["embed_dim and num_heads", "at least 1", "got 0 and 3"]),
    "embed_dim < 0": ({"embed_dim": -33}, ["at least 1", "got -33 and 3"]),
    "num_heads = 0": ({"num_heads": 0}, ["at least 1", "got 33 and 0"]),
    "num_heads < 0": ({"num_heads": -3}, ["at least 1", "got 33 and -3"]),
    "both": ({"embed_dim": 0, "num_heads": 0}, ["at least 1", "got 0 and 0"]),
    "not divisible": (
        {"num_heads": 5},
        ["embed_dim = 33", "5 heads", "a num_heads that divides it"],
    ),
    "more heads than features": ({"num_heads": 66}, ["embed_dim = 33", "66 heads"]),
    "kdim < 0": ({"kdim": -1}, ["[33, -1]"]),
    "vdim < 0": ({"vdim": -1}, ["[33, -1]"]),
    "integers": ({"dtype": torch.int64}, ["floating point"]),
    "embed_dim is text": ({"embed_dim": "33"}, ["'str'", "'int'"]),
    "embed_dim is a fraction": ({"embed_dim": 33.0}, ["int", "float"]),
    "an unknown argument": ({"heads": 3}, ["'heads'"]),
}


@pytest.mark.parametrize("changes, words", CONSTRUCTOR.values(), ids=CONSTRUCTOR)
def test_invalid_modules(changes: dict[str, Any], words: list[str]) -> None:
    arguments = {"embed_dim": E, "num_heads": H} | changes
    theirs, ours = (
        failure(kind, **arguments) for kind in (nn.MultiheadAttention, MultiheadAttention)
    )
    assert type(ours) is type(theirs)
    assert_one_sentence(ours, words)


# the functional: what only it can be given

D = E // H
FUNCTIONAL: dict[str, Any] = {
    "query": uniform(L, N, E, seed=10),
    "key": uniform(S, N, E, seed=11),
    "value": uniform(S, N, E, seed=12),
    "embed_dim_to_check": E,
    "num_heads": H,
    "in_proj_weight": uniform(3 * E, E),
    "in_proj_bias": uniform(3 * E, seed=1),
    "bias_k": None,
    "bias_v": None,
    "add_zero_attn": False,
    "dropout_p": 0.0,
    "out_proj_weight": uniform(E, E, seed=2),
    "out_proj_bias": uniform(E, seed=3),
}
APART: dict[str, Any] = {
    "use_separate_proj_weight": True,
    "in_proj_weight": None,
    "key": uniform(S, N, KDIM, seed=11),
    "value": uniform(S, N, VDIM, seed=12),
    "q_proj_weight": uniform(E, E, seed=4),
    "k_proj_weight": uniform(E, KDIM, seed=5),
    "v_proj_weight": uniform(E, VDIM, seed=6),
}
LEARNED = {"bias_k": uniform(1, 1, E, seed=7), "bias_v": uniform(1, 1, E, seed=8)}
STATIC = {"static_k": uniform(N * H, S, D, seed=9), "static_v": uniform(N * H, S, D, seed=13)}
LONGER = {
    "static_k": uniform(N * H, S + 4, D, seed=9),
    "static_v": uniform(N * H, S + 4, D, seed=13),
}
SHAPES_OF_APART = "query (5, 2, 33), key (7, 2, 13) and value (7, 2, 17)"
WRONG_FUNCTIONAL: dict[str, tuple[dict[str, Any], list[str]]] = {
    "embed_dim_to_check": (
        {"embed_dim_to_check": 32},
        ["query (5, 2, 33)", "embed_dim = 32 features"],
    ),
    "num_heads": ({"num_heads": 5}, ["33 features", "5 heads", "a num_heads that divides them"]),
    **{
        f"{name} is missing": (
            APART | {name: None},
            [f"{name} is missing", SHAPES_OF_APART, f"must be (33, {features})"],
        )
        for name, features in {
            "q_proj_weight": E,
            "k_proj_weight": KDIM,
            "v_proj_weight": VDIM,
        }.items()
    },
    **{
        f"{name}: {shape}": (
            APART | {name: uniform(*shape)},
            [f"{name} has shape {shape}", SHAPES_OF_APART, f"must be (33, {features})"],
        )
        for name, features in {
            "q_proj_weight": E,
            "k_proj_weight": KDIM,
            "v_proj_weight": VDIM,
        }.items()
        for shape in (
            (E, 11),
            (11, features),
            (features, 31),
            *([(features, E)] if features != E else []),
        )
    },
    "separate, but packed given": (
        {"use_separate_proj_weight": True},
        ["q_proj_weight is missing", "must be (33, 33)"],
    ),
    "bias_k alone": (
        {"bias_k": LEARNED["bias_k"]},
        ["One of bias_k and bias_v is missing", "both a key and a value"],
    ),
    "bias_v alone": (
        {"bias_v": LEARNED["bias_v"]},
        ["One of bias_k and bias_v is missing", "both a key and a value"],
    ),
    **{
        f"{name} and a learned position": (
            LEARNED | {name: STATIC[name]},
            [f"Got {name} and bias_k", f"to {name} yourself"],
        )
        for name in STATIC
    },
    **{
        f"{name}: {shape}": (
            {name: uniform(*shape)},
            [f"{name} has shape {shape}", "must be (N * H, S, D) = (6, S, 11)"],
        )
        for name in STATIC
        for shape in ((N, S, D), (N * H + 1, S, D), (N * H, S, D + 1), (N * H, D, S))
    },
    "attn_mask as long as static_k": (
        LONGER | {"attn_mask": mask(L, S + 4)},
        ["attn_mask has shape (5, 11)", "(L, S) = (5, 7)"],
    ),
    "dropout_p": ({"dropout_p": 1.5}, ["between 0 and 1", "but got 1.5"]),
    "query is missing": ({"query": None}, ["query must be a tensor", "NoneType"]),
    "key is a list": ({"key": [1.0]}, ["key must be a tensor", "list", "as_tensor(key)"]),
    "in_proj_weight": ({"in_proj_weight": uniform(3 * E, E + 1)}, ["33", "34"]),
    "out_proj_weight": ({"out_proj_weight": uniform(E, E + 1)}, ["33", "34"]),
    "out_proj_weight of another type": (
        {"out_proj_weight": uniform(E, E).float()},
        ["Double and Float"],
    ),
}
MORE_WRONG_FUNCTIONAL: dict[str, tuple[dict[str, Any], list[str]]] = {
    "in_proj_weight is missing": ({"in_proj_weight": None}, ["in_proj_weight"]),
    "separate, in_proj_bias": (
        APART | {"in_proj_bias": uniform(3 * E + 3)},
        ["in_proj_bias", "(102,)", "99"],
    ),
    "static_k and static_v differ": (
        LONGER | {"static_v": STATIC["static_v"]},
        ["static_k", "11", "7"],
    ),
    "static_k alone, of another length": (
        {"static_k": LONGER["static_k"]},
        ["static_k", "11", "7"],
    ),
    "static, key_padding_mask as long as key": (
        LONGER | {"key_padding_mask": mask(N, S)},
        ["key_padding_mask", "(2, 7)", "11"],
    ),
    "static and zero, key_padding_mask as long as key": (
        {name: x[:, : S + 1] for name, x in LONGER.items()}
        | {"add_zero_attn": True, "key_padding_mask": mask(N, S)},
        ["key_padding_mask", "(2, 7)", "8"],
    ),
}


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize(
    "changes, words",
    [
        pytest.param(*case, id=name)
        for name, case in (WRONG_FUNCTIONAL | MORE_WRONG_FUNCTIONAL).items()
    ],
)
def test_invalid_calls_of_the_functional(
    changes: dict[str, Any], words: list[str], need_weights: bool
) -> None:
    arguments = FUNCTIONAL | {"need_weights": need_weights} | changes
    theirs, ours = (
        failure(function, **arguments)
        for function in (F.multi_head_attention_forward, multi_head_attention_forward)
    )
    assert type(ours) is type(theirs)
    assert_one_sentence(ours, words)


VALID_FUNCTIONAL: dict[str, dict[str, Any]] = {
    "packed": {},
    "separate": APART,
    "separate weights that are not used": {"q_proj_weight": uniform(E, E)},
    "learned position": LEARNED,
    "learned position, flat": {name: x.flatten() for name, x in LEARNED.items()},
    "static": STATIC,
    "static keys": {"static_k": STATIC["static_k"]},
    "static values": {"static_v": STATIC["static_v"]},
    "static, longer": LONGER,
    "static, longer, zero": LONGER | {"add_zero_attn": True},
    "static, masks": STATIC | {"attn_mask": blocked(L, S), "key_padding_mask": blocked(N, S)},
    "another output": {"out_proj_weight": uniform(19, E), "out_proj_bias": uniform(19)},
}


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("changes", VALID_FUNCTIONAL.values(), ids=VALID_FUNCTIONAL)
def test_valid_calls_of_the_functional(changes: dict[str, Any], need_weights: bool) -> None:
    arguments = FUNCTIONAL | {"need_weights": need_weights, "average_attn_weights": False} | changes
    assert_same(
        multi_head_attention_forward(**arguments), F.multi_head_attention_forward(**arguments)
    )


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("add_zero_attn", [True, False])
def test_static_keys_have_padding_of_their_own_length(
    add_zero_attn: bool, need_weights: bool
) -> None:
    arguments = FUNCTIONAL | LONGER | {"add_zero_attn": add_zero_attn, "need_weights": need_weights}
    arguments["key_padding_mask"] = blocked(N, S + 4)
    assert_same(
        multi_head_attention_forward(**arguments), F.multi_head_attention_forward(**arguments)
    )


# nested tensors

NESTED = {"embed_dim": 22, "num_heads": 2}  # an even number of heads, as the fast path needs it


def nested(*lengths: int, features: int = 22, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.nested.nested_tensor(
        [uniform(length, features, dtype=dtype, seed=i) for i, length in enumerate(lengths)]
    )


@pytest.mark.filterwarnings(PROTOTYPE)
@pytest.mark.parametrize("lengths", [(5, 3, 7), (5, 5), (1,), (3, 0, 2)])
@pytest.mark.parametrize(
    "forward",
    [{}, {"average_attn_weights": False}, {"need_weights": False}, {"is_causal": True}],
    ids=str,
)
@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("dtype", EXACT)
def test_a_nested_tensor_comes_out_as_one(
    dtype: torch.dtype,
    grad: Callable[[], AbstractContextManager[None]],
    forward: dict[str, Any],
    lengths: tuple[int, ...],
) -> None:
    theirs, ours = pair(**NESTED, dtype=dtype)
    with grad():
        x = nested(*lengths, dtype=dtype)
        expected, their_weights = theirs(x, x, x, **forward)
        output, weights = ours(x, x, x, **forward)
    assert expected.is_nested and output.is_nested
    assert output.layout == expected.layout
    assert_same(output.unbind(), expected.unbind())
    assert_same([weights], [their_weights])


@pytest.mark.filterwarnings(PROTOTYPE)
def test_a_nested_tensor_equals_its_sequences_one_by_one() -> None:
    _, ours = pair(**NESTED)
    x = nested(5, 3, 7)
    with torch.no_grad():
        output, weights = ours(x, x, x, average_attn_weights=False)
        for i, sequence in enumerate(x.unbind()):
            alone, of_alone = ours(sequence, sequence, sequence, average_attn_weights=False)
            assert_same(output.unbind()[i], alone)
            assert_same(weights[i], F.pad(of_alone, (0, 7 - len(sequence), 0, 7 - len(sequence))))


@pytest.mark.filterwarnings(PROTOTYPE)
def test_a_nested_tensor_under_autocast() -> None:
    theirs, ours = pair(**NESTED, dtype=torch.float32)
    x = nested(5, 3, 7, dtype=torch.float32)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        (expected, their_weights), (output, weights) = theirs(x, x, x), ours(x, x, x)
    assert expected.dtype == torch.bfloat16
    assert_close_to_its_largest(output.unbind(), expected.unbind())
    assert_same(weights, their_weights)


NESTED_ERRORS: dict[
    str, tuple[dict[str, Any], Callable[[Tensor], tuple[Any, ...]], dict[str, Any], list[str]]
] = {
    "attn_mask": (
        {},
        lambda x: (x, x, x),
        {"attn_mask": mask(5, 5)},
        ["there is a mask too", "to_padded_tensor"],
    ),
    "key_padding_mask": (
        {},
        lambda x: (x, x, x),
        {"key_padding_mask": mask(2, 5)},
        ["there is a mask too", "to_padded_tensor"],
    ),
    "float mask": (
        {},
        lambda x: (x, x, x),
        {"attn_mask": mask(5, 5).double()},
        ["attn_mask is float", "there is a mask too"],
    ),
    "key alone": (
        {},
        lambda x: (x.to_padded_tensor(0.0), x, x),
        {},
        ["key is a NestedTensor", "key.to_padded_tensor(0.0)"],
    ),
    "value alone": (
        {},
        lambda x: (*[x.to_padded_tensor(0.0)] * 2, x),
        {},
        ["value is a NestedTensor", "value.to_padded_tensor"],
    ),
    "query alone": (
        {},
        lambda x: (x, *[x.to_padded_tensor(0.0)] * 2),
        {},
        ["not one and the same tensor", "inference only"],
    ),
    "key apart": (
        {},
        lambda x: (x, x.clone(), x),
        {},
        ["not one and the same tensor", "inference only"],
    ),
    "key is missing": ({}, lambda x: (x, None, None), {}, ["not one and the same tensor"]),
    "training": (
        {"training": True},
        lambda x: (x, x, x),
        {},
        ["training mode", "module.eval()", "to_padded_tensor(0.0)"],
    ),
    "odd heads": ({"num_heads": 11}, lambda x: (x, x, x), {}, ["number of heads is odd: 11"]),
    "batch second": ({"batch_first": False}, lambda x: (x, x, x), {}, ["batch_first=False"]),
    "no bias": ({"bias": False}, lambda x: (x, x, x), {}, ["bias=False"]),
    "add_bias_kv": ({"add_bias_kv": True}, lambda x: (x, x, x), {}, ["add_bias_kv=True"]),
    "add_zero_attn": ({"add_zero_attn": True}, lambda x: (x, x, x), {}, ["add_zero_attn=True"]),
    "kdim": ({"kdim": KDIM}, lambda x: (x, x, x), {}, ["kdim or vdim differs from embed_dim"]),
    "type": (
        {"dtype": torch.float32},
        lambda x: (x, x, x),
        {},
        ["query is torch.float64", "in_proj_weight is torch.float32"],
    ),
    "no features": (
        {},
        lambda x: (torch.nested.nested_tensor([torch.zeros(5), torch.zeros(3)]),) * 3,
        {},
        ["query has 2 dimensions and not 3"],
    ),
}


@pytest.mark.filterwarnings(PROTOTYPE)
@pytest.mark.parametrize("build, given, masks, words", NESTED_ERRORS.values(), ids=NESTED_ERRORS)
def test_nested_tensors_that_are_refused(
    build: dict[str, Any],
    given: Callable[[Tensor], tuple[Any, ...]],
    masks: dict[str, Tensor],
    words: list[str],
) -> None:
    with torch.no_grad():
        theirs, ours = (
            failure(module, *given(nested(5, 3)), **masks) for module in pair(**NESTED | build)
        )
    assert type(ours) is type(theirs) is AssertionError
    assert_one_sentence(ours, words)


@pytest.mark.filterwarnings(PROTOTYPE)
@pytest.mark.parametrize("around", [torch.enable_grad, slow_path])
def test_a_nested_tensor_outside_of_inference(
    around: Callable[[], AbstractContextManager[None]],
) -> None:
    x = nested(5, 3)
    with torch.set_grad_enabled(around is torch.enable_grad), around():
        theirs, ours = (failure(module, x, x, x) for module in pair(**NESTED))
    assert type(ours) is type(theirs) is AssertionError
    assert_one_sentence(
        ours,
        [
            "inference only",
            "gradients are recorded" if around is torch.enable_grad else "switched off",
        ],
    )


@pytest.mark.filterwarnings(PROTOTYPE)
def test_the_functional_names_the_nested_query() -> None:
    x = nested(5, 3, features=E)
    error = failure(multi_head_attention_forward, **FUNCTIONAL | {"query": x, "key": x, "value": x})
    assert_one_sentence(error, ["query is a NestedTensor"])
    assert "the query is not" not in str(error)


# inside torch's models


def replaced(model: nn.Module) -> nn.Module:
    """Copy a model, with our module in place of each of torch's."""
    model = copy.deepcopy(model)
    for parent in list(model.modules()):
        for name, theirs in list(parent.named_children()):
            if type(theirs) is nn.MultiheadAttention:
                sizes = theirs.embed_dim, theirs.num_heads, theirs.dropout
                bias, dtype = theirs.in_proj_bias is not None, theirs.out_proj.weight.dtype
                ours = MultiheadAttention(
                    *sizes, bias=bias, batch_first=theirs.batch_first, dtype=dtype
                ).train(theirs.training)
                ours.load_state_dict(theirs.state_dict())
                setattr(parent, name, ours)
    assert not any(isinstance(module, nn.MultiheadAttention) for module in model.modules())
    return model


LAYER = {"d_model": 22, "nhead": 2, "dim_feedforward": 13, "dropout": 0.3, "dtype": torch.float64}
PADDING = torch.arange(5) >= torch.tensor([5, 2, 3])[:, None]  # (3, 5)
SOURCE = uniform(3, 5, 22, seed=30)
TARGET = uniform(3, 7, 22, seed=31)
CAUSAL = torch.ones(7, 7, dtype=torch.bool).triu(1)
MODELS: dict[str, tuple[Callable[..., nn.Module], tuple[Tensor, ...], dict[str, Any]]] = {
    "encoder layer": (nn.TransformerEncoderLayer, (SOURCE,), {}),
    "encoder layer, padding": (
        nn.TransformerEncoderLayer,
        (SOURCE,),
        {"src_key_padding_mask": PADDING},
    ),
    "encoder layer, both": (
        nn.TransformerEncoderLayer,
        (TARGET,),
        {
            "src_mask": CAUSAL,
            "src_key_padding_mask": torch.arange(7) >= torch.tensor([7, 4, 1])[:, None],
        },
    ),
    "encoder layer, causal": (
        nn.TransformerEncoderLayer,
        (TARGET,),
        {"src_mask": CAUSAL, "is_causal": True},
    ),
    "decoder layer": (nn.TransformerDecoderLayer, (TARGET, SOURCE), {}),
    "decoder layer, masks": (
        nn.TransformerDecoderLayer,
        (TARGET, SOURCE),
        {"tgt_mask": CAUSAL, "tgt_is_causal": True, "memory_key_padding_mask": PADDING},
    ),
}
in_both_modes = pytest.mark.parametrize("training", [True, False])
with_and_without_gradients = pytest.mark.parametrize("grad", [True, False])


def assert_same_model(
    theirs: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Any], training: bool, grad: bool
) -> None:
    """Compare outputs and gradients, with the same dropout.

    With the batch first, torch's output lies in memory as if the batch were second, and ours doesn't. Dropout draws in
    the order of the memory, so that what comes after attention would drop other numbers: there it is left out.
    """
    if any(
        isinstance(module, nn.MultiheadAttention) and module.batch_first
        for module in theirs.modules()
    ):
        theirs.apply(
            lambda module: setattr(module, "p", 0.0) if isinstance(module, nn.Dropout) else None
        )
    ours = replaced(fill(theirs).train(training))
    args = tuple(x.clone().requires_grad_(grad) for x in args)
    with torch.set_grad_enabled(grad):
        expected, output = (seeded(model, *args, **kwargs) for model in (theirs, ours))
    assert_same(output, expected)
    if grad:
        upstream = uniform(*expected.shape, seed=32)
        assert_same(
            torch.autograd.grad(output, args, upstream),
            torch.autograd.grad(expected, args, upstream),
        )


@in_both_modes
@with_and_without_gradients
@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("build, args, kwargs", MODELS.values(), ids=MODELS)
def test_inside_a_layer(
    build: Callable[..., nn.Module],
    args: tuple[Tensor, ...],
    kwargs: dict[str, Any],
    norm_first: bool,
    grad: bool,
    training: bool,
) -> None:
    model = build(**LAYER, batch_first=True, norm_first=norm_first)
    assert_same_model(model, args, kwargs, training, grad)


@in_both_modes
@with_and_without_gradients
@pytest.mark.parametrize("bias", [True, False])
def test_inside_a_layer_with_the_batch_second(bias: bool, grad: bool, training: bool) -> None:
    model = nn.TransformerEncoderLayer(**LAYER, bias=bias)
    assert_same_model(
        model, (SOURCE.transpose(0, 1),), {"src_key_padding_mask": PADDING}, training, grad
    )


def encoder() -> nn.TransformerEncoder:
    return nn.TransformerEncoder(
        nn.TransformerEncoderLayer(**LAYER, batch_first=True), 2, enable_nested_tensor=True
    )


@pytest.mark.filterwarnings(PROTOTYPE)
@in_both_modes
@with_and_without_gradients
def test_inside_an_encoder_that_nests_padded_sequences(grad: bool, training: bool) -> None:
    assert_same_model(encoder(), (SOURCE,), {"src_key_padding_mask": PADDING}, training, grad)


@pytest.mark.filterwarnings(PROTOTYPE)
def test_a_hook_makes_the_encoder_call_our_module_with_a_nested_tensor() -> None:
    theirs = fill(encoder().eval())
    ours = replaced(theirs)
    seen: list[Tensor] = []
    for model in theirs, ours:  # any hook keeps a layer off its fused operation
        for layer in model.layers:
            layer.self_attn.register_forward_hook(
                lambda module, args, output: seen.append(output[0])
            )
    with torch.no_grad():
        expected, output = (model(SOURCE, src_key_padding_mask=PADDING) for model in (theirs, ours))
    assert_same(output, expected)
    assert [x.is_nested for x in seen] == [True] * 4  # one call for each layer
    for their, our in zip(seen[:2], seen[2:], strict=True):
        assert_same(our.unbind(), their.unbind())


@pytest.mark.filterwarnings(PROTOTYPE)
@in_both_modes
@with_and_without_gradients
@pytest.mark.parametrize("masked", [True, False])
def test_inside_a_transformer(masked: bool, grad: bool, training: bool) -> None:
    kwargs = (
        {"tgt_mask": CAUSAL, "tgt_is_causal": True, "src_key_padding_mask": PADDING}
        if masked
        else {}
    )
    layers = {"num_encoder_layers": 2, "num_decoder_layers": 2, "batch_first": True}
    assert_same_model(nn.Transformer(**LAYER, **layers), (SOURCE, TARGET), kwargs, training, grad)


# inference


@pytest.mark.parametrize("average_attn_weights", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("padding", [False, True])
@pytest.mark.parametrize("shape", [None, (5, 5), (6, 5, 5)])
@pytest.mark.parametrize("dtype", EXACT)
def test_inference_equals_torch_s_fast_path(
    dtype: torch.dtype,
    shape: tuple[int, ...] | None,
    padding: bool,
    need_weights: bool,
    average_attn_weights: bool,
) -> None:
    theirs, ours = pair(**NESTED, dtype=dtype, dropout=0.3)
    x = SOURCE.to(dtype)
    masks = {
        "attn_mask": None if shape is None else blocked(*shape),
        "key_padding_mask": PADDING if padding else None,
    }
    returned = {"need_weights": need_weights, "average_attn_weights": average_attn_weights}
    with torch.no_grad():
        expected, results = (module(x, x, x, **masks, **returned) for module in (theirs, ours))
    assert not expected[0].isnan().any()
    assert_same(results, expected)


BLOCKED_ROW = torch.zeros(5, 5, dtype=torch.bool).index_fill(0, torch.tensor([3]), True)
BLOCKED_SEQUENCE = torch.arange(3)[:, None].expand(3, 5) == 1


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("grad", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize(
    "masks, rows",
    [
        ({"attn_mask": BLOCKED_ROW}, (slice(None), 3)),
        ({"key_padding_mask": BLOCKED_SEQUENCE}, (1, slice(None))),
    ],
    ids=["row", "sequence"],
)
@pytest.mark.parametrize("as_float", [False, True])
def test_a_row_whose_keys_are_all_blocked(
    as_float: bool,
    masks: dict[str, Tensor],
    rows: tuple[Any, Any],
    grad: Callable[[], AbstractContextManager[None]],
    training: bool,
) -> None:
    """NaN with weights, the bias of out_proj without: torch's slow path, in every mode. Its fast path has NaN for both."""
    theirs, ours = pair(training, **NESTED)
    if as_float:
        masks = {
            name: torch.zeros(x.shape).double().masked_fill(x, -math.inf)
            for name, x in masks.items()
        }
    blocked_rows = torch.zeros(3, 5, dtype=torch.bool)
    blocked_rows[rows] = True
    with grad():
        output, weights = ours(SOURCE, SOURCE, SOURCE, **masks)
        alone, _ = ours(SOURCE, SOURCE, SOURCE, **masks, need_weights=False)
        with slow_path():
            assert_same([output, weights], theirs(SOURCE, SOURCE, SOURCE, **masks))
            assert_same(alone, theirs(SOURCE, SOURCE, SOURCE, **masks, need_weights=False)[0])
    assert torch.equal(output.isnan().all(-1), blocked_rows)
    assert torch.equal(output.isnan().any(-1), blocked_rows)
    assert torch.equal(weights.isnan().all(-1), blocked_rows)
    assert torch.equal(alone[rows], ours.out_proj.bias.expand(alone[rows].shape))
    assert not alone.isnan().any()
    with torch.no_grad():
        fast, _ = theirs.eval()(SOURCE, SOURCE, SOURCE, **masks, need_weights=False)
    assert torch.equal(
        fast.isnan().all(-1), blocked_rows & (not as_float)
    )  # float masks take the slow path


@pytest.mark.parametrize("need_weights", [True, False])
def test_is_causal_alone_raises_in_inference_too(need_weights: bool) -> None:
    theirs, ours = pair(**NESTED)
    with torch.no_grad():
        fast = theirs(SOURCE, SOURCE, SOURCE, is_causal=True, need_weights=need_weights)
        assert_same(
            fast, theirs(SOURCE, SOURCE, SOURCE, need_weights=need_weights)
        )  # torch's fast path masks nothing
        with slow_path():
            error = failure(
                theirs, SOURCE, SOURCE, SOURCE, is_causal=True, need_weights=need_weights
            )
        ours_error = failure(
            ours, SOURCE, SOURCE, SOURCE, is_causal=True, need_weights=need_weights
        )
    assert type(ours_error) is type(error) is RuntimeError
    assert_one_sentence(ours_error, ["is_causal=True", "pass the causal mask too"])


# narrow types


MASKS: dict[str, dict[str, Tensor]] = {
    "none": {},
    "boolean": {"attn_mask": blocked(L, S)},
    "for each head": {"attn_mask": blocked(N * H, L, S)},
    "padding": {"key_padding_mask": blocked(N, S)},
    "both": {"attn_mask": blocked(L, S), "key_padding_mask": blocked(N, S)},
    "causal": {"attn_mask": torch.ones(L, S, dtype=torch.bool).triu(1), "is_causal": True},
}
NARROW_MASKS = MASKS | {
    "float": {"attn_mask": uniform(L, S).float()},
    "bfloat16": {"attn_mask": uniform(L, S).bfloat16()},
    "float padding": {"key_padding_mask": uniform(N, S).float()},
    "both float": {
        "attn_mask": uniform(N * H, L, S).float(),
        "key_padding_mask": uniform(N, S).float(),
    },
}
with_all_masks = pytest.mark.parametrize("masks", MASKS.values(), ids=MASKS)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("masks", NARROW_MASKS.values(), ids=NARROW_MASKS)
@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("training", [True, False])
def test_autocast(
    training: bool, separate: bool, masks: dict[str, Any], grad: bool, need_weights: bool
) -> None:
    theirs, ours = pair(training, dtype=torch.float32, dropout=0.3, **SEPARATE if separate else {})
    arguments = X | (SEPARATE_X if separate else {}) | masks
    with torch.set_grad_enabled(grad), torch.autocast("cpu", dtype=torch.bfloat16):
        expected, results = (
            seeded(module, **arguments, need_weights=need_weights) for module in (theirs, ours)
        )
    assert expected[0].dtype == torch.bfloat16
    assert_close_to_its_largest(results, expected, 0.03)
    if grad:
        our_gradients, their_gradients = (
            torch.autograd.grad(output.float().sum(), list(module.parameters()))
            for module, (output, _) in ((ours, results), (theirs, expected))
        )
        assert {gradient.dtype for gradient in our_gradients} == {torch.float32}
        assert_close_to_its_largest(our_gradients, their_gradients, 0.03)


@pytest.mark.parametrize("name, shape", [("attn_mask", (L, S)), ("key_padding_mask", (N, S))])
def test_autocast_takes_no_double_mask_with_weights(name: str, shape: tuple[int, ...]) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        theirs, ours = (
            failure(module, **X, **{name: uniform(*shape)}) for module in pair(dtype=torch.float32)
        )
    assert type(ours) is type(theirs) is RuntimeError
    assert_one_sentence(ours, [f"{name} is torch.float64"])


@pytest.mark.parametrize("need_weights", [True, False])
@with_all_masks
@pytest.mark.parametrize(
    "flags", [{}, {"add_bias_kv": True, "add_zero_attn": True}], ids=["", "appended"]
)
@pytest.mark.parametrize("dtype", HALF)
def test_narrow_modules(
    dtype: torch.dtype, flags: dict[str, bool], masks: dict[str, Any], need_weights: bool
) -> None:
    theirs, ours = pair(dtype=dtype, **flags)
    tensors = [(x / 4).to(dtype) for x in inputs()]
    with torch.no_grad():
        expected, results = (
            module(*tensors, **masks, need_weights=need_weights) for module in (theirs, ours)
        )
    assert_close_to_its_largest(results, expected)


@pytest.mark.parametrize("change", [nn.Module.half, nn.Module.bfloat16, nn.Module.double])
def test_a_module_changes_its_type(change: Callable[[nn.Module], nn.Module]) -> None:
    theirs, ours = (change(module) for module in pair(dtype=torch.float32))
    dtype = ours.out_proj.weight.dtype
    tensors = [(x / 4).to(dtype) for x in inputs()]
    assert dtype != torch.float32
    assert_close_to_its_largest(ours(*tensors), theirs(*tensors))


# compile, export, torch.func, second derivatives


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize(
    "masks", [MASKS["none"], MASKS["both"], MASKS["causal"]], ids=["none", "both", "causal"]
)
@pytest.mark.parametrize("training", [True, False])
def test_compiles_to_one_graph(
    training: bool, masks: dict[str, Any], grad: bool, need_weights: bool
) -> None:
    torch._dynamo.reset()
    theirs, ours = pair(training)
    with torch.set_grad_enabled(grad):
        results = torch.compile(ours, **EAGER)(*inputs(), **masks, need_weights=need_weights)
        assert_same(results, theirs(*inputs(), **masks, need_weights=need_weights))


@pytest.mark.parametrize(
    "build",
    [SEPARATE, {"add_bias_kv": True, "bias": False}, {"add_zero_attn": True, "dropout": 0.3}],
)
def test_other_modules_compile_too(build: dict[str, Any]) -> None:
    torch._dynamo.reset()
    theirs, ours = pair(training=True, **build)
    tensors = inputs(kdim=build.get("kdim", E), vdim=build.get("vdim", E))
    assert_same(seeded(torch.compile(ours, **EAGER), *tensors), seeded(theirs, *tensors))


def test_compiles_once_for_all_sizes() -> None:
    torch._dynamo.reset()
    theirs, ours = pair()
    graphs: list[Any] = []

    def count(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(ours, fullgraph=True, backend=count, dynamic=True)
    for batch, length in ((2, 5), (3, 7), (5, 11)):
        x = uniform(batch, length, E)
        assert_same(compiled(x, x, x), theirs(x, x, x))
    assert len(graphs) == 1


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("padding", [True, False])
def test_exports_with_any_batch_and_length(padding: bool, grad: bool, need_weights: bool) -> None:
    theirs, ours = pair()
    sizes = {0: torch.export.Dim("N", max=64), 1: torch.export.Dim("L", max=64)}
    x = uniform(2, 5, E)
    masks = {"key_padding_mask": blocked(2, 5)} if padding else {}
    shapes = {"query": sizes, "key": sizes, "value": sizes, "need_weights": None} | dict.fromkeys(
        masks, sizes
    )
    arguments = {"query": x, "key": x, "value": x, "need_weights": need_weights}
    with torch.set_grad_enabled(grad):
        program = torch.export.export(ours, (), arguments | masks, dynamic_shapes=shapes).module()
        for batch, length in ((2, 5), (3, 7), (11, 13)):
            x = uniform(batch, length, E, seed=batch)
            masks = {"key_padding_mask": blocked(batch, length)} if padding else {}
            arguments = {"query": x, "key": x, "value": x, "need_weights": need_weights} | masks
            assert_same(program(**arguments), theirs(**arguments))


def test_makes_no_number_on_a_device_without_any() -> None:
    ours = MultiheadAttention(E, H, batch_first=True, add_zero_attn=True, device="meta")
    tensors = [x.to("meta", torch.float32) for x in inputs()]
    for grad in True, False:
        with torch.set_grad_enabled(grad):
            output, weights = ours(*tensors, key_padding_mask=blocked(N, S).to("meta"))
        assert (output.shape, weights.shape) == ((N, L, E), (N, L, S + 1))
        assert output.device == weights.device == torch.device("meta")


def weighted(
    module: Callable[..., tuple[Tensor, Tensor]], *tensors: Tensor, **masks: Tensor
) -> Tensor:
    """Bring output and weights into one number."""
    output, weights = module(*tensors, **masks)
    return (output * output).sum() + (weights * weights * weights).sum()


with_some_masks = pytest.mark.parametrize(
    "masks", [MASKS["none"], MASKS["both"]], ids=["none", "both"]
)


@with_some_masks
def test_second_derivatives(masks: dict[str, Tensor]) -> None:
    results = []
    for module in pair():
        tensors = [x.requires_grad_() for x in inputs()]
        first = torch.autograd.grad(weighted(module, *tensors, **masks), tensors, create_graph=True)
        results.append(
            torch.autograd.grad(sum((g * g).sum() for g in first), [*tensors, *module.parameters()])
        )
    theirs, ours = results
    scale = max(their.abs().max() for their in theirs)
    assert_same([our / scale for our in ours], [their / scale for their in theirs])


def test_second_derivatives_without_weights_need_the_plain_kernel() -> None:
    results = []
    for module in pair():
        tensors = [x.requires_grad_() for x in inputs()]
        first = torch.autograd.grad(
            (module(*tensors, need_weights=False)[0] ** 2).sum(), tensors, create_graph=True
        )
        assert "is not implemented" in str(failure(torch.autograd.grad, first[0].sum(), tensors))
        with sdpa_kernel(SDPBackend.MATH):
            first = torch.autograd.grad(
                (module(*tensors, need_weights=False)[0] ** 2).sum(), tensors, create_graph=True
            )
        results.append(torch.autograd.grad(sum(g.sum() for g in first), tensors))
    theirs, ours = results
    assert_close_to_its_largest(ours, theirs)


def test_second_derivatives_by_differences() -> None:
    _, ours = pair(embed_dim=4, num_heads=2, kdim=3, vdim=5)
    tensors = [
        uniform(1, length, width, seed=width).requires_grad_()
        for length, width in ((2, 4), (3, 3), (3, 5))
    ]
    assert torch.autograd.gradgradcheck(lambda *t: ours(*t, average_attn_weights=False), tensors)


jit_warns = pytest.mark.filterwarnings(
    "ignore:.torch.jit.script:DeprecationWarning"
)  # torch's jvp still uses it


@jit_warns
@with_some_masks
@pytest.mark.parametrize("grad", [True, False])
def test_forward_mode_derivatives(grad: bool, masks: dict[str, Tensor]) -> None:
    tangents = tuple(uniform(*x.shape, seed=40 + i) for i, x in enumerate(inputs()))
    with torch.set_grad_enabled(grad):
        expected, results = (
            torch.func.jvp(partial(module, **masks), inputs(), tangents) for module in pair()
        )
    for our, their in zip(results, expected, strict=True):
        assert_same(our, their)


@jit_warns
@pytest.mark.parametrize("grad", [True, False])
def test_dual_numbers(grad: bool) -> None:
    theirs, ours = pair()
    tangents = [uniform(*x.shape, seed=40 + i) for i, x in enumerate(inputs())]
    with torch.set_grad_enabled(grad), forward_ad.dual_level():
        duals = [
            forward_ad.make_dual(x, tangent) for x, tangent in zip(inputs(), tangents, strict=True)
        ]
        for our, their in zip(ours(*duals), theirs(*duals), strict=True):
            assert_same(forward_ad.unpack_dual(our), forward_ad.unpack_dual(their))


@pytest.mark.filterwarnings(
    "ignore:There is a performance drop:UserWarning"
)  # torch's fused kernel
@with_some_masks
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_vmap(grad: bool, need_weights: bool, masks: dict[str, Tensor]) -> None:
    """Over batches of batches, which torch takes one after the other."""
    theirs, ours = pair()
    batches = [torch.stack([x, -x, x / 3]) for x in inputs()]
    with torch.set_grad_enabled(grad):
        results = torch.vmap(
            lambda *t: [x for x in ours(*t, **masks, need_weights=need_weights) if x is not None]
        )(*batches)
        for i, tensors in enumerate(zip(*batches, strict=True)):
            expected = [
                x for x in theirs(*tensors, **masks, need_weights=need_weights) if x is not None
            ]
            assert_same([result[i] for result in results], expected)


def test_vmap_over_single_sequences_and_their_masks() -> None:
    _, ours = pair()
    padding = blocked(N, S)
    expected = ours(*inputs(), key_padding_mask=padding)
    results = torch.vmap(lambda q, k, v, p: ours(q, k, v, key_padding_mask=p))(*inputs(), padding)
    assert_same(results, expected)


@pytest.mark.parametrize("grad", [True, False])
def test_gradients_of_each_sample(grad: bool) -> None:
    theirs, ours = pair()
    parameters = dict(ours.named_parameters())

    def loss(parameters: dict[str, Tensor], *tensors: Tensor) -> Tensor:
        return weighted(lambda *t: torch.func.functional_call(ours, parameters, t), *tensors)

    with torch.set_grad_enabled(grad):
        results = torch.vmap(torch.func.grad(loss), in_dims=(None, 0, 0, 0))(parameters, *inputs())
    for i, tensors in enumerate(zip(*inputs(), strict=True)):
        expected = torch.autograd.grad(weighted(theirs, *tensors), list(theirs.parameters()))
        assert_same([results[name][i] for name in parameters], expected, 1e-10)


# merge_masks


@pytest.mark.parametrize("padding", [None, torch.bool, torch.float64])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float64])
@pytest.mark.parametrize("shape", [None, (L, L), (N * H, L, L)])
def test_merge_masks(
    shape: tuple[int, ...] | None, dtype: torch.dtype, padding: torch.dtype | None
) -> None:
    attn_mask = (
        None
        if shape is None
        else (uniform(*shape, seed=50) > 0).to(dtype) * (1 if dtype == torch.bool else -7.0)
    )
    key_padding_mask = None if padding is None else (uniform(N, L, seed=51) > 0).to(padding)
    theirs, ours = pair()
    query = uniform(N, L, E)
    (expected, their_type), (merged, mask_type) = (
        m.merge_masks(attn_mask, key_padding_mask, query) for m in (theirs, ours)
    )
    assert mask_type == their_type
    assert (merged is None) == (expected is None)
    if expected is not None:
        assert merged.dtype == expected.dtype
        assert torch.equal(merged, expected)


def test_merge_masks_blocks_where_either_blocks() -> None:
    attn_mask, padding = blocked(L, L), blocked(N, L)
    merged, mask_type = pair()[1].merge_masks(attn_mask, padding, uniform(N, L, E))
    assert mask_type == 2
    assert merged.tolist() == (attn_mask | padding[:, None, None, :]).expand(N, H, L, L).tolist()


@pytest.mark.parametrize(
    "masks",
    [(mask(L, S), None), (mask(L, L), mask(L, N + 1)), (mask(N * H + 1, L, L), None)],
    ids=str,
)
def test_merge_masks_of_wrong_shapes(masks: tuple[Tensor, Tensor | None]) -> None:
    theirs, ours = (failure(module.merge_masks, *masks, uniform(N, L, E)) for module in pair())
    assert type(ours) is type(theirs) is RuntimeError


# memory


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
    """Attend, forwards and, with gradients, backwards; count the numbers of the largest tensor on the way."""
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
