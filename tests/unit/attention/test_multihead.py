"""MultiheadAttention against torch's own: values,
weights and gradients over all arguments together.
"""

from __future__ import annotations

import pytest
import torch
from cases import Case, assert_same, cases, uniform
from hypothesis import given
from torch import Tensor, nn


def run(module: nn.Module, case: Case) -> tuple[list[Tensor | None], list[Tensor | None]]:
    """Return what the module returns, and the gradients of all that has one."""
    torch.manual_seed(0)  # the same dropout
    output, weights = module(*case.inputs, **case.forward)
    total = (output * uniform(*output.shape, dtype=output.dtype, seed=20)).sum()
    if weights is not None:
        total = total + (weights * uniform(*weights.shape, dtype=weights.dtype, seed=21)).sum()
    masks = [
        mask
        for mask in (case.forward["attn_mask"], case.forward["key_padding_mask"])
        if mask is not None
    ]
    leaves = [*case.inputs, *(mask for mask in masks if mask.requires_grad), *module.parameters()]
    return [output, weights], list(torch.autograd.grad(total, leaves, allow_unused=True))


@pytest.mark.filterwarnings(
    "ignore:.*mismatched key_padding_mask:UserWarning",
    "ignore:.*masks of different types:UserWarning",
)
@given(cases())
def test_a_call_and_its_gradients_equal_torch(case: Case) -> None:
    theirs, ours = case.modules()
    their_results, their_gradients = run(theirs, case)
    our_results, our_gradients = run(ours, case)
    assert_same(our_results, their_results, case.build["dtype"])
    assert_same(our_gradients, their_gradients, case.build["dtype"])
