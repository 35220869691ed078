"""panels.draw: the figure that comes out is one of plotly's like any other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import plotly.graph_objects as go
import pytest

from mha_widgets.figures import Map, panels

CHANGES: list[Callable[[go.Figure], object]] = [
    lambda figure: figure.update_layout(titl="x"),
    lambda figure: figure.update_layout(width="wide"),
    lambda figure: figure.update_traces(opacity="a little"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_reader_changes_is_checked(change: Callable[[go.Figure], object]) -> None:
    figure = panels.draw([Map("a", "b", np.eye(2), ["x", "y"], ["x", "y"], colours="weight")])
    figure.update_layout(width=300)
    with pytest.raises(ValueError):
        change(figure)
