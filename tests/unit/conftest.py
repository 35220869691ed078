"""An explorer small enough to know everything about: a row of numbers cut into parts."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest

from mha_widgets.explorer import Explorer
from mha_widgets.figures import maps, panels
from mha_widgets.view import Choice, Fact, Range, Toggle, Word


class Parts(Explorer):
    title = "Parts"
    prompt = "Try: three parts of four."

    def __init__(self, tokens: tuple[str, ...] = ("a", "b", "c", "d")) -> None:
        self.tokens = tokens
        self.controls = {
            "parts": Choice("Parts", (1, 2, 3), 1, "How many."),
            "row": Range("Row", tuple(range(len(tokens))), 0, "Which.", tokens),
            "shout": Toggle("Shout", help="Adds a mark."),
        }

    def disabled(self, **state: Any) -> dict[str, str]:
        return {"shout": "One part has nothing to shout about."} if state["parts"] == 1 else {}

    def compute(self, **state: Any) -> dict[str, Any]:
        if len(self.tokens) % state["parts"]:
            raise ValueError(
                f"{len(self.tokens)} tokens can't be cut into {state['parts']} <equal> parts;"
                " choose 1 or 2."
            )
        return state | {
            "values": np.linspace(0, 1, len(self.tokens)).reshape(1, -1) / state["parts"]
        }

    def draw(self, record: dict[str, Any]) -> go.Figure:
        marks = np.zeros((1, len(self.tokens)), dtype=bool)
        marks[0, record["row"]] = True
        one = maps.Map(
            "Values",
            "",
            record["values"],
            ["all"],
            self.tokens,
            blocked=marks if record["shout"] else None,
        )
        return panels.draw([one])

    def facts(self, record: dict[str, Any]) -> tuple[Fact, ...]:
        return (("Part of ", Word(self.tokens[record["row"]], "key"), f" is {record['parts']}."),)

    def code(self, **state: Any) -> str:
        return f"tokens = {self.tokens!r}\nparts = {state['parts']}"


@pytest.fixture
def parts() -> Parts:
    return Parts()


HOSTILE = (
    "<pad>",
    "<s>",
    "</script>",
    "$x$",
    "🦜🦜",
    "x" * 60,
    "",
    "<b>",
    "%{z}",
    "&amp;",
    "a\nb",
    "--mha-ink",
)


@pytest.fixture
def hostile() -> Parts:
    return Parts(HOSTILE)
