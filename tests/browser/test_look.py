"""What every explorer looks like on a phone and on a wide screen in the dark:
nothing sticks out, is cut off or overlaps.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from playwright.sync_api import Page
from reading import Reader

from mha_widgets import explorers

# Texts are compared as the quadrangles that they fill, since some are slanted;
# without the room above and below letters.
FAULTS = """root => {
  const faults = [], plot = root.querySelector(".js-plotly-plot");
  const { scrollWidth, clientWidth } = document.documentElement;
  const check = (faulty, words) => { if (faulty) faults.push(words); };
  check(scrollWidth > clientWidth, `the page is ${scrollWidth} px wide in ${clientWidth}`);
  const sticksOut = (box, bounds) => box.left < bounds.left - 1 || box.right > bounds.right + 1
    || box.top < bounds.top - 1 || box.bottom > bounds.bottom + 1;
  const bounds = plot.querySelector(".main-svg").getBoundingClientRect();
  const card = root.getBoundingClientRect();
  check(sticksOut(bounds, card), "the figure sticks out of the explorer");
  for (const part of root.querySelectorAll(".mha-control, .mha-facts li, .mha-fixed")) {
    check(sticksOut(part.getBoundingClientRect(), card), `“${part.textContent}” sticks out`);
  }
  const texts = [...plot.querySelectorAll(".main-svg text")]
    .filter((text) => text.textContent.trim() && text.getClientRects().length);
  const quads = texts.map((text) => {
    const { x, y, width, height } = text.getBBox(), matrix = text.getScreenCTM();
    const at = (x, y) => new DOMPoint(x, y).matrixTransform(matrix);
    const [top, bottom] = [y + 0.2 * height, y + 0.8 * height];
    return [at(x, top), at(x + width, top), at(x + width, bottom), at(x, bottom)];
  });
  texts.forEach((text) => {
    check(sticksOut(text.getBoundingClientRect(), bounds), `“${text.textContent}” is cut off`);
  });
  const apart = (one, other) => [one, other].some((quad) => [0, 1].some((side) => {
    const [a, b] = [quad[side], quad[side + 1]];
    const on = (point) => (point.x - a.x) * (b.x - a.x) + (point.y - a.y) * (b.y - a.y);
    const [ours, theirs] = [one.map(on), other.map(on)];
    return Math.max(...ours) <= Math.min(...theirs) || Math.max(...theirs) <= Math.min(...ours);
  }));
  quads.forEach((quad, i) => quads.slice(0, i).forEach((other, j) => {
    const both = `“${texts[j].textContent}” and “${texts[i].textContent}”`;
    check(!apart(quad, other), `${both} overlap`);
  }));
  return faults;
}"""


@pytest.mark.parametrize(
    "width, scheme", [(390, "light"), (1280, "dark")], ids=["phone", "wide-and-dark"]
)
@pytest.mark.parametrize("name", explorers.catalog())
def test_nothing_sticks_out_is_cut_off_or_overlaps(
    name: str,
    width: int,
    scheme: str,
    written: Callable[[str], Path],
    open_page: Callable[..., Page],
) -> None:
    path = written(name)
    page = open_page(
        path.as_uri(),
        path.parent.as_uri(),
        viewport={"width": width, "height": 844},
        color_scheme=scheme,
    )
    root = page.locator(".mha-explorer")
    root.locator(".js-plotly-plot .main-svg").first.wait_for()
    reader, chance, found = Reader(root, explorers.catalog()[name]()), Random(name), {}
    for _ in range(4):
        for fault in root.evaluate(FAULTS):
            found.setdefault(fault, str(reader.state))
        reader.leap(chance)
    assert not found
