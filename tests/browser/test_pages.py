"""Every explorer as a page of its own, opened from disk:
its controls moved one by one and at random.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from playwright.sync_api import Page
from reading import Reader

from mha_widgets import explorers

NAMES = list(explorers.catalog())


@pytest.fixture
def reader(
    request: pytest.FixtureRequest, written: Callable[[str], Path], open_page: Callable[..., Page]
) -> Reader:
    """Someone who has just opened the page of an explorer."""
    path = written(request.param)
    page = open_page(path.as_uri(), path.parent.as_uri())
    root = page.locator(".mha-explorer")
    root.locator(".js-plotly-plot").wait_for()
    return Reader(root, explorers.catalog()[request.param]())


every_explorer = pytest.mark.parametrize("reader", NAMES, indirect=True)


@every_explorer
def test_each_value_of_each_control_shows_what_python_computes(reader: Reader) -> None:
    reader.assert_shows_what_python_says()
    for _ in reader.walk():
        reader.assert_shows_what_python_says()


@every_explorer
def test_controls_moved_at_random_show_what_python_computes(reader: Reader) -> None:
    chance = Random(reader.explorer.name)
    for _ in range(5):
        reader.leap(chance)
        reader.assert_shows_what_python_says()
        for _ in reader.stroll(chance, 4):
            reader.assert_shows_what_python_says()
