"""Find a Chromium for the browser tests; run as a script, print its path."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

FLAGS = [
    "--no-sandbox",  # Chromium refuses to run as root with one
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
]
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_chromium() -> str | None:
    """Return the path of a Chromium that starts: the system's, else Playwright's own."""
    with sync_playwright() as playwright:
        own = playwright.chromium.executable_path
    candidates = [*map(shutil.which, NAMES), own]
    return next((path for path in candidates if path and _starts(path)), None)


def _starts(path: str) -> bool:
    # Ubuntu's chromium-browser is a stub that only says which snap to install.
    return (
        Path(path).exists()
        and subprocess.run([path, "--version"], capture_output=True).returncode == 0
    )


if __name__ == "__main__":
    found = find_chromium()
    print(found or "No Chromium found.")
    sys.exit(found is None)
