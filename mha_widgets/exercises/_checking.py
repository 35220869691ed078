"""How an answer is checked: each exercise is a function that says what is wrong with one."""

from __future__ import annotations

import re
import reprlib
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

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
    """Register a function as the check of an exercise: it raises Wrong,
    or may return what to say of a right answer.
    """

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
        raise ValueError(
            f"There is no exercise {name!r}; there are {', '.join(sorted(_CHECKERS))}."
        )
    with _own_settings():
        try:
            if _missing(answer):
                return Verdict(None, "Not answered yet.")
            return Verdict(True, f"Right. {_CHECKERS[name](answer) or ''}".strip())
        except Wrong as wrong:
            return Verdict(False, f"Not yet: {wrong}")
        except Exception as error:  # whatever nobody thought of
            return Verdict(
                False,
                "Not yet: your answer can't be checked; looking at it raises"
                f" {_describe_error(error)}",
            )


@contextmanager
def _own_settings() -> Iterator[None]:
    """Check with the same random numbers, gradients and the fast path on, autocast off,
    and give the reader's settings back.

    ``fresh_torch`` would go too far: some checks watch torch's functions, which it switches off.
    """
    dtype, fast_path = torch.get_default_dtype(), torch.backends.mha.get_fastpath_enabled()
    with (
        torch.autocast("cpu", enabled=False),
        torch.inference_mode(False),  # it turns gradients on too
        torch.random.fork_rng(devices=[]),
    ):
        torch.default_generator.manual_seed(0)
        torch.backends.mha.set_fastpath_enabled(True)
        try:
            yield
        finally:
            torch.set_default_dtype(dtype)
            torch.backends.mha.set_fastpath_enabled(fast_path)


def _missing(answer: Any) -> bool:
    if isinstance(answer, (tuple, list)):
        return any(map(_missing, answer))
    return answer is None or answer is ...


def _describe_error(error: BaseException) -> str:
    line = traceback.format_exception_only(error)[0].splitlines()[0].rstrip(".:")
    line = line if len(line) <= 300 else f"{line[:300]} …"
    return line if line.endswith("?") else f"{line}."


def called(function: Any, *inputs: Any, copies: bool = True, **options: Any) -> Any:
    """Call a reader's function, or say why it can't be called; None is no answer.

    Args:
        function: what the reader gives.
        inputs: what it gets; of tensors and lists it gets copies, so that it may change them.
        copies: False to lend it the inputs themselves.
        options: what it gets by name.

    Raises:
        Wrong: it is no function, it raises, or it returns nothing.
    """
    if not callable(function):
        raise Wrong(
            f"the answer is of type {type(function).__name__}; pass the function itself, without"
            " calling it."
        )
    kind = (
        "class"
        if isinstance(function, type)
        else "module"
        if isinstance(function, nn.Module)
        else "function"
    )
    try:
        made = function(*map(_copy_answer, inputs) if copies else inputs, **options)
    except (Exception, SystemExit) as error:  # whatever a reader's function does
        raise Wrong(f"your {kind} raises {_describe_error(error)}") from None
    if made is None or made is ...:
        raise Wrong(f"your {kind} returns nothing; end it with return.")
    return made


def keeping(function: Any, *inputs: Any, **options: Any) -> tuple[Any, int]:
    """Call a reader's function, and return with its answer how
    many numbers the largest tensor kept for gradients holds.
    """
    kept = [0]

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.untyped_storage().nbytes() // tensor.itemsize)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        made = called(function, *inputs, **options)
    return made, max(kept)


def _copy_answer(given: Any) -> Any:
    return (
        given.clone()
        if isinstance(given, Tensor)
        else copy(given)
        if isinstance(given, list)
        else given
    )


def says(function: Any, *inputs: Any, copies: bool = True) -> bool:
    """Call a reader's function that answers yes or no.

    Raises:
        Wrong: it can't be called, or its answer is neither.
    """
    made = called(function, *inputs, copies=copies)
    try:
        said = tensor(made).tolist()
    except Wrong:
        said = None
    if said not in (0, 1, [0], [1]):
        raise Wrong("your function should return one True or False.")
    return said in (1, [1])


def several(answer: Any, count: int, wanted: str) -> list[Any]:
    """Return the parts of an answer that has so many: a tuple, a list, an array or a tensor.

    Raises:
        Wrong: it is something else, or of another length; the message is what is wanted.
    """
    if (
        not isinstance(answer, (tuple, list, np.ndarray, Tensor))
        or not getattr(answer, "ndim", 1)
        or len(answer) != count
    ):
        raise Wrong(f"{wanted}.")
    return list(answer)


def tensor(answer: Any, what: str = "your answer") -> Tensor:
    """Return an answer as a tensor, be it a tensor, an array, a number or a list of them.

    Raises:
        Wrong: it can't be one.
    """
    try:
        found = _stacked(answer).detach().cpu()
        if found.is_complex() or found.is_nested:
            raise TypeError
    except (TypeError, ValueError, RuntimeError):
        kind = (
            "a tensor without real numbers"
            if isinstance(answer, Tensor)
            else f"of type {type(answer).__name__}"
        )
        raise Wrong(f"{what} is {kind}; give one tensor, or numbers in equal rows.") from None
    return found


def _stacked(answer: Any) -> Tensor:
    if isinstance(answer, (tuple, list)) and answer and not isinstance(answer[0], Number):
        return torch.stack([_stacked(part) for part in answer])
    return torch.as_tensor(answer)


def as_number(answer: Any, what: str = "your answer") -> float:
    """Return an answer as a number, be it one, words such as "25",
    or a tensor or a list that holds one.

    Raises:
        Wrong: it is no number, or several.
    """
    try:
        found = torch.tensor(float(answer)) if isinstance(answer, str) else tensor(answer, what)
    except (ValueError, Wrong):
        raise Wrong(f"{what} is {reprlib.repr(answer)}; give one number.") from None
    if found.numel() != 1:
        raise Wrong(f"{what} holds {found.numel()} numbers; give one.")
    return found.item()


def shaped(
    answer: Any,
    shape: Sequence[int],
    hints: dict[tuple[int, ...], str] | None = None,
    what: str = "your answer",
) -> Tensor:
    """Return an answer as a tensor of this shape; ``hints`` tell what other shapes come from.

    Raises:
        Wrong: it has another shape.
    """
    found = tensor(answer, what)
    if tuple(found.shape) != tuple(shape):
        hint = (hints or {}).get(tuple(found.shape), "")
        raise Wrong(
            f"{what} has shape {tuple(found.shape)}; there should be"
            f" {tuple(shape)}{hint and ': '}{hint}."
        )
    return found


def expect(
    found: Any, right: Any, subject: str, otherwise: str, hints: dict[Any, str] | None = None
) -> None:
    """Let a shape or a number pass if it is right;
    ``hints`` tell what others come from, ``otherwise`` what it should be.

    Raises:
        Wrong: it isn't right; the message begins with the subject and its verb, such as "the
            weights are".
    """
    if found != right:
        shown = found if isinstance(found, tuple) else f"{found:g}"
        hint = (hints or {}).get(found, otherwise)
        raise Wrong(f"{subject} not {shown}: {hint}{'' if hint.endswith('?') else '.'}")


def close(answer: Tensor, expected: Tensor, tolerance: float = 1e-4) -> bool:
    """Say whether two tensors of one shape hold the same numbers, but for rounding."""
    return torch.allclose(
        answer.double(), expected.double(), atol=tolerance, rtol=tolerance, equal_nan=True
    )


def shape_of(answer: Any) -> tuple[int, ...]:
    """Return an answer as a shape: a tuple, a list, a torch.Size, words such as "(2, 3)",
    or a tensor of that shape.

    Raises:
        Wrong: it is no shape.
    """
    sizes = answer
    if isinstance(answer, str):
        sizes = [
            size
            for size in re.split(r"[\s,×x]+", answer.removeprefix("torch.Size").strip("()[] "))
            if size
        ]
    elif isinstance(answer, (Tensor, np.ndarray)) and (
        answer.ndim != 1 or "float" in str(answer.dtype)
    ):
        sizes = answer.shape
    try:
        if not isinstance(sizes, (tuple, list, Tensor, np.ndarray)) or any(
            float(size) % 1 for size in sizes
        ):
            raise TypeError
        return tuple(int(size) for size in sizes)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        raise Wrong(
            f"your answer is {reprlib.repr(answer)}; give a shape, such as (2, 3)."
        ) from None


def random(*shape: int, seed: int) -> Tensor:
    """Return the random numbers of a seed, for a reader's function to be tried on;
    their own stay as they are.
    """
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))
