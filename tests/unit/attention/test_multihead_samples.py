"""The samples that torch tests itself with, of the module and of the functional."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pairs import (
    EXACT,
    HALF,
    TOLERANCE,
    assert_same,
    pair,
    seeded,
)
from torch import Tensor, nn
from torch.nn import functional as F

from mha_widgets.attention.functional import multi_head_attention_forward


def module_samples(dtype: torch.dtype, requires_grad: bool, training: bool) -> list[Any]:
    # here, since it freezes torch.backends for all
    from torch.testing._internal.common_modules import (
        module_db,
    )

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


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dtype", EXACT)
def test_module_samples(dtype: torch.dtype, training: bool, requires_grad: bool) -> None:
    """64 samples, which are the same in both modes: 128 a type,
    and 512 calls with and without gradients of the inputs.
    """
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


# Not the narrow types with weights: they round scores of hundreds before the softmax,
# so that torch itself is 10 % off.
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
        # scores of hundreds leave 4 digits
        tolerance = 1e-4 if dtype == torch.float32 else TOLERANCE[dtype]
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
