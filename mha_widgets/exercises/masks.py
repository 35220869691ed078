"""The exercises of the chapter on masks."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from mha_widgets.attention import causal_mask, padding_mask, window_mask
from mha_widgets.exercises._checking import Wrong, exercise, several, shape_of, shaped

FITTING = {(1, 6), (3, 1, 1, 6), (3, 4, 6)}
REFUSED = {(3, 6): "its 3 meets L = 4", (2, 4, 6): "its 2 meets H = 3"}


@exercise("masks-1")
def which_fit(answer: Any) -> str:
    """Which of five shapes fit the scores (N, H, L, S) = (3, 3, 4, 6)."""
    if not isinstance(answer, (tuple, list, set)) or any(
        isinstance(shape, int) for shape in answer
    ):
        raise Wrong("give the shapes that fit in a list, each in brackets of its own.")
    found = {shape_of(shape) for shape in answer}
    if strange := found - FITTING - REFUSED.keys():
        raise Wrong(f"{sorted(strange)[0]} is none of the five.")
    if wrong := sorted(found & REFUSED.keys()):
        raise Wrong(
            f"{wrong[0]} does not fit: counted from the right, {REFUSED[wrong[0]]}, and neither"
            " is 1."
        )
    if missing := sorted(FITTING - found):
        raise Wrong(
            f"{len(missing)} more: compare from the right; an axis fits if it is equal, 1, or not"
            " there."
        )
    return "(3, 4, 6) is the ambiguous one: its 3 meets H, so it is a table for each head."


@exercise("masks-2")
def repaired(answer: Any) -> str:
    """A boolean mask (6, 6): each word sees itself and at most two words back."""
    mask = shaped(answer, (6, 6), what="your mask")
    if mask.dtype != torch.bool:
        raise Wrong(f"your mask holds {mask.dtype}; a boolean one is asked for, True = may look.")
    right = causal_mask(6) & window_mask(6, window=2)
    if torch.equal(mask, ~right):
        raise Wrong("it is the wrong way round: True must mean that a word may look.")
    if (mask & ~causal_mask(6)).any():
        row, column = (mask & ~causal_mask(6)).nonzero()[0].tolist()
        raise Wrong(f"word {row} still sees word {column}, which comes after it.")
    if not torch.equal(mask, right):
        row, column = (mask != right).nonzero()[0].tolist()
        seen = "sees" if mask[row, column] else "does not see"
        raise Wrong(
            f"word {row} {seen} word {column}; it should see itself and at most two words back."
        )
    return "causal_mask(6) & window_mask(6, window=2) says it in the words of the exercise."


@exercise("masks-3")
def who_depends_on_whom(answer: Any) -> str:
    """Two maps (6, 6) of what flows: behind a padding mask,
    and through two layers with a window of 1.
    """
    maps = several(answer, 2, "give two maps, (a, b)")
    padded, near = (
        shaped(one, (6, 6), what=f"map {name}") != 0 for one, name in zip(maps, "ab", strict=True)
    )
    real = padding_mask([4], 6).expand(6, 6)
    if torch.equal(padded, real):
        raise Wrong("in map a, a padding row depends on itself too: its query is its own.")
    _compare("a", padded, real | torch.eye(6).bool())
    if torch.equal(near, window_mask(6, window=1)):
        raise Wrong("map b shows one layer; the output of the first is the x of the second.")
    _compare("b", near, window_mask(6, window=2))
    return "Two layers with a window of 1 see as far as one with a window of 2."


def _compare(name: str, found: Tensor, right: Tensor) -> None:
    if not torch.equal(found, right):
        row, column = (found != right).nonzero()[0].tolist()
        said = "depends" if found[row, column] else "does not depend"
        raise Wrong(
            f"map {name} says that output {row} {said} on word {column}; a row is an output, a"
            " column its source."
        )
