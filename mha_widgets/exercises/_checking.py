"""How an answer is checked: each exercise is a function that says what is wrong with one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Checker = Callable[[Any], "str | None"]
_CHECKERS: dict[str, Checker] = {}


@dataclass(frozen=True)
class Verdict:
    """What is said of an answer.

    Attributes:
        right: whether it is right; None if there is no answer yet.
        message: the sentence to read.
    """

    right: bool | None
    message: str

    def __repr__(self) -> str:
        return self.message


class Wrong(Exception):
    """An answer is wrong; the message helps."""


def exercise(name: str) -> Callable[[Checker], Checker]:
    """Register a function as the check of an exercise: it raises Wrong, or may return what to say of a right answer."""

    def register(checker: Checker) -> Checker:
        _CHECKERS[name] = checker
        return checker

    return register


def catalog() -> dict[str, Checker]:
    """Return the check of every exercise by its name, such as "masks-1".

    >>> "masks-1" in catalog()
    True
    """
    return dict(sorted(_CHECKERS.items()))


def check(name: str, answer: Any = None) -> Verdict:
    """Check an answer to one of the book's exercises.

    Args:
        name: the exercise, such as "masks-1".
        answer: what the exercise asks for; ``...`` is no answer yet, alone or among several.

    Returns:
        What is said of it: at the end of a cell it is shown. A wrong answer never raises.

    Raises:
        ValueError: no exercise has that name.

    >>> check("masks-1")
    Not answered yet.
    >>> check("masks-1", [(3, 6)]).right
    False
    """
    if name not in _CHECKERS:
        raise ValueError(f"There is no exercise {name!r}; there are {', '.join(sorted(_CHECKERS))}.")
    if _missing(answer):
        return Verdict(None, "Not answered yet.")
    try:
        return Verdict(True, f"Right. {_CHECKERS[name](answer) or ''}".strip())
    except Wrong as wrong:
        return Verdict(False, f"Not yet: {wrong}")


def _missing(answer: Any) -> bool:
    if isinstance(answer, (tuple, list)):
        return any(map(_missing, answer))
    return answer is None or answer is ...


def called(function: Any, *inputs: Any) -> Any:
    """Call a reader's function, or say why it can't be called; None is no answer.

    Raises:
        Wrong: it is no function, it raises, or it returns nothing.
    """
    if not callable(function):
        raise Wrong(f"the answer is a {type(function).__name__}; pass the function itself, without calling it.")
    try:
        made = function(*inputs)
    except Exception as error:  # whatever a reader's function does
        said = str(error).splitlines() or [""]
        raise Wrong(f"your function raises {type(error).__name__}: {said[0].rstrip('.')}.") from None
    if made is None or made is ...:
        raise Wrong("your function returns nothing; end it with return.")
    return made


def tensor(answer: Any, what: str = "your answer") -> Tensor:
    """Return an answer as a tensor, be it a tensor, an array, a list or a number.

    Raises:
        Wrong: it can't be one.
    """
    try:
        return torch.as_tensor(answer).detach()
    except (TypeError, ValueError, RuntimeError):
        raise Wrong(f"{what} is a {type(answer).__name__}; give a tensor.") from None


def shaped(answer: Any, shape: Sequence[int], hints: dict[tuple[int, ...], str] | None = None, what: str = "your answer") -> Tensor:
    """Return an answer as a tensor of this shape; ``hints`` tell what other shapes come from.

    Raises:
        Wrong: it has another shape.
    """
    found = tensor(answer, what)
    if tuple(found.shape) != tuple(shape):
        hint = (hints or {}).get(tuple(found.shape), "")
        raise Wrong(f"{what} has shape {tuple(found.shape)}; there should be {tuple(shape)}{hint and ': '}{hint}.")
    return found


def close(answer: Tensor, expected: Tensor, tolerance: float = 1e-4) -> bool:
    """Say whether two tensors of one shape hold the same numbers, but for rounding."""
    return torch.allclose(answer.double(), expected.double(), atol=tolerance, rtol=tolerance, equal_nan=True)


def shape_of(answer: Any) -> tuple[int, ...]:
    """Return an answer as a shape: a tuple, a list, a torch.Size, or words such as "(2, 3)".

    Raises:
        Wrong: it is no shape.
    """
    if isinstance(answer, str):
        answer = [part for part in answer.strip("()[] ").replace("×", ",").split(",") if part.strip()]
    try:
        return tuple(int(size) for size in answer)
    except (TypeError, ValueError):
        raise Wrong(f"your answer is {answer!r}; give a shape, such as (2, 3).") from None


def random(*shape: int, seed: int) -> Tensor:
    """Return the random numbers of a seed, for a reader's function to be tried on; their own stay as they are."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
