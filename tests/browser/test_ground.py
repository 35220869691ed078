"""An explorer is dark on a dark ground and light on a light one,
whatever the theme around it is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jupyter_lab import Lab, run_notebook
from playwright.sync_api import Browser, Locator, Page, expect
from watching import watched

from mha_widgets import explorers
from mha_widgets.figures.theme import COLOURS
from mha_widgets.hosts import page

# What a page puts around an explorer, what the computer prefers,
# and the ground that a reader then sees.
GROUNDS = {
    "nothing painted": ("{}", "dark", "light"),
    "white body": ("<style>body{{background:#fff}}</style>{}", "dark", "light"),
    "dark body": ("<style>body{{background:#111;color:#eee}}</style>{}", "light", "dark"),
    "the canvas follows the computer": (
        "<style>html{{color-scheme:light dark}}</style>{}",
        "dark",
        "dark",
    ),
    "light box on a dark page": (
        "<style>body{{background:#111}}</style><div style='background:white'>{}</div>",
        "dark",
        "light",
    ),
    "a tint hides nothing": (
        "<style>body{{background:#fff}}</style><div style='background:rgb(0 0 0 / 10%)'>{}</div>",
        "light",
        "light",
    ),
    "oklch": ("<style>body{{background:oklch(25% 0.02 250)}}</style>{}", "light", "dark"),
    "color()": (
        "<style>body{{background:color(display-p3 0.1 0.1 0.12)}}</style>{}",
        "light",
        "dark",
    ),
    "only the text tells": ("<style>body{{color:#e8e8e8}}</style>{}", "light", "dark"),
    "a name that lies": (
        "<script>document.documentElement.dataset.theme = 'dark'</script>{}",
        "dark",
        "light",
    ),
}
SWITCHES = {
    "a class on html": "document.documentElement.classList.add('dark')",
    "an attribute on body": "document.body.dataset.jpThemeLight = 'false'",
    "a style sheet that arrives": (
        "document.head.append(Object.assign(document.createElement('style'), "
        "{textContent: 'body{background:#111}'}))"
    ),
    "a ground that fades": "document.body.className = 'fading'",
}
THEMES = (
    "<style>html.dark body,"
    " body[data-jp-theme-light=false]{background:#111;color:#eee}body{background:#fff;color:#111}"
    " body.fading{transition:background 0.3s;background:#111}</style>"
)


def shades(root: Locator) -> set[str]:
    """Return in which colours the card, its words and its figure are
    shown: light, dark, or both.
    """
    found = root.evaluate("""root => {
          const style = getComputedStyle(root);
          const plot = root.querySelector(".js-plotly-plot");
          return [style.getPropertyValue("--mha-card").trim(), style.color, style.backgroundColor,
                  plot.layout.template.layout.font.color];
        }""")
    named = {}
    for role in ("ink", "card"):
        for shade, colour in zip(("light", "dark"), COLOURS[role], strict=True):
            red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
            named |= {colour: shade, f"rgb({red}, {green}, {blue})": shade}
    return {named[colour] for colour in found}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("grounds")
    page.write_assets(made)
    return made


@pytest.fixture
def on_a_page(folder: Path, open_page: Callable[..., Page]) -> Callable[..., Locator]:
    """Put an explorer into a page, and return it once it is drawn."""

    def put(around: str, **options: str) -> Locator:
        (folder / "page.html").write_text(
            f"<!doctype html><link rel=stylesheet href={page.STYLE}>"
            f"{around.format(explorers.Masks().to_html())}<script src={page.SCRIPT} defer></script>"
        )
        shown = open_page((folder / "page.html").as_uri(), folder.as_uri(), **options)
        root = shown.locator(".mha-explorer")
        root.locator(".js-plotly-plot .main-svg").first.wait_for()
        return root

    return put


@pytest.mark.parametrize("around, computer, seen", GROUNDS.values(), ids=GROUNDS)
def test_the_ground_behind_decides(
    around: str, computer: str, seen: str, on_a_page: Callable[..., Locator]
) -> None:
    root = on_a_page(around, color_scheme=computer)
    expect(root).to_have_attribute("data-ground", seen)
    assert shades(root) == {seen}


@pytest.mark.parametrize("switch", SWITCHES.values(), ids=SWITCHES)
def test_a_theme_that_switches_is_followed(switch: str, on_a_page: Callable[..., Locator]) -> None:
    root = on_a_page(THEMES.replace("{", "{{").replace("}", "}}") + "{}")
    assert shades(root) == {"light"}
    root.page.evaluate(f"() => {{ {switch} }}")
    expect(root).to_have_attribute("data-ground", "dark")
    assert shades(root) == {"dark"}


def test_the_computer_switches_and_print_is_light(on_a_page: Callable[..., Locator]) -> None:
    root = on_a_page("<style>html{{color-scheme:light dark}}</style>{}", color_scheme="light")
    for options, seen in (
        ({"color_scheme": "dark"}, "dark"),
        ({"media": "print"}, "light"),
        ({"media": "screen"}, "dark"),
    ):
        root.page.emulate_media(**options)
        expect(root).to_have_attribute("data-ground", seen)
        assert shades(root) == {seen}


def test_another_library_that_defines_itself_loads_beside_plotly(
    folder: Path, open_page: Callable[..., Page]
) -> None:
    (folder / "loader.js").write_text(
        "window.defined = []; window.define = (name) => defined.push(name); define.amd = {};"
    )
    # It arrives while plotly.js is on its way.
    (folder / "library.js").write_text(
        "new MutationObserver((_, observer) => {"
        "  if (!document.querySelector('script[src*=plotly]')) return;"
        "  observer.disconnect(); define('another library');"
        "}).observe(document.head, { childList: true });"
    )
    (folder / "amd.html").write_text(
        f"<!doctype html><head><link rel=stylesheet href={page.STYLE}><script"
        " src=loader.js></script><script"
        f" src=library.js></script></head>{explorers.Masks().to_html()}<script src={page.SCRIPT}"
        " defer></script>"
    )
    shown = open_page((folder / "amd.html").as_uri(), folder.as_uri())
    shown.locator(".js-plotly-plot .main-svg").first.wait_for()
    assert shown.evaluate("defined") == ["another library"]
    assert shown.evaluate("typeof Plotly.newPlot") == "function"


@pytest.fixture(scope="module")
def on_a_dark_computer(lab: Lab, browser: Browser) -> Iterator[Page]:
    """A chapter that was run in JupyterLab's light theme, on a computer that prefers dark."""
    with watched(browser) as (open_page, troubles):
        shown = run_notebook("projections", lab, open_page, color_scheme="dark")
        yield shown
    assert not troubles


def test_in_jupyterlab_the_theme_decides_and_not_the_computer(on_a_dark_computer: Page) -> None:
    shown = on_a_dark_computer
    root = shown.locator(".mha-explorer")
    root.scroll_into_view_if_needed()
    root.locator(".js-plotly-plot .main-svg").first.wait_for()
    root.page.wait_for_function(
        "root => root.dataset.ground === 'light'", arg=root.element_handle()
    )
    dark_figure = (
        "root => root.querySelector('.js-plotly-plot').layout.template.layout.font.color ==="
        f" '{COLOURS['ink'][1]}'"
    )
    assert shades(root) == {"light"}
    # Another theme, which knows nothing of JupyterLab's own switch.
    shown.evaluate(
        "() => { document.body.style.setProperty('--jp-layout-color0',"
        " '#111');document.querySelectorAll('.jp-Notebook, .jp-NotebookPanel').forEach(part =>"
        " part.style.background = '#111'); }"
    )
    shown.wait_for_function(dark_figure, arg=root.element_handle())
    assert shades(root) == {"dark"}
    label = root.locator(".widget-label").first.evaluate("label => getComputedStyle(label).color")
    assert label == "rgb(163, 173, 186)"  # light on dark, though JupyterLab's is black
