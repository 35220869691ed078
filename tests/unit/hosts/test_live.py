"""The live host, as the kernel sees it."""

from __future__ import annotations

import gc
import threading
from collections.abc import Hashable
from typing import Any

import ipywidgets as widgets
import plotly.graph_objects as go
import pytest
from samples import states_of

from mha_widgets import explorers
from mha_widgets.explorer import Explorer
from mha_widgets.figures.theme import COLOURS
from mha_widgets.hosts import page
from mha_widgets.hosts.live import Live


def drawn(figure: go.Figure) -> dict[str, Any]:
    """Return a figure without the ids of its traces and what is empty."""
    plain = page.compact(figure)
    for trace in plain["data"]:
        trace.pop("uid", None)
    layout = filled(plain["layout"])
    return plain | {
        "layout": {key: value for key, value in layout.items() if key not in ("width", "height")}
    }


def move(live: Live, name: str, value: Hashable) -> None:
    """Move a widget as a reader does."""
    widget = live.controls[name]
    widget.value = type(widget.value)(live.explorer.controls[name].values.index(value))


def value(live: Live, name: str) -> Hashable:
    """Return what a widget is at."""
    return live.explorer.controls[name].values[live.controls[name].value]


def filled(tree: dict[str, Any]) -> dict[str, Any]:
    """Return a tree of dictionaries without its empty ones."""
    kept = (
        (key, filled(value) if isinstance(value, dict) else value) for key, value in tree.items()
    )
    return {key: value for key, value in kept if value != {}}


@pytest.mark.parametrize("name", explorers.catalog())
def test_the_figure_follows_the_controls(name: str) -> None:
    explorer = explorers.catalog()[name]()
    live = Live(explorer)
    for state in states_of(explorer, 25):
        for control, value in state.items():
            move(live, control, value)
        view = explorer.view(**state)
        assert drawn(live.figure) == drawn(view.figure), state
        assert {control for control, widget in live.controls.items() if widget.disabled} == set(
            view.disabled
        )


def test_one_change_is_one_message(parts: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    live = Live(parts)
    sent: list[Any] = []
    monkeypatch.setattr(live.figure, "_send_update_msg", lambda **message: sent.append(message))
    move(live, "parts", 2)
    assert len(sent) == 1


def test_a_state_that_makes_no_sense_is_said_and_the_last_figure_stays(parts: Explorer) -> None:
    live = Live(parts)
    move(live, "parts", 2)
    before = drawn(live.figure)
    move(live, "parts", 3)
    told = [child.value for child in live.widget.children if isinstance(child, widgets.HTML)]
    message = (
        '<p class="mha-error" role="alert">4 tokens can&#x27;t be cut into 3 &lt;equal&gt; parts;'
        " choose 1 or 2.</p>"
    )
    assert message in told
    assert drawn(live.figure) == before
    move(live, "parts", 1)
    assert message not in [
        child.value for child in live.widget.children if isinstance(child, widgets.HTML)
    ]


def test_kinds_of_controls(parts: Explorer) -> None:
    kinds = {name: type(widget) for name, widget in Live(parts).controls.items()}
    assert kinds == {
        "parts": widgets.ToggleButtons,
        "row": widgets.SelectionSlider,
        "shout": widgets.Checkbox,
    }


def test_on_a_dark_ground_the_figure_is_dark(parts: Explorer) -> None:
    live = Live(parts)
    live._screen.dark = True
    move(live, "parts", 2)
    move(live, "shout", True)
    ink, cross = COLOURS["ink"][1], COLOURS["cross"][1]
    assert (
        live.figure.layout.annotations[0].font.color,
        live.figure.data[1].marker.line.color,
    ) == (ink, cross)
    live._screen.dark = False
    assert drawn(live.figure) == drawn(parts.view(parts=2, shout=True).figure)


def test_in_little_room_the_maps_are_stacked() -> None:
    live = Live(explorers.Attention())
    live._screen.width = 400
    meta = live.figure.layout.meta
    assert (live.figure.layout.width, live.figure.layout.height) == (400, meta["narrow"]["height"])
    assert list(live.figure.layout.xaxis2.domain) == meta["narrow"]["xaxis2"]["domain"]
    assert [a.y for a in live.figure.layout.annotations] == [
        a["y"] for a in meta["narrow"]["annotations"]
    ]
    live._screen.width = 900
    assert drawn(live.figure) == drawn(explorers.Attention().view().figure)


def test_tokens_are_literal(hostile: Explorer) -> None:
    live = Live(hostile)
    move(live, "row", 2)
    told = " ".join(
        child.value for child in live.widget.children if isinstance(child, widgets.HTML)
    )
    assert '<b class="mha-key">&lt;/script&gt;</b>' in told
    assert "</script>" not in told


def test_set_moves_the_controls_and_the_figure_and_state_tells_them(parts: Explorer) -> None:
    live, told = Live(parts), []
    parts.observe(lambda change: told.append(change["new"]), names="state")
    parts.set(parts=2, row=3)
    assert (value(live, "parts"), value(live, "row")) == (2, 3)
    assert drawn(live.figure) == drawn(parts.view(parts=2, row=3).figure)
    move(live, "shout", True)
    assert parts.state == told[-1] == {"parts": 2, "row": 3, "shout": True}
    assert len(told) == 2


def test_two_views_of_one_explorer_stay_in_step(parts: Explorer) -> None:
    one, other = Live(parts), Live(parts)
    move(one, "parts", 2)
    assert value(other, "parts") == 2
    assert drawn(other.figure) == drawn(one.figure) == drawn(parts.view(parts=2).figure)


def test_shown_twice_it_is_one_widget(parts: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MHA_WIDGETS_HOST", raising=False)
    assert parts._repr_mimebundle_() == parts._repr_mimebundle_()


def test_an_error_of_any_kind_is_said(parts: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    live = Live(parts)

    def fail(**_: Any) -> None:
        raise TypeError("a <hook> failed")

    monkeypatch.setattr(parts, "compute", fail)
    move(live, "parts", 2)
    assert (
        live._error.value
        == '<p class="mha-error" role="alert">TypeError: a &lt;hook&gt; failed</p>'
    )


def test_a_set_that_makes_no_sense_is_said_and_the_last_figure_stays(parts: Explorer) -> None:
    live = Live(parts)
    before = drawn(live.figure)
    parts.set(parts=3)
    assert "4 tokens can&#x27;t be cut" in live._error.value
    assert drawn(live.figure) == before
    with pytest.raises(ValueError, match="parts is one of 1, 2, 3"):
        parts.set(parts=9)
    assert parts.state["parts"] == 3


def test_a_thousand_changes_leave_nothing_behind(parts: Explorer) -> None:
    live = Live(parts)

    def change(times: int) -> int:
        for number in range(times):
            move(live, "row", number % 4)
            move(live, "parts", 1 + number % 2)
        gc.collect()
        return len(gc.get_objects())

    before = change(50)
    assert change(500) - before < 100


def test_controls_moved_from_several_threads_end_in_the_last_state_with_its_numbers() -> None:
    explorer = explorers.Module()
    live = Live(explorer)

    def moves(name: str) -> None:
        for _ in range(10):
            for place in (True, False):
                live.controls[name].value = place

    threads = [
        threading.Thread(target=moves, args=[name])
        for name in ("batch_first", "add_zero_attn", "bias", "training")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert explorer.state == explorer.state | dict.fromkeys(
        ("batch_first", "add_zero_attn", "bias", "training"), False
    )
    assert drawn(live.figure) == drawn(explorer.view(**explorer.state).figure)
