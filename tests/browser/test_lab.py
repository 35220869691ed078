"""The chapters in JupyterLab, started for real: they are run, and their explorers moved."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from jupyter_lab import Lab, run_notebook
from playwright.sync_api import Page
from reading import LiveReader

from mha_widgets import explorers
from mha_widgets.explorer import Explorer


@pytest.mark.parametrize(
    "notebook, explorer",
    [("masks", explorers.Masks()), ("scaled-dot-product-attention", explorers.Attention())],
    ids=["masks", "scaled-dot-product-attention"],
)
def test_a_chapter_runs_and_its_explorer_draws_what_python_computes(
    notebook: str, explorer: Explorer, lab: Lab, open_page: Callable[..., Page]
) -> None:
    page = run_notebook(notebook, lab, open_page)
    root = page.locator(".mha-explorer")
    root.scroll_into_view_if_needed()
    root.locator(".js-plotly-plot .main-svg").first.wait_for()
    reader = LiveReader(root, explorer)
    reader.assert_shows_what_python_says()
    for row in (3, 4, 5):
        reader.move("row", row)
        reader.assert_shows_what_python_says()
    assert page.locator(".jp-Notebook img").evaluate_all(
        "images => images.every(image => image.naturalWidth)"
    )
