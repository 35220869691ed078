"""The mask card's lines for Hugging Face, run by small random models: who looks at whom is measured.

Optional: it runs where tests/requirements-transformers.txt is installed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.book.test_cards import RECIPES, run

transformers = pytest.importorskip("transformers")

SMALL = {"vocab_size": 11, "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8}
PROGRAMS = dict(RECIPES)
PAST = torch.ones(6, 6, dtype=torch.bool).tril()
LENGTHS = torch.tensor([[6], [4], [5]])
BEHIND, IN_FRONT = torch.arange(6) < LENGTHS, torch.arange(6) >= 6 - LENGTHS  # (N, L) real words
TEXT = torch.tensor([[0, 0, 0, 1, 1, 1], [0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1]])
SAME = TEXT[:, :, None] == TEXT[:, None, :]


def _model(name: str, attention: str = "sdpa", **options: Any) -> Any:
    torch.manual_seed(0)
    own = {
        "Bert": {"intermediate_size": 16},
        "GPT2": {"bos_token_id": 0, "eos_token_id": 0},
        "Llama": {"intermediate_size": 16},
        "Mistral": {"intermediate_size": 16, "num_key_value_heads": 2, "sliding_window": None},
    }
    config = getattr(transformers, f"{name}Config")(**SMALL | own[name] | options)
    model = getattr(transformers, f"{name}Model")(config).eval().requires_grad_(False)
    model.set_attn_implementation(attention)
    return model


def _seen(call: Callable[[Tensor], Tensor]) -> Tensor:
    """Return (N, L, S): which output moves when a token is another one. One layer, so no detours."""
    ids = torch.randint(11, (3, 6), generator=torch.Generator().manual_seed(0))
    seen, before = torch.zeros(3, 6, 6, dtype=torch.bool), call(ids)
    for s in range(6):
        edited = ids.clone()
        edited[:, s] = (edited[:, s] + 1) % 11
        seen[:, :, s] = ((call(edited) - before).abs() > 1e-6).any(dim=-1)
    return seen


def _of_recipe(title: str, model: Any, ids: Tensor) -> Tensor:
    """Run the program under a heading of the card; return the last hidden state of its model."""
    outputs = []

    def call(_: Tensor, attention_mask: Tensor | None = None) -> None:
        outputs.append(model(ids, attention_mask=attention_mask).last_hidden_state)

    called = functools.wraps(call)(SimpleNamespace(dtype=model.dtype, call=call))
    called = type("Called", (), {"dtype": model.dtype, "__call__": lambda self, *a, **k: call(*a, **k)})()
    run(PROGRAMS[title], called)
    (output,) = outputs
    return output
