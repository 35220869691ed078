"""The built book and a server for it, a browser, watched pages, explorers written as pages,
a JupyterLab.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from functools import cache, partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from chromium import FLAGS, find_chromium
from jupyter_lab import Lab, started
from playwright.sync_api import Browser, Page, sync_playwright
from watching import watched

from mha_widgets import explorers

BOOK = Path(__file__).parents[2] / "_build" / "html"


@pytest.fixture(scope="session")
def book_dir() -> Path:
    """The folder of the built site."""
    if not (BOOK / "index.html").is_file():
        pytest.fail("There is no built book in _build/html: run `make book` first.")
    return BOOK


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="session")
def server(book_dir: Path) -> Iterator[str]:
    """The address of the built site, served on this machine; no slash at its end."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=book_dir)) as httpd:
        Thread(target=httpd.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{httpd.server_port}"
        httpd.shutdown()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium; without one the test is skipped, but fails where CI=true."""
    path = find_chromium()
    if path is None:
        give_up = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        give_up("No Chromium found: run `make browser`, which installs one.")
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def free_port() -> int:
    """A port on this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


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
