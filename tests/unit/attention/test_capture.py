"""capture: its weights against torch's own,
and a model that computes the same with it and without.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any
from unittest import mock

import pytest
import torch
from cases import TOLERANCE, Case, cases, uniform
from hypothesis import given
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

from mha_widgets import MultiheadAttention, fast_path
from mha_widgets.attention.capture import Captured, capture
from mha_widgets.attention.steps import (
    append_positions,
    attention_weights,
    in_projection,
    merge_heads,
)

N, L, S, E, H = 3, 5, 7, 22, 2
MODULES = pytest.mark.parametrize("kind", [nn.MultiheadAttention, MultiheadAttention])
GRAD_MODES = pytest.mark.parametrize(
    "grad_mode", [nullcontext, torch.no_grad, torch.inference_mode]
)
GradMode = Callable[[], AbstractContextManager[Any]]
# the last position is padding everywhere
PADDING = torch.arange(L) >= torch.tensor([4, 1, 3])[:, None]
CAUSAL = torch.ones(L, L, dtype=torch.bool).triu(1)
MASKS = {
    "none": {},
    "padding": {"src_key_padding_mask": PADDING},
    "left": {"src_key_padding_mask": PADDING.flip(1)},
    "causal": {"mask": CAUSAL},
    "both": {"mask": CAUSAL, "src_key_padding_mask": PADDING},
    "3d": {"mask": torch.stack([CAUSAL, ~CAUSAL.T] * N)},
}
pytestmark = pytest.mark.filterwarnings(
    "ignore:Support for mismatched",
    "ignore:key_padding_mask is torch",
    "ignore:The PyTorch API of nested tensors",
)


def data(*shape: int, seed: int = 0) -> Tensor:
    return uniform(*(shape or (N, L, E)), dtype=torch.float64, seed=seed)


def scatter(model: Any) -> Any:
    with torch.no_grad():
        for seed, parameter in enumerate(
            model.parameters()
        ):  # biases and norms too: torch starts them at 0 and 1
            parameter.copy_(uniform(*parameter.shape, dtype=parameter.dtype, seed=seed))
    return model


def attention(kind: type[nn.Module] = nn.MultiheadAttention, **build: Any) -> Any:
    return scatter(
        kind(
            **{"embed_dim": E, "num_heads": H, "batch_first": True, "dtype": torch.float64} | build
        )
    )


def layer(**build: Any) -> nn.TransformerEncoderLayer:
    sizes = {
        "d_model": E,
        "nhead": H,
        "dim_feedforward": 13,
        "dropout": 0.3,
        "batch_first": True,
        "dtype": torch.float64,
    }
    return nn.TransformerEncoderLayer(**sizes | build)


def encoder(*, enable_nested_tensor: bool = False, **build: Any) -> nn.TransformerEncoder:
    return scatter(
        nn.TransformerEncoder(
            layer(**build), 2, nn.LayerNorm(E, dtype=torch.float64), enable_nested_tensor
        )
    )


def by_hand(model: nn.Module, *args: Any, **kwargs: Any) -> dict[str, list[Tensor]]:
    """Run the model on torch's slow path,
    and ask every attention for the weights of its inputs, without dropout.
    """
    found, handles = {}, []

    def asking(path: str) -> Any:
        def ask(module: nn.Module, args: Any, kwargs: Any) -> None:
            training, module.training = module.training, False
            weights = module.forward(
                *args, **kwargs | {"need_weights": True, "average_attn_weights": False}
            )[1]
            module.training = training
            found.setdefault(path, []).append(weights.detach())

        return ask

    for path, module in model.named_modules():
        if isinstance(module, (nn.MultiheadAttention, MultiheadAttention)):
            handles.append(module.register_forward_pre_hook(asking(path), with_kwargs=True))
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        model(*args, **kwargs)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
        for handle in handles:
            handle.remove()
    return found


def run(
    model: nn.Module, *args: Any, watch: bool, grad_mode: GradMode = nullcontext, **kwargs: Any
) -> tuple[Any, ...]:
    """Return what a seeded call computes (outputs, gradients and the state of the generator),
    and what was captured.
    """
    torch.manual_seed(0)
    model.zero_grad()
    with grad_mode(), capture(model) if watch else nullcontext() as captured:
        output = model(*args, **kwargs)
        outputs = output if isinstance(output, tuple) else (output,)
        if grad_mode is nullcontext:
            outputs[0].sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    return [*outputs, torch.get_rng_state(), *gradients], captured


def assert_same_bits(ours: list[Any], theirs: list[Any]) -> None:
    for our, their in zip(ours, theirs, strict=True):
        if isinstance(their, Tensor) and their.is_nested:
            assert_same_bits(list(our.unbind()), list(their.unbind()))
        elif their is None:
            assert our is None
        else:
            torch.testing.assert_close(our, their, rtol=0, atol=0, equal_nan=True)
            assert our.requires_grad == their.requires_grad


def assert_weights(ours: Any, theirs: Any, tolerance: float = 1e-12) -> None:
    assert list(ours) == list(theirs)
    for path in theirs:
        for our, their in zip(ours[path], theirs[path], strict=True):
            torch.testing.assert_close(our, their, rtol=tolerance, atol=tolerance, equal_nan=True)
            assert not our.requires_grad


@given(cases())
def test_any_call_of_an_attention_goes_on_as_before_and_its_weights_explain_its_output(
    case: Case,
) -> None:
    tolerance = TOLERANCE[case.build["dtype"]]
    for module in case.modules():
        for grad_mode in (nullcontext, torch.no_grad):
            theirs, _ = run(module, *case.inputs, watch=False, grad_mode=grad_mode, **case.forward)
            with grad_mode():
                native = not fast_path(module, *case.inputs, **case.forward)
            ours, captured = run(
                module, *case.inputs, watch=True, grad_mode=grad_mode, **case.forward
            )
            assert_same_bits(ours, theirs)
            [weights] = captured[""]
            without = not native and not case.forward["need_weights"]
            causal = (
                without and case.forward["is_causal"] and case.forward["key_padding_mask"] is None
            )
            if not causal:
                [expected] = by_hand(module, *case.inputs, **case.forward)[""]
                expected = expected.view(weights.shape)
                assert_weights(
                    {"": [weights]},
                    {"": [expected.nan_to_num(0.0) if without else expected]},
                    tolerance,
                )
            if not case.training or not case.build["dropout"]:
                expected = output_of(module, case, weights)
                torch.testing.assert_close(
                    expected, ours[0], rtol=tolerance, atol=tolerance, equal_nan=True
                )


def output_of(module: Any, case: Case, weights: Tensor) -> Tensor:
    separate = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
    weight = separate if module.in_proj_weight is None else module.in_proj_weight
    batched = case.inputs[0].dim() == 3
    layout = module.batch_first or not batched
    values = in_projection(
        *case.inputs, weight, module.in_proj_bias, module.num_heads, batch_first=layout
    )[2]
    heads = weights @ append_positions(values, module.bias_v, module.add_zero_attn)
    output = F.linear(
        merge_heads(heads, batch_first=layout), module.out_proj.weight, module.out_proj.bias
    )
    return output if batched else output.squeeze(0)


@GRAD_MODES
@pytest.mark.parametrize("masks", MASKS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_an_encoder_goes_on_as_before_and_its_weights_are_those_of_its_attention(
    norm_first: bool, training: bool, masks: str, grad_mode: GradMode
) -> None:
    model, x = encoder(norm_first=norm_first).train(training), data()
    theirs, _ = run(model, x, watch=False, grad_mode=grad_mode, **MASKS[masks])
    ours, captured = run(model, x, watch=True, grad_mode=grad_mode, **MASKS[masks])
    assert_same_bits(ours, theirs)
    torch.manual_seed(0)
    expected = by_hand(model, x, **MASKS[masks])
    if grad_mode is nullcontext or training:  # the slow path, without weights
        expected = {
            path: [weights.nan_to_num(0.0) for weights in calls] for path, calls in expected.items()
        }
    elif (
        masks == "3d"
    ):  # NaN in the first layer is NaN everywhere in the second; on the slow path it is not
        expected["layers.1.self_attn"] = [
            weights * torch.nan for weights in expected["layers.1.self_attn"]
        ]
    assert_weights(captured, expected)
    assert captured["layers.1.self_attn"][0].shape == (N, H, L, L)


@pytest.mark.parametrize("lengths", [(4, 1, 3), (4, 0, 3)])
@pytest.mark.parametrize("grad_mode", [torch.no_grad, torch.inference_mode])
def test_a_nested_encoder_goes_on_as_before_and_its_weights_are_cut_to_the_longest_sequence(
    grad_mode: GradMode, lengths: tuple[int, ...]
) -> None:
    model, x = encoder(enable_nested_tensor=True).eval(), data()
    padding = torch.arange(L) >= torch.tensor(lengths)[:, None]
    theirs, _ = run(model, x, watch=False, grad_mode=grad_mode, src_key_padding_mask=padding)
    with mock.patch(
        "torch._transformer_encoder_layer_fwd", wraps=torch._transformer_encoder_layer_fwd
    ) as fused:
        ours, captured = run(
            model, x, watch=True, grad_mode=grad_mode, src_key_padding_mask=padding
        )
    assert [call.args[0].is_nested for call in fused.call_args_list] == [True, True]
    assert_same_bits(ours, theirs)
    expected = by_hand(model, x, src_key_padding_mask=padding)
    padded = padding[:, None, :, None]
    cut = {
        path: [weights.masked_fill(padded, 0.0)[..., :4, :4] for weights in calls]
        for path, calls in expected.items()
    }
    assert_weights(captured, cut)


@pytest.mark.parametrize("masks", MASKS)
def test_the_fused_layer_stays_fused(masks: str) -> None:
    model = encoder().eval()
    with mock.patch(
        "torch._transformer_encoder_layer_fwd", wraps=torch._transformer_encoder_layer_fwd
    ) as fused:
        run(model, data(), watch=True, grad_mode=torch.no_grad, **MASKS[masks])
    assert fused.call_count == 2


@pytest.mark.parametrize("norm_first", [True, False])
def test_a_fused_layer_takes_every_number_of_a_float_mask_but_0_for_blocked(
    norm_first: bool,
) -> None:
    model, x, bias = (
        layer(norm_first=norm_first).eval(),
        data(),
        data(L, L, seed=1).masked_fill(CAUSAL, 0.0),
    )
    padding = torch.zeros(N, L, dtype=torch.float64)
    padding[:, 1] = -bias[3, 1]  # the sum is 0: not blocked
    with torch.no_grad(), capture(model) as captured:
        biased = model(x, bias, padding)
    [weights] = captured["self_attn"]
    blocked = ((bias + padding[:, None]) != 0)[:, None].expand(N, H, L, L)
    with torch.no_grad(), capture(model) as again:
        # so it is torch that does this
        assert_same_bits([model(x, blocked.flatten(0, 1))], [biased])
    assert_same_bits(again["self_attn"], [weights])
    # such rows are NaN
    assert_same_bits([weights == 0], [blocked.masked_fill(blocked.all(-1, keepdim=True), False)])


def test_a_nested_tensor_given_to_a_layer_with_its_norm_first() -> None:
    model, sequences = scatter(layer(norm_first=True)).eval(), [data(3, E), data(5, E)]
    with torch.no_grad(), capture(model) as captured:
        model(torch.nested.nested_tensor(sequences))
        for sequence in sequences:
            model(sequence[None])
    nested, *single = captured["self_attn"]
    expected = torch.stack([F.pad(single[0][0], (0, 2, 0, 2)), single[1][0]])
    assert_weights({"": [nested]}, {"": [expected]})


def test_a_fused_layer_leaves_out_the_positions_that_its_attention_appends() -> None:
    model, x = layer().eval(), data()
    model.self_attn = attention(add_bias_kv=True, add_zero_attn=True).eval()
    with capture(model) as captured:
        model(x)
        with torch.no_grad():
            model(x)
    slow, fused = captured["self_attn"]
    assert slow.shape == (N, H, L, L + 2)
    assert_weights({"": [fused]}, {"": [slow[..., :L] / slow[..., :L].sum(-1, keepdim=True)]})


@MODULES
@GRAD_MODES
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
def test_a_transformer_with_its_decoder(
    kind: type[nn.Module], batch_first: bool, training: bool, grad_mode: GradMode
) -> None:
    sizes = {
        "num_encoder_layers": 2,
        "num_decoder_layers": 1,
        "dim_feedforward": 13,
        "dropout": 0.3,
    }
    with (
        pytest.warns(UserWarning, match="enable_nested_tensor")
        if not batch_first
        else nullcontext()
    ):
        model = nn.Transformer(E, H, **sizes, batch_first=batch_first, dtype=torch.float64)
    for part in list(model.modules()):
        if kind is MultiheadAttention and isinstance(part, nn.TransformerDecoderLayer):
            part.multihead_attn = attention(kind, batch_first=batch_first)
        elif kind is MultiheadAttention and isinstance(part, nn.TransformerEncoderLayer):
            part.self_attn = attention(kind, batch_first=batch_first)
    model = scatter(model).train(training)
    left = PADDING.flip(1)  # not nested, so that rows of padding are as on the slow path
    masks = {"src_key_padding_mask": left, "memory_key_padding_mask": left, "tgt_is_causal": True}
    masks["tgt_mask"] = nn.Transformer.generate_square_subsequent_mask(S, dtype=torch.float64)
    source, target = data(), data(N, S, E, seed=1)
    inputs = (source, target) if batch_first else (source.transpose(0, 1), target.transpose(0, 1))
    theirs, _ = run(model, *inputs, watch=False, grad_mode=grad_mode, **masks)
    ours, captured = run(model, *inputs, watch=True, grad_mode=grad_mode, **masks)
    assert_same_bits(ours, theirs)
    torch.manual_seed(0)
    assert_weights(captured, by_hand(model, *inputs, **masks))
    assert {path: weights[0].shape for path, weights in captured.items()} == {
        "encoder.layers.0.self_attn": (N, H, L, L),
        "encoder.layers.1.self_attn": (N, H, L, L),
        "decoder.layers.0.self_attn": (N, H, S, S),
        "decoder.layers.0.multihead_attn": (N, H, S, L),
    }


@MODULES
# without it torch goes nearly as far as its native operation
@pytest.mark.parametrize("bias", [True, False])
def test_a_row_without_a_key_is_as_in_the_call(kind: type[nn.Module], bias: bool) -> None:
    module, x = attention(kind, bias=bias).eval(), data()
    padding = torch.tensor([[False] * L, [True] * L, [False] * L])
    with capture(module) as captured:
        for need_weights in (True, False):
            module(x, x, x, padding, need_weights)
        with torch.no_grad():
            for need_weights in (True, False):
                module(x, x, x, padding, need_weights)
    with_weights, without, no_grad, no_grad_without = (weights[1] for weights in captured[""])
    assert with_weights.isnan().all()
    assert (without == 0).all()
    assert no_grad.isnan().all()
    assert (
        no_grad_without.isnan().all()
        if bias and kind is nn.MultiheadAttention
        else (no_grad_without == 0).all()
    )
    for weights in captured[""]:
        torch.testing.assert_close(weights[::2].sum(-1), torch.ones(2, H, L, dtype=torch.float64))


@MODULES
def test_is_causal_takes_effect_where_it_does_in_the_call(kind: type[nn.Module]) -> None:
    module, x, no_mask = attention(kind).eval(), data(), torch.zeros(L, L).bool()
    padding = torch.zeros(N, L).bool()
    with capture(module) as captured:
        for need_weights, key_padding_mask in ((False, None), (True, None), (False, padding)):
            module(x, x, x, key_padding_mask, need_weights, no_mask, is_causal=True)
        with torch.no_grad():
            module(x, x, x, None, False, no_mask, is_causal=True)
    causal = [bool((weights[..., CAUSAL] == 0).all()) for weights in captured[""]]
    assert causal == [True, False, False, kind is MultiheadAttention]


@MODULES
def test_a_causal_hint_blocks_appended_positions_too(kind: type[nn.Module]) -> None:
    module, x = attention(kind, add_bias_kv=True, add_zero_attn=True), data()
    with capture(module) as captured:
        module(x, x, x, need_weights=False, attn_mask=CAUSAL, is_causal=True)
    assert_same_bits(
        [captured[""][0] == 0], [torch.ones(L, L + 2).triu(1).bool().expand(N, H, L, L + 2)]
    )


@MODULES
def test_a_nested_tensor_is_one_call(kind: type[nn.Module]) -> None:
    module, sequences = attention(kind).eval(), [data(3, E), data(0, E), data(5, E)]
    nested = torch.nested.nested_tensor(sequences)
    for need_weights in (True, False):
        with torch.no_grad():
            expected = module(nested, nested, nested, average_attn_weights=False)[1]
        theirs, _ = run(
            module,
            nested,
            nested,
            nested,
            watch=False,
            grad_mode=torch.no_grad,
            need_weights=need_weights,
        )
        ours, captured = run(
            module,
            nested,
            nested,
            nested,
            watch=True,
            grad_mode=torch.no_grad,
            need_weights=need_weights,
        )
        assert_same_bits(ours, theirs)
        assert_weights(captured, {"": [expected]})


@MODULES
def test_a_sequence_alone_counts_as_a_batch_of_one(kind: type[nn.Module]) -> None:
    module, x = attention(kind, batch_first=False), data(L, E)
    with capture(module) as captured:
        _, weights = module(key=x, value=x, query=x, average_attn_weights=False)
    assert captured[""][0].shape == (1, H, L, L)
    assert_weights(captured, {"": [weights.detach()[None]]})


@MODULES
def test_dropout_is_left_out(kind: type[nn.Module]) -> None:
    module, x = attention(kind, dropout=0.5), data()
    _, captured = run(module, x, x, x, watch=True)
    torch.testing.assert_close(captured[""][0].sum(-1), torch.ones(N, H, L, dtype=torch.float64))
    assert_weights(captured, by_hand(module, x, x, x))


@MODULES
def test_autocast_narrows_the_weights_as_it_narrows_the_call(kind: type[nn.Module]) -> None:
    module, x = attention(kind, dtype=torch.float32), data().float()
    with capture(module) as captured, torch.autocast("cpu", torch.bfloat16):
        _, expected = module(x, x, x, attn_mask=CAUSAL, average_attn_weights=False)
    assert captured[""][0].dtype == torch.bfloat16
    assert_weights(captured, {"": [expected.detach()]}, 0.02)


def test_weights_from_inference_mode_can_be_differentiated_through_later() -> None:
    module, x = attention(), data()
    with capture(module) as captured, torch.inference_mode():
        module(x, x, x)
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    (captured[""][0] * scale).sum().backward()
    assert scale.grad == pytest.approx(N * H * L)


@pytest.mark.filterwarnings("ignore:.*is a Twice, which returns something else:UserWarning")
def test_subclasses_are_seen_where_they_are_called_and_where_a_fused_layer_leaves_them_out() -> (
    None
):
    class Twice(nn.MultiheadAttention):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            output, weights = super().forward(*args, **kwargs)
            return 2 * output, weights

    model, x = layer().eval(), data()
    model.self_attn = attention(Twice).eval()
    with capture(model) as captured:
        model(x)
        with torch.no_grad():
            model(x)
    [weights] = by_hand(model, x)["self_attn"]
    assert_weights(captured, {"self_attn": [weights, weights]})


def test_a_subclass_with_arguments_of_its_own_is_refused_in_one_sentence() -> None:
    class SelfAttention(nn.MultiheadAttention):
        def forward(self, x: Tensor) -> Any:
            return super().forward(x, x, x, need_weights=False)

    model = nn.Sequential(attention(SelfAttention))
    with (
        pytest.raises(
            TypeError,
            match="'0' is a SelfAttention, which takes other arguments than nn.MultiheadAttention",
        ),
        capture(model),
    ):
        model(data())
    with (
        capture(model.eval()) as captured,
        torch.no_grad(),
    ):  # here torch itself says what it goes on with
        model(data())
    assert captured["0"][0].shape == (N, H, L, L)


def test_a_layer_that_is_left_out_or_runs_twice_has_as_many_calls() -> None:
    class Repeated(nn.TransformerEncoderLayer):
        times = 0

        def forward(self, x: Tensor, **kwargs: Any) -> Tensor:  # not the arguments of its parent
            for _ in range(self.times):
                x = super().forward(x)
            return x

    model, x = scatter(Repeated(E, H, 13, batch_first=True, dtype=torch.float64)).eval(), data()
    with torch.no_grad(), capture(model) as captured:
        for model.times in (0, 1, 2):
            model(x=x)
    first, again, second = captured["self_attn"]
    assert_same_bits([again], [first])
    assert not torch.allclose(second, first)


def test_shared_modules_are_reported_once_with_all_their_calls() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = self.second = attention()

        def forward(self, x: Tensor) -> Tensor:
            x = self.first(x, x, x)[0]
            return self.second(x, x, x)[0]

    model, x = Tied(), data()
    with capture(model) as captured:
        model(x)
    assert_weights(captured, by_hand(model, x))
    assert [weights.shape for weights in captured["first"]] == [(N, H, L, L)] * 2


def test_an_attention_shared_by_layers_with_norms_of_their_own() -> None:
    model, x = encoder(norm_first=True).eval(), data()
    model.layers[1].self_attn = model.layers[0].self_attn
    with torch.no_grad(), capture(model) as captured:
        model(x)
    assert_weights(captured, by_hand(model, x))
    assert len(captured["layers.0.self_attn"]) == 2


def test_two_captures_at_once_and_one_inside_a_forward() -> None:
    class Watching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = encoder()

        def forward(self, x: Tensor) -> Tensor:
            with capture(self.inner) as self.seen:
                return self.inner(x)

    model, x = Watching().eval(), data()
    with torch.no_grad(), capture(model) as outer:
        theirs, _ = run(model.inner, x, watch=False, grad_mode=torch.no_grad)
        with capture(model.inner) as middle:
            output = model(x)
        model(x)
    assert_same_bits([output], [theirs[0]])
    assert {path: len(weights) for path, weights in outer.items()} == {
        f"inner.layers.{i}.self_attn": 3 for i in (0, 1)
    }
    assert len(middle["layers.0.self_attn"]) == len(model.seen["layers.0.self_attn"]) == 1
    for i in (0, 1):
        path = f"layers.{i}.self_attn"
        assert_same_bits([*middle[path], *model.seen[path]], outer[f"inner.{path}"][1:])


def state(model: nn.Module) -> list[dict[str, Any]]:
    return [dict(vars(module)) for module in model.modules()]


def test_everything_is_as_before_after_the_block_and_after_an_error() -> None:
    model, x = encoder().eval(), data()
    attention = model.layers[0].self_attn
    attention.forward = mock.Mock(wraps=attention.forward)  # what was there stays there
    model.layers[1].forward = mock.Mock(wraps=model.layers[1].forward)
    before = state(model)
    with capture(model) as captured:
        assert state(model) != before
        model(x)
        assert attention.merge_masks(attn_mask=None, key_padding_mask=PADDING, query=x) == (
            PADDING,
            1,
        )
        assert all(
            not module._forward_hooks and not module._forward_pre_hooks
            for module in model.modules()
        )
    assert state(model) == before
    assert attention.forward.call_count == model.layers[1].forward.call_count == 1
    assert [len(weights) for weights in captured.values()] == [1, 1]
    with pytest.raises(ZeroDivisionError), capture(model):
        raise ZeroDivisionError
    assert state(model) == before
    with pytest.raises(AssertionError, match="embedding dimension"), capture(model) as captured:
        model(data(N, L, 2))
    assert state(model) == before
    assert captured["layers.0.self_attn"] == []


def test_a_call_that_fails_leaves_later_ones_alone() -> None:
    model, x = encoder().eval(), data()
    with torch.no_grad(), capture(model) as captured:
        with pytest.raises(RuntimeError):
            model(x, src_key_padding_mask=PADDING[:, 1:])
        model(x)
    assert [len(weights) for weights in captured.values()] == [1, 1]


def test_max_bytes_is_asked_before_the_weights_are_computed() -> None:
    model, x = encoder().eval(), data()
    call = N * H * L * L * 8
    before = state(model)
    with torch.no_grad(), capture(model, max_bytes=4 * call) as captured:
        model(x)
        model(x)
    assert sum(weights.nbytes for calls in captured.values() for weights in calls) == 4 * call
    message = (
        f"The weights of call 2 of 'layers.1.self_attn', ({N}, {H}, {L}, {L}), would take {call:,}"
        f" bytes on top of {3 * call:,}, and max_bytes is {4 * call - 1:,}; raise max_bytes, or run"
        " the model on shorter or fewer sequences."
    )
    with (
        mock.patch(
            "mha_widgets.attention.capture.attention_weights", wraps=attention_weights
        ) as computed,
        torch.no_grad(),
        pytest.raises(MemoryError) as caught,
        capture(model, max_bytes=4 * call - 1) as captured,
    ):
        model(x)
        model(x)
    assert str(caught.value) == message
    assert computed.call_count == 3
    assert [len(weights) for weights in captured.values()] == [2, 1]
    assert state(model) == before


def test_max_bytes_counts_keys_and_appended_positions() -> None:
    module, x, y = (
        attention(add_bias_kv=True, add_zero_attn=True, batch_first=False),
        data(L, N, E),
        data(S, N, E),
    )
    call = N * H * L * (S + 2) * 8
    with capture(module, max_bytes=call) as captured:
        module(x, y, y)
    assert captured[""][0].nbytes == call
    with pytest.raises(MemoryError, match="call 1 of ''"), capture(module, max_bytes=call - 1):
        module(x, y, y)


def test_weights_that_were_taken_out_make_room() -> None:
    model, x = encoder().eval(), data()
    with torch.no_grad(), capture(model, max_bytes=2 * N * H * L * L * 8) as captured:
        for _ in range(3):
            model(x)
            assert [weights.pop().shape for weights in captured.values()] == [(N, H, L, L)] * 2


def test_a_deep_copy_made_in_the_block_is_a_module_of_its_own() -> None:
    model, x = encoder().eval(), data()
    with torch.no_grad(), capture(model) as captured:
        twin = copy.deepcopy(model)
        for parameter in twin.parameters():
            parameter.zero_()
        assert (twin(x) == 0).all()
        assert (twin.layers[0].self_attn(x, x, x)[0] == 0).all()
    assert (twin(x) == 0).all()
    assert [len(weights) for weights in captured.values()] == [0, 0]


def test_a_weight_that_changes_when_it_is_read_is_not_read_in_training() -> None:
    outputs = []
    for watch in (False, True):
        torch.manual_seed(0)
        module, x = parametrizations.spectral_norm(attention(), "in_proj_weight"), data()
        for _ in range(2):
            values, captured = run(module, x, x, x, watch=watch)
            outputs.append(values)
    assert_same_bits(outputs[2] + outputs[3], outputs[0] + outputs[1])
    assert all(part.training for part in module.modules())


def test_what_was_captured_can_be_read_as_a_mapping_and_as_a_table() -> None:
    model = nn.ModuleDict({"a": attention(), "bb": attention(), "none": attention()})
    with capture(model) as captured:
        for length in (1, 2, 2, 3):
            x = data(1, length, E)
            model["a"](x, x, x)
        for length in (1, 2, 3, 4, 5):
            x = data(1, length, E)
            model["bb"](x, x, x)
    assert isinstance(captured, Captured)
    assert list(captured) == ["a", "bb", "none"]
    assert captured["none"] == []
    assert repr(captured).split("\n") == [
        "path    calls  shapes (N, H, L, S)",
        f"'a'         4  (1, {H}, 1, 1), (1, {H}, 2, 2), (1, {H}, 3, 3)",
        f"'bb'        5  (1, {H}, 1, 1), …, (1, {H}, 5, 5)",
        "'none'      0",
    ]
    with pytest.raises(
        KeyError, match="There is no attention module at 'b'; there is 'a', 'bb', 'none'."
    ):
        captured["b"]
    assert "b" not in captured


@pytest.mark.parametrize("model", [nn.Linear(2, 2), torch.softmax, None])
def test_a_model_without_attention_is_refused_in_one_sentence(model: Any) -> None:
    with (
        pytest.raises(
            ValueError, match=f"capture looks for .*, and {type(model).__name__} holds none"
        ),
        capture(model),
    ):
        raise AssertionError


def test_a_model_that_was_copied_or_saved_in_the_block_can_be_loaded() -> None:
    model, x = nn.MultiheadAttention(22, 2, batch_first=True).eval(), torch.randn(3, 5, 22)
    with torch.no_grad(), capture(model):
        copied = copy.deepcopy(model)
        saved = io.BytesIO()
        torch.save(model, saved)
    later = io.BytesIO()
    torch.save(copied, later)
    for file in (saved, later):
        loaded = torch.load(io.BytesIO(file.getvalue()), weights_only=False)
        with torch.no_grad():
            assert torch.equal(loaded(x, x, x)[0], model(x, x, x)[0])


class Changed(nn.MultiheadAttention):
    """Gives something else than it is called with."""

    def forward(self, query: Tensor, *args: Any, **kwargs: Any) -> Any:
        return super().forward(2 * query, *args, **kwargs)


def test_a_subclass_that_computes_something_else_is_said() -> None:
    model, x = Changed(22, 2, batch_first=True).eval(), torch.randn(3, 5, 22)
    with (
        capture(model),
        pytest.warns(
            UserWarning, match="^'' is a Changed, which returns something else than nn.Multi"
        ),
    ):
        model(x, x, x)


@pytest.mark.parametrize("bound", [None, "1GB", 2.0**30])
def test_a_bound_that_is_no_number_of_bytes(bound: Any) -> None:
    with (
        pytest.raises(TypeError, match="^Got max_bytes=.*; give a number of bytes, as in"),
        capture(nn.MultiheadAttention(4, 2), bound),
    ):
        pass
