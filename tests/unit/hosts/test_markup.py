"""The words of an explorer as HTML."""

from __future__ import annotations

import re

import plotly.graph_objects as go

from mha_widgets import explorers
from mha_widgets.explorer import Explorer
from mha_widgets.hosts import markup


def test_a_table_names_blocked_and_nan_cells() -> None:
    masks = explorers.Masks()
    html = markup.tables(
        masks.view(attn_mask="causal + padding", padding_side="left", padding=1).figure
    )
    assert html.count("<table>") == 3
    weights = html.split("<caption>Weights</caption>")[1].split("<tr>")[2:]
    assert weights[0].count("<td>NaN</td>") == 6
    assert weights[1].count("<td>blocked</td>") == 5 and "<td>1</td>" in weights[1]


def test_a_table_of_a_float_mask_holds_what_is_added() -> None:
    html = markup.tables(explorers.Masks().view(mask_type="float").figure)
    assert "<td>−∞</td>" in html.split("<caption>Mask</caption>")[1].split("</table>")[0]


def test_words_are_literal(hostile: Explorer) -> None:
    view = hostile.view(row=2)
    assert (
        markup.facts(view.facts) == '<li>Part of <b class="mha-key">&lt;/script&gt;</b> is 1.</li>'
    )
    assert "</script>" not in markup.tables(view.figure) + markup.code(view.code)
    assert '<th scope="col">' + "x" * 60 + "</th>" in markup.tables(view.figure)


def test_numbers_have_four_digits_and_tiny_ones_a_power_of_ten() -> None:
    numbers = [[0.5, -0.12345, 0.0001, 2.847e-06, -9.9999e-05, 0, 12346, None]]
    figure = go.Figure(
        go.Heatmap(z=numbers, meta={"name": "n", "rows": [""], "columns": [""] * 8, "cells": "z"})
    )
    found = re.findall("<td>([^<]*)</td>", markup.tables(figure))[1:]
    assert found == ["0.5", "−0.1235", "0.0001", "2.8e−06", "−0.0001", "0", "1.235e+04", ""]
