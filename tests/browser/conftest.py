"""Watched pages, explorers written as pages, and a JupyterLab."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from jupyter_lab import Lab, started
from playwright.sync_api import Browser, Page
from watching import watched

from mha_widgets import explorers


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open watched pages; fail on what they report or ask for."""
    with watched(browser) as (open_, troubles):
        yield open_
    assert not troubles


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Write an explorer of the catalogue as a page, once in a session; plotly.js lies beside it."""
    folder = tmp_path_factory.mktemp("pages")

    @cache
    def write(name: str) -> Path:
        path = folder / f"{name}.html"
        explorers.catalog()[name]().write_html(path, include_plotlyjs="directory")
        return path

    return write


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, free_port: int) -> Iterator[Lab]:
    """A JupyterLab on a copy of the notebooks; fail on errors that its kernels log."""
    folder = tmp_path_factory.mktemp("lab")
    with started(folder, free_port) as lab:
        yield lab
    assert "Traceback" not in (folder / "log").read_text()
