"""Answers to the exercises, right and wrong. One file a chapter."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any, NamedTuple


class Answers(NamedTuple):
    """What an exercise accepts, and what it says of typical mistakes."""

    right: tuple[Any, ...]
    wrong: tuple[tuple[Any, str], ...]


def answers() -> dict[str, Answers]:
    """Return the answers to every exercise by its name."""
    found: dict[str, Answers] = {}
    for entry in pkgutil.iter_modules(__path__):
        found |= importlib.import_module(f"{__name__}.{entry.name}").ANSWERS
    return found
