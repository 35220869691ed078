"""Problems with what looks into a module or turns it into something else: hooks, types,
export, derivatives, counters.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from release import OLDEST, RELEASE, not_on_oldest
from test_problems import KINDS, causal, far, make, no_mask, said, says, warned
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from mha_widgets import MultiheadAttention

SCRIPT = pytest.mark.filterwarnings("ignore:`torch.jit", "ignore::torch.jit.TracerWarning")
BOTH_WEIGHTS = pytest.mark.parametrize("need_weights", [True, False])


@pytest.fixture(autouse=True)
def fast_path_is_on_again() -> Iterator[None]:
    before = torch.backends.mha.get_fastpath_enabled()
    yield
    torch.backends.mha.set_fastpath_enabled(before)


class Lora(nn.Module):
    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base, self.weight, self.bias = base, base.weight, base.bias
        self.down, self.up = nn.Linear(4, 1, bias=False), nn.Linear(1, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x))


class SelfAttention(nn.Module):
    """The output alone, as exporters want it."""

    def __init__(self, kind: type[nn.Module], seed: int) -> None:
        super().__init__()
        self.attention = make(kind, seed, 8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


@KINDS
def test_32_the_output_projection_is_never_called(kind: type[nn.Module]) -> None:
    module, x, calls = make(kind, 32, 4, 2), torch.randn(1, 3, 4), []
    module.out_proj.register_forward_hook(lambda *_: calls.append(1))
    before = module(x, x, x)[0]
    module.out_proj.forward = lambda y: y * 1000
    assert torch.equal(module(x, x, x)[0], before) and calls == []
    words = "out_proj is never called, only its weight and bias are read"
    assert warned(words, module, x, x, x)
    module = make(kind, 32, 4, 2)
    assert not warned(words, module, x, x, x)
    module.out_proj = Lora(module.out_proj)
    module(x, x, x)[0].sum().backward()
    assert module.out_proj.down.weight.grad is None and module.out_proj.up.weight.grad is None
    assert module.out_proj.weight.grad.abs().sum() > 0
    assert warned(words, module, x, x, x)


@KINDS
@BOTH_WEIGHTS
@pytest.mark.parametrize("name", ["attn_mask", "key_padding_mask"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_38_a_narrow_module_with_a_float32_mask(
    kind: type[nn.Module], need_weights: bool, name: str, dtype: torch.dtype
) -> None:
    module, x = make(kind, 38, 8, 2, dtype=dtype), torch.randn(1, 3, 8, dtype=dtype)
    shape = (3, 3) if name == "attn_mask" else (1, 3)
    floats = {
        name: torch.zeros(shape).index_fill(-1, torch.tensor([2]), -torch.inf),
        "need_weights": need_weights,
    }
    booleans = {name: floats[name].isinf(), "need_weights": need_weights}
    expected = module(x, x, x, **booleans)[0]
    assert expected.dtype == dtype and expected.isfinite().all()
    if need_weights:
        c10 = {torch.bfloat16: "c10::BFloat16", torch.float16: "c10::Half"}[dtype]
        words = f"Input dtypes must be the same, got: input float, batch1: {c10}, batch2: {c10}"
        if kind is MultiheadAttention:
            words = (
                f"{name} is torch.float32 and the query {dtype}; use {name}.to(query.dtype), or"
                " booleans."
            )
        assert says(said(module, x, x, x, **floats), f"RuntimeError: {words}")
    else:
        assert far(module(x, x, x, **floats)[0], expected) <= 2 * torch.finfo(dtype).eps


@KINDS
@BOTH_WEIGHTS
def test_39_autocast_works_with_every_mask(kind: type[nn.Module], need_weights: bool) -> None:
    module, x = make(kind, 39, 16, 4), torch.randn(2, 5, 16)
    masks = (
        {},
        {"attn_mask": causal(5)},
        {"attn_mask": torch.zeros(5, 5).masked_fill(causal(5), -torch.inf)},
    )
    masks += ({"key_padding_mask": torch.zeros(2, 5)}, {"key_padding_mask": no_mask(2, 5)})
    for training in (True, False):
        module.train(training)
        for mask, dtype in itertools.product(masks, (torch.float32, torch.bfloat16)):
            expected, y = module(x, x, x, **mask), x.to(dtype)
            with torch.set_grad_enabled(training), torch.autocast("cpu", dtype=torch.bfloat16):
                output, weights = module(y, y, y, need_weights=need_weights, **mask)
            assert output.dtype == torch.bfloat16 and far(output, expected[0]) < 0.02
            if need_weights:
                assert weights.dtype == torch.bfloat16 and far(weights, expected[1]) < 0.02


@SCRIPT
def test_40_torchscript_takes_no_module_without_bias_and_none_of_ours() -> None:
    class Fresh(nn.MultiheadAttention):  # TorchScript remembers a class that it failed on
        pass

    torch.manual_seed(40)
    for build in ({}, {"kdim": 6, "vdim": 6}):
        module = Fresh(8, 2, **build)
        query, key = torch.randn(3, 1, 8), torch.randn(4, 1, build.get("kdim", 8))
        assert far(torch.jit.script(module)(query, key, key)[0], module(query, key, key)[0]) < 1e-6
    words = "RuntimeError: 'NoneType' object has no attribute or method 'dtype'"
    assert says(said(torch.jit.script, Fresh(8, 2, bias=False)), words)
    assert says(said(torch.jit.script, MultiheadAttention(8, 2)), "NotSupportedError")


@SCRIPT
@KINDS
@pytest.mark.parametrize("gradients", [True, False])
def test_41_a_traced_module_keeps_the_operation_that_it_met(
    kind: type[nn.Module], gradients: bool
) -> None:
    module = SelfAttention(kind, 41).eval()
    x, other = torch.randn(2, 5, 8), torch.randn(3, 7, 8)
    with torch.set_grad_enabled(gradients):
        traced = torch.jit.trace(module, x, check_trace=False)
        if (
            kind is nn.MultiheadAttention and gradients
        ):  # its own check calls without gradients: on the fast path
            words = "TracingCheckError: Tracing failed sanity checks!"
            assert said(torch.jit.trace, module, x) == words
        else:
            assert far(torch.jit.trace(module, x)(other), module(other)) < 1e-6
    operations = {
        node.kind() for node in traced.inlined_graph.nodes() if "attention" in node.kind()
    }
    native = kind is nn.MultiheadAttention and not gradients
    assert operations == {
        "aten::_native_multi_head_attention" if native else "aten::scaled_dot_product_attention"
    }
    assert far(traced(other), module(other)) < 1e-6


@not_on_oldest
@KINDS
@pytest.mark.parametrize("gradients", [True, False])
def test_41_export_with_any_batch_and_length(kind: type[nn.Module], gradients: bool) -> None:
    module = SelfAttention(kind, 41).eval()
    x, other = torch.randn(2, 5, 8), torch.randn(3, 7, 8)
    sizes = {0: torch.export.Dim("N", min=2, max=64), 1: torch.export.Dim("L", min=2, max=512)}
    with torch.set_grad_enabled(gradients):
        exported = torch.export.export(module, (x,), dynamic_shapes={"x": sizes})
    assert far(exported.module()(other), module(other)) < 1e-6


ONNX_WARNINGS = pytest.mark.filterwarnings(
    "ignore:.*legacy TorchScript-based ONNX export:DeprecationWarning",
    "ignore:The feature will be removed:DeprecationWarning",
    "ignore::torch.jit.TracerWarning",
)


@ONNX_WARNINGS
@KINDS
@pytest.mark.parametrize(("gradients", "fast"), [(True, True), (False, True), (False, False)])
def test_42_onnx_has_no_native_attention(
    kind: type[nn.Module], gradients: bool, fast: bool
) -> None:
    module, x, file = SelfAttention(kind, 42).eval(), torch.randn(2, 5, 8), io.BytesIO()
    torch.backends.mha.set_fastpath_enabled(fast)

    def export() -> None:
        # The model is ready before the exporter asks
        # the package onnx for functions that it may lack.
        place = "" if OLDEST else "torchscript_exporter."
        last_step = f"torch.onnx._internal.{place}onnx_proto_utils._add_onnxscript_fn"
        with torch.set_grad_enabled(gradients), mock.patch(last_step, lambda model, _: model):
            torch.onnx.export(module, (x,), file, dynamo=False, opset_version=20)

    if kind is nn.MultiheadAttention and fast and not gradients:
        words = (
            "Exporting the operator 'aten::_native_multi_head_attention' to ONNX opset version 20"
            " is not supported"
        )
        assert says(said(export), f"UnsupportedOperatorError: {words}")
    else:
        export()
        model = file.getvalue()
        assert b"MatMul" in model and b"Softmax" in model and b"native_multi_head" not in model


@KINDS
def test_42_the_new_exporter_starts_without_the_native_attention(kind: type[nn.Module]) -> None:
    module, x = SelfAttention(kind, 42).eval(), torch.randn(2, 5, 8)
    with torch.no_grad():
        exported = torch.export.export(module, (x,))  # what dynamo=True translates
    targets = {str(node.target) for node in exported.graph.nodes}
    assert "aten.scaled_dot_product_attention.default" in targets
    assert not any("native" in target for target in targets)


@KINDS
@pytest.mark.parametrize(
    ("training", "options", "dynamic"),
    [
        (True, {}, None),
        (False, {}, None),
        (False, {"key_padding_mask": no_mask(2, 5), "attn_mask": causal(5)}, None),
        (True, {"need_weights": False}, None),
        (True, {}, True),
    ],
    ids=["training", "evaluation", "masks", "no weights", "dynamic"],
)
def test_43_compiles_in_one_graph(
    kind: type[nn.Module], training: bool, options: dict[str, Any], dynamic: bool | None
) -> None:
    module, x = make(kind, 43, 8, 2).train(training), torch.randn(2, 5, 8)
    torch._dynamo.reset()
    with torch.set_grad_enabled(training):
        compiled = torch.compile(module, fullgraph=True, backend="eager", dynamic=dynamic)
        assert far(compiled(x, x, x, **options)[0], module(x, x, x, **options)[0]) < 1e-6


def penalty(module: nn.Module, x: Tensor, need_weights: bool) -> Tensor:
    x = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(
        (module(x, x, x, need_weights=need_weights)[0] ** 2).sum(), x, create_graph=True
    )
    return torch.autograd.grad((gradient**2).sum(), x)[0]


@KINDS
def test_46_without_weights_there_is_no_second_derivative(kind: type[nn.Module]) -> None:
    module, x = make(kind, 46, 8, 2), torch.randn(2, 4, 8)
    expected = penalty(module, x, True)
    words = (
        "RuntimeError: derivative for aten::_scaled_dot_product_flash_attention_for_cpu_backward is"
        " not implemented"
    )
    assert said(penalty, module, x, False) == words
    with sdpa_kernel(SDPBackend.MATH):
        assert far(penalty(module, x, False), expected) < 1e-5
    assert expected.abs().max() > 0.01


@pytest.mark.filterwarnings(
    "ignore:`torch.jit", "ignore:There is a performance drop because:UserWarning"
)
@KINDS
@BOTH_WEIGHTS
def test_47_gradients_for_each_sample_and_forward_mode(
    kind: type[nn.Module], need_weights: bool
) -> None:
    module, x = make(kind, 47, 8, 2), torch.randn(3, 4, 8)
    parameters = dict(module.named_parameters())

    def total(parameters: dict[str, Tensor], sample: Tensor) -> Tensor:
        return functional_call(module, parameters, (sample,) * 3, {"need_weights": need_weights})[
            0
        ].sum()

    def output(y: Tensor) -> Tensor:
        return module(y, y, y, need_weights=need_weights)[0]

    each = vmap(grad(total), (None, 0))(parameters, x)["in_proj_weight"]
    alone = torch.stack([grad(total)(parameters, sample)["in_proj_weight"] for sample in x])
    assert each.shape == (3, 24, 8) and far(each, alone) < 1e-5
    if need_weights:
        step = 1e-3
        change = jvp(output, (x,), (x,))[1]
        assert far(change, (output(x + step * x) - output(x - step * x)) / (2 * step)) < 1e-3
    else:
        words = (
            "NotImplementedError: Trying to use forward AD with"
            " _scaled_dot_product_flash_attention_for_cpu"
        )
        assert says(said(jvp, output, (x,), (x,)), words)


@pytest.mark.filterwarnings(
    "ignore:torch.ao.quantization is:DeprecationWarning", "ignore:torch.quantize_per_:UserWarning"
)
@KINDS
def test_61_dynamic_quantization_leaves_attention_and_breaks_its_layer(
    kind: type[nn.Module],
) -> None:
    torch.manual_seed(61)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    layer.self_attn = kind(16, 2, batch_first=True)
    layer, x = layer.eval(), torch.randn(1, 3, 16)
    quantized = torch.ao.quantization.quantize_dynamic(layer, {nn.Linear}, dtype=torch.qint8)
    assert type(quantized.self_attn.out_proj) is type(layer.self_attn.out_proj)
    assert quantized.self_attn.in_proj_weight.dtype == torch.float32
    for linear in (quantized.linear1, quantized.linear2):
        assert type(linear).__module__ == "torch.ao.nn.quantized.dynamic.modules.linear"
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            torch.backends.mha.set_fastpath_enabled(True)
            assert (
                said(quantized, x) == "AttributeError: 'function' object has no attribute 'device'"
            )
            torch.backends.mha.set_fastpath_enabled(False)
            assert far(quantized(x), layer(x)) < 0.1


# Until 2.14 the counter knows nothing of what a CPU does in F.scaled_dot_product_attention.
UNFUSED = 1179648 if RELEASE >= (2, 15) else 1048576


@KINDS
@pytest.mark.parametrize(
    ("gradients", "need_weights", "flops"),
    [
        (True, True, 1179648),
        (False, True, 1179648),
        (True, False, UNFUSED),
        (False, False, UNFUSED),
    ],
)
def test_66_flop_counters_miss_what_is_fused(
    kind: type[nn.Module], gradients: bool, need_weights: bool, flops: int
) -> None:
    N, L, E = 2, 16, 64
    module, x = make(kind, 66, E, 4).eval(), torch.randn(N, L, E)
    projections, products = 2 * N * L * E * E * 4, 2 * 2 * N * L * L * E
    assert (projections, projections + products) == (1048576, 1179648)
    with torch.set_grad_enabled(gradients), FlopCounterMode(display=False) as counter:
        module(x, x, x, need_weights=need_weights)
    native = kind is nn.MultiheadAttention and not gradients
    assert counter.get_total_flops() == (0 if native else flops)
