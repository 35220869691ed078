"""Fixtures of the browser tests: the built book, a server for it, a browser."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from chromium import FLAGS, find_chromium
from hypothesis import settings
from playwright.sync_api import Browser, sync_playwright

# The parity of whole calls with torch: 300 in every run, 10,000 with `make parity`.
settings.register_profile("default", deadline=None, derandomize=True, max_examples=300)
settings.register_profile("parity", deadline=None, max_examples=10_000, print_blob=True)
settings.load_profile("default")
BOOK = Path(__file__).parents[1] / "_build" / "html"


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
