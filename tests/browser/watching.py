"""Pages that are watched while they are tested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Page, Request


@contextmanager
def watched(browser: Browser) -> Iterator[tuple[Callable[..., Page], list[str]]]:
    """Give a way to open pages that may reach nothing but themselves,
    and the list of what they report or ask for.
    """
    contexts: list[Any] = []
    troubles: list[str] = []

    def open_(address: str, allowed: str, **options: Any) -> Page:
        context = browser.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console",
            lambda message: (
                troubles.append(message.text) if message.type in ("error", "warning") else None
            ),
        )
        page.on("pageerror", lambda error: troubles.append(str(error)))

        def failed(request: Request) -> None:
            # What a page cancels itself is no failure:
            # JupyterLab asks for an image before it has its full address.
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

    yield open_, troubles
    for context in contexts:
        context.close()
