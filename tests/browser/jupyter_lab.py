"""A JupyterLab for tests: start it, run a notebook, run a line of code."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Locator, Page, expect

ROOT = Path(__file__).parents[2]
TOKEN = "tests"


class Lab(NamedTuple):
    """Where a JupyterLab is, and the folder that it shows."""

    address: str
    folder: Path


@contextmanager
def started(folder: Path, port: int) -> Iterator[Lab]:
    """Run JupyterLab on a copy of the notebooks, with settings of its own;
    it logs into the folder.
    """
    for name in ("notebooks", "book"):
        shutil.copytree(ROOT / name, folder / name)
    names = (
        "JUPYTER_CONFIG_DIR",
        "JUPYTER_DATA_DIR",
        "JUPYTERLAB_SETTINGS_DIR",
        "JUPYTERLAB_WORKSPACES_DIR",
        "IPYTHONDIR",
    )
    options = [
        f"--ServerApp.root_dir={folder}",
        f"--IdentityProvider.token={TOKEN}",
        f"--ServerApp.port={port}",
    ]
    log = folder / "log"
    with log.open("w") as output:
        server = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "jupyterlab",
                "--no-browser",
                "--allow-root",
                "--LabApp.news_url=None",
                *options,
            ],
            env=os.environ | {name: str(folder / name) for name in names},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            deadline = time.monotonic() + 120
            while not _answers(f"{address}/api?token={TOKEN}"):
                assert server.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.5)
            yield Lab(address, folder)
        finally:
            server.terminate()
            server.wait()


def _answers(address: str) -> bool:
    try:
        return urllib.request.urlopen(address).status == 200
    except urllib.error.URLError:
        return False


def run_notebook(name: str, lab: Lab, open_page: Callable[..., Page], **options: object) -> Page:
    """Open ``notebooks/<name>.ipynb`` in a workspace of its own, and run every cell."""
    address = f"{lab.address}/lab/workspaces/{name}/tree/notebooks/{name}.ipynb?token={TOKEN}&reset"
    page = open_page(address, lab.address, **options)
    page.locator(".jp-Notebook .jp-Cell").first.wait_for(timeout=60_000)
    expect(page.get_by_text("model not found")).to_have_count(0)
    page.get_by_text("| Idle").wait_for(timeout=60_000)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    prompts = page.locator(".jp-Notebook .jp-CodeCell .jp-InputPrompt")
    expect(prompts.first).to_have_text("[1]:", timeout=60_000)
    expect(prompts.filter(has_text="[*]:")).to_have_count(0, timeout=120_000)
    return page


def run(page: Page, code: str) -> Locator:
    """Run a line in the empty last cell, and return the cell; another empty cell follows."""
    cells = page.locator(".jp-Notebook .jp-Cell")
    cell = cells.nth(cells.count() - 1)
    cell.locator(".cm-content").click()
    page.keyboard.insert_text(code)
    page.keyboard.press("Shift+Enter")
    expect(cell.locator(".jp-InputPrompt")).to_have_text(re.compile(r"\[\d+\]:"), timeout=60_000)
    return cell
