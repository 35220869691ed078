"""Module, CapturedMaps and explore with a reader's own calls: checked as a whole,
shown as the module itself goes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from samples import words
from torch import Tensor, nn
from torch.nn.utils import parametrizations, prune

from mha_widgets import Captured, capture, explore, explorers, trace

LONG = 1500  # with two heads too many weights to be held together


def make(kind: type[nn.Module] = nn.MultiheadAttention, **build: Any) -> Any:
    torch.manual_seed(1)
    return kind(8, 2, batch_first=True, **build)


def data(N: int = 3, L: int = 5, seed: int = 0) -> Tensor:
    return torch.randn(N, L, 8, generator=torch.Generator().manual_seed(seed))


def blocked(*shape: int) -> Tensor:
    return torch.zeros(shape, dtype=torch.bool)


X, CAUSAL = data(), torch.ones(5, 5).bool().triu(1)


class Doubled(nn.MultiheadAttention):
    def forward(self, query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Any:
        output, weights = super().forward(query, key, value, **options)
        return 2 * output, None if weights is None else 2 * weights


class Narrow(nn.MultiheadAttention):
    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Any:
        return super().forward(query, key, value)


def hooked(hook: Callable[..., Any]) -> nn.MultiheadAttention:
    module = make()
    module.register_forward_hook(hook)
    return module


@pytest.mark.parametrize(
    "inputs, masks, message",
    [
        (
            (X,),
            {"attn_mask": blocked(3, 5, 5)},
            r"attn_mask has shape \(3, 5, 5\), but must be .* = \(6, 5, 5\)",
        ),
        ((X, data(4)), {}, r"Got query \(3, 5, 8\), key \(4, 5, 8\) and value \(4, 5, 8\)"),
        (
            (X,),
            {"key_padding_mask": blocked(5, 5)},
            r"key_padding_mask has shape \(5, 5\), but must be \(N, S\) = \(3, 5\)",
        ),
        (
            (X,),
            {"key_padding_mask": blocked(3, 4)},
            r"key_padding_mask has shape \(3, 4\), but must be \(N, S\) = \(3, 5\)",
        ),
        ((X[..., :7],), {}, r"Got query \(3, 5, 7\), .*; the query needs embed_dim = 8 features"),
        (
            (X, X, data(3, 4)),
            {},
            r"key \(3, 5, 8\) and value \(3, 4, 8\); key and value need the same shape",
        ),
    ],
)
def test_what_torch_refuses_of_the_whole_batch_is_refused_with_its_shapes(
    inputs: tuple[Tensor, ...], masks: dict[str, Tensor], message: str
) -> None:
    everything = (*inputs, *inputs[-1:] * (3 - len(inputs)))
    with pytest.raises((AssertionError, RuntimeError)):
        make()(*everything, **masks)
    with pytest.raises(ValueError, match=message):
        explore(make(), *inputs, **masks)


def test_features_that_kdim_does_not_fit_are_named() -> None:
    with pytest.raises(
        ValueError,
        match=r"^key has shape \(3, 5, 8\), but the module has kdim=7; pass 7 features.$",
    ):
        explore(make(kdim=7), X)


@pytest.mark.parametrize("sample", range(3))
def test_what_people_trip_over_is_told_of_the_whole_batch(sample: int) -> None:
    module, square = make(), data(5)
    empty, left, some = blocked(3, 5), blocked(3, 5), blocked(3, 5, 5)
    empty[2], left[2, :2], some[1, :, 3:] = True, True, True
    for x, masks in (
        (X, {"key_padding_mask": empty}),
        (X, {"key_padding_mask": left}),
        (X, {"attn_mask": some.repeat(2, 1, 1)}),
        (square, {}),
        (square, {"key_padding_mask": blocked(5, 5)}),
    ):
        with torch.no_grad():
            expected = trace(module, x, x, x, **masks).warnings
        explorer = explore(module, x, **masks)
        assert explorer.compute(**explorer.complete(sample=sample)).warnings == expected
        assert not expected or " ".join(expected) in words(explorer, sample=sample)
    explorer = explore(module, X, key_padding_mask=empty)
    assert any(
        fact.startswith("Queries with no key left (sequence 2: 0, 1, 2, 3, 4)")
        for fact in words(explorer, sample=sample)
    )


@pytest.mark.parametrize(
    "build", [{}, {"add_bias_kv": True, "add_zero_attn": True}, {"dropout": 0.3}]
)
@pytest.mark.parametrize("training", [True, False])
def test_a_large_call_goes_as_the_module_goes(build: dict[str, Any], training: bool) -> None:
    module, x, padding = make(**build).train(training), data(2, LONG), blocked(2, LONG)
    padding[1] = True
    # of mixed types
    explorer = explore(module, x, key_padding_mask=padding, attn_mask=torch.zeros(LONG, LONG))
    for sample in (0, 1):
        record = explorer.compute(**explorer.complete(sample=sample))
        assert np.isfinite(record.shown).all() and np.isfinite(record.heads[0]).all()
        if not build:
            assert record.heads[0].any() == (sample == 0)
            assert any("sequence 1: 0, 1, 2, 3, 4, 5, …" in warning for warning in record.warnings)
        assert not any("something else" in warning for warning in record.warnings)
        dropped = "The maps of so large a call are those from before dropout." in record.warnings
        assert dropped == (training and "dropout" in build)
        np.testing.assert_allclose(
            record.heads[0].sum(-1),
            1.0 if build.get("add_zero_attn") or sample == 0 else 0.0,
            rtol=1e-4,
        )


def test_a_large_call_that_does_not_go_as_its_weights_say_is_said_to() -> None:
    def louder(_: Any, args: tuple[Tensor, ...], options: dict[str, Any]) -> Any:
        return tuple(2 * x for x in args), options

    module = make()
    module.register_forward_pre_hook(louder, with_kwargs=True)
    (warning,) = (
        explore(module, data(1, LONG)).compute(**explore(module, data(1, LONG)).complete()).warnings
    )
    assert warning.startswith("The module returns something else, by up to ")


@pytest.mark.parametrize("length", [5, LONG])
def test_the_output_is_that_of_the_module_itself(length: int) -> None:
    quantizable = make(torch.ao.nn.quantizable.MultiheadAttention)
    spectral = parametrizations.spectral_norm(make(), "in_proj_weight")
    x = data(1, length)
    for module in (
        make(Doubled),
        hooked(lambda _, __, output: (output[0] + 1, output[1])),
        quantizable,
        spectral.eval(),
    ):
        explorer = explore(module, x)
        record = explorer.compute(**explorer.complete())
        with torch.no_grad():
            output, weights = module(x, x, x, need_weights=length == 5)
        np.testing.assert_allclose(record.output, output, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(record.shown, output[0], rtol=1e-5, atol=1e-6)
        assert (record.weights is None) == (weights is None)
        if weights is not None:
            np.testing.assert_allclose(record.weights, weights, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(record.mean, weights[0], rtol=1e-5, atol=1e-6)
        assert any("something else" in warning for warning in record.warnings) == (
            module is not spectral
        )


def test_weights_of_each_head_are_those_that_the_module_returns() -> None:
    module = make(Doubled)
    explorer = explore(module, X, average_attn_weights=False)
    record = explorer.compute(**explorer.complete(sample=1))
    expected = module(X, X, X, average_attn_weights=False)[1].detach()
    np.testing.assert_allclose([record.heads[0], record.heads[1]], expected[1], rtol=1e-5)


def test_numbers_that_are_not_finite_are_nobodys_hook() -> None:
    module = make()
    module.in_proj_weight.data[0, 0] = torch.nan
    explorer = explore(module, X, need_weights=False)
    record = explorer.compute(**explorer.complete(sample=1))
    np.testing.assert_allclose(
        record.shown, module(X, X, X, need_weights=False)[0][1].detach(), rtol=1e-5, atol=1e-6
    )
    assert record.warnings and "hook" not in " ".join(record.warnings)


def test_a_hint_goes_with_the_mask_that_it_is_about() -> None:
    explorer = explore(make(), X, attn_mask=CAUSAL, is_causal=True)
    left_out, plain = explorer.view(attn_mask=False), explore(make(), X).view()
    assert left_out.facts == plain.facts and "is_causal" not in left_out.code
    assert explorer.view(attn_mask=False, is_causal=False).facts == plain.facts
    assert "is_causal=True" in explorer.view().code
    with pytest.raises(RuntimeError, match="Need attn_mask if specifying the is_causal hint"):
        make()(X, X, X, is_causal=True)
    with pytest.raises(
        ValueError, match="^Got is_causal=True without attn_mask, of which it is only a hint; pass"
    ):
        explore(make(), X, is_causal=True)


def test_the_readers_tensors_are_copied() -> None:
    x, mask = data(), CAUSAL.clone()
    explorer = explore(make(), x, attn_mask=mask)
    before = explorer.view()
    x.zero_()
    mask.fill_(False)
    explorer.view(row=1, sample=2)
    after = explorer.view()
    assert (after.facts, after.figure) == (before.facts, before.figure)
    kept = of_decoder(data())
    maps = explore(kept)
    before = maps.view()
    kept["self_attn"][0].zero_()
    assert maps.view().facts == before.facts


@pytest.mark.parametrize("need_weights", [True, False])
def test_a_state_visited_again_drops_the_same_and_so_does_its_program(need_weights: bool) -> None:
    module = make(dropout=0.5)
    explorer = explore(module, X, need_weights=need_weights)
    state = explorer.complete(sample=1)
    record = explorer.compute(**state)
    explorer.compute(**explorer.complete(sample=2))
    again = explorer.compute(**state)
    np.testing.assert_array_equal(record.output, again.output)
    np.testing.assert_array_equal(record.heads[1], again.heads[1])
    made: dict[str, Any] = {"module": module, "query": X}
    exec(explorer.code(**state), made)
    np.testing.assert_allclose(made["output"], record.output, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(made["per_head"][0, 1], record.heads[1], rtol=1e-5, atol=1e-6)
    assert "manual_seed" not in explorer.code(**state | {"training": False})


def test_a_module_whose_buffers_change_with_every_call_starts_anew() -> None:
    explorer = explore(parametrizations.spectral_norm(make(), "in_proj_weight"), X)
    output = explorer.compute(**explorer.complete()).output
    explorer.compute(**explorer.complete(sample=1))
    np.testing.assert_array_equal(explorer.compute(**explorer.complete()).output, output)


@pytest.mark.parametrize("need_weights", [True, False])
def test_the_program_makes_the_maps_of_rows_without_a_key(need_weights: bool) -> None:
    module, padding, made = make(), blocked(3, 5), {}
    padding[1] = True
    explorer = explore(module, X, key_padding_mask=padding, need_weights=need_weights)
    record = explorer.compute(**explorer.complete(sample=1))
    made |= {"module": module, "query": X, "key_padding_mask": padding}
    exec(explorer.code(**explorer.complete(sample=1)), made)
    np.testing.assert_array_equal(record.heads[0], np.full((5, 5), np.nan if need_weights else 0.0))
    np.testing.assert_array_equal(made["per_head"][0, 0], record.heads[0])


def test_the_program_of_a_large_call_makes_its_output_and_the_maps_before_dropout() -> None:
    module, x = make(dropout=0.5), data(1, LONG)
    explorer = explore(module, x)
    record, made = explorer.compute(**explorer.complete()), {"module": module, "query": x}
    exec(explorer.code(**explorer.complete()), made)
    np.testing.assert_allclose(made["output"], record.output, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(made["per_head"][0, 0], record.heads[0], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("length", [5, LONG])
def test_narrow_types_are_shown(dtype: torch.dtype, length: int) -> None:
    module, x = make().to(dtype), data(1, length).to(dtype)
    record = (explorer := explore(module, x)).compute(**explorer.complete())
    np.testing.assert_allclose(
        record.shown, module(x, x, x, need_weights=length == 5)[0][0].detach().float(), atol=1e-2
    )
    assert record.warnings == () and explorer.view().figure.data
    kept = of_decoder(data(), dtype)
    np.testing.assert_array_equal(
        explore(kept).view().figure.data[0].z, kept["self_attn"][0][0, 0].float()
    )


@pytest.mark.parametrize(
    "change, inputs, masks, error, message",
    [
        (None, X.to_sparse(), {}, ValueError, r"^query is sparse; pass query.to_dense\(\).$"),
        (None, X.to("meta"), {}, ValueError, "^query is on the meta device"),
        (
            None,
            torch.nested.nested_tensor([X[0]], layout=torch.jagged),
            {},
            ValueError,
            "^query is a nested tensor; pass one",
        ),
        (
            None,
            X[:0],
            {},
            ValueError,
            (
                r"^query has shape \(0, 5, 8\); pass at least one sequence, with at least one"
                r" position.$"
            ),
        ),
        (None, X[:, :0], {}, ValueError, r"^query has shape \(3, 0, 8\); pass"),
        (None, X, {"key": X[:, :0]}, ValueError, r"^key has shape \(3, 0, 8\); pass"),
        (
            None,
            X.half(),
            {},
            ValueError,
            "^query is torch.float16 and the module torch.float32; pass all in one type.$",
        ),
        (
            lambda m: m.half(),
            X,
            {},
            ValueError,
            "^query is torch.float32 and the module torch.float16; pass all in one type.$",
        ),
        (
            lambda m: m.to("meta"),
            X,
            {},
            ValueError,
            "^The module's in_proj_weight is on the meta device",
        ),
        (
            lambda m: prune.l1_unstructured(m, "in_proj_weight", 3),
            *(
                X,
                {},
                ValueError,
                (
                    r"^module can't be copied \(RuntimeError\); .* call prune.remove or"
                    r" remove_weight_norm first.$"
                ),
            ),
        ),
        (
            None,
            X,
            {"average_attn_weights": 0},
            TypeError,
            "^average_attn_weights is of type int; pass True or False.$",
        ),
        (
            None,
            X,
            {"is_causal": 1, "attn_mask": CAUSAL},
            TypeError,
            "^is_causal is of type int; pass True or False.$",
        ),
        (
            None,
            X,
            {"need_weights": None},
            TypeError,
            "^need_weights is of type NoneType; pass True or False.$",
        ),
        (
            None,
            X,
            {"foo": 1},
            TypeError,
            "^Got foo, but besides its inputs nn.MultiheadAttention takes key_padding_mask, ",
        ),
        (
            None,
            X,
            {"attn_mask": CAUSAL.numpy()},
            TypeError,
            "^attn_mask is a ndarray; pass a tensor: torch.as_tensor makes",
        ),
        (
            None,
            X,
            {"attn_mask": CAUSAL.to_sparse()},
            ValueError,
            r"^attn_mask is sparse; pass attn_mask.to_dense\(\).$",
        ),
        (
            None,
            X,
            {"attn_mask": CAUSAL.int()},
            ValueError,
            "^AssertionError: attn_mask is torch.int32, but must be boolean",
        ),
        (
            lambda _: make(Narrow),
            X,
            {},
            ValueError,
            r"^TypeError: .*forward\(\) got an unexpected keyword argument .*\.$",
        ),
        (
            lambda _: hooked(lambda _, __, output: output[0]),
            X,
            {},
            ValueError,
            "^TypeError: The module returned one Tensor, not",
        ),
    ],
)
def test_what_does_not_work_is_said_in_one_sentence(
    change: Callable[..., Any] | None,
    inputs: Any,
    masks: dict[str, Any],
    error: type[Exception],
    message: str,
) -> None:
    module = make() if change is None else change(make())
    with pytest.raises(error, match=message) as raised:
        explore(module, inputs, **masks)
    assert "\n" not in str(raised.value)


def test_a_state_in_which_torch_fails_is_said() -> None:
    module = make()
    module.out_proj.register_parameter("bias", None)
    explorer = explore(module, X)
    assert explorer.view().figure.data
    with pytest.raises(ValueError, match=r"^TypeError: _native_multi_head_attention\(\): .*\.$"):
        explorer.view(training=False)


def test_arguments_that_nothing_would_read_are_refused() -> None:
    for given in ({"need_weights": False}, {"key": X}, {"tokens": ["a"]}, {"query": X}):
        with pytest.raises(
            ValueError,
            match=f"^Module got {next(iter(given))} but no module; pass a module and its query",
        ):
            explorers.Module(**given)
    with pytest.raises(
        ValueError, match="^CapturedMaps got tokens but nothing captured; pass both, or neither.$"
    ):
        explorers.CapturedMaps(tokens=["a"])
    with pytest.raises(TypeError, match="^Got captured weights and inputs too"):
        explore(of_decoder(X), key=X)


def test_tokens_are_read_once() -> None:
    own = explore(make(), X, tokens=(letter for letter in "abcde"))
    record = own.compute(**own.complete(sample=2))
    assert record.rows == record.columns == tuple("abcde")
    for ids in (torch.arange(15).view(3, 5), np.arange(15).reshape(3, 5)):
        own = explore(make(), X, tokens=ids)
        assert own.compute(**own.complete(sample=2)).rows == ("10", "11", "12", "13", "14")
    maps = explore(of_decoder(X), tokens=(letter for letter in "abcde"))
    assert maps.compute(**maps.complete()).columns == tuple("abcde")


@pytest.mark.parametrize(
    "tokens, error, message",
    [
        (
            5,
            TypeError,
            "^tokens is a int; pass a list of 7 strings, one for each of the positions.$",
        ),
        ("abcde", TypeError, "^tokens is one string; pass a list of 7 strings"),
        (
            list("ab"),
            ValueError,
            "^tokens has 2 entries, but the maps have 5 or 7 positions; pass one for each.$",
        ),
    ],
)
def test_tokens_that_fit_no_map_are_refused(
    tokens: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        explore(of_decoder(X, memory=data(3, 7)), tokens=tokens)


def of_decoder(
    x: Tensor, dtype: torch.dtype = torch.float32, memory: Tensor | None = None
) -> Captured:
    torch.manual_seed(0)
    layer = nn.TransformerDecoderLayer(8, 2, 7, batch_first=True, dtype=dtype).eval()
    with torch.no_grad(), capture(layer) as weights:
        layer(x.to(dtype), (data(*x.shape[:2], seed=1) if memory is None else memory).to(dtype))
    return weights


def test_only_a_sequence_that_looks_at_itself_is_said_to() -> None:
    kept = of_decoder(X)
    kept["multihead_attn"][0].copy_(torch.eye(5).expand(3, 2, 5, 5))
    maps = explore(kept, tokens=list("abcde"))
    other = maps.compute(**maps.complete(module="multihead_attn"))
    assert other.rows == other.columns == tuple("01234")
    assert not any("itself" in fact for fact in words(maps, module="multihead_attn"))
    assert maps.compute(**maps.complete()).rows == tuple("abcde")
    assert any("itself" in fact for fact in words(maps))
    assert kept.of_itself == {"self_attn": [True], "multihead_attn": [False]}


def test_views_of_one_tensor_are_one_sequence() -> None:
    module = nn.MultiheadAttention(8, 2)
    with capture(module) as kept:
        module(X.transpose(0, 1), X.transpose(0, 1), X.transpose(0, 1))
        module(X[:, :3], X[:, 2:], X[:, 2:])
    assert kept.of_itself[""] == [True, False]


def test_nan_in_captured_maps_is_not_put_down_to_masks_alone() -> None:
    facts = words(explore(of_decoder(X * torch.nan)))
    assert (
        facts[-1]
        == "NaN stands in rows that have no key left, or meet a number that is not finite."
    )


@pytest.mark.parametrize("x, memory", [(X[:0], X[:0]), (X[:, :0], X), (X, X[:, :0])])
def test_captured_maps_without_positions_are_refused(x: Tensor, memory: Tensor) -> None:
    kept = of_decoder(x, memory=memory)
    with pytest.raises(
        ValueError,
        match=r"^A call of '.*' has weights \(N, H, L, S\) = \(.*\), nothing to look at; run",
    ):
        explore(kept)


def test_a_copy_leaves_the_readers_module_its_mode() -> None:
    module = make(dropout=0.5)
    twin = copy.deepcopy(module.state_dict())
    explore(module, X).view(training=False)
    assert module.training and all(
        torch.equal(twin[name], value) for name, value in module.state_dict().items()
    )
