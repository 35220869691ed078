"""How long a live explorer takes from a key press to the repaint, beside a bare FigureWidget and `interact`.

All three stand in one notebook in JupyterLab, have the same control, and are pressed in turn. The bare
widget computes nothing: it is given beforehand what changes from value to value and assigns that in one
batch_update. `interact` draws the explorer's figure anew. A repaint is the frame after the last change
of the page. The book asks for a median ratio, explorer to bare, of at most 1.3. Needs a Chromium:
`make browser`.
"""

from __future__ import annotations

import inspect
import json
import socket
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

from jupyter_client import BlockingKernelClient
from playwright.sync_api import Browser, Locator, Page, sync_playwright

from mha_widgets import explorers
from mha_widgets.explorer import Explorer

sys.path[:0] = [str(Path(__file__).parents[1] / "tests"), str(Path(__file__).parents[1] / "tests" / "browser")]
from chromium import FLAGS, find_chromium  # noqa: E402
from test_lab import TOKEN, lab, run_notebook  # noqa: E402

PRESSES = 24  # of each of the three; the first 4 don't count
CELLS = (
    "from mha_widgets import explorers\nexplorer = explorers.{explorer}()\nexplorer",
    """import plotly.graph_objects as go
from mha_widgets.live import _widget
from mha_widgets.page import _plain
control = explorer.controls["{control}"]
figures = [explorer.view({control}=value).figure for value in control.values[:{count}]]
trees = [[*(trace.to_plotly_json() for trace in figure.data), figure.layout.to_plotly_json()] for figure in figures]
keys = [{{key for part in parts for key in part if any(_plain(part.get(key)) != _plain(parts[0].get(key)) for part in parts)}}
        for parts in zip(*trees)]
changes = [[{{key: part.get(key) for key in names}} for part, names in zip(parts, keys)] for parts in trees]
bare, handle = go.FigureWidget(figures[0]), _widget(control)
bare._config = explorer._live.figure._config
handle.value = control.values[0]
def moved(change):
    with bare.batch_update():
        for shown, new in zip((*bare.data, bare.layout), changes[control.values.index(change["new"])]):
            for key, value in new.items():
                shown[key] = value
handle.observe(moved, names="value")
display(handle, bare)""",
    """from ipywidgets import interact
again = _widget(control)
again.value = control.values[0]
@interact(value=again)
def show(value):
    explorer.view({control}=value).figure.update_layout(size).show()""",
)
WATCH = """cell => {
  const controls = ".widget-hslider, .widget-toggle-buttons, .widget-dropdown, .widget-checkbox";
  const inside = ({ target }) => (target.nodeType === 1 ? target : target.parentElement)?.closest(controls);
  window.repaint = new Promise(done => {
    let pressed = 0, last = 0, quiet;
    addEventListener("keydown", () => { pressed = performance.now(); }, { capture: true, once: true });
    const observer = new MutationObserver(records => {
      if (!pressed || records.every(inside)) return;
      requestAnimationFrame(() => setTimeout(() => {
        last = performance.now();
        clearTimeout(quiet);
        quiet = setTimeout(() => { observer.disconnect(); done(last - pressed); }, 400);
      }));
    });
    observer.observe(cell, { subtree: true, childList: true, attributes: true, characterData: true });
  });
}"""


@contextmanager
def jupyterlab() -> Iterator[tuple[str, Path]]:
    """Start a JupyterLab as the tests do; yield its address and its folder."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        factory = SimpleNamespace(mktemp=lambda _: Path(folder))
        with contextmanager(inspect.unwrap(lab))(factory, port) as address:
            yield address, Path(folder)


@contextmanager
def notebook(name: str, cells: list[str], server: tuple[str, Path], browser: Browser) -> Iterator[tuple[Page, BlockingKernelClient]]:
    """Run a notebook in JupyterLab; yield the page and a second client of its kernel."""
    address, folder = server
    sources = [{"cell_type": "code", "metadata": {}, "outputs": [], "execution_count": None, "source": cell} for cell in cells]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    text = json.dumps({"cells": sources, "metadata": kernel, "nbformat": 4, "nbformat_minor": 4})
    (folder / "notebooks" / f"{name}.ipynb").write_text(text)
    page = browser.new_page(viewport={"width": 1280, "height": 3000})

    def open_page(where: str, _: str) -> Page:
        page.goto(where)
        return page

    run_notebook(name, address, open_page)
    file = max((folder / "JUPYTER_DATA_DIR" / "runtime").glob("kernel-*.json"), key=lambda file: file.stat().st_mtime)
    client = BlockingKernelClient(connection_file=str(file))
    client.load_connection_file()
    client.start_channels()
    yield page, client
    client.stop_channels()
    page.close()
    kernel_address = f"{address}/api/kernels/{file.stem.removeprefix('kernel-')}?token={TOKEN}"
    urllib.request.urlopen(urllib.request.Request(kernel_address, method="DELETE"))


def steady(explorer: Explorer) -> tuple[str, int]:
    """Return the control with most figures of the same kinds of traces, and how many values from its first on give those."""
    counts = {}
    for name, control in explorer.controls.items():
        kinds, drawn = None, []
        for value in control.values:
            try:
                figure = explorer.view(**{name: value}).figure
            except ValueError:
                break
            kinds = kinds or [trace.type for trace in figure.data]
            if [trace.type for trace in figure.data] != kinds:
                break
            drawn.append(figure.to_json())
        counts[name] = len(drawn) if len(set(drawn)) == len(drawn) else 0
    name = max(counts, key=counts.__getitem__)
    return name, counts[name]


def press(control: Locator, index: int, step: int) -> None:
    """Move a control of any kind by one key press to the value of this index."""
    if control.locator(".noUi-handle").count():
        control.locator(".noUi-handle").press("ArrowRight" if step > 0 else "ArrowLeft")
    elif control.locator("select").count():
        control.locator("select").press("ArrowDown" if step > 0 else "ArrowUp")
    elif control.locator("button").count():
        control.locator("button").nth(index).press("Enter")
    else:
        control.locator("input").press("Space")


def times(explorer: Explorer, server: tuple[str, Path], browser: Browser) -> tuple[str, list[tuple[float, ...]]]:
    """Return the control that is moved, and for each press the milliseconds of explorer, bare widget and interact."""
    control, count = steady(explorer)
    cells = [cell.format(explorer=explorer.name, control=control, count=count) for cell in CELLS]
    with notebook(explorer.name, cells, server, browser) as (page, client):
        first = explorer.controls[control].values[0]
        client.execute_interactive(
            "shown = explorer._live.figure.layout\nsize = {'width': shown.width, 'height': shown.height}\n"
            f"bare.update_layout(size)\nexplorer.set({control}={first!r})",
            timeout=60,
        )
        page.wait_for_timeout(2000)
        outputs = page.locator(".jp-Cell-outputWrapper")
        mine = outputs.nth(0).locator(f".mha-{control}")
        controls = [mine, *(outputs.nth(i).locator(".widget-inline-hbox").first for i in (1, 2))]
        rows, path = [], [*range(1, count), *range(count - 2, -1, -1)]
        for number in range(PRESSES):
            index = path[number % len(path)]
            step = index - ([0, *path][number % len(path)])
            row = []
            for i, moved in enumerate(controls):
                outputs.nth(i).evaluate(WATCH)
                press(moved, index, step)
                row.append(page.evaluate("window.repaint"))
            rows.append(tuple(row))
    return control, rows[4:]


def main() -> None:
    """Print a line for each explorer."""
    print("explorer", "control", "explorer (ms)", "bare (ms)", "interact (ms)", "explorer / bare", "explorer / interact", sep="\t")
    chromium = find_chromium()
    with jupyterlab() as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for name in sys.argv[1:] or explorers.catalog():
            control, rows = times(explorers.catalog()[name](), server, browser)
            columns = [statistics.median(column) for column in zip(*rows, strict=True)]
            ratios = [statistics.median(row[0] / row[other] for row in rows) for other in (1, 2)]
            print(name, control, *(f"{ms:.0f}" for ms in columns), *(f"{ratio:.2f}" for ratio in ratios), sep="\t", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
