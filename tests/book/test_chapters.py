"""What holds for every chapter: pattern, length, pictures, spelling, sources."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
BOOK, NOTEBOOKS = ROOT / "book", ROOT / "notebooks"
CHAPTERS = re.findall(r"file: notebooks/([\w-]+)", (ROOT / "_toc.yml").read_text(encoding="utf-8"))
PAGES = sorted(BOOK.glob("*.md"))
MUSEUM = "when-it-goes-wrong"  # longer: a mistake a cell, to be looked up rather than read
PATTERN = [
    "Predict before you run",
    "Explore it",
    "Check against torch",
    "What goes wrong",
    "Exercises",
    "One question",
    "Key points",
    "Where next",
]
AMERICAN = (
    r"\b(?:colors?|behaviors?|favors?|centers?|neighbors?|grays?|learnt|labeled|modeling"
    r"|[a-z]{3,}(?<!s)iz(?:e|es|ed|ing|ation))\b"
)


def _notebook(chapter: str) -> nbformat.NotebookNode:
    return nbformat.read(NOTEBOOKS / f"{chapter}.ipynb", as_version=4)


def _text(chapter: str) -> str:
    return "\n\n".join(
        cell.source for cell in _notebook(chapter).cells if cell.cell_type == "markdown"
    )


def _prose(text: str) -> str:
    """The text without its code and the targets of its links."""
    return re.sub(r"```.*?```|`[^`]*`|<[^>]*>|\]\([^)]*\)", "", text, flags=re.DOTALL)


def test_every_notebook_is_a_chapter() -> None:
    assert sorted(CHAPTERS) == sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_has_the_pattern(chapter: str) -> None:
    text = _text(chapter)
    start = re.match(r"# [^\n]+\n\n\*\*[^*\n]+\?\*\*\n\n!\[", text)
    assert start, "A title, a question in bold, a picture."
    assert "**You will be able to**" in text and "**What this page assumes.**" in text
    expected = [heading for heading in PATTERN if chapter != MUSEUM or heading != "What goes wrong"]
    assert [
        heading
        for heading in re.findall(r"^## (.+)$", text, flags=re.MULTILINE)
        if heading in PATTERN
    ] == expected


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_is_neither_long_nor_short(chapter: str) -> None:
    folded = {"hide-cell", "remove-input"}
    cells = [cell for cell in _notebook(chapter).cells if cell.cell_type == "code"]
    shown = [cell for cell in cells if not folded & set(cell.metadata.get("tags", []))]
    words, most = len(_text(chapter).split()), (5600, 40) if chapter == MUSEUM else (2500, 30)
    assert 1000 <= words <= most[0] and 10 <= len(shown) <= most[1], (words, len(shown))


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_picture_has_a_text_and_a_caption(chapter: str) -> None:
    text = _text(chapter)
    pictures = re.findall(r"^!\[([^\]]*)\]\(([^)]*)\)\n\n(.*)$", text, flags=re.MULTILINE)
    assert len(pictures) == text.count("![") > 0
    for alternative, path, caption in pictures:
        assert len(alternative.split()) >= 15 and alternative.endswith(".")
        assert (NOTEBOOKS / path).is_file()
        assert re.fullmatch(r"\*.+\*", caption)


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_asks_for_two_exercises_and_more(chapter: str) -> None:
    asked = {
        name
        for cell in _notebook(chapter).cells
        for name in re.findall(rf'check\("({chapter}-\d+)"', cell.source)
    }
    assert len(asked) >= 2


@pytest.mark.parametrize("text", [*CHAPTERS, *PAGES, ROOT / "README.md"], ids=str)
def test_it_is_spelled_in_british_english(text: str | Path) -> None:
    found = re.findall(
        AMERICAN,
        _prose(_text(text) if isinstance(text, str) else text.read_text(encoding="utf-8")).lower(),
    )
    assert set(found) <= {"resize"}


def test_american_spelling_is_seen() -> None:
    assert re.findall(AMERICAN, "the size of the color, initialized; a prize, seized") == [
        "color",
        "initialized",
    ]


def test_every_word_of_the_glossary_is_led_to_and_from() -> None:
    terms = re.findall(
        r"^## (.+)\n\n((?:.+\n)+)",
        (BOOK / "glossary.md").read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    texts = [*map(_text, CHAPTERS), *(page.read_text(encoding="utf-8") for page in PAGES)]
    linked = set(re.findall(r"glossary\.md#([\w-]+)", "".join(texts)))
    assert linked == {term.lower().replace(" ", "-") for term, _ in terms}
    for _, text in terms:
        shown = re.search(
            r"See\s\[[^\]]+\]\((?:\.\./notebooks/)?([\w-]+)\.(?:ipynb|md)\)\.$", text.strip()
        )
        assert shown and shown[1] in [*CHAPTERS, "mask-card"], text


def test_every_source_is_described_and_cited() -> None:
    keys = set(
        re.findall(
            r"^@\w+\{(\w+),",
            (BOOK / "references.bib").read_text(encoding="utf-8"),
            flags=re.MULTILINE,
        )
    )
    page = (BOOK / "bibliography.md").read_text(encoding="utf-8")
    entries = re.findall(
        r'^### (.+)\n\n```\{bibliography\}\n:filter: key == "(\w+)"\n```\n\n\w',
        page,
        flags=re.MULTILINE,
    )
    assert {key for _, key in entries} == keys
    cited = set(
        re.findall(
            r"\{cite:[pt]\}`(\w+)`", "".join(path.read_text(encoding="utf-8") for path in PAGES)
        )
    )
    linked = set(re.findall(r"bibliography\.md#([\w-]+)", "".join(map(_text, CHAPTERS))))
    for name, key in entries:
        assert key in cited or re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-") in linked, key


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_its_mistakes_are_numbered_without_a_gap(chapter: str) -> None:
    numbers = re.findall(r"^### (\d+)\. ", _text(chapter), flags=re.MULTILINE)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
