"""The contract: states, their errors, and what a view holds."""

from __future__ import annotations

import pytest

from mha_widgets.explorer import Explorer
from mha_widgets.view import Choice, Range, Toggle


def test_state_fills_in_defaults(parts: Explorer) -> None:
    assert parts.complete(parts=2) == {"parts": 2, "row": 0, "shout": False}


def test_a_disabled_control_stays_at_its_default(parts: Explorer) -> None:
    assert parts.complete(parts=1, shout=True)["shout"] is False
    assert parts.complete(parts=2, shout=True)["shout"] is True


def test_view_gives_the_reason_of_a_disabled_control(parts: Explorer) -> None:
    assert parts.view(shout=True).disabled == {"shout": "One part has nothing to shout about."}
    assert parts.view(parts=2).disabled == {}


def test_states_are_every_combination_the_last_control_fastest(parts: Explorer) -> None:
    states = list(parts.states())
    assert len(states) == 3 * 4 * 2
    assert [state["shout"] for state in states[:3]] == [False, True, False]
    assert states[-1] == {"parts": 3, "row": 3, "shout": True}


def test_an_unknown_control_is_named_with_those_there_are(parts: Explorer) -> None:
    with pytest.raises(
        TypeError, match="^Parts has no control 'heads'; it has parts, row, shout.$"
    ):
        parts.view(heads=1)


def test_an_unknown_value_is_named_with_those_there_are(parts: Explorer) -> None:
    with pytest.raises(ValueError, match="^Parts got parts=7; parts is one of 1, 2, 3.$"):
        parts.view(parts=7)


def test_a_state_that_makes_no_sense_says_why(parts: Explorer) -> None:
    with pytest.raises(
        ValueError, match="4 tokens can't be cut into 3 <equal> parts; choose 1 or 2."
    ):
        parts.view(parts=3)


def test_a_default_must_be_a_value() -> None:
    with pytest.raises(ValueError, match="default 9 of 'Heads' is none of its values"):
        Choice("Heads", (1, 2), 9, "")


def test_every_value_needs_a_word() -> None:
    with pytest.raises(ValueError, match="'Heads' has 2 values but 1 words"):
        Range("Heads", (1, 2), 1, "", ("one",))


def test_a_toggle_is_off_at_first() -> None:
    assert (
        Toggle("Shout").values,
        Toggle("Shout").default,
        Toggle("Shout", default=True).default,
    ) == ((False, True), False, True)


def test_shown_in_jupyter_it_is_a_widget_and_one_stable_line(
    parts: Explorer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MHA_WIDGETS_HOST", raising=False)
    bundle = parts._repr_mimebundle_()
    assert bundle["text/plain"] == "Parts explorer: parts, row, shout"
    assert bundle.keys() == {"text/plain", "application/vnd.jupyter.widget-view+json"}


def test_shown_in_a_book_it_is_a_page(parts: Explorer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MHA_WIDGETS_HOST", "page")
    assert parts._repr_mimebundle_() == {
        "text/plain": "Parts explorer: parts, row, shout",
        "text/html": parts.to_html(),
    }
