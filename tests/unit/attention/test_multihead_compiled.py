"""torch.compile, torch.export and the meta device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from pairs import (
    MASKS,
    SEPARATE,
    E,
    H,
    L,
    N,
    S,
    assert_same,
    blocked,
    inputs,
    pair,
    seeded,
    uniform,
)
from torch import Tensor

from mha_widgets.attention.multihead import MultiheadAttention

EAGER = {"backend": "eager", "fullgraph": True}


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
