"""The exercises: right answers are accepted, typical mistakes are told, and every one stands in its chapter."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest
from answers import answers

from mha_widgets import exercises

ANSWERS = answers()
NOTEBOOKS = Path(__file__).parents[2] / "notebooks"


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


@pytest.mark.parametrize("answer", ["", 3, object(), [[1, "a"]], lambda: None, {}, float("nan")])
def test_no_answer_whatever_raises(answer: object) -> None:
    for name in exercises.catalog():
        assert exercises.check(name, answer).right is False, name


def test_a_name_that_is_none_is_told() -> None:
    with pytest.raises(ValueError, match="^There is no exercise 'masks-0'; there are .*masks-1, "):
        exercises.check("masks-0", 1)


def test_every_exercise_stands_in_its_chapter_unanswered_and_solved() -> None:
    found: dict[str, list[str]] = {}
    for path in NOTEBOOKS.glob("*.ipynb"):
        for cell in nbformat.read(path, as_version=4).cells:
            for name in re.findall(r'exercises\.check\("([\w-]+)"', cell.source):
                assert name.rpartition("-")[0] == path.stem
                text = "".join(output.get("data", {}).get("text/plain", "") for output in cell.outputs)
                found.setdefault(name, []).append(text.split(".")[0])
                assert ("hide-cell" in cell.metadata.get("tags", [])) is text.startswith("Right")
    assert found == {name: ["Not answered yet", "Right"] for name in exercises.catalog()}
