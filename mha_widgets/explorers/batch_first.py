"""BatchFirst: which axis of the data is the batch."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from torch import Tensor, nn

from mha_widgets.attention.fresh import fresh_torch
from mha_widgets.explorer import Explorer
from mha_widgets.figures import Frame, Map, Plot, colour, labelled, literal, panels, titled
from mha_widgets.kit import batch, counted, format_number
from mha_widgets.view import Choice, Fact, Toggle, Word

SENTENCES = (
    ("the", "cat", "sat", "down"),
    ("birds", "sing", "at", "dawn"),
    ("we", "drink", "red", "tea"),
)
LAYOUTS = ("(N, L, E)", "(L, N, E)")
EXAMPLE = batch.Example(seed=33, sizes=(3, 4, 6))
MOST_WORDS = 48  # of a batch: the map has a row for each
LONGEST_WORD = 6  # letters in a cell


@dataclass(frozen=True)
class Record:
    """One call, and the same call after one sentence was edited.

    Attributes:
        tokens: (N, L), the words of each sentence.
        batch_first: of the module.
        data: the layout of ``x``, "(N, L, E)" or "(L, N, E)".
        edit: the sentence that is edited, or None.
        num_heads: H.
        x: the data, in their layout.
        weights: what the module returns beside the output: mean over the heads.
        output: like ``x``.
        who: (N * L, N * L), the weights between all words; NaN between words that don't meet.
        change: (N, L), by how much the entries of a word's output move at most.
    """

    tokens: tuple[tuple[str, ...], ...]
    batch_first: bool
    data: str
    edit: int | None
    num_heads: int
    x: np.ndarray
    weights: np.ndarray
    output: np.ndarray
    who: np.ndarray
    change: np.ndarray

    @property
    def right(self) -> bool:
        """Whether the module reads the data as they are meant."""
        return self.batch_first == (self.data == LAYOUTS[0]) or self.change.size == 1

    @property
    def words(self) -> list[str]:
        """All words, each behind the number of its sentence."""
        return [f"{n} {token}" for n, sentence in enumerate(self.tokens) for token in sentence]


class BatchFirst(Explorer):
    """Shows who looks at whom in a batch, and whether an edit of one sentence reaches the others.

    Args:
        module: an ``nn.MultiheadAttention``; a small one of torch's own defaults if none is given.
        x: (N, L, E), N sentences of L words, whatever the module's ``batch_first``.
        tokens: N lists of L words.

    Raises:
        TypeError: something other than a module, a tensor and lists of strings.
        ValueError: one without the other, a module of other than self-attention, more than 48
            words, or sizes that don't fit.

    Source: ``batch_first`` in https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html

    >>> BatchFirst().view().facts[2]
    ('weights.shape[0] must be your batch size, 3, but is ', Word(text='4', role='warn'), '.')
    """

    title = "batch_first: who is in the batch?"
    prompt = (
        "Try: edit one sentence and watch the outputs of the others. Then switch batch_first on."
    )

    @fresh_torch()
    def __init__(
        self,
        module: nn.MultiheadAttention | None = None,
        x: Tensor | None = None,
        *,
        tokens: Sequence[Sequence[str]] | None = None,
    ) -> None:
        own = batch.check_module_and_batch("BatchFirst", module, x)
        self.own = own is not None
        self.module, self.x = own or EXAMPLE.make()
        if tokens is None and not self.own:
            tokens = SENTENCES
        N, L, _ = self.x.shape
        if N * L > MOST_WORDS:
            raise ValueError(
                f"x holds {N} × {L} = {N * L} words, too many for one map; pass at most"
                f" {MOST_WORDS}: x[:n, :l]."
            )
        self.tokens = batch.sentences(tokens, N, L)
        self.controls = {
            "batch_first": Toggle(
                "batch_first",
                default=self.module.batch_first,
                help="How the module reads its input.",
            ),
            "data": Choice(
                "Your data",
                LAYOUTS,
                LAYOUTS[0],
                "How your batch lies: N sentences, L words, E features.",
            ),
            "edit": Choice(
                *("Edit sentence", (None, *range(N)), min(1, N - 1)),
                "Turns its vectors round: x becomes −x.",
                ("none", *map(str, range(N))),
            ),
        }

    @fresh_torch()
    def compute(self, **state: Any) -> Record:
        """Return what the module makes of the data, and what an edit changes,
        of one complete state.
        """
        module = copy.copy(self.module)
        module.batch_first = state["batch_first"]
        batch_dim = 0 if state["data"] == LAYOUTS[0] else 1
        (N, L), edit = self.x.shape[:2], state["edit"]
        x = self.x if batch_dim == 0 else self.x.transpose(0, 1)
        edited = x.clone()
        if edit is not None:
            edited.select(batch_dim, edit).neg_()
        with torch.no_grad():
            output, weights = module(x, x, x)
            moved, _ = module(edited, edited, edited)
        change = (moved - output).abs().amax(dim=-1)
        words = torch.arange(N * L).view(N, L)
        # the words of each sequence, as they are read
        words = words if module.batch_first == (batch_dim == 0) else words.T
        who = torch.full((N * L, N * L), torch.nan, dtype=weights.dtype)
        who[words[:, :, None], words[:, None]] = weights
        return Record(
            tokens=self.tokens,
            batch_first=module.batch_first,
            data=state["data"],
            edit=edit,
            num_heads=module.num_heads,
            x=x.numpy(),
            weights=weights.numpy(),
            output=output.numpy(),
            who=who.numpy(),
            change=(change if batch_dim == 0 else change.T).numpy(),
        )

    def draw(self, record: Record) -> go.Figure:
        """Draw the data with the sequences that the module sees in them, the weights,
        and what moves.
        """
        return panels.draw([_data(record), _weights(record), _change(record)])

    def facts(self, record: Record) -> tuple[Fact, ...]:
        """Return how the module reads the data, all shapes, and how far an edit reaches."""
        return (
            _reading(record),
            _shapes(record),
            _first_size(record),
            _edit(record),
            _advice(record),
        )

    @fresh_torch()
    def code(self, **state: Any) -> str:
        """Return a program that makes ``x``, ``weights``,
        ``output`` and ``change`` of a complete state.
        """
        N, L, _ = self.x.shape
        batch_first, first = state["batch_first"], state["data"] == LAYOUTS[0]
        lines = ["import torch", "from torch import nn"]
        lines += (
            batch.rebuilt(self.module, self.x, batch_first)
            if self.own
            else EXAMPLE.program(batch_first)
        )
        lines[-1] += f"  # (N, L, E): {N} sentences of {L} words"
        if not first:
            lines.append("x = x.transpose(0, 1)  # (L, N, E)")
        read = (N, L) if batch_first == first else (L, N)
        lines += [
            "with torch.no_grad():",
            f"    output, weights = module(x, x, x)  # weights: {(*read, read[1])}",
        ]
        if state["edit"] is not None:
            place = f"edited[{state['edit']}]" if first else f"edited[:, {state['edit']}]"
            lines += ["    edited = x.clone()", f"    {place} *= -1  # one sentence, and no other"]
            lines.append("    moved, _ = module(edited, edited, edited)")
            lines.append(
                f"change = (moved - output).abs().amax(dim=-1){'' if first else '.T'}  # (N, L)"
            )
        return "\n".join(lines)


def _axes(r: Record) -> tuple[list[list[str]], list[list[int]]]:
    """Return the words as the data hold them, and the sentence of each."""
    words = [list(sentence) for sentence in r.tokens]
    numbers = [[n] * len(sentence) for n, sentence in enumerate(words)]
    if r.data == LAYOUTS[0]:
        return words, numbers
    return [list(row) for row in zip(*words, strict=True)], [
        list(row) for row in zip(*numbers, strict=True)
    ]


def _data(r: Record) -> Map:
    words, numbers = _axes(r)
    high, wide = len(words), len(words[0])
    rows = [Frame("query", 0, row, wide, row + 1) for row in range(high)]
    columns = [Frame("query", column, 0, column + 1, high) for column in range(wide)]
    return Map(
        "x, as the module reads it",
        "a frame is one sequence",
        np.array(numbers) == (-1 if r.edit is None else r.edit),
        [f"{row}" for row in range(high)],
        [f"{column}" for column in range(wide)],
        row_axis=(f"axis 0: {r.data[1]}", "soft"),
        column_axis=(f"axis 1: {r.data[4]}", "soft"),
        colours="mask",
        number="%{text}",
        text=np.array(
            [[literal(word, LONGEST_WORD) for word in row] for row in words], dtype=object
        ),
        hover="x[%{y}, %{x}]: sentence %{customdata[0]}, %{text}",
        customdata=np.array(numbers)[..., None],
        frames=rows if r.batch_first else columns,
        cell=(1, 1.8),
        told=words,
    )


def _weights(r: Record) -> Map:
    words, (N, L) = r.words, r.change.shape
    return Map(
        "Who looks at whom",
        "a frame is one sentence; blank: never met",
        r.who,
        words,
        words,
        colours="weight",
        frames=[Frame("soft", n * L, n * L, n * L + L, n * L + L) for n in range(N)],
        hover="%{y} → %{x}: %{z:.3f}",
    )


def _change(r: Record) -> Plot:
    moved, words, edited = (
        r.change.ravel(),
        r.words,
        "nothing" if r.edit is None else f"sentence {r.edit}",
    )
    bars = {
        "type": "bar",
        "orientation": "h",
        "x": moved,
        "y": np.arange(len(words)),
        "marker": {"color": colour("output")},
        "texttemplate": "%{x:.2f}",
        "hovertemplate": "%{y}: moves by up to %{x:.3f}<extra></extra>",
    }
    y = labelled(words, ("output", "output")) | {"range": [len(words) - 0.5, -0.5], "tickangle": 0}
    y["ticktext"] = [literal(word, LONGEST_WORD + 2) for word in words]
    x = titled(("moves by up to", "output")) | {
        "range": [0, 1.3 * max(float(moved.max()), 1e-3)],
        "showticklabels": False,
    }
    table = words, ["moves by up to"], [[format_number(value)] for value in moved]
    return Plot(
        "What moves",
        f"edited: {edited}",
        [bars],
        x,
        y,
        table,
        role="output",
        size=(len(words), 4),
        below=30,
    )


def _reading(r: Record) -> Fact:
    (N, L), (first, second, _) = r.change.shape, r.x.shape
    start = f"batch_first={r.batch_first} takes x of {r.x.shape} for {LAYOUTS[not r.batch_first]}: "
    number_of, length = (first, second) if r.batch_first else (second, first)
    read = f"{counted(number_of, 'sequence')} of {counted(length, 'word')}"
    if r.right:
        return (f"{start}{read}, as you mean it. Every word looks at its own sentence alone.",)
    looks = "at nothing but itself" if N == 1 else "at the words in the same place of all sentences"
    return (
        f"{start}{read}, not {N} of {L}. ",
        Word(f"Every word looks {looks}", "warn"),
        ", and there is no error.",
    )


def _shapes(r: Record) -> Fact:
    sequences, length, _ = r.weights.shape
    E, H = r.x.shape[-1], r.num_heads
    return (
        (
            f"Inside: q, k, v (N, H, L, D) = {(sequences, H, length, E // H)} → scores (N, H, L, S)"
            f" = {(sequences, H, length, length)} → weights (N, L, S) = {r.weights.shape}. Outside:"
            f" x and output are {r.output.shape} either way."
        ),
    )


def _first_size(r: Record) -> Fact:
    (N, L), found = r.change.shape, r.weights.shape[0]
    if N == L == 1:
        return ("With one sentence of one word both layouts are the same.",)
    if N == L:
        return (
            (
                f"weights.shape[0] is {found} either way, since N = L = {N}: only an edit tells the"
                " layouts apart."
            ),
        )
    if found == N:
        return (f"weights.shape[0] is {found}, your batch size, as it must be.",)
    return (
        f"weights.shape[0] must be your batch size, {N}, but is ",
        Word(str(found), "warn"),
        ".",
    )


def _edit(r: Record) -> Fact:
    if r.edit is None:
        return ("Edit a sentence: only its own outputs may move.",)
    others = np.delete(r.change.max(axis=1), r.edit)
    own = f"moves its own outputs by up to {format_number(r.change[r.edit].max())}"
    if not len(others):
        return (f"Editing sentence {r.edit} {own}; there is no other sentence.",)
    most = int(others.argmax())
    most += most >= r.edit
    if r.right:
        return (
            (
                f"Editing sentence {r.edit} {own} and those of the other sentences by"
                f" {format_number(others.max())}."
            ),
        )
    if not others.max():
        return (
            (
                f"Editing sentence {r.edit} {own} and, with these numbers, no others: look at who"
                " looks at whom."
            ),
        )
    return (
        *(
            f"Editing sentence {r.edit} ",
            Word(f"moves sentence {most}’s output by up to {format_number(others.max())}", "warn"),
        ),
        ": attention leaks over the batch.",
    )


def _advice(r: Record) -> Fact:
    if r.right:
        return (
            (
                "In your own code, look at weights.shape[0] with N ≠ L, or edit one sentence and"
                " watch the others."
            ),
        )
    if r.batch_first:
        return ("The cure: x.transpose(0, 1), or a module with batch_first=False.",)
    return (
        (
            "The cure: nn.MultiheadAttention(…, batch_first=True), or x.transpose(0, 1). The"
            " default is batch_first=False."
        ),
    )
