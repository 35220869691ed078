"""Whether 1,000 changes of a live explorer leave something behind,
in a real kernel and in JupyterLab.

Measured after the first 1,250 random changes, when buffers have grown to their size, and after
1,000 more: the kernel's Python objects and memory, the browser's JavaScript heap and DOM nodes.
Needs a Chromium: `make browser`.
"""

from __future__ import annotations

import ast
import sys

from jupyter_client import BlockingKernelClient
from live import jupyterlab
from playwright.sync_api import Page

from mha_widgets import explorers

START = """import gc, random
from mha_widgets import explorers
explorer, rng = explorers.{name}(), random.Random(0)
explorer"""
CHANGES = """for _ in range(50):
    values = {name: rng.choice(control.values) for name, control in explorer.controls.items()}
    explorer.set(**values)"""
HELD = """(gc.collect(), len(gc.get_objects()),
next(int(line.split()[1]) / 1024
     for line in open("/proc/self/status") if line.startswith("VmRSS")))[1:]"""

QUIET = """() => new Promise(done => {
  const end = () => { observer.disconnect(); done(); };
  let quiet = setTimeout(end, 1000);
  const again = () => { clearTimeout(quiet); quiet = setTimeout(end, 1000); };
  const observer = new MutationObserver(again);
  const all = { subtree: true, childList: true, attributes: true };
  observer.observe(document.querySelector(".mha-explorer"), all);
})"""


def held(page: Page, client: BlockingKernelClient) -> list[float]:
    """Return Python objects, MiB of the kernel, MiB of JavaScript, DOM nodes."""
    reply = client.execute("", user_expressions={"held": HELD}, reply=True, timeout=60)
    objects, kernel = ast.literal_eval(
        reply["content"]["user_expressions"]["held"]["data"]["text/plain"]
    )
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = {
        metric["name"]: metric["value"]
        for metric in session.send("Performance.getMetrics")["metrics"]
    }
    session.detach()
    return [objects, kernel, metrics["JSHeapUsedSize"] / 2**20, metrics["Nodes"]]


def change(times: int, page: Page, client: BlockingKernelClient) -> None:
    """Set all controls at random, and wait until the browser has drawn the last of it."""
    for _ in range(times // 50):
        client.execute(CHANGES, reply=True, timeout=300)
        page.evaluate(QUIET)


def main() -> None:
    """Print a line for each explorer, or for those that are named."""
    print("explorer", "objects", "kernel (MiB)", "heap (MiB)", "nodes", sep="\t")
    with jupyterlab() as run:
        for name in sys.argv[1:] or explorers.catalog():
            with run(START.format(name=name)) as (page, client):
                change(1250, page, client)
                before = held(page, client)
                change(1000, page, client)
                after = held(page, client)
                print(
                    name,
                    *(f"{a:.0f} {b - a:+.1f}" for a, b in zip(before, after, strict=True)),
                    sep="\t",
                    flush=True,
                )


if __name__ == "__main__":
    main()
