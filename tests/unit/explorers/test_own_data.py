"""What a reader brings along: settings, odd tensors, modules that are more than their weights."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from samples import words
from torch import Tensor, nn
from torch.nn.utils import parametrizations, parametrize, prune

from mha_widgets import explorers
from mha_widgets.attention import padding_mask
from mha_widgets.hosts.page import compact
from mha_widgets.kit.words import strongest

CATALOG = explorers.catalog()
OF_MODULES = ("Heads", "PackedProjection", "BatchFirst", "MaskArguments")


@pytest.mark.parametrize("name", CATALOG)
def test_the_reader_s_settings_change_nothing_and_stay(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = CATALOG[name]().view()
    seeded: list[int] = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    try:
        before = torch.get_rng_state()
        with torch.autocast("cpu", torch.bfloat16):
            view = CATALOG[name]().view()
            assert torch.is_autocast_enabled("cpu")
        assert (torch.get_default_dtype(), torch.ones(1).device.type) == (torch.float64, "meta")
        assert torch.equal(torch.get_rng_state(), before)
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
    assert compact(view.figure) == compact(expected.figure)
    assert (view.facts, view.code, seeded) == (expected.facts, expected.code, [])


@pytest.mark.parametrize("name", CATALOG)
def test_no_method_that_computes_is_left_without_fresh_settings(name: str) -> None:
    own = vars(CATALOG[name])
    assert [
        part for part in ("__init__", "compute", "code") if "__wrapped__" not in vars(own[part])
    ] == []


@pytest.mark.parametrize(
    "query, error, message",
    [
        (
            np.ones((5, 3)),
            TypeError,
            r"^query is a ndarray; pass a tensor \(L, E\): torch.as_tensor makes one.$",
        ),
        (
            torch.ones(5, 3, dtype=torch.cfloat),
            ValueError,
            "^query holds torch.complex64; pass real floating-point numbers.$",
        ),
        (
            torch.ones(5, 3, dtype=torch.bool),
            ValueError,
            r"^query holds torch.bool; .*: query.float\(\).$",
        ),
        (
            torch.ones(5, 3, device="meta"),
            ValueError,
            "^query is on the meta device, where tensors hold no numbers",
        ),
        (torch.eye(3).to_sparse(), ValueError, r"^query is sparse; pass query.to_dense\(\).$"),
        (
            torch.nested.nested_tensor([torch.ones(5, 3)], layout=torch.jagged),
            ValueError,
            "^query is a nested tensor; pass one",
        ),
        (
            torch.ones(5, 3).half(),
            ValueError,
            "^key is torch.float32 and query torch.float16; pass all in one type.$",
        ),
    ],
)
def test_odd_tensors_are_named(query: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        explorers.Masks(query, torch.ones(7, 3))


def test_tokens_of_every_kind_are_labels() -> None:
    query = torch.ones(2, 3)
    assert explorers.Masks(query, tokens=torch.tensor([7, 11])).tokens == ("7", "11")
    assert explorers.Masks(query, tokens=(token for token in "ab")).tokens == ("a", "b")
    assert explorers.Masks(query, tokens=["\ud83d", "b"]).to_html().encode()  # half a character
    with pytest.raises(TypeError, match="^tokens holds lists; pass one flat list of 2 strings"):
        explorers.Masks(query, tokens=[["a", "b"], ["c", "d"]])


def hooked(module: nn.MultiheadAttention) -> nn.MultiheadAttention:
    module.register_forward_hook(lambda _, __, output: (output[0] + 1, output[1]))
    return module


class Louder(nn.MultiheadAttention):
    def forward(self, *inputs: Any, **options: Any) -> Any:
        output, weights = super().forward(*inputs, **options)
        return 2 * output, weights


def without_bias(module: nn.MultiheadAttention) -> nn.MultiheadAttention:
    module.out_proj.register_parameter("bias", None)
    return module


def filled(module: nn.MultiheadAttention, value: complex) -> nn.MultiheadAttention:
    module.in_proj_weight.data.fill_(value)
    return module


MORE = {
    "a hook": (
        hooked,
        "^module has forward hooks, so its weights alone are not what it computes; look at it with",
    ),
    "a forward of its own": (
        lambda _: Louder(8, 2),
        "^module is a Louder with a forward of its own",
    ),
    "weight norm": (
        lambda m: parametrizations.weight_norm(m, "in_proj_weight"),
        "^module is parametrized",
    ),
    "spectral norm": (
        lambda m: parametrizations.spectral_norm(m.out_proj) and m,
        "^module is parametrized",
    ),
    "pruned": (
        lambda m: prune.l1_unstructured(m, "in_proj_weight", 3),
        "^module has forward hooks",
    ),
    "no output bias": (
        without_bias,
        "^module differs from an nn.MultiheadAttention in out_proj.bias; look at it with",
    ),
    "NaN": (lambda m: filled(m, torch.nan), r"^The module's in_proj_weight holds nan at \(0, 0\)"),
    "infinite outputs": (
        lambda m: filled(m, 1e25),
        "^What the module makes of its inputs overflows torch.float32",
    ),
    "complex": (lambda m: m.to(torch.cfloat), "^The module's in_proj_weight holds torch.complex64"),
    "no numbers": (lambda m: m.to("meta"), "^The module's in_proj_weight is on the meta device"),
    "another type": (
        lambda m: m.double(),
        "^x is torch.float32 and the module torch.float64; pass all in one type.$",
    ),
}


@pytest.mark.filterwarnings("ignore:Complex modules are a new feature:UserWarning")
@pytest.mark.parametrize("name", OF_MODULES)
@pytest.mark.parametrize("change, message", MORE.values(), ids=MORE)
def test_modules_that_are_more_than_their_weights_are_refused(
    name: str, change: Callable[..., Any], message: str
) -> None:
    module = change(nn.MultiheadAttention(8, 2, batch_first=True))
    before = repr(copy.deepcopy(module.state_dict()))
    with pytest.raises(ValueError, match=message):
        CATALOG[name](module, sequences(name, 8))
    assert repr(module.state_dict()) == before


def sequences(name: str, embed_dim: int) -> Tensor:
    return torch.randn(5, embed_dim) if name in OF_MODULES[:2] else torch.randn(3, 5, embed_dim)


@pytest.mark.parametrize("name", OF_MODULES)
def test_the_program_of_a_large_module_leaves_it_as_it_is(name: str) -> None:
    module, x = nn.MultiheadAttention(32, 4, dropout=0.5), sequences(name, 32)
    explorer = CATALOG[name](module, x)
    made: dict[str, Any] = {"module": module, "x": x, "key": x, "value": x}
    states = (
        [{"num_heads": 8}, {}] if "num_heads" in explorer.controls else [{"training": True}, {}]
    )
    for changes in states:
        state = explorer.complete(
            **{key: value for key, value in changes.items() if key in explorer.controls}
        )
        exec(explorer.code(**state), made)
        record = explorer.compute(**state)
        shown = "projected" if name == "PackedProjection" else "output"
        np.testing.assert_allclose(made[shown].detach().numpy(), getattr(record, shown), atol=1e-6)
    assert (
        module.num_heads,
        module.head_dim,
        module.dropout,
        module.training,
        module.batch_first,
    ) == (4, 8, 0.5, True, False)


def test_keys_of_one_weight_are_told_together() -> None:
    def told(keys: list[str], *weights: float) -> str:
        return "".join(
            w if isinstance(w, str) else w.text for w in strongest("q", keys, np.array(weights))
        )

    assert (
        told(list("abc"), 0.9, 0.05, 0.05)
        == "“q” looks mostly at “a” (0.90), then at “b” and “c” (0.05 each)."
    )
    assert (
        told(["a", "b", "a"], 0.7, 0.1, 0.2)
        == "“q” looks mostly at “a” (key 0) (0.70), then at “a” (key 2) (0.20)."
    )
    assert (
        told(list("abcde"), 0.6, 0.1, 0.1, 0.1, 0.1)
        == "“q” looks mostly at “a” (0.60), then at 4 keys (0.10 each)."
    )
    assert told(list("ab"), 1, 0) == "“q” looks mostly at “a” (1.00) and at nothing else."
    assert told(list("ab"), 0.5, 0.5) == "“q” looks evenly at 2 keys (0.50 each)."
    assert told(["a"] * 500, *[0.0016] * 250, *[0.0024] * 250).startswith(
        "“q” looks mostly at 500 keys"
    )


def test_products_that_overflow_are_named() -> None:
    large = 2e37 * torch.ones(3, 3)
    with pytest.raises(ValueError, match="^Words times projections overflow torch.float32"):
        explorers.Projections(100 * torch.ones(4, 3), torch.eye(3), torch.eye(3), large)


@pytest.mark.parametrize(
    "x, told",
    [(torch.zeros(3, 2, 8), "with these numbers, no others"), (torch.ones(1, 1, 8), "no other")],
)
def test_a_leak_that_these_numbers_hide_is_no_leak_told(x: Tensor, told: str) -> None:
    explorer = explorers.BatchFirst(nn.MultiheadAttention(8, 2), x)
    assert told in words(explorer, edit=0)[3] and "leaks" not in words(explorer, edit=0)[3]


def test_weights_that_nearly_sum_to_1_are_not_said_to() -> None:
    explorer = explorers.Dropout(torch.tensor([[0.5, 0.49]]))
    assert words(explorer, training=False)[0].endswith("every row sums to what it did.")


def test_lengths_that_are_no_numbers_are_named() -> None:
    with pytest.raises(TypeError, match=r"^Got lengths \['a', 1\]; they count tokens"):
        padding_mask(["a", 1])


def test_parametrize_is_what_refuses_not_a_missing_weight() -> None:
    module = nn.MultiheadAttention(8, 2)
    assert not parametrize.is_parametrized(module)
    assert explorers.Heads(module, torch.randn(5, 8)).compute(
        **explorers.Heads().complete(num_heads=2)
    ).weights.shape == (2, 5, 5)
