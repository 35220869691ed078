"""Take the picture at the top of the README: an explorer as a reader sees it, light and dark.

Needs a Chromium: `make browser`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from mha_widgets import explorers

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
from chromium import FLAGS, find_chromium  # noqa: E402


def main() -> None:
    """Write the pictures to ``book/images``."""
    chromium = find_chromium()
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "heads.html"
        explorers.Heads().write_html(path)
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for scheme in ("light", "dark"):
            page = browser.new_page(
                viewport={"width": 920, "height": 1200},
                color_scheme=scheme,
                device_scale_factor=1.5,
            )
            page.goto(path.as_uri())
            page.locator(".js-plotly-plot .main-svg").first.wait_for()
            page.locator(".mha-explorer").screenshot(
                path=ROOT / "book" / "images" / f"heads-{scheme}.png"
            )
        browser.close()


if __name__ == "__main__":
    main()
