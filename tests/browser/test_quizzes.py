"""Each chapter's question answers to what is chosen,
and its solutions stay folded until they are opened.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from jupyter_lab import Lab, run_notebook
from playwright.sync_api import Page, expect

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
CHAPTERS = sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


def assert_answers(page: Page, chapter: str) -> None:
    """Choose each answer of the question, and read what is said of it."""
    (question,) = json.loads(
        (NOTEBOOKS / "quizzes" / f"{chapter}.json").read_text(encoding="utf-8")
    )
    shown = page.locator(".Quiz")
    shown.scroll_into_view_if_needed()
    expect(shown).to_contain_text(question["question"])
    buttons = shown.locator(".MCButton")
    expect(buttons).to_have_text([answer["answer"] for answer in question["answers"]])
    assert (
        sum(answer["correct"] for answer in question["answers"]) == 1 < len(question["answers"]) - 2
    )
    wrong_first = sorted(enumerate(question["answers"]), key=lambda pair: pair[1]["correct"])
    for place, answer in wrong_first:
        buttons.nth(place).click()
        expect(shown.locator(".Feedback")).to_have_text(answer["feedback"])


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_on_the_page_opened_from_disk(
    chapter: str, book_dir: Path, open_page: Callable[..., Page]
) -> None:
    page = open_page(f"{book_dir.as_uri()}/notebooks/{chapter}.html", book_dir.as_uri())
    solutions = page.locator(".tag_hide-cell")
    assert solutions.count() >= 3
    for solution in solutions.all():
        expect(solution.locator(".highlight").first).to_be_hidden()
    solutions.first.locator("summary").click()
    expect(solutions.first.locator(".highlight").first).to_be_visible()
    assert_answers(page, chapter)
    expect(page.locator(".cell > p")).to_have_count(0)  # the question closes what it opens


def test_in_jupyterlab(lab: Lab, open_page: Callable[..., Page]) -> None:
    page = run_notebook("batch-first", lab, open_page)
    assert_answers(page, "batch-first")
    folded = page.locator(".jp-Cell .jp-Placeholder")
    expect(folded.first).to_be_visible()
