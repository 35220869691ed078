"""The coverage table leads to sections that exist, and has a row for every argument."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import nbformat
import pytest
from myst_parser.mdit_to_docutils.base import default_slugify
from torch import nn

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "book" / "coverage.md").read_text(encoding="utf-8")
SECTIONS = dict(re.findall(r"^### (.+)\n\n((?:\|.+\n?)+)", TABLE, flags=re.MULTILINE))
TARGETS = re.findall(
    r"\]\(\.\./notebooks/([\w-]+)\.ipynb#([\w-]+)\) \|$", TABLE, flags=re.MULTILINE
)


def _sections_with_cells(chapter: str) -> set[str]:
    """The anchors of the sections of a chapter in which a cell runs."""
    found, open_sections = set(), {}
    for cell in nbformat.read(ROOT / "notebooks" / f"{chapter}.ipynb", as_version=4).cells:
        if cell.cell_type == "code":
            found |= set(open_sections.values())
            continue
        for marks, heading in re.findall(
            r"^(#+) (.+)$",
            re.sub(r"```.*?```", "", cell.source, flags=re.DOTALL),
            flags=re.MULTILINE,
        ):
            open_sections = {
                depth: anchor for depth, anchor in open_sections.items() if depth < len(marks)
            }
            open_sections[len(marks)] = default_slugify(heading.replace("`", ""))
    return found


def test_every_row_has_a_target() -> None:
    rows = [
        line
        for line in TABLE.splitlines()
        if line.startswith("| ") and line != "| says | shown in |"
    ]
    assert len(rows) == len(TARGETS) >= 80


@pytest.mark.parametrize("chapter", sorted({chapter for chapter, _ in TARGETS}))
def test_every_target_is_a_section_in_which_a_cell_runs(chapter: str) -> None:
    assert {anchor for target, anchor in TARGETS if target == chapter} <= _sections_with_cells(
        chapter
    )


@pytest.mark.parametrize(
    ("section", "function"),
    [
        ("The constructor", nn.MultiheadAttention),
        ("The call", nn.MultiheadAttention.forward),
        ("merge_masks", nn.MultiheadAttention.merge_masks),
    ],
)
def test_no_argument_is_missing(section: str, function: object) -> None:
    rows = set(re.findall(r"^\| `(\w+)`:", SECTIONS[section], flags=re.MULTILINE))
    assert rows == set(inspect.signature(function).parameters) - {"self"}


def test_both_outputs_and_the_nine_conditions_have_rows() -> None:
    assert re.findall(r"^\| `(\w+)`:", SECTIONS["What is returned"], flags=re.MULTILINE) == [
        "attn_output",
        "attn_output_weights",
    ]
    assert re.findall(
        r"^\| condition (\d):", SECTIONS["The fast path"], flags=re.MULTILINE
    ) == list("123456789")


@pytest.mark.parametrize(
    ("chapter", "printed"),
    [
        ("calling-the-module", "Output shape: (2, 4, 8)\nWeights shape: (2, 4, 4)\n"),
        ("batch-first", "Output shape: (4, 2, 8)\n"),
        (
            "packed-projections",
            "Packed shape: (24, 8)\nQuery slice: (8, 8)\nKey slice: (8, 8)\nValue slice: (8, 8)\n",
        ),
        (
            "packed-projections",
            (
                "Module output shape: (1, 3, 8)\nAveraged weights shape: (1, 3, 3)\n"
                "Max output difference: 0.0\nOutputs equal: True\n"
            ),
        ),
    ],
)
def test_the_lesson_prints_what_it_printed(chapter: str, printed: str) -> None:
    cells = nbformat.read(ROOT / "notebooks" / f"{chapter}.ipynb", as_version=4).cells
    assert any(
        printed in output.get("text", "") for cell in cells for output in cell.get("outputs", [])
    )
