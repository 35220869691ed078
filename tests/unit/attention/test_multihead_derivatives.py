"""Second and forward-mode derivatives, vmap, and gradients of each sample."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from pairs import (
    MASKS,
    N,
    S,
    assert_close_to_its_largest,
    assert_same,
    blocked,
    failure,
    inputs,
    pair,
    uniform,
)
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel


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


jit_warns = pytest.mark.filterwarnings("ignore:.torch.jit.script")  # torch's jvp still uses it


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


# torch's fused kernel
@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")
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
