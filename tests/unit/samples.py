"""Data of a reader's own for explorers, and what an explorer says."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from mha_widgets import Captured, capture
from mha_widgets.explorer import Explorer


def captured() -> Captured:
    layer = nn.TransformerDecoderLayer(15, 3, 7, batch_first=True, dtype=torch.float64).eval()
    with capture(layer) as weights:
        for length in (5, 4):
            layer(torch.randn(3, length, 15).double(), torch.randn(3, 7, 15).double())
    return weights


torch.manual_seed(0)
OWN_DATA: dict[
    str, dict[str, Any]
] = {  # float64 and primes: 5 queries, 7 keys, 3 features, 2 contents
    "Attention": {
        "query": torch.randn(5, 3).double(),
        "key": torch.randn(7, 3).double(),
        "value": torch.randn(7, 2).double(),
    },
    "Masks": {"query": torch.randn(5, 3).double(), "key": torch.randn(7, 3).double()},
    "DotProduct": {"directions": [37.5, -101.0], "names": ["<mat>", "$cat$"]},
    "Scaling": {"num_keys": 7, "seed": 3},
    "Dropout": {"weights": torch.randn(5, 7).double().softmax(-1)},
    "Heads": {
        "module": nn.MultiheadAttention(15, 5, dtype=torch.float64),
        "x": torch.randn(7, 15).double(),
    },
    "Projections": {
        "x": torch.randn(5, 3).double(),
        **{name: torch.randn(3, 3).double() for name in ("w_q", "w_k", "w_v")},
        "y": torch.randn(7, 3).double(),
    },
    "PackedProjection": {
        "module": nn.MultiheadAttention(15, 5, kdim=11, vdim=2, dtype=torch.float64),
        "x": torch.randn(7, 15).double(),
        "key": torch.randn(3, 11).double(),
        "value": torch.randn(3, 2).double(),
    },
    "Module": {
        "module": nn.MultiheadAttention(15, 5, add_zero_attn=True, dtype=torch.float64),
        "query": torch.randn(7, 3, 15).double(),
        "key_padding_mask": torch.arange(7) >= torch.tensor([[7], [5], [2]]),
        "attn_mask": torch.ones(7, 7, dtype=torch.bool).triu(1).repeat(15, 1, 1),
    },
    "CapturedMaps": {"captured": captured()},
}


def words(explorer: Explorer, **state: Any) -> list[str]:
    """Return the facts of a view as plain text."""
    return [
        "".join(w if isinstance(w, str) else w.text for w in fact)
        for fact in explorer.view(**state).facts
    ]


def states_of(explorer: Explorer, count: int, names: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Draw states that make sense, moving these controls or all; the same ones every time."""
    rng, names = random.Random(0), tuple(names) or tuple(explorer.controls)
    found: list[dict[str, Any]] = []
    for _ in range(20 * count):
        state = explorer.state | {
            name: rng.choice(explorer.controls[name].values) for name in names
        }
        if state not in found and makes_sense(explorer, state):
            found.append(state)
        if len(found) == count:
            break
    return found


def makes_sense(explorer: Explorer, state: dict[str, Any]) -> bool:
    """Say whether a state can be shown; if not, the error is a sentence."""
    try:
        explorer.compute(**explorer.complete(**state))
    except ValueError as error:
        assert str(error).endswith("."), error
        return False
    return True
