"""What an explorer is made of: controls, and what both hosts show for one state of them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

import plotly.graph_objects as go


@dataclass(frozen=True)
class Control:
    """Something that the reader sets to one of finitely many values.

    Attributes:
        label: what stands beside it.
        values: everything that it can be set to.
        default: the value at first.
        help: one line on what it does.
        words: how each value is shown; ``str(value)`` if not given.
    """

    label: str
    values: tuple[Hashable, ...]
    default: Hashable
    help: str
    words: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.default not in self.values:
            raise ValueError(
                f"The default {self.default!r} of {self.label!r} is none of its values"
                f" {self.values!r}."
            )
        if not self.words:
            object.__setattr__(self, "words", tuple(map(str, self.values)))
        if len(self.words) != len(self.values):
            raise ValueError(
                f"{self.label!r} has {len(self.values)} values but {len(self.words)} words for"
                " them."
            )


class Choice(Control):
    """One of a few named values."""


class Range(Control):
    """One of several values in order, on a slider."""


@dataclass(frozen=True)
class Toggle(Control):
    """Off or on."""

    values: tuple[Hashable, ...] = (False, True)
    default: Hashable = False
    help: str = ""
    words: tuple[str, ...] = ("off", "on")


@dataclass(frozen=True)
class Word:
    """A word of a fact that is set off: a token or a warning.

    Attributes:
        text: the word, shown literally.
        role: its colour role, one of "query", "key", "value", "output" and "warn".
    """

    text: str
    role: str


Fact = tuple[str | Word, ...]


@dataclass(frozen=True)
class View:
    """What both hosts show for one state.

    Attributes:
        figure: a plotly figure.
        facts: the few lines to look at, each a row of words.
        code: a complete program that reproduces what is shown.
        disabled: the controls that do nothing in this state, each with the reason.
    """

    figure: go.Figure
    facts: tuple[Fact, ...]
    code: str
    disabled: Mapping[str, str]
