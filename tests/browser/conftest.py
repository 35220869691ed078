"""Pages that are watched while they are tested, and explorers written as pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Request

from mha_widgets import explorers


@pytest.fixture
def open_page(browser: Browser) -> Iterator[Callable[..., Page]]:
    """Open pages that may reach nothing but themselves; fail on what they report or ask for."""
    contexts, troubles = [], []

    def open_(address: str, allowed: str, **options: Any) -> Page:
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(message.text) if message.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))

        def failed(request: Request) -> None:
            # What a page cancels itself is no failure: JupyterLab asks for an image before it has its full address.
            if request.failure != "net::ERR_ABORTED":
                troubles.append(f"{request.failure}: {request.url}")

        page.on("requestfailed", failed)

        def route(route: Any) -> None:
            if route.request.url.startswith((allowed, "data:", "blob:")):
                route.continue_()
            else:
                troubles.append(f"off the site: {route.request.url}")
                route.abort()

        context.route("**/*", route)
        page.goto(address)
        return page

    yield open_
    for context in contexts:
        context.close()
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
