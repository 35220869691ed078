"""The built book without a kernel: served with the network blocked, and opened from disk."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from reading import drawn, expected, said, set_state, walk

from mha_widgets import explorers

PAGES = {
    "book/intro.html": "Attention",
    "notebooks/scaled-dot-product-attention.html": "Attention",
    "notebooks/masks.html": "Masks",
}


@pytest.fixture(params=["served", "from disk"])
def site(request: pytest.FixtureRequest, book_dir: Path) -> str:
    return request.getfixturevalue("server") if request.param == "served" else book_dir.as_uri()


@cache
def steps(name: str) -> list[tuple[dict[str, Any], dict[str, Any], list[str]]]:
    explorer = explorers.catalog()[name]()
    return [(state, expected(explorer, **state), said(explorer, **state)) for state in walk(explorer)]


def test_every_built_page_is_tested(book_dir: Path) -> None:
    with_explorers = {
        path.relative_to(book_dir).as_posix() for path in book_dir.rglob("*.html") if 'class="mha-explorer"' in path.read_text()
    }
    assert with_explorers == set(PAGES)


@pytest.mark.parametrize("page_name", PAGES)
def test_every_control_draws_what_python_computes(page_name: str, site: str, open_page: Callable[..., Page]) -> None:
    page = open_page(f"{site}/{page_name}", site)
    root = page.locator(".mha-explorer")
    expect(root).to_have_attribute("data-explorer", PAGES[page_name])
    explorer = explorers.catalog()[PAGES[page_name]]()
    root.scroll_into_view_if_needed()
    root.locator(".js-plotly-plot").wait_for()
    assert drawn(root) == expected(explorer)
    seen = set()
    for state, figure, facts in steps(PAGES[page_name]):
        set_state(root, explorer, state)
        assert drawn(root) == figure, state
        assert root.locator(".mha-facts li").all_text_contents() == facts
        seen.add(tuple(facts))
    assert len(seen) > len(explorer.controls)


@pytest.mark.parametrize("page_name", PAGES)
def test_a_built_page_is_small_and_its_text_comes_first(page_name: str, book_dir: Path, server: str, open_page: Any) -> None:
    assert (book_dir / page_name).stat().st_size <= 400_000
    page = open_page(f"{server}/{page_name}", server)
    asked = page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
    near = page.locator(".mha-explorer").bounding_box()["y"] < 900 + 400
    assert any("plotly.min.js" in name for name in asked) <= near
    page.locator(".mha-explorer").scroll_into_view_if_needed()
    page.locator(".js-plotly-plot").wait_for()
    asked = page.evaluate("performance.getEntriesByType('resource').map(entry => entry.name)")
    assert sum("plotly.min.js" in name for name in asked) == 1


def test_controls_are_labelled_and_disabled_ones_say_why(server: str, open_page: Callable[..., Page]) -> None:
    root = open_page(f"{server}/notebooks/masks.html", server).locator(".mha-explorer")
    for label in ("Padding keys", "Window", "Query row"):
        expect(root.get_by_label(label, exact=False).first).to_be_visible()
    window = root.locator('[name="window"]')
    expect(window).to_be_disabled()
    expect(window.locator("xpath=ancestor::label")).to_have_attribute("title", "This mask has no window.")
    expect(root.locator(".mha-facts")).to_have_attribute("aria-live", "polite")


def test_the_table_holds_the_numbers_of_the_state(server: str, open_page: Callable[..., Page]) -> None:
    root = open_page(f"{server}/notebooks/masks.html", server).locator(".mha-explorer")
    built = root.locator(".mha-table > div").inner_html()
    root.get_by_text("The numbers as a table").click()
    assert root.locator(".mha-table > div").inner_html() == built  # the script writes the table that Python wrote
    root.get_by_text("causal + padding", exact=True).click()
    root.get_by_text("left", exact=True).click()
    weights = root.locator("table", has_text="Weights")
    assert weights.locator("tr").nth(1).locator("td").all_text_contents() == ["NaN"] * 6
    assert weights.locator("tr").nth(3).locator("td").all_text_contents() == ["blocked"] * 2 + ["1"] + ["blocked"] * 3


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
def test_in_the_dark_no_light_ground_is_behind_an_explorer(page_name: str, server: str, open_page: Any) -> None:
    page = open_page(f"{server}/{page_name}", server, color_scheme="dark")
    grounds = page.locator(".mha-explorer").evaluate("""root => {
      const found = [];
      for (let node = root.parentElement; node; node = node.parentElement) {
        const [red, green, blue, alpha = 1] = getComputedStyle(node).backgroundColor.match(/[\\d.]+/g).map(Number);
        if (alpha) found.push(Math.max(red, green, blue));
      }
      return found;
    }""")
    assert grounds and max(grounds) < 80


def test_on_a_phone_nothing_sticks_out(server: str, open_page: Callable[..., Page]) -> None:
    for name in PAGES:
        page = open_page(f"{server}/{name}", server, viewport={"width": 390, "height": 844})
        page.locator(".mha-explorer").scroll_into_view_if_needed()
        page.locator(".js-plotly-plot").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        box = page.locator(".js-plotly-plot .main-svg").first.bounding_box()
        assert box["x"] >= 0 and box["x"] + box["width"] <= 390


def test_hovering_a_cell_tells_its_words_score_mask_and_weight(server: str, open_page: Callable[..., Page]) -> None:
    page = open_page(f"{server}/notebooks/masks.html", server)
    page.locator(".mha-explorer").scroll_into_view_if_needed()
    weights = page.locator(".mha-explorer .nsewdrag").nth(2)  # 6 by 6 cells, "the" at the top left
    for column, told in ((0, "the → thescore 0.000mask Trueweight 1.0000"), (1, "the → catscore 2.500mask Falseweight 0.0000")):
        weights.evaluate("area => area.scrollIntoView({ block: 'center' })")
        box = weights.bounding_box()
        page.mouse.move(box["x"] + box["width"] * (column + 0.5) / 6, box["y"] + box["height"] / 12)
        expect(page.locator(".mha-explorer .hoverlayer")).to_have_text(told)
