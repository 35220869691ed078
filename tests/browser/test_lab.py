"""JupyterLab, started for real: a notebook is run, and a slider is moved by keyboard."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from reading import drawn, expected, said

from mha_widgets import explorers
from mha_widgets.explorer import Explorer

ROOT = Path(__file__).parents[2]
TOKEN = "tests"


def answers(address: str) -> bool:
    try:
        return urllib.request.urlopen(address).status == 200
    except urllib.error.URLError:
        return False


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, free_port: int) -> Iterator[str]:
    """The address of a JupyterLab on a copy of the notebooks, with settings of its own."""
    folder = tmp_path_factory.mktemp("lab")
    for name in ("notebooks", "book"):
        shutil.copytree(ROOT / name, folder / name)
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTERLAB_SETTINGS_DIR", "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR")
    options = [f"--ServerApp.root_dir={folder}", f"--IdentityProvider.token={TOKEN}", f"--ServerApp.port={free_port}"]
    log = (folder / "log").open("w")
    server = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--LabApp.news_url=None", *options],
        env=os.environ | {name: str(folder / name) for name in names},
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    address = f"http://127.0.0.1:{free_port}"
    deadline = time.monotonic() + 120
    while not answers(f"{address}/api?token={TOKEN}"):
        assert server.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.5)
    yield address
    server.terminate()
    server.wait()
    log.close()


def run_notebook(name: str, lab: str, open_page: Callable[..., Page]) -> Locator:
    """Open a notebook in a workspace of its own, run every cell, and return the explorer."""
    page = open_page(f"{lab}/lab/workspaces/{name}/tree/notebooks/{name}.ipynb?token={TOKEN}&reset", lab)
    page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=60_000)
    expect(page.get_by_text("model not found")).to_have_count(0)
    page.get_by_text("| Idle").wait_for(timeout=60_000)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    root = page.locator(".mha-explorer")
    for _ in range(120):
        if root.locator(".js-plotly-plot").count():
            break
        page.locator(".jp-WindowedPanel-outer").evaluate("panel => panel.scrollBy(0, 500)")
        page.wait_for_timeout(500)
    root.locator(".js-plotly-plot .main-svg").first.wait_for()
    idle = 0  # between two cells, too, the kernel is idle for a moment
    while idle < 10:
        idle = idle + 1 if page.get_by_text("| Idle").count() else 0
        page.wait_for_timeout(100)
    root.scroll_into_view_if_needed()
    assert page.locator(".jp-Notebook img").evaluate_all("images => images.every(image => image.naturalWidth)")
    return root


def expect_state(root: Locator, explorer: Explorer, **state: Any) -> None:
    """Wait until an explorer shows a state, and say what differs if it never does."""
    want, facts = expected(explorer, **state), said(explorer, **state)
    for _ in range(100):
        if drawn(root) == want and root.locator(".mha-facts li").all_text_contents() == facts:
            return
        root.page.wait_for_timeout(100)
    assert drawn(root) == want
    assert root.locator(".mha-facts li").all_text_contents() == facts


@pytest.mark.parametrize(
    "notebook, explorer, control, moves",
    [
        ("masks", explorers.Masks(), "row", [3, 4, 5]),
        ("scaled-dot-product-attention", explorers.Attention(), "row", [3, 4, 5]),
    ],
    ids=["masks", "scaled-dot-product-attention"],
)
def test_a_slider_moved_by_keyboard_draws_what_python_computes(
    notebook: str, explorer: Explorer, control: str, moves: list[int], lab: str, open_page: Callable[..., Page]
) -> None:
    root = run_notebook(notebook, lab, open_page)
    expect_state(root, explorer)
    handle = root.locator(f".mha-{control} .noUi-handle")
    handle.focus()
    for value in moves:
        handle.press("ArrowRight")
        expect_state(root, explorer, **{control: value})


def test_buttons_change_the_kind_and_number_of_traces(lab: str, open_page: Callable[..., Page]) -> None:
    root = run_notebook("scaled-dot-product-attention", lab, open_page)
    for step in ("Q, K, V", "scale", "output", "softmax"):
        root.get_by_role("button", name=step, exact=True).click()
        expect_state(root, explorers.Attention(), step=step)


def test_a_fold_opened_by_keyboard_stays_open_and_follows_the_controls(lab: str, open_page: Callable[..., Page]) -> None:
    root = run_notebook("scaled-dot-product-attention", lab, open_page)
    expect(root.locator("code")).not_to_be_visible()
    root.get_by_role("button", name="Code for what you see").press("Enter")
    root.get_by_role("button", name="output", exact=True).click()
    expect_state(root, explorers.Attention(), step="output")
    expect(root.locator("code")).to_be_visible()
    expect(root.locator("code")).to_contain_text("output = weights @ value")


def test_in_a_narrow_window_the_maps_stand_below_one_another(lab: str, open_page: Callable[..., Page]) -> None:
    root = run_notebook("scaled-dot-product-attention", lab, open_page)
    tops = "plot => [...plot.querySelectorAll('.heatmaplayer image')].map(map => Math.round(map.getBoundingClientRect().top))"
    plot = root.locator(".js-plotly-plot")
    assert len(set(plot.evaluate(tops))) == 1
    root.page.set_viewport_size({"width": 760, "height": 900})
    root.page.wait_for_function(f"plot => new Set(({tops})(plot)).size === 3", arg=plot.element_handle())
    assert plot.evaluate(tops) == sorted(plot.evaluate(tops))
