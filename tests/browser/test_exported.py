"""What the README's line for exported notebooks gives: explorers alive in what nbconvert writes."""

from __future__ import annotations

from pathlib import Path

import nbformat
from IPython.display import HTML
from nbconvert import HTMLExporter
from playwright.sync_api import Browser
from reading import Reader

from mha_widgets import explorers


def test_an_exported_notebook_holds_live_explorers(tmp_path: Path, browser: Browser) -> None:
    shown = {explorers.Masks(): True, explorers.Dropout(): False}  # plotly.js once
    cells = [
        nbformat.v4.new_code_cell(
            outputs=[
                nbformat.v4.new_output(
                    "display_data",
                    {"text/html": HTML(explorer.to_html(include_plotlyjs=plotly))._repr_html_()},
                )
            ]
        )
        for explorer, plotly in shown.items()
    ]
    html, _ = HTMLExporter().from_notebook_node(nbformat.v4.new_notebook(cells=cells))
    (tmp_path / "exported.html").write_text(html, encoding="utf-8")
    page = browser.new_page()
    page.route("http*://**", lambda route: route.abort())  # nbconvert's own scripts
    page.goto((tmp_path / "exported.html").as_uri())
    for explorer in shown:
        root = page.locator(f".mha-explorer[data-explorer={explorer.name}]")
        root.scroll_into_view_if_needed()
        root.locator(".js-plotly-plot").wait_for()
        reader = Reader(root, explorer)
        name, control = next(iter(explorer.controls.items()))
        reader.move(name, control.values[-1])
        reader.assert_shows_what_python_says()
    page.close()
