"""The page host: what a page stores gives back every view."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from samples import states_of

from mha_widgets import explorers
from mha_widgets.explorer import Explorer
from mha_widgets.hosts import page
from mha_widgets.view import Choice


def assembled(data: dict[str, Any], indices: list[int]) -> dict[str, Any]:
    """Put a view together from a payload, as the page's script does, but into flat paths."""
    view = {}
    cases = []
    for needed, pattern in data["patterns"]:
        position = 0
        for axis in needed:
            position = position * data["controls"][axis][1] + indices[axis]
        cases.append(pattern[position])
    for path, pattern, ids in data["places"]:
        if ids[cases[pattern]] >= 0:
            view[tuple(path)] = data["values"][ids[cases[pattern]]]
    return view


def flat(tree: Any, path: tuple = ()) -> dict[tuple, Any]:
    return dict(page._leaves(tree, path))


def stored(html: str) -> dict[str, Any]:
    return json.loads(html.split('class="mha-data">')[1].split("</script>")[0])


def check(explorer: Explorer, data: dict[str, Any], states: list[dict[str, Any]]) -> None:
    for state in states:
        indices = [
            explorer.controls[name].values.index(state[name]) for name, _ in data["controls"]
        ]
        assert assembled(data, indices) == flat(page._recorded(explorer, state)), state


def test_every_state_is_in_the_payload(parts: Explorer) -> None:
    check(parts, stored(parts.to_html()), list(parts.states()))


@pytest.mark.parametrize("name", explorers.catalog())
def test_two_exports_are_byte_equal_and_hold_every_state(name: str, tmp_path: Path) -> None:
    explorer = explorers.catalog()[name]
    for file in ("one.html", "two.html"):
        explorer().write_html(tmp_path / file, include_plotlyjs=False)
    one, two = ((tmp_path / file).read_bytes() for file in ("one.html", "two.html"))
    assert one == two
    data = stored(one.decode())
    raw = one.split(b'class="mha-data">')[1].split(b"</script>")[0]
    assert len(raw) < 150_000 and len(gzip.compress(raw)) < 40_000
    names = explorer.page_controls or tuple(explorer().controls)
    check(explorer(), data, states_of(explorer(), 60, names))


def test_a_page_starts_with_what_is_set(parts: Explorer) -> None:
    parts.set(parts=2, row=1)
    html = parts.to_html()
    assert 'name="parts" value="1" checked' in html and 'min="0" max="3" value="1"' in html
    assert 'Part of <b class="mha-key">b</b> is 2.' in html


def test_controls_that_a_page_leaves_out_are_named_and_stay_as_they_are_set(
    parts: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(parts), "page_controls", ("row", "shout"))
    parts.set(parts=2)
    html = parts.to_html()
    assert '<p class="mha-fixed">Run the notebook to change this: Parts: <b>2</b>.</p>' in html
    assert 'name="parts"' not in html
    data = stored(html)
    assert data["controls"] == [["row", 4], ["shout", 2]]
    check(parts, data, list(parts.states(("row", "shout"))))


def test_a_state_that_makes_no_sense_is_stored_as_its_message(parts: Explorer) -> None:
    view = assembled(page.payload(parts), [2, 0, 0])
    assert view == {("error",): "4 tokens can't be cut into 3 <equal> parts; choose 1 or 2."}


def test_too_many_states_name_the_controls_and_their_counts(parts: Explorer) -> None:
    parts.controls = parts.controls | {"seed": Choice("Seed", tuple(range(2000)), 0, "")}
    with pytest.raises(
        ValueError,
        match="^Parts has 3 parts × 4 row × 2 shout × 2000 seed = 48,000 states, but a page holds",
    ):
        parts.to_html()


def test_compact_figures_hold_short_numbers_nulls_and_roles() -> None:
    figure = go.Figure(
        go.Heatmap(
            z=np.array([[1 / 3, np.nan], [2.0, -np.inf]]),
            colorscale=[[0, "#1d2430"], [1, "#123456"]],
        )
    )
    figure.update_layout(title_text="#1d2430", font_color="#1d2430", template={})
    plain = page.compact(figure)
    assert plain["data"][0]["z"] == [[0.33333, None], [2, None]]
    assert plain["data"][0]["colorscale"] == [[0, "--mha-ink"], [1, "#123456"]]
    assert (plain["layout"]["title"]["text"], plain["layout"]["font"]["color"]) == (
        "#1d2430",
        "--mha-ink",
    )


def test_a_fragment_is_what_the_book_promises(parts: Explorer) -> None:
    html = parts.to_html()
    assert html.startswith(
        '<section class="mha-explorer" data-explorer="Parts" aria-label="Parts">'
    )
    assert re.findall(r'<input type="radio" name="parts" value="(\d)"', html) == ["0", "1", "2"]
    assert '<input type="range" name="row" min="0" max="3" value="0" aria-valuetext="a">' in html
    assert '<input type="checkbox" name="shout">' in html
    assert (
        '<ul class="mha-facts" aria-live="polite"><li>Part of <b class="mha-key">a</b> is'
        " 1.</li></ul>" in html
    )
    assert "<caption>Values</caption>" in html
    assert " id=" not in html  # so that one explorer may stand on a page twice


def test_hostile_tokens_close_no_script(hostile: Explorer) -> None:
    scripts = re.findall(r"<script[^>]*>(.*?)</script>", hostile.to_html(), flags=re.DOTALL)
    assert [json.loads(script) for script in scripts][0] == list(hostile.tokens)
    assert json.loads(scripts[-1])["controls"] == [["parts", 3], ["row", 12], ["shout", 2]]


@pytest.mark.parametrize(
    "include, script",
    [
        (True, "<script>((define) => {\n/**"),
        (False, None),
        ("cdn", '<script src="https://cdn.plot.ly/plotly-'),
        ("directory", '<script src="plotly.min.js"></script>'),
        ("lib/plotly.js", '<script src="lib/plotly.js"></script>'),
    ],
)
def test_plotly_comes_as_asked(
    parts: Explorer, tmp_path: Path, include: bool | str, script: str | None
) -> None:
    parts.write_html(tmp_path / "parts.html", include_plotlyjs=include)
    html = (tmp_path / "parts.html").read_text()
    assert script in html if script else html.count("<script>") == 1
    assert (tmp_path / "plotly.min.js").exists() == (include == "directory")


def test_an_unknown_way_to_plotly_is_said(parts: Explorer, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="^Got include_plotlyjs='require'; it is True, False,"):
        parts.write_html(tmp_path / "parts.html", include_plotlyjs="require")
