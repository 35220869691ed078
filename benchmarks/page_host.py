"""How long a page takes from a changed control to drawn data, beside a bare Plotly.react.

Both draw the same figures in the same order in the same browser, in turn. The book asks for a
ratio of at most 1.3. Needs a Chromium: `make browser`.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from mha_widgets import explorers

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from chromium import FLAGS, find_chromium

MEASURE = """states => {
  const root = document.querySelector(".mha-explorer"), host = root.querySelector(".mha-figure");
  const form = root.querySelector("form"), plain = document.createElement("div");
  const bare = document.body.appendChild(plain);
  const median = numbers => numbers.sort((a, b) => a - b)[Math.floor(numbers.length / 2)];
  const ratios = [], ours = [], theirs = [];
  const timed = work => {
    const start = performance.now();
    work();
    return performance.now() - start;
  };
  for (const state of states) {
    for (const [name, index] of Object.entries(state).slice(1)) set(name, index);
    const [name, index] = Object.entries(state)[0];
    const input = set(name, index);
    const one = timed(() => input.dispatchEvent(new Event("input", { bubbles: true })));
    const { data, layout } = JSON.parse(JSON.stringify({ data: host.data, layout: host.layout }));
    const config = { displayModeBar: false, doubleClick: false };
    const two = timed(() => Plotly.react(bare, data, layout, config));
    ours.push(one); theirs.push(two); ratios.push(one / two);
  }
  function set(name, index) {
    const inputs = [...form.elements].filter(input => input.name === name);
    if (inputs[0].type === "radio") { inputs[index].checked = true; return inputs[index]; }
    if (inputs[0].type === "checkbox") inputs[0].checked = Boolean(index);
    else inputs[0].value = index;
    return inputs[0];
  }
  return [median(ours), median(theirs), median(ratios)];
}"""


def main() -> None:
    """Print a line for each explorer."""
    chromium = find_chromium()
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for name, explorer_class in explorers.catalog().items():
            explorer, path = explorer_class(), Path(folder) / f"{name}.html"
            explorer.write_html(path)
            alive = reversed(explorer.page_controls or tuple(explorer.controls))
            sizes = {control: len(explorer.controls[control].values) for control in alive}
            states = [
                {c: random.Random(f"{i} {c}").randrange(n) for c, n in sizes.items()}
                for i in range(120)
            ]
            page = browser.new_page()
            page.goto(path.as_uri())
            page.locator(".js-plotly-plot").wait_for()
            ours, bare, ratio = page.evaluate(MEASURE, states)
            print(
                f"{name}: {ours:.1f} ms from control to data, bare Plotly.react {bare:.1f} ms,"
                f" median ratio {ratio:.2f}"
            )
        browser.close()


if __name__ == "__main__":
    main()
