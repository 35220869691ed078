"""Bars, lines and arrows: names that stay literal and can be told apart without colour."""

from __future__ import annotations

import numpy as np
import pytest

from mha_widgets.figures.panels import draw
from mha_widgets.figures.plots import arrows, bars, lines

AXES = {"axis": ("x", "ink"), "height": ("y", "ink"), "range": (0, 1)}


def names_beside(*ends: float) -> list[str]:
    """Return where the names of curves that end at these heights stand."""
    series = {f"f{number}": ([0.5, end], "ink") for number, end in enumerate(ends)}
    return [curve["textposition"] for curve in lines("f", "", [1, 2], series, **AXES).data]


def test_several_series_of_bars_differ_in_more_than_colour() -> None:
    panel = bars(
        "Shares",
        "of each key",
        ["a", "b"],
        {"<mean>": ([0.2, 0.8], "key"), "most": ([0.4, 0.9], "key")},
    )
    assert panel.subtitle == "of each key, ■ &lt;mean&gt;, ▨ most"
    assert [trace["marker"]["pattern"]["shape"] for trace in panel.data] == ["", "/"]
    assert panel.table == (("<mean>", "most"), ["a", "b"], [["0.2", "0.8"], ["0.4", "0.9"]])
    assert bars("Shares", "sum to 1", ["a"], {"weights": ([1.0], "key")}).subtitle == "sum to 1"


def test_bars_below_0_have_a_zero_line_and_literal_names() -> None:
    below = bars("Scores", "", ["<pad>"], {"score": ([-1.0], "key")}, range=(-2, 2))
    above = bars("Shares", "", ["<pad>"], {"share": ([1.0], "key")})
    assert below.y["zeroline"] and "zeroline" not in above.y
    assert (list(above.x["ticktext"]), above.data[0]["hovertext"]) == (
        ["&lt;pad&gt;"],
        ["&lt;pad&gt;"],
    )


@pytest.mark.parametrize("count, shown", [(7, 7), (8, 4), (40, 7), (200, 7)])
def test_labels_of_many_groups_are_thinned(count: int, shown: int) -> None:
    axis = draw(
        [bars("Shares", "", list(map(str, range(count))), {"share": (np.ones(count), "key")})]
    ).layout.xaxis
    assert len(axis.tickvals) == len(axis.ticktext) == shown
    assert [str(value) for value in axis.tickvals] == list(axis.ticktext)


def test_the_room_beside_a_plot_can_be_given() -> None:
    narrow = draw([bars("", "", ["a"], {"": ([1], "key")}, left=150)]).layout.meta["narrow"]
    assert narrow["xaxis"]["domain"][0] == pytest.approx(150 / 330, abs=1e-3)


def test_several_curves_have_their_names_at_their_ends() -> None:
    panel = lines("f", "", [1, 2, 3], {"$f$": ([0, 0, 1], "ink"), "g": ([0, 0, 0], "ink")}, **AXES)
    assert [curve["text"] for curve in panel.data] == [["", "", "&#36;f&#36;"], ["", "", "g"]]
    low, high = panel.x["range"]
    # px on a phone, for three letters
    assert low == 1 and (high - 3) * 257 / (high - low) == pytest.approx(21, abs=0.1)
    alone = lines("f", "", [1, 2, 3], {"f": ([0, 0, 1], "ink")}, **AXES)
    assert alone.data[0]["mode"] == "lines" and alone.x["range"] == [1, 3]


def test_names_of_ends_that_are_close_keep_apart() -> None:
    assert names_beside(0.9, 0.1) == ["top right", "top right"]
    assert names_beside(0.9, 0.95) == ["bottom right", "top right"]
    assert names_beside(0.5, 0.5, 0.5) == ["bottom right", "middle right", "top right"]


def test_curves_mark_where_the_reader_is() -> None:
    panel = lines(
        "f", "", [1, 10, 100], {"f": ([0.1, 0.2, 0.3], "ink")}, here=9, logarithmic=True, **AXES
    )
    curve, mark = panel.data
    assert (mark["name"], mark["x"].tolist(), mark["y"].tolist()) == ("f, here", [10], [0.2])
    assert not curve["cliponaxis"] and not mark["cliponaxis"]
    assert panel.x["range"] == pytest.approx([-0.1, 2])  # room for half a mark


def test_arrows_are_whole_and_their_names_literal() -> None:
    mat, cat = draw(
        [
            arrows(
                "Plane", "", {"<mat>": ([3, 4], "key"), "$a long cat$": ([-5, 0], "query")}, limit=5
            )
        ]
    ).data
    assert (mat.text[1], cat.text[1]) == ("&lt;mat&gt;", "&#36;a long…")
    assert (mat.textposition, cat.textposition) == ("top right", "top left")
    assert mat.marker.angle[1] == pytest.approx(36.87, abs=0.01) and cat.marker.angle[1] == -90
    assert (mat.marker.opacity, mat.cliponaxis) == (1, False)
