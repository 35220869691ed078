"""How long a live explorer takes from a key press to the repaint,
beside a bare FigureWidget and `interact`.

All three stand in one notebook in JupyterLab, have the same control, and are pressed in turn.
The bare widget computes nothing: it is given beforehand what changes from value to value and
assigns that in one batch_update. `interact` draws the explorer's figure anew. A repaint is the
frame after the last change of the page. The book asks for a median ratio, explorer to bare, of at
most 1.3. Needs a Chromium: `make browser`.
"""

from __future__ import annotations

import socket
import statistics
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client import BlockingKernelClient
from playwright.sync_api import Browser, Locator, Page, sync_playwright

from mha_widgets import explorers
from mha_widgets.explorer import Explorer

sys.path[:0] = [
    str(Path(__file__).parents[1] / "tests"),
    str(Path(__file__).parents[1] / "tests" / "browser"),
]
from chromium import FLAGS, find_chromium  # noqa: E402
from jupyter_lab import TOKEN, Lab, run_notebook, started  # noqa: E402

PRESSES, FIRST = 24, 4  # of each of the three, and how many of them don't count
CELLS = (
    "from mha_widgets import explorers\nexplorer = explorers.{explorer}()\nexplorer",
    """import plotly.graph_objects as go
from mha_widgets.hosts.live import _widget
from mha_widgets.hosts.page import _compact
control = explorer.controls["{control}"]
figures = [explorer.view({control}=value).figure for value in control.values[:{count}]]
trees = [[part.to_plotly_json() for part in (*figure.data, figure.layout)] for figure in figures]
def differing(parts):
    names = {{key for part in parts for key in part}}
    return {{key for key in names if len({{str(_compact(part.get(key))) for part in parts}}) > 1}}
keys = [differing(parts) for parts in zip(*trees)]
changes = [
    [{{key: part.get(key) for key in names}} for part, names in zip(parts, keys)]
    for parts in trees
]
bare, handle = go.FigureWidget(figures[0]), _widget(control)
bare._config = explorer._live.figure._config
handle.value = type(handle.value)(0)  # values are places among the control's
def moved(change):
    with bare.batch_update():
        for shown, new in zip((*bare.data, bare.layout), changes[change["new"]]):
            for key, value in new.items():
                shown[key] = value
handle.observe(moved, names="value")
display(handle, bare)""",
    """from ipywidgets import interact
again = _widget(control)
again.value, size = type(again.value)(0), {{}}
@interact(value=again)
def show(value):
    explorer.view({control}=control.values[value]).figure.update_layout(size).show()""",
)
ALIKE = """explorer.set({control}=control.values[0])
size = {{key: explorer._live.figure.layout[key] for key in ("width", "height")}}
bare.update_layout(size)"""
CONTROLS = ".widget-hslider, .widget-toggle-buttons, .widget-dropdown, .widget-checkbox"
WATCH = """([cell, controls]) => {
  const element = (node) => (node.nodeType === 1 ? node : node.parentElement);
  const inside = ({ target }) => element(target)?.closest(controls);
  window.repaint = new Promise((done, failed) => {
    let pressed = 0, last = 0, quiet = setTimeout(() => failed("nothing was repainted"), 30000);
    const press = () => { pressed = performance.now(); };
    addEventListener("keydown", press, { capture: true, once: true });
    const observer = new MutationObserver(records => {
      if (!pressed || records.every(inside)) return;
      requestAnimationFrame(() => setTimeout(() => {
        last = performance.now();
        clearTimeout(quiet);
        quiet = setTimeout(() => { observer.disconnect(); done(last - pressed); }, 300);
      }));
    });
    const all = { subtree: true, childList: true, attributes: true, characterData: true };
    observer.observe(cell, all);
  });
}"""


@contextmanager
def jupyterlab() -> Iterator[
    Callable[..., AbstractContextManager[tuple[Page, BlockingKernelClient]]]
]:
    """Start JupyterLab, as the tests do, and a browser;
    yield what runs cells in a notebook of their own.
    """
    chromium = find_chromium()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with (
        tempfile.TemporaryDirectory() as folder,
        started(Path(folder), port) as lab,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield partial(notebook, lab, browser)
        browser.close()


@contextmanager
def notebook(
    lab: Lab, browser: Browser, *cells: str
) -> Iterator[tuple[Page, BlockingKernelClient]]:
    """Run cells; yield the page and a second client of their kernel."""
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made = nbformat.v4.new_notebook(
        cells=list(map(nbformat.v4.new_code_cell, cells)), metadata={"kernelspec": kernel}
    )
    nbformat.write(made, lab.folder / "notebooks" / "benchmark.ipynb")
    # a cell out of sight would be taken out of the page
    page = browser.new_page(viewport={"width": 1280, "height": 3000})
    run_notebook("benchmark", lab, lambda address, _: page.goto(address) and page)
    connection = next((lab.folder / "JUPYTER_DATA_DIR" / "runtime").glob("kernel-*.json"))
    client = BlockingKernelClient(connection_file=str(connection))
    client.load_connection_file()
    client.start_channels(iopub=False)  # nobody would read there, and the kernel would keep it
    yield page, client
    client.stop_channels()
    page.close()
    stop = f"{lab.address}/api/kernels/{connection.stem.removeprefix('kernel-')}?token={TOKEN}"
    urllib.request.urlopen(urllib.request.Request(stop, method="DELETE"))


def steady(explorer: Explorer) -> tuple[str, int]:
    """Return the control with most figures of the same kinds of traces,
    and how many values from its first on give those.
    """
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
    handle, select, buttons = (
        control.locator(kind) for kind in (".noUi-handle", "select", "button")
    )
    if handle.count():
        moved, key = handle, "ArrowRight" if step > 0 else "ArrowLeft"
    elif select.count():
        moved, key = select, "ArrowDown" if step > 0 else "ArrowUp"
    elif buttons.count():
        moved, key = buttons.nth(index), "Enter"
    else:
        moved, key = control.locator("input"), "Space"
    moved.focus()
    control.page.wait_for_timeout(100)  # JupyterLab makes its cell the active one first
    moved.press(key)


def times(explorer: Explorer, run: Callable[..., Any]) -> tuple[str, list[tuple[float, ...]]]:
    """Return the control that is moved, and for each press the milliseconds of explorer,
    bare widget and interact.
    """
    name, count = steady(explorer)
    path = [*range(count), *range(count - 2, 0, -1)]  # there and back
    with run(
        *(cell.format(explorer=explorer.name, control=name, count=count) for cell in CELLS)
    ) as (page, client):
        client.execute(ALIKE.format(control=name), reply=True, timeout=60)
        page.wait_for_timeout(2000)
        outputs = page.locator(".jp-Cell-outputWrapper").all()
        controls = [
            outputs[0].locator(f".mha-{name}"),
            *(output.locator(CONTROLS) for output in outputs[1:]),
        ]
        rows = []
        for number in range(1, PRESSES + 1):
            index, before = path[number % len(path)], path[(number - 1) % len(path)]
            row = []
            for output, control in zip(outputs, controls, strict=True):
                page.evaluate(WATCH, [output.element_handle(), CONTROLS])
                press(control, index, index - before)
                row.append(page.evaluate("window.repaint"))
            rows.append(tuple(row))
    return name, rows[FIRST:]


def main() -> None:
    """Print a line for each explorer, or for those that are named."""
    print(
        "explorer",
        "control",
        "ms",
        "bare (ms)",
        "interact (ms)",
        "ms / bare",
        "ms / interact",
        sep="\t",
    )
    with jupyterlab() as run:
        for name in sys.argv[1:] or explorers.catalog():
            control, rows = times(explorers.catalog()[name](), run)
            columns = [statistics.median(column) for column in zip(*rows, strict=True)]
            ratios = [statistics.median(row[0] / row[other] for row in rows) for other in (1, 2)]
            print(
                name,
                control,
                *(f"{ms:.0f}" for ms in columns),
                *(f"{ratio:.2f}" for ratio in ratios),
                sep="\t",
                flush=True,
            )


if __name__ == "__main__":
    main()
