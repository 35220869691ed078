"""Data of a reader's own for explorers, and what an explorer says."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import torch

from mha_widgets.explorer import Explorer

torch.manual_seed(0)
OWN_DATA: dict[str, dict[str, Any]] = {  # float64 and primes: 5 queries, 7 keys, 3 features, 2 contents
    "Attention": {
        "query": torch.randn(5, 3).double(),
        "key": torch.randn(7, 3).double(),
        "value": torch.randn(7, 2).double(),
    },
    "Masks": {"query": torch.randn(5, 3).double(), "key": torch.randn(7, 3).double()},
}


def words(explorer: Explorer, **state: Any) -> list[str]:
    """Return the facts of a view as plain text."""
    return ["".join(w if isinstance(w, str) else w.text for w in fact) for fact in explorer.view(**state).facts]


def states_of(explorer: Explorer, count: int, names: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Draw states that make sense, moving these controls or all; the same ones every time."""
    rng, names = random.Random(0), tuple(names) or tuple(explorer.controls)
    found: list[dict[str, Any]] = []
    for _ in range(20 * count):
        state = explorer.state | {name: rng.choice(explorer.controls[name].values) for name in names}
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
