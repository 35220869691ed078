"""Softmax and scaled_dot_product_attention against torch's own: values, gradients, errors."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from release import RELEASE
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from mha_widgets.attention.functional import scaled_dot_product_attention, softmax
from mha_widgets.attention.masks import additive_mask, causal_mask

EXACT = [torch.float32, torch.float64]
HALF = [torch.float16, torch.bfloat16]
SIZES = {"N": 2, "L": 5, "S": 7, "E": 3, "Ev": 11}  # distinct primes: a swapped axis can't pass

examples = settings(deadline=None, derandomize=True, max_examples=150)


def assert_same(ours: Tensor, theirs: Tensor) -> None:
    tolerance = 1e-12 if theirs.dtype == torch.float64 else 1e-5
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance, equal_nan=True)


def uniform(*shape: int, dtype: torch.dtype = torch.float64, seed: int = 0) -> Tensor:
    numbers = torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return (2 * numbers - 1).to(dtype)


def inputs(dtype: torch.dtype = torch.float64, **sizes: int) -> tuple[Tensor, Tensor, Tensor]:
    N, L, S, E, Ev = (SIZES | sizes).values()
    shapes = (N, L, E), (N, S, E), (N, S, Ev)
    query, key, value = (
        uniform(*shape, dtype=dtype, seed=seed) for seed, shape in enumerate(shapes)
    )
    return query, key, value


def assert_same_gradients(ours: Tensor, theirs: Tensor, leaves: list[Tensor]) -> None:
    upstream = uniform(*theirs.shape, dtype=theirs.dtype, seed=9)
    expected = torch.autograd.grad(theirs, leaves, upstream)
    for our_gradient, their_gradient in zip(
        torch.autograd.grad(ours, leaves, upstream), expected, strict=True
    ):
        assert_same(our_gradient, their_gradient)


# softmax


@st.composite
def softmax_cases(draw: st.DrawFn) -> tuple[Tensor, int]:
    shape = draw(st.lists(st.integers(0, 5), max_size=3))
    dim = draw(st.integers(-max(len(shape), 1), max(len(shape), 1) - 1))
    seed, dtype = draw(st.integers(0, 999)), draw(st.sampled_from(EXACT))
    scores = uniform(*shape, dtype=dtype, seed=seed) * draw(
        st.sampled_from([0.0, 1.0, 30.0, 1e4, 1e38])
    )
    blocked = uniform(*shape, seed=seed + 1) < draw(st.sampled_from([-1.0, 0.0, 0.8, 1.0]))
    return scores.masked_fill(blocked, -math.inf).requires_grad_(), dim


@examples
@given(softmax_cases())
def test_softmax_equals_torch(case: tuple[Tensor, int]) -> None:
    scores, dim = case
    ours, theirs = softmax(scores, dim), torch.softmax(scores, dim)
    assert_same(ours, theirs)
    assert_same_gradients(ours, theirs, [scores])


def test_softmax_by_hand() -> None:
    scores = torch.tensor([[0.0, math.log(3)], [1e4, -1e4]], dtype=torch.float64)
    assert_same(softmax(scores), torch.tensor([[0.25, 0.75], [1.0, 0.0]], dtype=torch.float64))


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("dim", [0, 1])
def test_softmax_in_half_precision(dtype: torch.dtype, dim: int) -> None:
    scores = uniform(5, 7, dtype=dtype) * 20
    atol = 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(softmax(scores, dim), torch.softmax(scores, dim), rtol=0, atol=atol)


@pytest.mark.parametrize("row", [[math.inf, 0.0], [math.nan, 0.0], [-math.inf, -math.inf]])
def test_softmax_is_nan_where_torch_is(row: list[float]) -> None:
    scores = torch.tensor([row, [0.0, 0.0]])
    assert torch.softmax(scores, -1).isnan().tolist() == [[True, True], [False, False]]
    assert_same(softmax(scores), torch.softmax(scores, -1))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_softmax_needs_floating_point(dtype: torch.dtype) -> None:
    scores = torch.ones(3, dtype=dtype)
    with pytest.raises(RuntimeError) as theirs:  # torch raises a subclass of RuntimeError
        torch.softmax(scores, 0)
    with pytest.raises(
        RuntimeError, match=rf"floating-point scores, but got {dtype}; .*\.float\(\)"
    ) as ours:
        softmax(scores, 0)
    assert isinstance(theirs.value, ours.type)


@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3)])
@pytest.mark.parametrize("dim", [2, -3])
def test_softmax_of_a_missing_axis(shape: tuple[int, ...], dim: int) -> None:
    for function in torch.softmax, softmax:
        with pytest.raises(IndexError, match=f"Dimension out of range .* got {dim}"):
            function(torch.ones(shape), dim)


def test_softmax_needs_a_tensor() -> None:
    with pytest.raises(TypeError, match="scores must be a tensor, but got list; use torch.tensor"):
        softmax([0.0, 1.0])


# scaled_dot_product_attention: parity over shapes, masks, scales


@st.composite
def repeated(draw: st.DrawFn, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Draw a shape that broadcasts to ``shape``: sizes set to 1, leading ones left out."""
    first = draw(st.integers(0, len(shape)))
    return tuple(draw(st.sampled_from([1, size])) for size in shape[first:])


@st.composite
def masks(draw: st.DrawFn, shape: tuple[int, ...], dtype: torch.dtype) -> dict[str, Any]:
    kind = draw(st.sampled_from(["none", "causal", "boolean", "float"]))
    if kind in ("none", "causal"):
        return {"is_causal": kind == "causal"}
    shape, seed = draw(repeated(shape)), draw(st.integers(0, 999))
    # all, most, few, none
    allowed = uniform(*shape, seed=seed) > draw(st.sampled_from([-1.0, -0.5, 0.5, 1.0]))
    if kind == "boolean":
        return {"attn_mask": allowed}
    blocked = draw(st.sampled_from([-math.inf, -20.0, 0.0]))
    added = 3 * uniform(*shape, dtype=dtype, seed=seed + 1)
    return {"attn_mask": added.masked_fill(~allowed, blocked).requires_grad_()}


@st.composite
def attention_cases(draw: st.DrawFn) -> tuple[list[Tensor], dict[str, Any]]:
    dtype, seed = draw(st.sampled_from(EXACT)), draw(st.integers(0, 999))
    L, S, E, Ev = draw(st.permutations([5, 7, 11, 13]))
    leading = draw(st.sampled_from([(), (2,), (2, 3)]))
    # torch's fast kernel takes only query, key, value of the same leading sizes
    alike = draw(st.booleans())
    of_query, of_key, of_value = (leading if alike else draw(repeated(leading)) for _ in range(3))
    shapes = (*of_query, L, E), (*of_key, S, E), (*of_value, S, E if alike else Ev)
    tensors = [
        uniform(*shape, dtype=dtype, seed=seed + i).requires_grad_()
        for i, shape in enumerate(shapes)
    ]
    kwargs = draw(masks((*torch.broadcast_shapes(of_query, of_key), L, S), dtype))
    kwargs["scale"] = draw(st.sampled_from([None, 0.0, -0.7, 1.3]))
    return tensors, kwargs


def reference(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, **kwargs: Any
) -> Tensor:
    """Call torch, around two faults of its fast kernel on CPU,
    which takes 4-D inputs of equal leading sizes.
    """
    if attn_mask is not None:
        attn_mask = torch.atleast_2d(attn_mask)  # it fails on a mask (S,)
    backends = [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]
    scale = kwargs["scale"]
    if kwargs.get("is_causal") and scale is not None and scale <= 0:
        # it multiplies the -inf of is_causal by the scale: NaN unless that is above 0
        backends = [SDPBackend.MATH]
    with sdpa_kernel(backends):
        return F.scaled_dot_product_attention(query, key, value, attn_mask, **kwargs)


@examples
@given(attention_cases())
def test_output_and_gradients_equal_torch(case: tuple[list[Tensor], dict[str, Any]]) -> None:
    tensors, kwargs = case
    mask = kwargs.get("attn_mask")
    ours, theirs = scaled_dot_product_attention(*tensors, **kwargs), reference(*tensors, **kwargs)
    assert_same(ours, theirs)
    leaves = tensors if mask is None or not mask.requires_grad else [*tensors, mask]
    assert_same_gradients(ours, theirs, leaves)


@examples
@given(attention_cases())
def test_weights_are_what_torch_averages_with(case: tuple[list[Tensor], dict[str, Any]]) -> None:
    (query, key, value), kwargs = case
    output, weights = scaled_dot_product_attention(query, key, value, **kwargs, need_weights=True)
    identity = torch.eye(key.shape[-2], dtype=key.dtype)  # averages of unit vectors are the weights
    theirs = reference(query, key, identity, **kwargs)
    assert_same(weights, theirs)
    assert_same(output, theirs @ value)
    assert_same_gradients(weights, theirs, [query, key])


@pytest.mark.parametrize("as_float", [False, True])
@pytest.mark.parametrize("dtype", EXACT)
def test_a_row_without_keys_is_zero_and_passes_no_nan_back(
    dtype: torch.dtype, as_float: bool
) -> None:
    query, key, value = (tensor.requires_grad_() for tensor in inputs(dtype))
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[3] = False
    mask = additive_mask(mask, dtype) if as_float else mask
    output, weights = scaled_dot_product_attention(query, key, value, mask, need_weights=True)
    assert output[:, 3].tolist() == [[0.0] * 11] * 2
    assert weights.sum(-1).allclose(torch.tensor([1.0, 1, 1, 0, 1], dtype=dtype))
    theirs = F.scaled_dot_product_attention(query, key, value, mask)
    assert_same(output, theirs)
    assert_same_gradients(output, theirs, [query, key, value])
    total = scaled_dot_product_attention(query, key, value, mask).sum()
    assert torch.autograd.grad(total, query)[0][:, 3].tolist() == [[0.0] * 3] * 2


def test_by_hand() -> None:
    query, key = (
        torch.tensor([[2.0 * math.log(3), 0, 0, 0]]),
        torch.tensor([[1.0, 0, 0, 0], [0.0, 1, 0, 0]]),
    )
    value = torch.tensor([[4.0], [8.0]])
    # scale 1 / sqrt(4)
    output, weights = scaled_dot_product_attention(query, key, value, need_weights=True)
    assert_same(weights, torch.tensor([[0.75, 0.25]]))
    assert_same(output, torch.tensor([[5.0]]))


# sizes, types and layouts at the edge


@pytest.mark.parametrize("kind", ["none", "causal", "boolean", "float"])
@pytest.mark.parametrize(
    "size", [{"S": 0}, {"L": 0}, {"N": 0}, {"Ev": 0}, {"E": 0}, {"L": 1, "S": 1}]
)
def test_empty_and_single(size: dict[str, int], kind: str) -> None:
    query, key, value = (tensor.requires_grad_() for tensor in inputs(**size))
    allowed = uniform(query.shape[-2], key.shape[-2], seed=3) > 0
    mask = {"boolean": allowed, "float": additive_mask(allowed, query.dtype)}.get(kind)
    kwargs = {"attn_mask": mask, "is_causal": kind == "causal"}
    ours, weights = scaled_dot_product_attention(query, key, value, **kwargs, need_weights=True)
    theirs = F.scaled_dot_product_attention(query, key, value, **kwargs)
    assert_same(ours, theirs)
    assert_same_gradients(ours, theirs, [query, key, value])
    assert weights.shape == (*query.shape[:-1], key.shape[-2])


@pytest.mark.parametrize("dtype", EXACT)
def test_scores_of_ten_thousands(dtype: torch.dtype) -> None:
    query, key, value = inputs(dtype)
    # whole numbers: their products are exact
    query, key = (
        (100 * query).round() * 10,
        (100 * key).round(),
    )
    assert (query @ key.mT).abs().max() > 1e4
    ours = scaled_dot_product_attention(query, key, value, scale=1.0)
    assert_same(ours, F.scaled_dot_product_attention(query, key, value, scale=1.0))


@pytest.mark.parametrize("dtype", EXACT)
def test_non_contiguous_inputs(dtype: torch.dtype) -> None:
    query = uniform(3, 5, 2, dtype=dtype).permute(2, 1, 0)
    key = uniform(1, 7, 6, dtype=dtype, seed=1)[..., ::2].expand(2, 7, 3)
    value = uniform(2, 11, 14, dtype=dtype, seed=2).mT[:, ::2]
    mask = (uniform(7, 5, seed=3) > -0.5).mT
    assert not any(tensor.is_contiguous() for tensor in (query, key, value, mask))
    expected = F.scaled_dot_product_attention(
        *(tensor.contiguous() for tensor in (query, key, value, mask))
    )
    assert_same(scaled_dot_product_attention(query, key, value, mask), expected)


@pytest.mark.parametrize("dtype", HALF)
def test_half_precision(dtype: torch.dtype) -> None:
    query, key, value = inputs(dtype)
    ours, weights = scaled_dot_product_attention(query, key, value, need_weights=True)
    theirs = F.scaled_dot_product_attention(query, key, value)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=2 * torch.finfo(dtype).eps)
    assert weights.dtype == dtype


@pytest.mark.parametrize("dtype", [torch.float64, *HALF])
def test_a_float32_mask_keeps_its_range(dtype: torch.dtype) -> None:
    query, key, value = inputs(dtype)
    mask = torch.zeros(5, 7)
    mask[
        1
    ] = -1e9  # beyond float16, where it would become -inf and the row zero instead of the mean
    ours, weights = scaled_dot_product_attention(query, key, value, mask, need_weights=True)
    theirs = F.scaled_dot_product_attention(query, key, value, mask)
    atol = 1e-12 if dtype == torch.float64 else 2 * torch.finfo(dtype).eps
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)
    assert weights.dtype == dtype
    assert (weights[:, 1] > 0.05).all()


def test_inputs_and_mask_stay_as_they_are() -> None:
    tensors = (*inputs(), additive_mask(causal_mask(5, 7), torch.float64))
    before = [tensor.clone() for tensor in tensors]
    scaled_dot_product_attention(*tensors)
    softmax(tensors[0])
    assert all(torch.equal(now, then) for now, then in zip(tensors, before, strict=True))


def test_everything_is_made_on_the_device_of_the_query() -> None:
    tensors = [tensor.to("meta") for tensor in inputs()]
    output, weights = scaled_dot_product_attention(*tensors, is_causal=True, need_weights=True)
    assert (output.shape, weights.shape) == ((2, 5, 11), (2, 5, 7))
    assert output.device == weights.device == torch.device("meta")


# dropout


@pytest.mark.parametrize("kind", ["none", "causal", "boolean"])
@pytest.mark.parametrize("dtype", EXACT)
def test_dropout_equals_torch_for_the_same_seed(dtype: torch.dtype, kind: str) -> None:
    tensors = [tensor.requires_grad_() for tensor in inputs(dtype)]
    mask = uniform(5, 7, seed=3) > 0 if kind == "boolean" else None
    kwargs = {"attn_mask": mask, "is_causal": kind == "causal", "dropout_p": 0.3}
    torch.manual_seed(1)
    ours = scaled_dot_product_attention(*tensors, **kwargs)
    torch.manual_seed(1)
    with sdpa_kernel(SDPBackend.MATH):
        theirs = F.scaled_dot_product_attention(*tensors, **kwargs)
    assert_same(ours, theirs)
    assert_same_gradients(ours, theirs, tensors)


def test_dropout_zeroes_a_share_and_divides_the_rest() -> None:
    query, key, value = inputs(L=101, S=103)
    _, full = scaled_dot_product_attention(query, key, value, need_weights=True)
    torch.manual_seed(0)
    output, dropped = scaled_dot_product_attention(
        query, key, value, dropout_p=0.25, need_weights=True
    )
    kept = dropped != 0
    # four deviations
    assert abs((~kept).double().mean() - 0.25) < 4 * math.sqrt(0.25 * 0.75 / kept.numel())
    assert_same(dropped, torch.where(kept, full / 0.75, 0.0))
    assert_same(output, dropped @ value)


def test_dropout_of_everything() -> None:
    output, weights = scaled_dot_product_attention(*inputs(), dropout_p=1.0, need_weights=True)
    assert output.count_nonzero() == weights.count_nonzero() == 0


# what is built on it: compile, double backward, jvp, vmap


@pytest.mark.parametrize("kind", ["none", "causal", "boolean", "float", "weights"])
def test_compiles_to_one_graph(kind: str) -> None:
    torch._dynamo.reset()
    query, key, value = inputs()
    allowed = uniform(5, 7, seed=3) > 0
    mask = {"boolean": allowed, "float": uniform(5, 7, seed=4)}.get(kind)
    graph = torch.compile(scaled_dot_product_attention, fullgraph=True, backend="eager")
    ours = graph(
        query, key, value, mask, is_causal=kind == "causal", need_weights=kind == "weights"
    )
    theirs = F.scaled_dot_product_attention(query, key, value, mask, is_causal=kind == "causal")
    assert_same(ours[0] if kind == "weights" else ours, theirs)


@pytest.mark.parametrize("mask", [None, causal_mask(2, 3), uniform(2, 3, seed=5).requires_grad_()])
def test_second_derivatives(mask: Tensor | None) -> None:
    tensors = [tensor.requires_grad_() for tensor in inputs(L=2, S=3, E=2, Ev=2)]
    if mask is not None:
        tensors.append(mask)
    assert torch.autograd.gradgradcheck(scaled_dot_product_attention, tensors)


@pytest.mark.filterwarnings("ignore:.torch.jit.script")  # torch's jvp still uses it
@pytest.mark.parametrize("is_causal", [False, True])
def test_forward_mode_derivatives(is_causal: bool) -> None:
    tensors = inputs()
    tangents = tuple(uniform(*tensor.shape, seed=7 + i) for i, tensor in enumerate(tensors))
    ours = torch.func.jvp(
        lambda *t: scaled_dot_product_attention(*t, is_causal=is_causal), tensors, tangents
    )
    with sdpa_kernel(SDPBackend.MATH):
        theirs = torch.func.jvp(
            lambda *t: F.scaled_dot_product_attention(*t, is_causal=is_causal),
            tensors,
            tangents,
        )
    for our_part, their_part in zip(ours, theirs, strict=True):
        assert_same(our_part, their_part)


def test_vmap_over_the_batch_and_its_masks() -> None:
    masks = uniform(2, 5, 7, seed=3) > 0
    ours = torch.vmap(scaled_dot_product_attention)(*inputs(), masks)
    assert_same(ours, F.scaled_dot_product_attention(*inputs(), masks))


# errors: the class that torch raises, and a sentence that says what came and what to do

QUERY, KEY, VALUE = inputs(torch.float32)
MASK = torch.ones(5, 7, dtype=torch.bool)
WRONG = {
    "query is 1-D": ({"query": QUERY[0, 0]}, ["query (3,)", "at least 2 dimensions", "(L, E)"]),
    "value is 1-D": ({"value": VALUE[0, 0]}, ["value (11,)", "at least 2 dimensions", "(S, Ev)"]),
    "key type": ({"key": KEY.double()}, ["query torch.float32, key torch.float64", ".to(dtype)"]),
    "value type": (
        {"value": VALUE.half()},
        ["value torch.float16", "one floating type", ".to(dtype)"],
    ),
    "E differs": ({"key": KEY[..., :2]}, ["query (2, 5, 3), key (2, 7, 2)", "same last size E"]),
    "S differs": ({"value": VALUE[:, :6]}, ["key (2, 7, 3) and value (2, 6, 11)", "same length S"]),
    "N differs": ({"key": KEY[[0, 0, 0]]}, ["query (2, 5, 3), key (3, 7, 3)", "same, or 1"]),
    "N of value": ({"value": VALUE[[0, 0, 0]]}, ["value (3, 7, 11)", "same, or 1"]),
    "N, with a mask": ({"key": KEY[[0, 0, 0]], "attn_mask": MASK}, ["key (3, 7, 3)", "same, or 1"]),
    "dropout_p": ({"dropout_p": 1.5}, ["from 0 to 1", "but got 1.5"]),
    "two masks": (
        {"attn_mask": MASK, "is_causal": True},
        ["both", "causal_mask(L, S) & attn_mask"],
    ),
    "two masks, float": (
        {"attn_mask": MASK.float(), "is_causal": True},
        ["both", "additive_mask(causal_mask(L, S)) + attn_mask"],
    ),
    "integer mask": (
        {"attn_mask": MASK.long()},
        ["attn_mask of torch.int64", "True = may look", "mask != 0"],
    ),
    "double mask": (
        {"attn_mask": MASK.double()},
        ["attn_mask of torch.float64", "mask.to(torch.float32)"],
    ),
    "mask sizes": ({"attn_mask": MASK[:, :6]}, ["shape (5, 6)", "(..., L, S) = (2, 5, 7)"]),
    "mask of (N, S)": (
        {"attn_mask": MASK[:2]},
        ["shape (2, 7)", "mask[:, None, :]", "padding mask"],
    ),
    "mask of another N": ({"attn_mask": MASK.expand(3, 5, 7)}, ["shape (3, 5, 7)", "(2, 5, 7)"]),
    "mask of more axes": (
        {"attn_mask": MASK.expand(3, 2, 5, 7)},
        ["shape (3, 2, 5, 7)", "(2, 5, 7)"],
    ),
    "query is an array": (
        {"query": QUERY.numpy()},
        ["query must be a tensor", "ndarray", "torch.tensor(query)"],
    ),
    "value is missing": ({"value": None}, ["value must be a tensor", "NoneType"]),
    "mask is a list": ({"attn_mask": MASK.tolist()}, ["attn_mask must be a tensor", "list"]),
}


@pytest.mark.parametrize("front", [(1, 1), (1, 2)])
@pytest.mark.parametrize("boolean", [True, False])
def test_a_mask_with_one_axis_more(front: tuple[int, int], boolean: bool) -> None:
    mask = MASK.expand(*front, *MASK.shape[-2:])
    mask = mask if boolean else mask.float()
    ours = scaled_dot_product_attention(QUERY, KEY, VALUE, mask)
    torch.testing.assert_close(ours, scaled_dot_product_attention(QUERY, KEY, VALUE, mask[0]))
    if RELEASE >= (2, 14):
        torch.testing.assert_close(ours, F.scaled_dot_product_attention(QUERY, KEY, VALUE, mask))
    else:
        with pytest.raises(RuntimeError):
            F.scaled_dot_product_attention(QUERY, KEY, VALUE, mask)


@pytest.mark.parametrize("changes, words", WRONG.values(), ids=WRONG)
def test_errors(changes: dict[str, Any], words: list[str]) -> None:
    arguments = {"query": QUERY, "key": KEY, "value": VALUE} | changes
    with pytest.raises(Exception) as theirs:
        F.scaled_dot_product_attention(**arguments)
    with pytest.raises(theirs.type) as ours:
        scaled_dot_product_attention(**arguments)
    assert ours.type is theirs.type
    assert str(ours.value).startswith(str(theirs.value))
    assert [word for word in words if word not in str(ours.value)] == []


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.complex64])
def test_inputs_need_floating_point(dtype: torch.dtype) -> None:
    tensors = [torch.ones(3, 3, dtype=dtype)] * 3
    with pytest.raises(RuntimeError) as theirs:
        F.scaled_dot_product_attention(*tensors)
    with pytest.raises(RuntimeError, match=f"query {dtype}, .* one floating type") as ours:
        scaled_dot_product_attention(*tensors)
    assert str(ours.value).startswith(str(theirs.value))


@pytest.mark.parametrize("dropout_p", [-0.1, math.nan])
def test_dropout_that_torch_lets_pass(dropout_p: float) -> None:
    with pytest.raises(RuntimeError, match=f"from 0 to 1, but got {dropout_p}"):
        scaled_dot_product_attention(*inputs(), dropout_p=dropout_p)
