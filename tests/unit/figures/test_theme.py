"""Colours: told apart, readable, and evenly spaced where they stand for numbers."""

from __future__ import annotations

import itertools

import plotly.graph_objects as go
import pytest

from mha_widgets.figures.theme import COLOURS, colour, dark, scale


def linear(hexadecimal: str) -> list[float]:
    shares = [int(hexadecimal[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    return [
        share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares
    ]


def luminance(hexadecimal: str) -> float:
    red, green, blue = linear(hexadecimal)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def lightness(hexadecimal: str) -> float:
    """The L of OKLab, https://bottosson.github.io/posts/oklab/."""
    red, green, blue = linear(hexadecimal)
    long = (0.4122214708 * red + 0.5363325363 * green + 0.0514459929 * blue) ** (1 / 3)
    middle = (0.2119034982 * red + 0.6806995451 * green + 0.1073969566 * blue) ** (1 / 3)
    short = (0.0883024619 * red + 0.2817188376 * green + 0.6299787005 * blue) ** (1 / 3)
    return 0.2104542553 * long + 0.7936177850 * middle - 0.0040720468 * short


def contrast(one: str, other: str) -> float:
    dim, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dim + 0.05)


def test_every_light_value_has_one_role() -> None:
    assert len({light for light, _ in COLOURS.values()}) == len(COLOURS)


@pytest.mark.parametrize("ground", [0, 1])
@pytest.mark.parametrize("role", ["ink", "soft", "warn", "query", "key", "value", "output"])
def test_words_can_be_read_on_the_card(role: str, ground: int) -> None:
    assert contrast(COLOURS[role][ground], COLOURS["card"][ground]) >= 4.5  # WCAG 2.2, AA


@pytest.mark.parametrize("ground", [0, 1])
def test_weights_run_evenly_in_lightness(ground: int) -> None:
    stops = [lightness(COLOURS[f"weight-{i}"][ground]) for i in range(5)]
    steps = [after - before for before, after in itertools.pairwise(stops)]
    assert all(step * steps[0] > 0 for step in steps)
    assert max(map(abs, steps)) - min(map(abs, steps)) < 0.02


@pytest.mark.parametrize("ground", [0, 1])
def test_signed_numbers_are_alike_on_both_sides_of_zero(ground: int) -> None:
    stops = [lightness(COLOURS[f"signed-{i}"][ground]) for i in range(5)]
    assert stops[0] == pytest.approx(stops[4], abs=0.02)
    assert stops[1] == pytest.approx(stops[3], abs=0.02)


def test_scales_go_from_end_to_end() -> None:
    assert scale("weight")[0] == [0, colour("weight-0")]
    assert scale("signed")[2] == [0.5, colour("signed-2")]
    assert scale("mask") == [[0, colour("blocked")], [1, colour("open")]]


def test_dark_swaps_colours_and_nothing_else() -> None:
    ink = COLOURS["ink"]
    figure = go.Figure(
        go.Heatmap(z=[[0.5]], text=[[ink[0]]], colorscale=scale("mask")),
        {"title": {"text": ink[0]}},
    )
    figure.update_layout(font_color=ink[0])
    data, layout = dark(figure.data[0].to_plotly_json()), dark(figure.layout.to_plotly_json())
    assert layout["font"]["color"] == ink[1]
    assert layout["title"]["text"] == data["text"][0][0] == ink[0]
    assert data["colorscale"][1][1] == COLOURS["open"][1]
    assert figure.layout.font.color == ink[0]
