"""Explorers in JupyterLab, shown by cells of one notebook:
their widgets moved by mouse and keyboard.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import nbformat
import pytest
from jupyter_lab import Lab, run, run_notebook
from playwright.sync_api import Browser, Page, expect
from reading import LiveReader
from watching import watched

from mha_widgets import explorers

SIZE = {"width": 1280, "height": 900}


@pytest.fixture(scope="module")
def opened(lab: Lab, browser: Browser) -> Iterator[tuple[Page, list[str]]]:
    """A notebook whose first cell has run and whose last is empty,
    and the list of what the page reports.
    """
    cells = [
        nbformat.v4.new_code_cell(source) for source in ("from mha_widgets import explorers", "")
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel})
    nbformat.write(notebook, lab.folder / "notebooks" / "live.ipynb")
    with watched(browser) as (open_page, troubles):
        yield (
            run_notebook("live", lab, open_page, permissions=["clipboard-read", "clipboard-write"]),
            troubles,
        )


@pytest.fixture
def notebook(opened: tuple[Page, list[str]]) -> Iterator[Page]:
    """The notebook, in a wide window; it must report nothing."""
    page, troubles = opened
    page.set_viewport_size(SIZE)
    yield page
    assert not troubles


def show(notebook: Page, name: str, source: str = "", **state: Any) -> LiveReader:
    """Run a cell that shows an explorer in a state, and return someone who looks at it."""
    root = run(notebook, source or f"explorers.{name}()").locator(".mha-explorer")
    root.scroll_into_view_if_needed()
    root.locator(".js-plotly-plot .main-svg").first.wait_for()
    explorer = explorers.catalog()[name]()
    explorer.set(**state)
    reader = LiveReader(root, explorer)
    reader.assert_shows_what_python_says()
    return reader


@pytest.mark.parametrize("name", explorers.catalog())
def test_widgets_moved_one_by_one_and_at_random_show_what_python_computes(
    name: str, notebook: Page
) -> None:
    reader = show(notebook, name)
    for _ in reader.walk(values=1):
        reader.assert_shows_what_python_says()
    for _ in reader.stroll(Random(name), 8):
        reader.assert_shows_what_python_says()


def test_disabled_widgets_say_why(notebook: Page) -> None:
    reader = show(notebook, "Heads")
    reader.move("num_heads", 1)
    reader.assert_shows_what_python_says()
    # a checkbox, a dropdown, buttons
    assert reader.view.disabled.keys() == {
        "average_attn_weights",
        "head",
        "merge",
    }
    for name, reason in reader.view.disabled.items():
        widget = reader.root.locator(f".mha-{name}")
        titles = widget.evaluate(
            "widget => [widget, ...widget.querySelectorAll('*')].map(part => part.title)"
        )
        assert reason in titles, name


def test_a_state_that_makes_no_sense_keeps_the_last_figure(notebook: Page) -> None:
    reader = show(notebook, "Heads")
    for num_heads, error in ((2, ""), (3, "embed_dim must be divisible by num_heads"), (8, "")):
        reader.move("num_heads", num_heads)
        assert error in reader.error and bool(error) == bool(reader.error)
        reader.assert_shows_what_python_says()


def test_many_keys_pressed_fast_end_in_the_last_state(notebook: Page) -> None:
    reader = show(notebook, "DotProduct", "own = explorers.DotProduct(); own")
    reader.root.locator(".mha-angle .noUi-handle").focus()
    for key in ["ArrowRight"] * 18 + ["ArrowLeft"] * 12:
        notebook.keyboard.press(key)
    reader.follow(angle=135)
    reader.assert_shows_what_python_says()
    assert (
        run(notebook, "own.state['angle']").locator(".jp-OutputArea-output").text_content().strip()
        == "135"
    )
    reader.assert_shows_what_python_says()


def test_buttons_clicked_fast_end_in_the_last_state(notebook: Page) -> None:
    reader = show(notebook, "CapturedMaps")
    for module, call in (("layers.1.self_attn", 1), ("layers.0.self_attn", 0)) * 4:
        reader.move("module", module)
        reader.move("call", call)
        reader.assert_shows_what_python_says()


def test_two_displays_of_one_explorer_and_a_cell_that_sets_it_stay_in_step(notebook: Page) -> None:
    first = show(notebook, "DotProduct", "own = explorers.DotProduct(); own")
    second = show(notebook, "DotProduct", "own")
    for moved, other, length in ((first, second, 3), (second, first, 1)):
        moved.move("length", length)
        other.follow(length=length)
        for reader in (moved, other):
            reader.assert_shows_what_python_says()
    run(notebook, "own.set(angle=300, length=2, length_a=1)")
    for reader in (first, second):
        reader.follow(angle=300, length=2, length_a=1)
        reader.assert_shows_what_python_says()


def test_a_fold_opened_by_keyboard_stays_open_and_its_code_is_copied(notebook: Page) -> None:
    reader = show(notebook, "Attention")
    code, fold = (
        reader.root.locator("code"),
        reader.root.get_by_role("button", name="Code for what you see"),
    )
    fold.press("Enter")
    expect(code).not_to_be_visible()
    reader.move("step", "output")
    fold.press("Enter")
    reader.assert_shows_what_python_says()
    expect(code).to_be_visible()
    reader.root.get_by_role("button", name="Copy", exact=True).click()
    expect(reader.root.get_by_role("button", name="Copied", exact=True)).to_be_visible()
    notebook.wait_for_function(
        "code => navigator.clipboard.readText().then((text) => text === code)", arg=reader.view.code
    )


def test_in_a_narrow_window_the_maps_stand_below_one_another(notebook: Page) -> None:
    reader = show(notebook, "Attention")
    tops = (
        "plot => [...plot.querySelectorAll('.heatmaplayer image')].map(map =>"
        " Math.round(map.getBoundingClientRect().top))"
    )
    plot = reader.root.locator(".js-plotly-plot")
    assert len(set(plot.evaluate(tops))) == 1
    notebook.set_viewport_size({"width": 760, "height": 900})
    notebook.wait_for_function(
        f"plot => new Set(({tops})(plot)).size === 3", arg=plot.element_handle()
    )
    assert plot.evaluate(tops) == sorted(plot.evaluate(tops))
    reader.assert_shows_what_python_says()
