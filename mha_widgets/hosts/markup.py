"""What both hosts share: the parts of an explorer that are words, as HTML, and their style."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

import plotly.graph_objects as go

from mha_widgets.figures.theme import COLOURS
from mha_widgets.view import Fact, Word

if TYPE_CHECKING:
    from mha_widgets.explorer import Explorer

CODE_SUMMARY = "Code for what you see"
TABLE_SUMMARY = "The numbers as a table"
MOST_BUTTONS = 5  # values up to which a choice is a row of buttons


def header(explorer: Explorer) -> str:
    """Write an explorer's title and prompt."""
    title, prompt = escape(explorer.title), escape(explorer.prompt)
    return f'<p class="mha-title">{title}</p><p class="mha-try">{prompt}</p>'


def facts(rows: Iterable[Fact]) -> str:
    """Write facts as list items, every word literal.

    >>> from mha_widgets.view import Word
    >>> facts([("See ", Word("<pad>", "key"), ".")])
    '<li>See <b class="mha-key">&lt;pad&gt;</b>.</li>'
    """
    return "".join(f"<li>{''.join(map(_word, row))}</li>" for row in rows)


def _word(word: str | Word) -> str:
    return (
        escape(word)
        if isinstance(word, str)
        else f'<b class="mha-{word.role}">{escape(word.text)}</b>'
    )


def code(text: str, copy: str = "") -> str:
    """Write a program, with a button to copy it whose attributes are ``copy``."""
    button = f'<button type="button" class="mha-copy"{copy}>Copy</button>'
    return f'{button}<pre tabindex="0"><code>{escape(text)}</code></pre>'


def tables(figure: go.Figure) -> str:
    """Write every panel of a figure as a table, with the words for a map's marked cells."""
    return "".join(map(_table, _read(figure)))


def _read(figure: go.Figure) -> list[tuple[str, list[str], list[str], list[list[str]]]]:
    read: list[tuple[str, list[str], list[str], list[list[str]]]] = []
    for trace in figure.data:
        if trace.meta and "word" in trace.meta:  # it marks cells of the map before it
            for column, row in zip(trace.x, trace.y, strict=True):
                read[-1][3][row][column] = trace.meta["word"]
        elif trace.meta:
            cells = trace.meta["cells"]  # the cells themselves, or where they are
            if cells == "text":
                cells = [[str(word) for word in row] for row in trace.text]
            elif cells == "z":
                cells = [[_format_number(value) for value in row] for row in trace.z]
            read.append((trace.meta["name"], trace.meta["rows"], trace.meta["columns"], cells))
    return read


def _format_number(value: float | None) -> str:
    if value is None:
        return ""
    short = float(f"{value:.4g}")
    return f"{short:{'.1e' if 0 < abs(short) < 1e-4 else '.4g'}}".replace("-", "−")


def _table(read: tuple[str, list[str], list[str], list[list[str]]]) -> str:
    name, rows, columns, cells = read
    top = "".join(f'<th scope="col">{escape(column)}</th>' for column in columns)
    body = "".join(
        f'<tr><th scope="row">{escape(row)}</th>'
        f"{''.join(f'<td>{escape(cell)}</td>' for cell in line)}</tr>"
        for row, line in zip(rows, cells, strict=True)
    )
    head = f"<thead><tr><td></td>{top}</tr></thead>"
    return f"<table><caption>{escape(name)}</caption>{head}<tbody>{body}</tbody></table>"


def style() -> str:
    """Return the style sheet of explorers: the theme's colours, light and dark, and the rules."""
    light, dark = (
        ";".join(f"--mha-{role}:{pair[i]}" for role, pair in COLOURS.items()) for i in (0, 1)
    )
    return (
        f".mha-explorer{{{light}}}\n"
        # Until a script has looked at the ground, or without one, the computer's own choice counts.
        f"@media screen and (prefers-color-scheme:dark)"
        f"{{html:not([data-theme]) .mha-explorer:not([data-ground]){{{dark}}}}}\n"
        f"@media screen{{html[data-theme=dark] .mha-explorer:not([data-ground]),"
        f".mha-explorer[data-ground=dark]{{{dark}}}}}\n" + asset("explorer.css")
    )


def asset(name: str) -> str:
    """Read a file of ``assets/``."""
    return (files("mha_widgets.hosts") / "assets" / name).read_text(encoding="utf-8")
