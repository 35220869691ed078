"""Weights from other layouts: each library's own maths, by hand,
against nn.MultiheadAttention with the converted weights.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_widgets.attention import load

N, L, S, E, H, D, EK, EV = 2, 7, 11, 15, 3, 5, 17, 13
SIZES = [(E, E), (EK, EV), (EK, E), (E, EV)]  # of kdim and vdim
BERT = ("self.query", "self.key", "self.value", "output.dense")
BART = ("q_proj", "k_proj", "v_proj", "out_proj")
SEPARATE = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
StateDict = dict[str, Tensor]


def tensors(*shapes: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) / 2 for shape in shapes]


def inputs(kdim: int = E, vdim: int = E) -> list[Tensor]:
    return tensors((N, L, E), (N, S, kdim), (N, S, vdim), seed=1)


def torch_module(**options: Any) -> nn.MultiheadAttention:
    torch.manual_seed(0)
    defaults = {"num_heads": H, "batch_first": True, "dropout": 0.9, "dtype": torch.float64}
    return nn.MultiheadAttention(E, **(defaults | options))


def output_of(state_dict: StateDict, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """Load the weights the way torch does, in order, into a module of the sizes of the inputs."""
    module = torch_module(
        kdim=key.shape[-1], vdim=value.shape[-1], bias="in_proj_bias" in state_dict
    ).eval()
    assert list(state_dict) == list(module.state_dict())
    module.load_state_dict(state_dict)
    return module(query, key, value)[0]


def assert_same(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)


def assert_equal(ours: StateDict, theirs: StateDict) -> None:
    assert sorted(ours) == sorted(theirs)
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=0, atol=0)


@contextmanager
def raises(words: str, error: type[BaseException] = ValueError) -> Iterator[None]:
    """The error says these words on one line; ... stands for any others."""
    with pytest.raises(error, match=".*".join(map(re.escape, words.split("...")))) as caught:
        yield
    assert "\n" not in str(caught.value)


def assert_fresh(result: StateDict, *sources: Tensor) -> None:
    """The tensors are in C order, need no gradient,
    and share memory neither with a source nor with one another.
    """
    assert all(
        type(tensor) is Tensor and tensor.is_contiguous() and not tensor.requires_grad
        for tensor in result.values()
    )
    places = [tensor.untyped_storage().data_ptr() for tensor in result.values()]
    assert len({*places} - {tensor.untyped_storage().data_ptr() for tensor in sources}) == len(
        result
    )


# the layers of other libraries


def linears(
    names: tuple[str, ...] = BERT, biases: str = "qkvo", sizes: tuple[int, int] = (E, E)
) -> StateDict:
    weights = dict(zip(names, tensors((E, E), (E, sizes[0]), (E, sizes[1]), (E, E)), strict=True))
    given = [name for name, letter in zip(names, "qkvo", strict=True) if letter in biases]
    state_dict = {f"{name}.weight": weight for name, weight in weights.items()}
    return state_dict | {
        f"{name}.bias": bias
        for name, bias in zip(given, tensors(*[(E,)] * len(given), seed=2), strict=True)
    }


def bert_output(
    state_dict: StateDict, names: tuple[str, ...], query: Tensor, key: Tensor, value: Tensor
) -> Tensor:
    def linear(x: Tensor, name: str) -> Tensor:
        return F.linear(x, state_dict[f"{name}.weight"], state_dict.get(f"{name}.bias"))

    projected = (linear(x, name) for x, name in zip((query, key, value), names[:3], strict=True))
    q, k, v = (x.view(N, -1, H, D).permute(0, 2, 1, 3) for x in projected)
    weights = (q @ k.transpose(-1, -2) / math.sqrt(D)).softmax(dim=-1)
    context = (weights @ v).permute(0, 2, 1, 3).reshape(N, -1, E)
    return linear(context, names[3])


def timm_weights(biases: str = "io") -> StateDict:
    weight, out, bias, out_bias = tensors((3 * E, E), (E, E), (3 * E,), (E,))
    state_dict = {"qkv.weight": weight, "proj.weight": out}
    return (
        state_dict
        | ({"qkv.bias": bias} if "i" in biases else {})
        | ({"proj.bias": out_bias} if "o" in biases else {})
    )


def timm_output(state_dict: StateDict, x: Tensor) -> Tensor:
    qkv = (
        F.linear(x, state_dict["qkv.weight"], state_dict.get("qkv.bias"))
        .reshape(N, -1, 3, H, D)
        .permute(2, 0, 3, 1, 4)
    )
    q, k, v = qkv.unbind(0)
    x = (q * D**-0.5 @ k.transpose(-2, -1)).softmax(dim=-1) @ v
    return F.linear(
        x.transpose(1, 2).reshape(N, -1, E), state_dict["proj.weight"], state_dict.get("proj.bias")
    )


def keras_weights(sizes: tuple[int, int] = (E, E)) -> list[Tensor]:
    kernels = [(E, H, D), (sizes[0], H, D), (sizes[1], H, D), (H, D, E)]
    return tensors(
        *(shape for pair in zip(kernels, [(H, D)] * 3 + [(E,)], strict=True) for shape in pair)
    )


def keras_output(weights: list[Tensor], query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    if len(weights) == 4:
        weights = [
            part for kernel in weights for part in (kernel, torch.zeros((), dtype=torch.float64))
        ]
    q, k, v = (
        torch.einsum("abc,cde->abde", x, kernel) + bias
        for x, kernel, bias in zip((query, key, value), weights[0:6:2], weights[1:6:2], strict=True)
    )
    shares = torch.einsum("aecd,abcd->acbe", k, q / math.sqrt(D)).softmax(dim=-1)
    return (
        torch.einsum("abcd,cde->abe", torch.einsum("acbe,aecd->abcd", shares, v), weights[6])
        + weights[7]
    )


# from linears


@pytest.mark.parametrize(
    "names", [BERT, BART, tuple(f"model.decoder.layers.3.encoder_attn.{name}" for name in BART)]
)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("biases", ["qkvo", "", "qvo", "o"])
def test_linears_as_in_bert(names: tuple[str, ...], sizes: tuple[int, int], biases: str) -> None:
    theirs = linears(names, biases, sizes)
    ours = load.from_linears(theirs | {"output.LayerNorm.weight": torch.ones(E)}, *names)
    assert_same(output_of(ours, *inputs(*sizes)), bert_output(theirs, names, *inputs(*sizes)))
    assert_fresh(ours, *theirs.values())


def test_the_names_of_bert_are_the_default() -> None:
    by_name = dict(zip(("query", "key", "value", "output"), BERT, strict=True))
    assert_equal(load.from_linears(linears()), load.from_linears(linears(), **by_name))


def test_linears_without_a_bias_get_zeros() -> None:
    ours = load.from_linears(linears(biases="qv"))
    assert [bool(part.any()) for part in ours["in_proj_bias"].chunk(3)] == [True, False, True]
    assert not ours["out_proj.bias"].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_types_stay(dtype: torch.dtype) -> None:
    def typed(state_dict: StateDict) -> StateDict:
        return {name: tensor.to(dtype) for name, tensor in state_dict.items()}

    fused = load.from_qkv(typed(timm_weights("o")))
    results = [
        load.from_linears(typed(linears(biases="q"))),
        fused,
        load.separate(fused),
        load.packed(load.separate(fused)),
    ]
    results.append(load.from_keras([weight.to(dtype) for weight in keras_weights((EK, E))]))
    assert [{tensor.dtype for tensor in result.values()} for result in results] == [{dtype}] * 5


def test_arrays_and_parameters_are_welcome() -> None:
    theirs = linears()
    arrays = {name: tensor.numpy() for name, tensor in theirs.items()}
    for array in arrays.values():
        array.flags.writeable = False  # those of JAX are
    parameters = {name: nn.Parameter(tensor) for name, tensor in theirs.items()}
    assert_equal(load.from_linears(arrays), load.from_linears(theirs))
    assert_equal(load.from_linears(parameters), load.from_linears(theirs))
    assert_fresh(load.from_linears(parameters), *parameters.values())


# from a fused Linear


@pytest.mark.parametrize("biases", ["io", "o", "i", ""])
def test_fused_as_in_timm(biases: str) -> None:
    theirs = timm_weights(biases)
    ours = load.from_qkv(theirs | {"q_norm.weight": torch.ones(D)})
    x = inputs()[0]
    assert_same(output_of(ours, x, x, x), timm_output(theirs, x))
    assert_fresh(ours, *theirs.values())


def test_fused_by_other_names() -> None:
    theirs = timm_weights()
    renamed = {
        f"blocks.2.attn.{name}".replace("proj", "out"): tensor for name, tensor in theirs.items()
    }
    assert_equal(
        load.from_qkv(renamed, "blocks.2.attn.qkv", output="blocks.2.attn.out"),
        load.from_qkv(theirs),
    )


# from Keras


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("use_bias", [True, False])
def test_keras(sizes: tuple[int, int], use_bias: bool) -> None:
    theirs = keras_weights(sizes)[:: 1 if use_bias else 2]
    ours = load.from_keras(theirs)
    assert_same(output_of(ours, *inputs(*sizes)), keras_output(theirs, *inputs(*sizes)))
    assert_fresh(ours, *theirs)


def test_keras_gives_arrays() -> None:
    arrays = [weight.numpy().astype(np.float32) for weight in keras_weights()]
    for array in arrays:
        array.flags.writeable = False
    ours = load.from_keras(arrays)
    assert {tensor.dtype for tensor in ours.values()} == {torch.float32}
    assert_equal(
        ours, {name: tensor.float() for name, tensor in load.from_keras(keras_weights()).items()}
    )


# packed and separate


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"add_bias_kv": True}])
def test_there_and_back(options: dict[str, bool]) -> None:
    state_dict = nn.MultiheadAttention(E, H, **options).state_dict()
    apart = load.separate(state_dict)
    together = load.packed(apart)
    assert set(apart) == set(state_dict) - {"in_proj_weight"} | set(SEPARATE)
    for row, name in enumerate(SEPARATE):
        assert torch.equal(apart[name], state_dict["in_proj_weight"][row * E : (row + 1) * E])
    assert_equal(together, state_dict)
    assert_fresh(apart, *state_dict.values())
    assert_fresh(together, *apart.values())


def test_packed_by_hand() -> None:
    v, k, q = (torch.full((2, 2), i) for i in (3.0, 2.0, 1.0))
    turned = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).T
    ours = load.packed(
        {"v_proj_weight": v, "k_proj_weight": k, "q_proj_weight": q, "out_proj.weight": turned}
    )
    assert ours["in_proj_weight"].tolist() == [[1, 1], [1, 1], [2, 2], [2, 2], [3, 3], [3, 3]]
    assert ours["out_proj.weight"].tolist() == [[1, 3], [2, 4]]
    assert_fresh(ours, v, k, q, turned)


# what no converter takes


def given(*shapes: tuple[int, ...], names: tuple[str, ...] = BERT) -> StateDict:
    return {f"{name}.weight": torch.zeros(shape) for name, shape in zip(names, shapes, strict=True)}


def keras(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    return [np.zeros(shape) for shape in shapes]


IN_ORDER = "expected ... with H * D = E, as ... no twin ... in the order of get_weights"
MANY = {f"embeddings.{i}": torch.zeros(1) for i in range(9)}
MANY |= linears(tuple(f"encoder.layer.0.attention.{name}" for name in BERT))


@pytest.mark.parametrize(
    "convert, weights, words",
    [
        # a size that torch has no place for: fewer key heads, larger heads, another output,
        # another number of values
        (
            load.from_linears,
            given((E, E), (D, E), (D, E), (E, E)),
            "(5, 15), (5, 15), (15, 15) and biases of None, None",
        ),
        (
            load.from_linears,
            given((30, E), (30, E), (30, E), (E, 30)),
            "(30, 15), (15, 30) and ...; expected ... no twin",
        ),
        (
            load.from_linears,
            given((E, E), (E, E), (E, E), (EK, E)),
            "(17, 15) and ...; expected ... and (E,)",
        ),
        (
            load.from_linears,
            given((E, E), (E, EK), (EV, E), (E, E)),
            "(15, 17), (13, 15), (15, 15) and",
        ),
        (load.from_linears, given((E, E), (E,), (E, E), (E, E)), "(15, 15), (15,), (15, 15)"),
        *(
            (
                load.from_linears,
                linears() | {f"{name}.bias": torch.zeros(2)},
                "biases of ...(2,)... expected",
            )
            for name in BERT
        ),
        (
            load.from_qkv,
            timm_weights() | {"qkv.weight": torch.zeros(E, 45)},
            "Got (15, 45) as the ... (3E, E): transpose both",
        ),
        (
            load.from_qkv,
            timm_weights() | {"qkv.weight": torch.zeros(45)},
            "Got (45,) as the weight",
        ),
        (
            load.from_qkv,
            timm_weights() | {"qkv.weight": torch.zeros(51, EK)},
            "(17, 17), (17, 17), (17, 17), (15, 15) and",
        ),
        (
            load.from_qkv,
            timm_weights() | {"proj.weight": torch.zeros(E, EK)},
            "(15, 15), (15, 17) and",
        ),
        (
            load.from_qkv,
            timm_weights() | {"qkv.bias": torch.zeros(E)},
            "biases of (5,), (5,), (5,), (15,) for",
        ),
        (
            load.from_qkv,
            timm_weights() | {"proj.bias": torch.zeros(EK)},
            "biases of (15,), (15,), (15,), (17,) for",
        ),
        (
            load.separate,
            {"in_proj_weight": torch.zeros(E, 45)},
            "Got (15, 45) as the ... expected (3E, E)",
        ),
        (
            load.packed,
            torch_module(kdim=EK, vdim=EV).state_dict(),
            "(15, 15), (15, 17), (15, 13); ... kdim= and vdim=",
        ),
        (
            load.packed,
            torch_module(vdim=EV).state_dict(),
            "(15, 15), (15, 15), (15, 13); ... can be stacked",
        ),
        (
            load.packed,
            dict.fromkeys(SEPARATE, torch.zeros(E, EK)),
            "(15, 17), (15, 17), (15, 17); ... can be stacked",
        ),
        # what Keras has more freedom for
        (
            load.from_keras,
            keras((E, H, E), (E, H, E), (E, H, E), (H, E, E)),
            f"(15, 3, 15), ...; {IN_ORDER}",
        ),
        (
            load.from_keras,
            keras((E, H, D), (E, H, D), (E, H, 7), (H, 7, E)),
            f"(15, 3, 7), (3, 7, 15); {IN_ORDER}",
        ),
        (
            load.from_keras,
            keras((E, H, D), (E, H, D), (E, H, D), (H, D, EK)),
            f"(3, 5, 17); {IN_ORDER}",
        ),
        (
            load.from_keras,
            keras((E, H, D), (E, D, H), (E, H, D), (H, D, E)),
            f"(15, 5, 3), ...; {IN_ORDER}",
        ),
        (
            load.from_keras,
            keras((E, H, D), (E, H, D), (E, D, H), (H, D, E)),
            f"(15, 5, 3), (3, 5, 15); {IN_ORDER}",
        ),
        (
            load.from_keras,
            keras((E, H, D), (E, H, D), (E, H, D), (D, H, E)),
            f"(5, 3, 15); {IN_ORDER}",
        ),
        (load.from_keras, keras((E, H, D), (E, H, D), (E, H, D), (H, D)), f"(3, 5); {IN_ORDER}"),
        (load.from_keras, keras((H, D, E), (E, H, D), (E, H, D), (E, H, D)), IN_ORDER),
        (load.from_keras, keras((E, E), (E, E), (E, E), (E, E)), f"(15, 15); {IN_ORDER}"),
        (
            load.from_keras,
            keras((E, H, D), (E, H, D), (E, H, D)),
            "Got 3 weights; give the 8 of get_weights(), or the 4",
        ),
        (load.from_keras, [*keras_weights()[:7], torch.zeros(EK)], "(15,), (15,), (17,) for query"),
        # names
        (
            load.from_linears,
            MANY,
            "Found no self.query.weight, ..., output.dense.weight among 17 names, such as enc",
        ),
        (
            load.from_linears,
            MANY,
            (
                "names, such as encoder.layer.0.attention.self.query.weight, ...; say what the four"
                " Linears"
            ),
        ),
        (
            load.from_linears,
            given(*[(E, E)] * 4, names=BART),
            "among 4 names, such as q_proj.weight, ... output=)",
        ),
        (
            load.from_linears,
            given(*[(E, E)] * 3, names=BERT[:3]),
            "Found no output.dense.weight among 3 names",
        ),
        (
            load.from_qkv,
            linears(BART),
            "Found no qkv.weight, proj.weight among 8 names, ... (qkv=, output=)",
        ),
        (
            load.packed,
            torch_module().state_dict(),
            f"Found no {', '.join(SEPARATE)} among 4 names, such as ...in_proj_weight",
        ),
        (
            load.separate,
            torch_module(kdim=EK).state_dict(),
            "Found no in_proj_weight among 6 names, ... packed projections",
        ),
    ],
)
def test_errors(convert: Callable[[Any], StateDict], weights: Any, words: str) -> None:
    with raises(words):
        convert(weights)


@pytest.mark.parametrize("convert", [load.packed, load.separate, load.from_linears, load.from_qkv])
def test_a_module_is_no_state_dict(convert: Callable[[Any], StateDict]) -> None:
    with raises("of type Linear; ... use .state_dict()", TypeError):
        convert(nn.Linear(E, E))


# into a module


class Twin(nn.Module):
    """A module with the parameters and the call of nn.MultiheadAttention,
    and a part that is in another mode than it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.in_proj_weight = nn.Parameter(torch.ones(3 * E, E, dtype=torch.float64))
        self.in_proj_bias = nn.Parameter(torch.ones(3 * E, dtype=torch.float64))
        self.out_proj = nn.Linear(E, E, dtype=torch.float64).eval()
        self.graphs: list[bool] = []

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, need_weights: bool = True
    ) -> tuple[Tensor, Tensor | None]:
        query, key, value = (x.transpose(0, 1) for x in (query, key, value))
        output, weights = F.multi_head_attention_forward(
            *(
                query,
                key,
                value,
                E,
                H,
                self.in_proj_weight,
                self.in_proj_bias,
                None,
                None,
                False,
                0.9,
            ),
            *(self.out_proj.weight, self.out_proj.bias, self.training),
            need_weights=need_weights,
        )
        self.graphs.append(output.requires_grad)
        return output.transpose(0, 1), weights


def snapshot(module: nn.Module) -> tuple[StateDict, list[int], list[bool]]:
    state_dict = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    return (
        state_dict,
        [id(p) for p in module.parameters()],
        [part.training for part in module.modules()],
    )


@contextmanager
def assert_refused(
    module: nn.Module, words: str, error: type[BaseException] = ValueError
) -> Iterator[None]:
    """Whatever happens inside raises, and leaves the module with its weights,
    parameters and modes.
    """
    before = snapshot(module)
    with raises(words, error):
        yield
    after = snapshot(module)
    assert_equal(after[0], before[0])
    assert after[1:] == before[1:]


@pytest.mark.parametrize("make", [torch_module, Twin])
@pytest.mark.parametrize("training", [True, False])
def test_into_loads_and_gives_the_module_back(
    make: Callable[[], nn.Module], training: bool
) -> None:
    theirs, (x, *_) = timm_weights(), inputs()
    module = make().train(training)
    module.get_submodule("out_proj").eval()
    before = snapshot(module)
    ours = load.from_qkv(theirs)
    assert load.into(module, ours, reference=(x, timm_output(theirs, x))) is module
    assert_equal(module.state_dict(), ours)
    assert snapshot(module)[1:] == before[1:]
    assert not any(getattr(module, "graphs", []))
    assert_same(module.eval()(x, x, x)[0], timm_output(theirs, x))


@pytest.mark.parametrize("sizes", SIZES)
def test_into_with_query_key_and_value(sizes: tuple[int, int]) -> None:
    theirs = linears(sizes=sizes)
    reference = (*inputs(*sizes), bert_output(theirs, BERT, *inputs(*sizes)))
    module = load.into(
        torch_module(kdim=sizes[0], vdim=sizes[1]), load.from_linears(theirs), reference
    )
    assert_same(module.eval()(*reference[:3])[0], reference[3])


def test_into_without_a_reference_loads_all_the_same() -> None:
    ours = load.from_linears(linears())
    assert_equal(load.into(torch_module(), ours).state_dict(), ours)


def test_one_sequence_as_the_reference() -> None:
    theirs, (x, *_) = timm_weights(), inputs()
    ours = load.from_qkv(theirs)
    assert_equal(
        load.into(torch_module(), ours, (x[1], timm_output(theirs, x)[1])).state_dict(), ours
    )


@pytest.mark.parametrize("batch_first", [True, False])
def test_the_reference_is_in_the_layout_of_the_module(batch_first: bool) -> None:
    theirs, (x, *_) = timm_weights(), inputs()
    ours = load.from_qkv(theirs)
    reference = [x, timm_output(theirs, x)]
    other = [tensor.transpose(0, 1) for tensor in reference]
    if not batch_first:
        reference, other = other, reference
    module = torch_module(batch_first=batch_first)
    with assert_refused(module, "differs from the reference ... (batch_first)"):
        load.into(module, ours, other)
    assert_equal(load.into(module, ours, reference).state_dict(), ours)


def interleaved(theirs: StateDict) -> StateDict:
    """The rows of each head's query, key and value together, as BLOOM and GPT-NeoX store them."""
    mixed = {
        name: theirs[name].unflatten(0, (3, H, D)).transpose(0, 1).flatten(0, 2)
        for name in ("qkv.weight", "qkv.bias")
    }
    return theirs | mixed


def transposed(theirs: StateDict, *names: str) -> StateDict:
    qkv = dict(zip("qkv", theirs["qkv.weight"].chunk(3), strict=True))
    turned = torch.cat([weight.T if name in names else weight for name, weight in qkv.items()])
    return (
        theirs
        | {"qkv.weight": turned}
        | ({"proj.weight": theirs["proj.weight"].T} if "o" in names else {})
    )


def swapped(theirs: StateDict) -> StateDict:
    return theirs | {
        name: theirs[name].unflatten(0, (3, E))[[1, 0, 2]].flatten(0, 1)
        for name in ("qkv.weight", "qkv.bias")
    }


@pytest.mark.parametrize("make", [torch_module, Twin])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "wrong",
    [
        interleaved,
        swapped,
        lambda theirs: transposed(theirs, "q"),
        lambda theirs: transposed(theirs, "k"),
        lambda theirs: transposed(theirs, "v"),
        lambda theirs: transposed(theirs, "o"),
        lambda theirs: transposed(theirs, *"qkvo"),
        lambda theirs: {name: tensor for name, tensor in theirs.items() if name != "qkv.bias"},
        lambda theirs: theirs | {"proj.weight": theirs["proj.weight"] * (1 + 1e-6)},
        lambda theirs: theirs | {"proj.bias": torch.full((E,), math.nan)},
    ],
    ids=[
        "interleaved",
        "q and k swapped",
        "q.T",
        "k.T",
        "v.T",
        "out.T",
        "all.T",
        "no bias",
        "scaled",
        "nan",
    ],
)
def test_a_wrong_layout_of_the_right_shape(
    make: Callable[[], nn.Module], training: bool, wrong: Callable[[StateDict], StateDict]
) -> None:
    theirs, (x, *_) = timm_weights(), inputs()
    module = make().train(training)
    module.get_submodule("out_proj").eval()
    with assert_refused(
        module, "differs from the reference by up to ...interleaved ... transposed ... num_heads"
    ):
        load.into(module, load.from_qkv(wrong(theirs)), reference=(x, timm_output(theirs, x)))


def test_another_number_of_heads() -> None:
    theirs, (x, *_) = timm_weights(), inputs()
    module = torch_module(num_heads=5)
    with assert_refused(module, "differs from the reference ... another num_heads"):
        load.into(module, load.from_qkv(theirs), (x, timm_output(theirs, x)))
    load.into(module, load.from_qkv(theirs))  # nothing but an output tells


def test_the_message_says_by_how_much() -> None:
    theirs, (x, *_) = timm_weights(), inputs()
    output = timm_output(theirs, x)
    output[1, 3, 2] += 0.25
    with raises("differs from the reference by up to 2.5e-01 (rounding explains "):
        load.into(torch_module(), load.from_qkv(theirs), (x, output))


@pytest.mark.parametrize("dtype, tolerance", load.TOLERANCES.items())
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_the_tolerance_is_a_share_of_the_largest_output(
    dtype: torch.dtype, tolerance: float, scale: float
) -> None:
    theirs, (x, *_) = timm_weights(), inputs()
    theirs |= {
        "proj.weight": theirs["proj.weight"] * scale,
        "proj.bias": theirs["proj.bias"] * scale,
    }
    output = timm_output(theirs, x)
    ours = load.from_qkv(theirs)
    load.into(torch_module(dtype=dtype), ours, (x.to(dtype), output))  # rounding passes
    off = output.clone()
    off[0, 0, 0] += 2 * tolerance * output.abs().max()
    with raises("differs from the reference"):
        load.into(torch_module(dtype=dtype), ours, (x.to(dtype), off))


def test_the_coarser_type_sets_the_tolerance() -> None:
    theirs, (x, *_) = timm_weights(), inputs()
    rounded = timm_output(theirs, x).float()
    load.into(torch_module(), load.from_qkv(theirs), (x, rounded))
    with raises("differs"):
        load.into(torch_module(), load.from_qkv(theirs), (x, rounded.double()))


def test_a_reference_of_arrays() -> None:
    weights = [weight.numpy() for weight in keras_weights()]
    reference = [*inputs(), keras_output(keras_weights(), *inputs())]
    module = load.into(
        torch_module(), load.from_keras(weights), [tensor.numpy() for tensor in reference]
    )
    assert_same(module.eval()(*inputs())[0], reference[3])


@pytest.mark.parametrize(
    "reference, words, error",
    [
        (
            inputs()[:1],
            "reference of 1 parts; give (x, output) or (query, key, value, output)",
            ValueError,
        ),
        (inputs(), "reference of 3 parts", ValueError),
        (
            tensors((N, L, E), (L, N, E)),
            "(7, 2, 15), but the module's is (2, 7, 15); ...batch_first",
            ValueError,
        ),
        # which would broadcast
        (
            tensors((N, L, E), (1, L, E)),
            "output of shape (1, 7, 15)",
            ValueError,
        ),
        # torch's words
        (
            tensors((N, L, EK), (N, L, EK)),
            "was expecting embedding dimension of 15, but got 17",
            AssertionError,
        ),
    ],
)
def test_a_reference_that_does_not_fit(
    reference: list[Tensor], words: str, error: type[Exception]
) -> None:
    module = torch_module().train()
    with assert_refused(module, words, error):
        load.into(module, load.from_qkv(timm_weights()), reference)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RuntimeError])
@pytest.mark.parametrize("where", ["load_state_dict", "forward"])
def test_an_interruption_loses_nothing(
    monkeypatch: pytest.MonkeyPatch, stop: type[BaseException], where: str
) -> None:
    module, x = torch_module().train(), inputs()[0]

    def interrupt(*_: object, **__: object) -> None:
        monkeypatch.undo()
        with torch.no_grad():
            module.in_proj_weight.zero_()
        raise stop("stop")

    monkeypatch.setattr(module, where, interrupt)
    with assert_refused(module, "stop", stop):
        load.into(module, load.from_qkv(timm_weights()), (x, x))


@pytest.mark.parametrize(
    "change, words",
    [
        (
            {"in_proj_weight": (46, E)},
            "Got in_proj_weight of shapes (46, 15), but the module has (45, 15); ... embed_dim=",
        ),
        ({"out_proj.bias": (EK,)}, "Got out_proj.bias of shapes (17,), but the module has (15,)"),
        (
            {"in_proj_bias": (1,), "out_proj.weight": (E, 1)},
            "in_proj_bias, out_proj.weight of shapes (1,), (15, 1), but",
        ),
        (
            {"bias_k": (1, 1, E)},
            "Got bias_k, but the module has in_proj_weight, ...out_proj.bias alone; ...bias=",
        ),
        (
            {f"layers.{i}": (1,) for i in range(6)},
            "Got layers.0, layers.1, layers.2, layers.3 and 2 more, but the module has",
        ),
    ],
)
def test_names_and_shapes_that_do_not_fit(change: dict[str, tuple[int, ...]], words: str) -> None:
    module = torch_module()
    with assert_refused(module, words):
        load.into(
            module,
            load.from_qkv(timm_weights())
            | {name: torch.zeros(shape) for name, shape in change.items()},
        )


@pytest.mark.parametrize(
    "state_dict, options, words",
    [
        (
            load.from_qkv(timm_weights("")),
            {},
            "Found no in_proj_bias, out_proj.bias among 2 names, ...bias=",
        ),
        (
            load.separate(load.from_qkv(timm_weights())),
            {},
            "Found no in_proj_weight among 6 names, ...packed",
        ),
        (
            load.from_qkv(timm_weights()),
            {"kdim": EK},
            f"Found no {', '.join(SEPARATE)} ...separate",
        ),
    ],
)
def test_names_that_the_module_misses(
    state_dict: StateDict, options: dict[str, Any], words: str
) -> None:
    module = torch_module(**options)
    with assert_refused(module, words):
        load.into(module, state_dict)


def test_a_module_of_another_kind() -> None:
    module = nn.Linear(E, E)
    with assert_refused(module, "Found no weight, bias among 4 names"):
        load.into(module, load.from_qkv(timm_weights()))
    with assert_refused(module, "of type Linear; ... use .state_dict()", TypeError):
        load.into(module, module)


def test_a_module_that_is_loaded_from_views_of_its_own_weights() -> None:
    module = torch_module()
    before = snapshot(module)[0]
    own = module.state_dict()
    load.into(
        module,
        own
        | {
            "in_proj_weight": own["in_proj_weight"].flip(0),
            "out_proj.weight": own["in_proj_weight"][:E].T,
        },
    )
    assert torch.equal(module.in_proj_weight, before["in_proj_weight"].flip(0))
    assert torch.equal(module.out_proj.weight, before["in_proj_weight"][:E].T)


def test_integers_are_refused() -> None:
    names = ("q_proj", "k_proj", "v_proj", "out_proj")
    quantised = {f"{name}.weight": torch.ones(15, 15, dtype=torch.int8) for name in names}
    with pytest.raises(
        ValueError, match="^Got weights of torch.int8; quantised ones need their scales"
    ):
        load.from_linears(quantised, *names)


def test_a_module_without_memory_is_refused() -> None:
    weights = nn.MultiheadAttention(15, 3).state_dict()
    with pytest.raises(ValueError, match="^The module is on the meta device"):
        load.into(nn.MultiheadAttention(15, 3, device="meta"), weights)


def test_a_reference_of_another_type_is_taken_and_a_pair_is_named() -> None:
    module = nn.MultiheadAttention(15, 3)
    x = torch.randn(7, 2, 15)
    output = module(x, x, x)
    assert (
        load.into(module, module.state_dict(), (x.double().numpy(), output[0].detach())) is module
    )
    with pytest.raises(
        ValueError, match=r"^Got a reference with a part that is no tensor; .* module\(...\)\[0\].$"
    ):
        load.into(module, module.state_dict(), (x, output))
