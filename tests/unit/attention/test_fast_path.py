"""fast_path against torch: does a call reach
torch._native_multi_head_attention exactly when no reason is given?
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.modules import activation

from mha_widgets.attention.fast_path import fast_path
from mha_widgets.attention.multihead import MultiheadAttention
from mha_widgets.attention.native import Reason, _asked

N, H, L, E = 3, 2, 5, 22  # heads of 11 features
pytestmark = pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors is in prototype stage:UserWarning"
)


class Subclass(Tensor):
    """Overrides torch's functions, by doing nothing."""


@contextmanager
def switched_off() -> Iterator[None]:
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


@contextmanager
def autocast_of_cuda() -> Iterator[None]:
    """As torch.autocast("cuda") on a machine that has one."""
    torch.set_autocast_enabled("cuda", True)
    try:
        yield
    finally:
        torch.set_autocast_enabled("cuda", False)


@dataclass
class Call:
    """A call that takes the fast path, until something of it is changed."""

    build: dict[str, Any] = field(default_factory=dict)
    training: bool = False
    dtype: torch.dtype = torch.float32
    gradients: str = "no_grad"
    given: Callable[[Tensor], tuple[Tensor, Tensor, Tensor]] = lambda x: (x, x, x)
    masks: dict[str, Tensor] = field(default_factory=dict)
    forward: dict[str, Any] = field(default_factory=dict)
    adapt: Callable[[nn.Module], object] = lambda module: None
    around: Callable[[], AbstractContextManager[None]] = nullcontext

    def arguments(self, kind: type[nn.Module] = nn.MultiheadAttention) -> tuple[Any, ...]:
        sizes = {"embed_dim": E, "num_heads": H, "batch_first": True, "dtype": self.dtype}
        module = kind(**(sizes | self.build)).train(self.training)
        x = torch.linspace(-1, 1, N * L * E, dtype=self.dtype).view(N, L, E)
        if self.gradients != "parameters":
            module.requires_grad_(self.gradients in ("no_grad", "inference_mode"))
            x.requires_grad_(self.gradients == "input")
        self.adapt(module)
        return module, *self.given(x)

    @contextmanager
    def mode(self) -> Iterator[None]:
        modes = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}
        with modes.get(self.gradients, torch.enable_grad)(), self.around():
            yield

    def reasons(self, kind: type[nn.Module] = nn.MultiheadAttention) -> tuple[Reason, ...]:
        arguments = self.arguments(kind)
        with self.mode():
            return fast_path(*arguments, **self.masks, **self.forward)

    def is_native(self) -> bool:
        """Count how often torch really calls its native operation, also if it,
        or what comes in its place, fails.
        """
        module, *inputs = self.arguments()
        real = torch._native_multi_head_attention
        with (
            self.mode(),
            mock.patch.object(torch, "_native_multi_head_attention", side_effect=real) as native,
            # Errors after the decision: mixed types, a nested tensor, is_causal alone,
            # a mask for other heads.
            suppress(AssertionError, RuntimeError),
        ):
            module(*inputs, **self.masks, **self.forward)
        return native.call_count == 1


def nested(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    sequences = torch.nested.nested_tensor(
        [x[0, :3], x[1], x[2, :2]], requires_grad=x.requires_grad
    )
    return sequences, sequences, sequences


def change_type(name: str) -> Callable[[nn.Module], None]:
    def change(module: nn.Module) -> None:
        parameter = getattr(module, name)
        if parameter is not None:
            other = torch.float64 if parameter.dtype == torch.float32 else torch.float32
            setattr(
                module,
                name,
                nn.Parameter(parameter.detach().to(other), requires_grad=parameter.requires_grad),
            )

    return change


def require_gradient(name: str) -> Callable[[nn.Module], None]:
    def require(module: nn.Module) -> None:
        for found, parameter in module.named_parameters():
            parameter.requires_grad_(parameter.requires_grad or found == name)

    return require


def boolean(*shape: int) -> Tensor:
    """A mask that leaves every query its first key."""
    return (torch.arange(shape[-1]) > torch.arange(shape[-2])[:, None] % 3).expand(shape)


# One change each: the change, a fragment of the words, the condition. In torch's order.
ONE = {
    "attn_mask": (
        {"masks": {"attn_mask": torch.zeros(L, L)}},
        "attn_mask is float; what only blocks can be a boolean mask",
        (
            "attn_mask is not None and torch.is_floating_point(attn_mask) or "
            "key_padding_mask is not None and torch.is_floating_point(key_padding_mask)"
        ),
    ),
    "key_padding_mask": (
        {"masks": {"key_padding_mask": torch.zeros(N, L)}},
        "key_padding_mask is float; what only blocks can be a boolean mask",
        (
            "attn_mask is not None and torch.is_floating_point(attn_mask) or "
            "key_padding_mask is not None and torch.is_floating_point(key_padding_mask)"
        ),
    ),
    "both masks": (
        {"masks": {"key_padding_mask": torch.zeros(N, L), "attn_mask": torch.zeros(L, L)}},
        "attn_mask and key_padding_mask are float",
        (
            "attn_mask is not None and torch.is_floating_point(attn_mask) or "
            "key_padding_mask is not None and torch.is_floating_point(key_padding_mask)"
        ),
    ),
    "switched off": (
        {"around": switched_off},
        "torch.backends.mha.set_fastpath_enabled(True) switches it on",
        "not torch.backends.mha.get_fastpath_enabled()",
    ),
    "one sequence": (
        {"given": lambda x: (x[0],) * 3},
        "query has 2 dimensions and not 3",
        "not query.dim() == 3",
    ),
    "key apart": (
        {"given": lambda x: (x, x.clone(), x)},
        "query, key and value are not one and the same tensor",
        "query is not key or key is not value",
    ),
    "value apart": (
        {"given": lambda x: (x, x, x.clone())},
        "query, key and value are not one and the same tensor",
        "query is not key or key is not value",
    ),
    "query apart": (
        {"given": lambda x: (x, *[x.clone()] * 2)},
        "query, key and value are not one and the same tensor",
        "query is not key or key is not value",
    ),
    "type of in_proj_bias": (
        {"adapt": change_type("in_proj_bias")},
        "query is torch.float32 and in_proj_bias is torch.float64",
        "self.in_proj_bias is not None and query.dtype != self.in_proj_bias.dtype",
    ),
    "kdim": (
        {"build": {"kdim": 13}},
        "kdim or vdim differs from embed_dim",
        "self.in_proj_weight is None",
    ),
    "vdim": ({"build": {"vdim": 13}}, "there is no in_proj_weight", "self.in_proj_weight is None"),
    "type of in_proj_weight": (
        {"adapt": change_type("in_proj_weight")},
        "query is torch.float32 and in_proj_weight is torch.float64",
        "query.dtype != self.in_proj_weight.dtype",
    ),
    "training": (
        {"training": True},
        "the module is in training mode; call module.eval()",
        "self.training",
    ),
    "odd heads": (
        {"build": {"num_heads": 11}},
        "the number of heads is odd: 11",
        "(self.num_heads % 2) != 0",
    ),
    "batch second": (
        {"build": {"batch_first": False}},
        "batch_first=False",
        "not self.batch_first",
    ),
    "add_bias_kv": (
        {"build": {"add_bias_kv": True}},
        "add_bias_kv=True",
        "self.bias_k is not None",
    ),
    "add_zero_attn": (
        {"build": {"add_zero_attn": True}},
        "add_zero_attn=True",
        "self.add_zero_attn",
    ),
    "nested, attn_mask": (
        {"given": nested, "masks": {"attn_mask": boolean(L, L)}},
        "query is a NestedTensor, which says itself what is padding, and there is a mask too",
        "query.is_nested and (key_padding_mask is not None or attn_mask is not None)",
    ),
    "nested, key_padding_mask": (
        {"given": nested, "masks": {"key_padding_mask": boolean(N, L)}},
        "query is a NestedTensor, which says itself what is padding, and there is a mask too",
        "query.is_nested and (key_padding_mask is not None or attn_mask is not None)",
    ),
    "autocast": ({"around": autocast_of_cuda}, "autocast is on", "torch.is_autocast_enabled()"),
    "subclass": (
        {"given": lambda x: (x.as_subclass(Subclass),) * 3},
        "overrides torch's functions",
        "torch.overrides.has_torch_function(tensor_args)",
    ),
    "default device": (
        {"around": lambda: torch.device("cpu")},  # so does torch.set_default_device
        "overrides torch's functions",
        "torch.overrides.has_torch_function(tensor_args)",
    ),
    "device": (
        {"adapt": lambda module: module.to("meta"), "given": lambda x: (x.to("meta"),) * 3},
        "on a device other than cpu, cuda, ",
        "not all(_check_arg_device(x) for x in tensor_args)",
    ),
    "gradient of an input": (
        {"gradients": "input"},
        (
            "gradients are recorded for an input or a weight; use torch.no_grad() or"
            " torch.inference_mode()"
        ),
        "torch.is_grad_enabled() and any(_arg_requires_grad(x) for x in tensor_args)",
    ),
    **{
        f"gradient of {name}": (
            {"gradients": "none", "adapt": require_gradient(name)},
            "gradients are recorded for an input or a weight",
            "torch.is_grad_enabled() and any(_arg_requires_grad(x) for x in tensor_args)",
        )
        for name in ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")
    },
    "bias": ({"build": {"bias": False}}, "bias=False", "self.in_proj_bias is None"),
}
CONDITIONS = {condition for _, _, condition in ONE.values()} | {"_is_make_fx_tracing()"}


@pytest.mark.parametrize("changes, words, condition", ONE.values(), ids=ONE)
def test_one_reason(changes: dict[str, Any], words: str, condition: str) -> None:
    call = Call(**changes)
    reasons = call.reasons()
    assert [reason.condition for reason in reasons] == [condition]
    assert words in reasons[0].words
    assert not call.is_native()


def test_the_call_that_all_of_them_change_has_no_reason() -> None:
    assert Call().reasons() == ()
    assert Call().is_native()


def test_tracing_alone_is_a_reason() -> None:
    module, x, *_ = Call().arguments()
    seen: list[tuple[Reason, ...]] = []

    def attend(x: Tensor) -> Tensor:
        with (
            torch._C.DisableTorchFunction()
        ):  # a mode of functions, which tracing brings along, is a reason of its own
            seen.append(fast_path(module, x, x, x))
            return module(x, x, x)[0]

    native = mock.Mock(side_effect=torch._native_multi_head_attention)
    with torch.no_grad(), mock.patch.object(torch, "_native_multi_head_attention", native):
        make_fx(attend)(x)
    assert seen == [(Reason("the call is being traced or exported", "_is_make_fx_tracing()"),)]
    assert native.call_count == 0


def test_every_reason_of_torch_is_tested_alone() -> None:
    asked = _asked(*Call().arguments(), None, None)
    assert {condition for _, _, condition in asked} == CONDITIONS


def test_several_reasons_come_in_the_order_in_which_torch_asks() -> None:
    build = {
        "bias": False,
        "num_heads": 11,
        "batch_first": False,
        "add_bias_kv": True,
        "add_zero_attn": True,
        "kdim": 13,
    }
    masks = {"attn_mask": torch.zeros(N * 11, L, L), "key_padding_mask": torch.zeros(N, L)}
    call = Call(
        build,
        training=True,
        gradients="input",
        masks=masks,
        around=switched_off,
        given=lambda x: (x, x, x.clone()),
    )
    assert [reason.condition for reason in call.reasons()] == [
        (
            "attn_mask is not None and torch.is_floating_point(attn_mask) or "
            "key_padding_mask is not None and torch.is_floating_point(key_padding_mask)"
        ),
        "not torch.backends.mha.get_fastpath_enabled()",
        "query is not key or key is not value",
        "self.in_proj_weight is None",
        "self.training",
        "(self.num_heads % 2) != 0",
        "not self.batch_first",
        "self.bias_k is not None",
        "self.add_zero_attn",
        "torch.is_grad_enabled() and any(_arg_requires_grad(x) for x in tensor_args)",
        "self.in_proj_bias is None",
    ]


# the conditions are torch's


def squeezed(code: str) -> str:
    """Leave out spaces and brackets, which the source sets for its own layout."""
    return re.sub(r"[\s()]", "", code)


@pytest.mark.parametrize("condition", sorted(CONDITIONS))
def test_the_condition_is_in_the_source(condition: str) -> None:
    quoted = condition.removeprefix("not ")  # asked of a name that the source gave it before
    if condition == "self.in_proj_bias is None":
        quoted = (  # asked the other way round
            "self.in_proj_bias is not None and self.in_proj_weight is not None:"
        )
    assert squeezed(quoted) in squeezed(inspect.getsource(nn.MultiheadAttention.forward))


@pytest.mark.parametrize("changes, _, condition", ONE.values(), ids=ONE)
def test_the_condition_holds_as_code(changes: dict[str, Any], _: str, condition: str) -> None:
    for call, expected in (Call(**changes), True), (Call(), False):
        module, query, key, value = call.arguments()
        names = vars(activation) | {"self": module, "query": query, "key": key, "value": value}
        names |= {"attn_mask": None, "key_padding_mask": None} | call.masks
        parameters = (
            module.in_proj_weight,
            module.in_proj_bias,
            module.out_proj.weight,
            module.out_proj.bias,
        )
        with call.mode():
            assert (
                eval(condition, names | {"tensor_args": (query, key, value, *parameters)})
                is expected
            )


# what makes no difference


@pytest.mark.parametrize(
    "forward", [{}, {"need_weights": False}, {"average_attn_weights": False}, {"is_causal": True}]
)
@pytest.mark.parametrize("masks", [{}, {"attn_mask": boolean(L, L)}], ids=["no mask", "mask"])
@pytest.mark.parametrize(
    "build", [{}, {"bias": False}, {"dropout": 0.3}, {"kdim": E, "vdim": E}], ids=str
)
def test_what_is_returned_makes_no_difference(
    build: dict[str, Any], masks: dict[str, Tensor], forward: dict[str, Any]
) -> None:
    call = Call(build, masks=masks, forward=forward)
    assert [reason.condition for reason in call.reasons()] == (
        ["self.in_proj_bias is None"] if "bias" in build else []
    )
    assert call.is_native() == ("bias" not in build)


def test_autocast_of_the_cpu_leaves_the_fast_path() -> None:
    call = Call(around=lambda: torch.autocast("cpu", dtype=torch.bfloat16))
    with call.mode():
        assert torch.is_autocast_enabled("cpu") and not torch.is_autocast_enabled()
    assert call.reasons() == ()
    assert call.is_native()


def test_a_nested_tensor_alone_takes_the_fast_path() -> None:
    call = Call(given=nested)
    assert call.reasons() == ()
    assert call.is_native()


# ours has none


@pytest.mark.parametrize("changes", [{}, {"training": True}, {"build": {"bias": False}}], ids=str)
def test_our_module_has_one_reason_more(changes: dict[str, Any]) -> None:
    call = Call(**changes)
    first, *others = call.reasons(MultiheadAttention)
    assert "mha_widgets.attention.multihead.MultiheadAttention" in first.words
    assert "only torch's own forward has a fast path" in first.words
    assert tuple(others) == call.reasons()


def test_a_subclass_of_torch_s_module_has_the_fast_path() -> None:
    class Named(nn.MultiheadAttention):
        pass

    assert Call().reasons(Named) == ()


# all of it at once


def apart(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return x, x.clone(), x.clone()


CHANGES: dict[str, dict[str, Any]] = {name: changes for name, (changes, _, _) in ONE.items()} | {
    "all apart": {"given": apart},
    "the input is of another type": {"given": lambda x: (x.to(torch.float16),) * 3},
    "type of out_proj": {"adapt": lambda module: change_type("weight")(module.out_proj)},
    "autocast of the cpu": {"around": lambda: torch.autocast("cpu", dtype=torch.bfloat16)},
    "nested": {"given": nested},
    "inference mode": {"gradients": "inference_mode"},
    "nothing requires a gradient": {"gradients": "none"},
    "all parameters require one": {"gradients": "parameters"},
    "kdim is embed_dim": {"build": {"kdim": E, "vdim": E}},
    "one head": {"build": {"num_heads": 1}},
    "boolean attn_mask": {"masks": {"attn_mask": boolean(L, L)}},
    "boolean attn_mask for each head": {"masks": {"attn_mask": boolean(N * H, L, L)}},
    "boolean key_padding_mask": {"masks": {"key_padding_mask": boolean(N, L)}},
    "dropout": {"build": {"dropout": 0.3}},
    "double": {"dtype": torch.float64},
}


@st.composite
def calls(draw: st.DrawFn) -> Call:
    """Draw up to four changes of the call that takes the fast path."""
    names = draw(st.lists(st.sampled_from(sorted(CHANGES)), max_size=4, unique=True))
    merged: dict[str, Any] = {"build": {}, "masks": {}}
    adapts, arounds = [], []
    for changes in (CHANGES[name] for name in names):
        merged |= {
            name: value
            for name, value in changes.items()
            if name not in ("build", "masks", "adapt", "around")
        }
        merged["build"] = merged["build"] | changes.get("build", {})
        merged["masks"] = merged["masks"] | changes.get("masks", {})
        adapts += [changes["adapt"]] if "adapt" in changes else []
        arounds += [changes["around"]] if "around" in changes else []

    @contextmanager
    def around() -> Iterator[None]:
        with ExitStack() as stack:
            for each in arounds:
                stack.enter_context(each())
            yield

    flag = st.booleans()
    forward = {
        "need_weights": draw(flag),
        "average_attn_weights": draw(flag),
        "is_causal": draw(flag),
    }
    return Call(
        **merged,
        forward=forward,
        adapt=lambda module: [adapt(module) for adapt in adapts],
        around=around,
    )


@pytest.mark.filterwarnings("ignore:.*mismatched key_padding_mask:UserWarning")
@given(calls())
def test_there_is_no_reason_exactly_when_torch_takes_its_fast_path(call: Call) -> None:
    assert (call.reasons() == ()) == call.is_native()
