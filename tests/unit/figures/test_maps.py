"""Attention maps: what is drawn where, and labels that stay literal."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from mha_widgets.figures.maps import Map
from mha_widgets.figures.panels import TIGHTEST, TITLE_LETTER, WIDE, draw, literal
from mha_widgets.hosts import markup

VALUES = np.arange(15.0).reshape(3, 5) / 14
ONE = Map(
    "Weights", "rows sum to 1", VALUES, ["a", "b", "c"], ["p", "q", "r", "s", "t"], colours="weight"
)


def test_rows_are_queries_from_the_top_and_columns_keys() -> None:
    figure = draw([ONE])
    assert figure.data[0].z.tolist() == VALUES.tolist()
    assert list(figure.layout.yaxis.range) == [2.5, -0.5]
    assert list(figure.layout.yaxis.ticktext) == ["a", "b", "c"]
    assert list(figure.layout.xaxis.ticktext) == ["p", "q", "r", "s", "t"]
    assert (figure.layout.yaxis.title.text, figure.layout.xaxis.title.text) == ("query", "key")


def test_weights_are_always_coloured_from_0_to_1_and_scores_around_0() -> None:
    weights, scores = draw([ONE, replace(ONE, colours="signed", limit=3.0)]).data
    assert (weights.zmin, weights.zmax) == (0, 1)
    assert (scores.zmin, scores.zmax) == (-3, 3)


def test_marks_stand_on_the_cells_that_they_name() -> None:
    blocked, nan = np.zeros((3, 5), bool), np.zeros((3, 5), bool)
    blocked[0, 4], nan[2, 1] = True, True
    heatmap, crosses, stripes, words = draw([replace(ONE, blocked=blocked, nan=nan)]).data
    assert heatmap.type == "heatmap"
    assert (crosses.x.tolist(), crosses.y.tolist(), crosses.marker.symbol) == ([4], [0], "x-thin")
    assert (words.x.tolist(), words.y.tolist(), words.text) == ([1], [2], "NaN")
    assert (
        np.nanmin(stripes.x),
        np.nanmax(stripes.x),
        np.nanmin(stripes.y),
        np.nanmax(stripes.y),
    ) == (0.5, 1.5, 1.5, 2.5)


def test_a_cross_gives_way_to_a_text_and_has_a_word_for_the_table() -> None:
    blocked = np.zeros((3, 5), bool)
    blocked[0, 3:] = True
    text = np.full((3, 5), "✕", dtype=object)
    text[0, 4] = ""
    figure = draw(
        [replace(ONE, blocked=blocked, blocked_word="dropped", text=text, number="%{text}")]
    )
    assert (figure.data[1].x.tolist(), figure.data[1].y.tolist()) == ([4], [0])
    assert markup.tables(figure).count("<td>dropped</td>") == 1


def test_labels_of_small_cells_are_small() -> None:
    few, many = (draw([ONE] * count).layout for count in (3, 6))
    assert few.xaxis.tickfont.size is None and many.xaxis.tickfont.size == 11


def test_the_selected_row_and_column_are_framed() -> None:
    row, column = draw([replace(ONE, selected_row=2, selected_column=3)]).layout.shapes
    assert (row.x0, row.x1, row.y0, row.y1) == (-0.5, 4.5, 1.5, 2.5)
    assert (column.x0, column.x1, column.y0, column.y1) == (2.5, 3.5, -0.5, 2.5)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_maps_stand_side_by_side_or_below_each_other_without_overlap(count: int) -> None:
    layout = draw([ONE] * count).layout.to_plotly_json()
    for axis, placed in (("xaxis", layout), ("yaxis", layout["meta"]["narrow"])):
        spans = sorted(placed[f"{axis}{i or ''}"]["domain"] for i in [0, *range(2, count + 1)])
        assert all(before[1] < after[0] for before, after in itertools.pairwise(spans))
        assert spans[0][0] >= 0 and spans[-1][1] <= 1
    assert layout["meta"]["narrow"]["height"] >= layout["height"]


def test_the_narrow_layout_stays_inside_a_phone() -> None:
    wide = replace(
        ONE, values=np.zeros((2, 40)), rows=["x" * 60, ""], columns=list(map(str, range(40)))
    )
    narrow = draw([wide]).layout.meta["narrow"]
    assert 0 < narrow["xaxis"]["domain"][0] < narrow["xaxis"]["domain"][1] <= 1


def test_long_axes_thin_out_their_labels_and_drop_the_numbers() -> None:
    long = replace(ONE, values=np.zeros((3, 100)), columns=list(map(str, range(100))))
    figure = draw([long])
    assert list(figure.layout.xaxis.tickvals)[:3] == [0, 5, 10]
    # told when pointed at
    assert figure.layout.xaxis.labelalias["7"] == "7" and figure.layout.xaxis.ticktext is None
    assert figure.data[0].texttemplate is None


@pytest.mark.parametrize(
    "token, shown",
    [
        ("<pad>", "&lt;pad&gt;"),
        ("$x$", "&#36;x&#36;"),
        ("&lt;", "&amp;lt;"),
        ("", ""),
        ("a\nb", "a⏎b"),
        ("🦜", "🦜"),
        ("x" * 60, "x" * 11 + "…"),
        ("<<<<<<<<<<<<", "&lt;" * 12),
    ],
)
def test_labels_are_literal(token: str, shown: str) -> None:
    assert literal(token) == shown
    assert draw([replace(ONE, rows=[token, "b", "c"])]).layout.yaxis.ticktext[0] == shown


def test_the_whole_token_is_kept_for_the_table() -> None:
    assert draw([replace(ONE, rows=["x" * 60, "b", "c"])]).data[0].meta["rows"][0] == "x" * 60


@pytest.mark.parametrize(
    "number, value, shown",
    [("%{z:.2f}", 0.25, True), ("%{z:.2f}", -1000.25, False), ("%{z:.0f}", -1000.25, True)],
)
def test_numbers_are_shown_where_they_fit(number: str, value: float, shown: bool) -> None:
    columns = [str(column) for column in range(7)]
    values = np.full((2, 7), 0.5)
    values[1, 3] = value
    figure = draw([Map("M", "", values, ["a", "b"], columns, number=number)])
    assert (figure.data[0].texttemplate == number) is shown


def test_a_long_title_has_room_beside_small_maps() -> None:
    title = "a title of forty letters, or some more .."
    figure = draw([Map(title, "", np.zeros((2, 2)), "ab", "ab") for _ in range(2)])
    outer = [note.x for note in figure.layout.annotations if note.text == title]
    half = len(title) * TITLE_LETTER / TIGHTEST / 2 / WIDE
    assert outer[0] - half > -0.001 and outer[-1] + half < 1.001
    assert figure.layout.xaxis2.domain[1] < 0.9
