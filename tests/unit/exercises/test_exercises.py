"""The exercises: right answers are accepted, typical mistakes are told,
and every one stands in its chapter.
"""

from __future__ import annotations

import copy
import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
import pytest
import torch
from answers import answers

from mha_widgets import exercises

ANSWERS = answers()
FAST_PATH = torch.backends.mha.get_fastpath_enabled
NOTEBOOKS = Path(__file__).parents[3] / "notebooks"


def test_every_exercise_has_two_right_and_two_wrong_answers() -> None:
    assert ANSWERS.keys() == exercises.catalog().keys()
    assert all(len(known.right) >= 2 and len(known.wrong) >= 2 for known in ANSWERS.values())


@pytest.mark.parametrize("name", ANSWERS)
def test_right_answers_are_accepted(name: str) -> None:
    for answer in ANSWERS[name].right:
        verdict = exercises.check(name, answer)
        assert verdict.right is True and verdict.message.startswith("Right."), verdict


@pytest.mark.parametrize("name", ANSWERS)
def test_typical_mistakes_are_told(name: str) -> None:
    for answer, message in ANSWERS[name].wrong:
        verdict = exercises.check(name, answer)
        assert verdict.right is False and re.search(message, verdict.message), verdict
        assert verdict.message.startswith("Not yet: ") and verdict.message.endswith((".", "?"))


@pytest.mark.parametrize("answer", [None, ..., (..., ...), [(2, 3), ...]])
def test_no_answer_stops_no_notebook(answer: object) -> None:
    for name in exercises.catalog():
        assert repr(exercises.check(name, answer)) == "Not answered yet."


def leaves(*_: object) -> None:
    raise SystemExit(3)


def says_much(*_: object) -> None:
    raise KeyError("much " * 1000)


class Unreadable:
    def __repr__(self) -> str:
        raise RuntimeError("not for you")


IN_ITSELF: list[object] = []
IN_ITSELF.append(IN_ITSELF)
ODD = {
    "words": "",
    "a number": 3,
    "a number too large": 10**40,
    "no number": float("nan"),
    "no numbers": [float("nan"), 1.0],
    "infinite": [float("inf")] * 3,
    "complex": (1j, 1j, 1j),
    "an object": object(),
    "unreadable": [Unreadable()] * 3,
    "rows of unequal length": [[1, 2], [3]],
    "numbers and words": [[1, "a"]],
    "long words": ["long" * 1000] * 3,
    "a list in itself": IN_ITSELF,
    "a dictionary": {},
    "a class": Unreadable,
    "without end": itertools.cycle("a"),
    "three without end": [itertools.count()] * 3,
    "no data": torch.zeros(6, 6, device="meta"),
    "twice no data": [torch.zeros((), device="meta")] * 2,
    "far too large": torch.zeros(1).expand(10**6, 10**6),
    "sparse": torch.eye(6).to_sparse(),
    "a function of nothing": lambda: None,
    "a function that returns its inputs": lambda *inputs: inputs,
    "a function that returns a class": lambda *_: Unreadable,
    "a function that returns no number": lambda *_: float("nan"),
    "a function that returns no data": lambda *_: torch.zeros(3, device="meta"),
    "a generator": lambda *_: (yield),
    "a function that leaves": leaves,
    "a function that says much": says_much,
}


@pytest.mark.parametrize("odd", ODD)
def test_no_answer_whatever_raises(odd: str) -> None:
    for name in exercises.catalog():
        verdict = exercises.check(name, ODD[odd])
        assert verdict.right is False and len(verdict.message) < 500, name
        assert "can't be checked" not in verdict.message or odd in (
            "a list in itself",
            "unreadable",
        ), verdict


def test_a_list_in_itself_is_no_answer_that_a_check_can_read() -> None:
    assert (
        "your answer can't be checked; looking at it raises RecursionError"
        in exercises.check("masks-1", IN_ITSELF).message
    )


SETTINGS = {
    "float64": lambda: torch.set_default_dtype(torch.float64),
    "no gradients": lambda: torch.set_grad_enabled(False),
    "no fast path": lambda: torch.backends.mha.set_fastpath_enabled(False),
    "another seed": lambda: torch.manual_seed(5),
    "autocast": lambda: torch.set_autocast_enabled("cpu", True),
}


@pytest.fixture
def settings() -> Iterator[Callable[[], list[object]]]:
    """Return a function that tells torch's settings; put them back at the end."""
    state = torch.get_rng_state()
    yield lambda: [
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        FAST_PATH(),
        torch.get_rng_state().tolist(),
    ]
    torch.set_default_dtype(torch.float32)
    torch.set_autocast_enabled("cpu", False)
    torch.set_grad_enabled(True)
    torch.backends.mha.set_fastpath_enabled(True)
    torch.set_rng_state(state)


@pytest.mark.parametrize("setting", SETTINGS)
def test_what_a_reader_sets_stays_and_changes_no_verdict(
    setting: str, settings: Callable[[], list[object]]
) -> None:
    SETTINGS[setting]()
    before = settings()
    for name, known in ANSWERS.items():
        assert [exercises.check(name, answer).right for answer in known.right] == [True] * len(
            known.right
        ), name
        assert settings() == before, name


def test_what_an_answer_sets_goes_with_it(settings: Callable[[], list[object]]) -> None:
    def sets_all(*_: object) -> int:
        for change in SETTINGS.values():
            change()
        return 3

    before = settings()
    for name in exercises.catalog():
        assert exercises.check(name, sets_all).right is False
        assert settings() == before, name


def test_inference_mode_changes_no_verdict() -> None:
    with torch.inference_mode():
        assert all(exercises.check(name, known.right[0]).right for name, known in ANSWERS.items())


@pytest.mark.parametrize(
    "name, sizes", [("calling-the-module-3", (8, 2)), ("build-the-module-3", (12, 3))]
)
def test_a_module_that_a_reader_still_uses_stays_as_it_is(
    name: str, sizes: tuple[int, int]
) -> None:
    module = ANSWERS[name].right[0](*sizes)
    before = copy.deepcopy(module.state_dict())
    assert exercises.check(name, lambda *_: module).right is True
    assert module.training
    assert all(torch.equal(module.state_dict()[key], numbers) for key, numbers in before.items())


def test_a_name_that_is_none_is_told() -> None:
    with pytest.raises(ValueError, match="^There is no exercise 'masks-0'; there are .*masks-1, "):
        exercises.check("masks-0", 1)


def test_every_exercise_stands_in_its_chapter_unanswered_and_solved() -> None:
    found: dict[str, list[str]] = {}
    for path in NOTEBOOKS.glob("*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            for name in re.findall(r'exercises\.check\(\s*"([\w-]+)"', cell.source):
                assert name.rpartition("-")[0] == path.stem
                text = "".join(
                    output.get("data", {}).get("text/plain", "") for output in cell.outputs
                )
                found.setdefault(name, []).append(text.split(".")[0])
                assert ("hide-cell" in cell.metadata.get("tags", [])) is text.startswith("Right")
    assert found == {name: ["Not answered yet", "Right"] for name in exercises.catalog()}
