"""Pages that write_html makes: hostile tokens, no script, keyboard, two explorers side by side."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, Page, expect
from reading import Reader, expected

from mha_widgets import explorers
from mha_widgets.explorer import Explorer
from mha_widgets.hosts import page

HOSTILE = [
    "<pad>",
    "<s>",
    "</script>",
    "$x$",
    "🦜",
    "x" * 60,
    "",
    "<b>bold</b>",
    "&amp;",
    "%{z}",
    "#1d2430",
]


@pytest.fixture(scope="module")
def hostile() -> Explorer:
    torch.manual_seed(0)
    return explorers.Attention(
        torch.randn(11, 3), torch.randn(11, 3), torch.randn(11, 2), tokens=HOSTILE
    )


def test_hostile_tokens_are_shown_literally(
    hostile: Explorer, tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    hostile.write_html(tmp_path / "hostile.html", include_plotlyjs="directory")
    shown = open_page((tmp_path / "hostile.html").as_uri(), tmp_path.as_uri())
    root = shown.locator(".mha-explorer")
    root.locator(".js-plotly-plot").wait_for()
    reader = Reader(root, hostile)
    for row in range(len(HOSTILE)):
        reader.move("row", row)
        reader.assert_shows_what_python_says()
    ticks = root.locator(".js-plotly-plot .ytick text").all_text_contents()[:10]
    cut = [token if len(token) <= 12 else token[:11] + "…" for token in HOSTILE if token]
    assert ticks == cut[:10]
    root.get_by_text("The numbers as a table").click()
    table = root.locator("table").last
    assert table.locator("tbody th").all_text_contents() == HOSTILE


def test_the_table_writes_numbers_as_python_does(
    tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    key = torch.tensor([[2.847e-06], [-2.847e-06], [-0.12345], [12346.0], [0.0], [3e-12]])
    numbers = explorers.Attention(torch.ones(1, 1), key, torch.zeros(6, 1))
    numbers.write_html(tmp_path / "numbers.html", include_plotlyjs="directory")
    tables = open_page((tmp_path / "numbers.html").as_uri(), tmp_path.as_uri()).locator(
        ".mha-table"
    )
    scores = tables.locator("table").last.locator("tbody td")
    by_python = scores.all_text_contents()
    assert by_python == ["2.8e−06", "−2.8e−06", "−0.1235", "1.235e+04", "0", "3.0e−12"]
    tables.locator("table").last.evaluate("table => { table.className = 'by-python'; }")
    tables.locator("summary").click()
    tables.locator(".by-python").wait_for(state="detached")
    assert scores.all_text_contents() == by_python


def test_colours_swap_but_a_token_that_looks_like_one_stays(
    hostile: Explorer, tmp_path: Path, browser: Browser
) -> None:
    hostile.write_html(tmp_path / "hostile.html", include_plotlyjs="directory")
    shown = browser.new_page(color_scheme="dark")
    shown.goto((tmp_path / "hostile.html").as_uri())
    shown.locator(".js-plotly-plot").wait_for()
    assert "#1d2430" in shown.locator(".ytick text").all_text_contents()
    assert (
        shown.locator(".js-plotly-plot").evaluate("host => host.layout.template.layout.font.color")
        == "#e8ebef"
    )
    shown.close()


def test_without_script_the_first_view_is_there_as_a_table(
    hostile: Explorer, tmp_path: Path, browser: Browser
) -> None:
    hostile.write_html(tmp_path / "hostile.html", include_plotlyjs=False)
    context = browser.new_context(java_script_enabled=False)
    shown = context.new_page()
    shown.goto((tmp_path / "hostile.html").as_uri())
    expect(shown.get_by_text("The controls need JavaScript.")).to_be_visible()
    assert (
        shown.locator(".mha-facts li").all_text_contents() == expected(hostile.view(), 0)["facts"]
    )
    shown.get_by_text("The numbers as a table").click()
    expect(shown.locator("table").first).to_be_visible()
    context.close()


def test_a_state_that_makes_no_sense_keeps_the_last_figure(
    tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    class Picky(explorers.Attention):
        def compute(self, **state: Any) -> Any:
            if state["row"] == 3:
                raise ValueError("row 3 of <this> can't be shown; choose another.")
            return super().compute(**state)

    picky = Picky()
    picky.write_html(tmp_path / "picky.html", include_plotlyjs="directory")
    root = open_page((tmp_path / "picky.html").as_uri(), tmp_path.as_uri()).locator(".mha-explorer")
    root.locator(".js-plotly-plot").wait_for()
    reader = Reader(root, picky)
    for row, error in ((3, "row 3 of <this> can't be shown; choose another."), (4, "")):
        reader.move("row", row)
        expect(root.get_by_role("alert")).to_have_text([error] if error else [])
        reader.assert_shows_what_python_says()


def test_the_keyboard_alone_reaches_every_control(
    written: Callable[[str], Path], open_page: Callable[..., Page]
) -> None:
    path = written("Masks")
    shown = open_page(path.as_uri(), path.parent.as_uri())
    shown.locator(".js-plotly-plot").wait_for()
    reached = []
    for _ in range(12):
        shown.keyboard.press("Tab")
        reached.append(
            shown.evaluate("document.activeElement.name || document.activeElement.textContent")
        )
    assert reached[:3] == ["attn_mask", "mask_type", "row"]
    assert {"Code for what you see", "The numbers as a table"} <= set(reached)


def test_the_code_is_copied(written: Callable[[str], Path], open_page: Callable[..., Page]) -> None:
    path = written("Masks")
    shown = open_page(
        path.as_uri(), path.parent.as_uri(), permissions=["clipboard-read", "clipboard-write"]
    )
    root = shown.locator(".mha-explorer")
    root.get_by_text("float", exact=True).click()
    root.get_by_text("Code for what you see").click()
    assert root.locator("code").text_content() == explorers.Masks().view(mask_type="float").code
    root.get_by_role("button", name="Copy").click()
    expect(root.get_by_role("button", name="Copied")).to_be_visible()
    shown.wait_for_function(
        "navigator.clipboard.readText().then(text => text.includes('masked_fill(~mask'))"
    )


def test_two_explorers_share_a_page_and_one_plotly(
    tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    attention = explorers.Attention()
    page.write_assets(tmp_path)
    style = f'<link rel="stylesheet" href="{page.STYLE}">'
    both = attention.to_html() * 2
    (tmp_path / "two.html").write_text(
        f"<!doctype html>{style}{both}<script src='{page.SCRIPT}' defer></script>"
    )
    shown = open_page((tmp_path / "two.html").as_uri(), tmp_path.as_uri())
    first, second = shown.locator(".mha-explorer").all()
    second.scroll_into_view_if_needed()
    for root in (first, second):
        root.locator(".js-plotly-plot").wait_for()
    left, moved = Reader(first, attention), Reader(second, attention)
    moved.move("step", "output")
    for reader in (left, moved):
        reader.assert_shows_what_python_says()
    assert shown.locator("script[src*=plotly]").count() == 1
