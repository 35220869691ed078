"""The mask card's lines for Hugging Face, run by small random models: who looks at whom?

Optional, since transformers is large and nothing else needs it: `pip install transformers==5.25.0`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from test_cards import MASK_CARD, RECIPES, run
from torch import Tensor

transformers = pytest.importorskip("transformers")

SMALL = {"vocab_size": 11, "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8}
OWN = {
    "Bert": {"intermediate_size": 16},
    "GPT2": {"bos_token_id": 0, "eos_token_id": 0},
    "Llama": {"intermediate_size": 16},
    "Mistral": {"intermediate_size": 16, "num_key_value_heads": 2, "sliding_window": None},
}
DECODERS = [name for name in OWN if name != "Bert"]
AT = torch.arange(6)
PAST, ALL = AT[:, None] >= AT, torch.ones(6, 6, dtype=torch.bool)  # (L, S)
LENGTHS = torch.tensor([[6], [4], [5]])
BEHIND, IN_FRONT = AT < LENGTHS, AT >= 6 - LENGTHS  # (N, L) real words
TEXT = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1]])
SAME = TEXT[:, :, None] == TEXT[:, None, :]  # (N, L, S)
EVERY_ROW = torch.ones(3, 6, dtype=torch.bool)
KERNELS = pytest.mark.parametrize("kernel", ["eager", "sdpa"])


def _model(name: str, kernel: str, **options: Any) -> Any:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(**SMALL | OWN[name] | options)
    model = getattr(transformers, f"{name}Model")(config).eval().requires_grad_(False)
    model.set_attn_implementation(kernel)
    return model


def _seen(call: Callable[[Tensor], Tensor]) -> Tensor:
    """Return (N, L, S): which output moves when a token is replaced. One layer, so no detours."""
    ids = torch.randint(11, (3, 6), generator=torch.Generator().manual_seed(0))
    seen, before = torch.zeros(3, 6, 6, dtype=torch.bool), call(ids)
    for s in range(6):
        edited = ids.clone()
        edited[:, s] = (edited[:, s] + 1) % 11
        seen[:, :, s] = ((call(edited) - before).abs() > 1e-6).any(dim=-1)
    return seen


class _Called:
    """Stands for the card's `model`: calls a real one with other tokens, keeps its output."""

    def __init__(self, model: Any, ids: Tensor) -> None:
        self.model, self.ids, self.dtype = model, ids, model.dtype

    def __call__(self, ids: Tensor, **options: Any) -> None:
        self.output = self.model(self.ids, **options).last_hidden_state


def _seen_by_recipe(title: str, model: Any) -> Tensor:
    def call(ids: Tensor) -> Tensor:
        called = _Called(model, ids)
        run(dict(RECIPES)[title], called)
        return called.output

    return _seen(call)


@KERNELS
@pytest.mark.parametrize(
    ("title", "names", "allowed", "rows"),
    [
        ("Nobody looks at padding", ["Bert"], ALL & BEHIND[:, None], BEHIND),
        ("Nobody looks ahead", DECODERS, PAST.expand(3, 6, 6), EVERY_ROW),
        ("Both: no padding, and no looking ahead", DECODERS, PAST & BEHIND[:, None], BEHIND),
        ("The same, with padding in front", DECODERS, PAST & IN_FRONT[:, None], IN_FRONT),
        ("A mask of its own for each sentence", list(OWN), SAME, EVERY_ROW),
    ],
)
def test_a_model_looks_where_the_card_says(
    kernel: str, title: str, names: list[str], allowed: Tensor, rows: Tensor
) -> None:
    for name in names:
        seen = _seen_by_recipe(title, _model(name, kernel))
        assert seen[rows].equal(allowed[rows]), name


def test_every_recipe_with_a_model_is_run() -> None:
    assert sum("model(ids" in program for _, program in RECIPES) == 5
    assert f"models of Transformers {transformers.__version__.rsplit('.', 1)[0]}" in MASK_CARD


@KERNELS
@pytest.mark.parametrize("name", DECODERS)
def test_a_mask_in_four_axes_takes_the_place_of_a_decoders_own(name: str, kernel: str) -> None:
    model = _model(name, kernel)
    numbers = torch.where(SAME & PAST, 0.0, torch.finfo(model.dtype).min)[:, None]
    seen = _seen(lambda ids: model(ids, attention_mask=numbers).last_hidden_state)
    assert seen.equal(SAME & PAST)


@pytest.mark.parametrize("name", OWN)
def test_a_boolean_mask_in_four_axes_blocks_with_one_kernel_only(name: str) -> None:
    for kernel, allowed in {"sdpa": SAME, "eager": ALL.expand(3, 6, 6)}.items():
        model = _model(name, kernel)
        seen = _seen(
            lambda ids, model=model: model(ids, attention_mask=SAME[:, None]).last_hidden_state
        )
        assert seen.equal(allowed)


@KERNELS
def test_mistral_has_a_window_of_its_own(kernel: str) -> None:
    model = _model("Mistral", kernel, sliding_window=3)
    seen = _seen(lambda ids: model(ids).last_hidden_state)
    assert seen.equal((PAST & (AT[:, None] - AT < 3)).expand(3, 6, 6))
