"""The built book without a kernel: served with the network blocked, and opened from disk."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from reading import Reader

from mha_widgets import explorers

ROOT = Path(__file__).parents[2]
BOOK = ROOT / "_build" / "html"


def shown_on(path: Path) -> list[str]:
    return re.findall(r'class="mha-explorer" data-explorer="(\w+)"', path.read_text())


PAGES = {
    path.relative_to(BOOK).as_posix(): names
    for path in sorted(BOOK.rglob("*.html"))
    if (names := shown_on(path))
}
WRITTEN = [
    path.relative_to(BOOK).as_posix()
    for folder in ("book", "notebooks")
    for path in sorted(BOOK.glob(f"{folder}/*.html"))
]
RECORD = re.compile(r'<script type="application/json" class="mha-data">(.*?)</script>')
GALLERY = "book/gallery.html"
# Three times as many entries as another chapter has sections, and two lists that lead to them.
MUSEUM = "notebooks/when-it-goes-wrong.html"


@pytest.fixture(params=["served", "from disk"])
def site(request: pytest.FixtureRequest, book_dir: Path) -> str:
    return request.getfixturevalue("server") if request.param == "served" else book_dir.as_uri()


def explorer_on(page: Page, name: str) -> Locator:
    """Return an explorer of a page that the reader has scrolled to."""
    root = page.locator(f'.mha-explorer[data-explorer="{name}"]')
    root.scroll_into_view_if_needed()
    root.locator(".js-plotly-plot").wait_for()
    return root


def test_what_a_source_shows_is_on_its_page(book_dir: Path) -> None:
    for path in book_dir.glob("notebooks/*.html"):
        notebook = json.loads((ROOT / "notebooks" / f"{path.stem}.ipynb").read_text())
        outputs = [
            output.get("data", {})
            for cell in notebook["cells"]
            for output in cell.get("outputs", [])
        ]
        words = ["".join(data.get("text/plain", "")) for data in outputs]
        assert PAGES.get(f"notebooks/{path.name}", []) == [
            word.split()[0] for word in words if " explorer: " in word
        ]
    for path in book_dir.glob("book/*.html"):
        source = (ROOT / "book" / f"{path.stem}.md").read_text()
        wanted = (
            list(explorers.catalog())
            if "{mha-gallery}" in source
            else re.findall(r"{mha-explorer} (\w+)", source)
        )
        assert PAGES.get(f"book/{path.name}", []) == wanted


def test_a_built_page_holds_what_a_page_of_its_own_holds(
    book_dir: Path, written: Callable[[str], Path]
) -> None:
    for page_name, names in PAGES.items():
        for name, held in zip(
            names, RECORD.findall((book_dir / page_name).read_text()), strict=True
        ):
            assert [held] == RECORD.findall(written(name).read_text()), (page_name, name)


@pytest.mark.parametrize("page_name", PAGES)
def test_a_moved_explorer_draws_what_python_computes_and_no_other_changes(
    page_name: str, site: str, open_page: Callable[..., Page]
) -> None:
    page = open_page(f"{site}/{page_name}", site)
    readers = [
        Reader(explorer_on(page, name), explorers.catalog()[name]()) for name in PAGES[page_name]
    ]
    for moved in readers:
        next(moved.walk())
        for reader in readers:
            reader.assert_shows_what_python_says()


@pytest.mark.parametrize("page_name", PAGES)
def test_a_built_page_is_small_and_its_text_comes_first(
    page_name: str, book_dir: Path, server: str, open_page: Any
) -> None:
    most = {GALLERY: 2_500_000, MUSEUM: 500_000}.get(page_name, 400_000)
    assert (book_dir / page_name).stat().st_size <= most
    page = open_page(f"{server}/{page_name}", server)
    asked = (
        "performance.getEntriesByType('resource').filter(entry =>"
        " entry.name.includes('plotly.min.js')).length"
    )
    near = page.locator(".mha-explorer").first.bounding_box()["y"] < 900 + 400
    assert page.evaluate(asked) <= near
    for name in PAGES[page_name]:
        explorer_on(page, name)
    assert page.evaluate(asked) == 1


def test_controls_are_labelled_and_disabled_ones_say_why(
    server: str, open_page: Callable[..., Page]
) -> None:
    root = open_page(f"{server}/notebooks/masks.html", server).locator(".mha-explorer")
    for label in ("Padding keys", "Window", "Query row"):
        expect(root.get_by_label(label, exact=False).first).to_be_visible()
    window = root.locator('[name="window"]')
    expect(window).to_be_disabled()
    expect(window.locator("xpath=ancestor::label")).to_have_attribute(
        "title", "This mask has no window."
    )
    expect(root.locator(".mha-facts")).to_have_attribute("aria-live", "polite")


def test_the_table_holds_the_numbers_of_the_state(
    server: str, open_page: Callable[..., Page]
) -> None:
    root = open_page(f"{server}/notebooks/masks.html", server).locator(".mha-explorer")
    built = root.locator(".mha-table > div").inner_html()
    root.get_by_text("The numbers as a table").click()
    # the script writes the table that Python wrote
    assert root.locator(".mha-table > div").inner_html() == built
    root.get_by_text("causal + padding", exact=True).click()
    root.get_by_text("left", exact=True).click()
    weights = root.locator("table", has_text="Weights")
    assert weights.locator("tr").nth(1).locator("td").all_text_contents() == ["NaN"] * 6
    assert (
        weights.locator("tr").nth(3).locator("td").all_text_contents()
        == ["blocked"] * 2 + ["1"] + ["blocked"] * 3
    )


def test_dark_mode_redraws_in_dark_colours(server: str, open_page: Callable[..., Page]) -> None:
    page = open_page(f"{server}/book/intro.html", server)
    plot = page.locator(".js-plotly-plot")
    plot.wait_for()
    ink = "host => host.layout.template.layout.font.color"
    page.evaluate("document.documentElement.dataset.theme = 'light'")
    page.wait_for_function(f"({ink})(document.querySelector('.js-plotly-plot')) === '#1d2430'")
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.wait_for_function(f"({ink})(document.querySelector('.js-plotly-plot')) !== '#1d2430'")
    assert plot.evaluate(ink) == "#e8ebef"


@pytest.mark.parametrize("page_name", PAGES)
def test_in_the_dark_no_light_ground_is_behind_an_explorer(
    page_name: str, server: str, open_page: Any
) -> None:
    page = open_page(f"{server}/{page_name}", server, color_scheme="dark")
    grounds = page.locator(".mha-explorer").first.evaluate("""root => {
      const found = [];
      for (let node = root.parentElement; node; node = node.parentElement) {
        const numbers = getComputedStyle(node).backgroundColor.match(/[\\d.]+/g).map(Number);
        const [red, green, blue, alpha = 1] = numbers;
        if (alpha) found.push(Math.max(red, green, blue));
      }
      return found;
    }""")
    assert grounds and max(grounds) < 80


@pytest.mark.parametrize("page_name", PAGES)
def test_on_a_phone_no_explorer_sticks_out(
    page_name: str, server: str, open_page: Callable[..., Page]
) -> None:
    page = open_page(f"{server}/{page_name}", server, viewport={"width": 390, "height": 844})
    for name in PAGES[page_name]:
        box = explorer_on(page, name).locator(".js-plotly-plot .main-svg").first.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390


@pytest.mark.parametrize("page_name", WRITTEN)
def test_on_a_phone_no_page_is_wider_than_the_screen(
    page_name: str, server: str, open_page: Callable[..., Page]
) -> None:
    page = open_page(f"{server}/{page_name}", server, viewport={"width": 390, "height": 844})
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_hovering_a_cell_tells_its_words_score_mask_and_weight(
    server: str, open_page: Callable[..., Page]
) -> None:
    page = open_page(f"{server}/notebooks/masks.html", server)
    page.locator(".mha-explorer").scroll_into_view_if_needed()
    weights = page.locator(".mha-explorer .nsewdrag").nth(2)  # 6 by 6 cells, "the" at the top left
    for column, told in (
        (0, "the → thescore 0.000mask Trueweight 1.0000"),
        (1, "the → catscore 2.500mask Falseweight 0.0000"),
    ):
        weights.evaluate("area => area.scrollIntoView({ block: 'center' })")
        box = weights.bounding_box()
        page.mouse.move(box["x"] + box["width"] * (column + 0.5) / 6, box["y"] + box["height"] / 12)
        expect(page.locator(".mha-explorer .hoverlayer")).to_have_text(told)
