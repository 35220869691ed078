"""Parameters of several types: what torch computes is computed, what it refuses is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pairs import SEPARATE, E, assert_close_to_its_largest, failure, inputs, pair
from torch import Tensor, nn

from mha_widgets import trace

PACKED = ["in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias"]
APART = ["q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias"]
# A module's arguments, and those of its parameters that get another type.
CHANGES: list[tuple[dict[str, Any], str]] = [
    *(({}, name) for name in PACKED),
    ({}, "in_proj_bias out_proj.bias"),
    *(({"add_bias_kv": True}, name) for name in ("bias_k", "bias_v", "bias_k bias_v")),
    *((SEPARATE, name) for name in APART),
    (SEPARATE, "q_proj_weight k_proj_weight v_proj_weight"),
    (SEPARATE | {"add_bias_kv": True, "add_zero_attn": True}, "in_proj_bias bias_k bias_v"),
]
LAYOUTS = ["batch", "one sequence", "a batch of one", "not contiguous", "self"]


def changed(module: nn.Module, names: str, dtype: torch.dtype) -> nn.Module:
    """Give some parameters another type."""
    for name in names.split():
        owner, _, last = name.rpartition(".")
        parameter = nn.Parameter(module.get_parameter(name).to(dtype))
        setattr(module.get_submodule(owner), last, parameter)
    return module


def laid_out(layout: str, batch_first: bool, build: dict[str, Any]) -> list[Tensor]:
    """Make inputs that are contiguous as they are, once the batch is second, or neither."""
    tensors = list(inputs(kdim=build.get("kdim", E), vdim=build.get("vdim", E)))
    if layout == "one sequence":
        return [x[0] for x in tensors]
    if layout == "a batch of one":
        tensors = [x[:1] for x in tensors]
    if not batch_first:
        tensors = [x.transpose(0, 1).contiguous() for x in tensors]
    if layout == "not contiguous":
        return [x.mT.contiguous().mT for x in tensors]
    return tensors[:1] * 3 if layout == "self" and "kdim" not in build else tensors


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("build, names", CHANGES, ids=str)
def test_one_more_type(build: dict[str, Any], names: str, layout: str, batch_first: bool) -> None:
    tensors = laid_out(layout, batch_first, build)
    for other in torch.float16, torch.float32:
        theirs, ours = (
            changed(module, names, other) for module in pair(batch_first=batch_first, **build)
        )
        for need_weights in True, False:
            arguments = *tensors, None, need_weights
            try:
                expected = theirs(*arguments)
            except RuntimeError as error:
                assert type(failure(ours, *arguments)) is type(error)
                assert type(failure(trace, theirs, *arguments)) is type(error)
            else:
                assert_close_to_its_largest(ours(*arguments), expected)
                assert trace(theirs, *arguments).difference < 1e-12


@pytest.mark.parametrize("build", [{}, SEPARATE], ids=["packed", "separate"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_a_narrow_bias_and_its_gradient(dtype: torch.dtype, build: dict[str, Any]) -> None:
    theirs, ours = (changed(module, "in_proj_bias", dtype) for module in pair(**build))
    tensors = laid_out("batch", True, build)
    expected, results = theirs(*tensors), ours(*tensors)
    assert results[0].dtype == expected[0].dtype == torch.float64
    their_gradients, gradients = (
        torch.autograd.grad(output.sum(), list(module.parameters()))
        for module, (output, _) in ((theirs, expected), (ours, results))
    )
    assert {gradient.dtype for gradient in gradients} == {torch.float64, dtype}
    assert_close_to_its_largest([*results, *gradients], [*expected, *their_gradients], 1e-3)
