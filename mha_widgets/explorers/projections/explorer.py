"""Projections: how one sentence becomes queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from torch import Tensor

from mha_widgets.attention import softmax
from mha_widgets.attention.fresh import fresh_torch
from mha_widgets.explorer import Explorer
from mha_widgets.explorers.projections.figure import SYMBOLS, Record, maps
from mha_widgets.figures import panels
from mha_widgets.kit import (
    assignment,
    check_scores,
    difference,
    format_number,
    labels,
    matrix,
    one_type,
    quoted,
    sentence,
    strongest,
    vector,
)
from mha_widgets.view import Choice, Fact, Toggle, Word


class Projections(Explorer):
    """Shows a sentence, its queries, keys and values, and what comes of them.

    Args:
        x: (L, E), the sentence that asks; a small example if nothing is given.
        w_q, w_k, w_v: (E, E), the projections, as in ``nn.Linear``: ``query = x @ w_q.T``.
        y: (S, E), another sentence to look at.
        tokens: L labels for ``x``.
        key_tokens: S labels for ``y``.
        features: E labels.

    Raises:
        TypeError: something other than tensors and lists of strings.
        ValueError: shapes or types that don't fit, numbers that aren't finite, or too few or too
            many labels.

    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.2.2.

    >>> Projections().compute(**Projections().complete(key_from="other")).weights.shape
    (6, 4)
    """

    title = "Projections: one sentence, three roles"
    prompt = "Try: shuffle the words, and look for one that now looks at other words than before."

    @fresh_torch()
    def __init__(
        self,
        x: Tensor | None = None,
        w_q: Tensor | None = None,
        w_k: Tensor | None = None,
        w_v: Tensor | None = None,
        y: Tensor | None = None,
        *,
        tokens: Sequence[str] | None = None,
        key_tokens: Sequence[str] | None = None,
        features: Sequence[str] | None = None,
    ) -> None:
        given = {
            name: tensor
            for name, tensor in {"x": x, "w_q": w_q, "w_k": w_k, "w_v": w_v}.items()
            if tensor is not None
        }
        missing = [name for name in ("x", *SYMBOLS) if name not in given]
        if not given and y is None:
            given = {"x": sentence.X, "w_q": sentence.W_Q, "w_k": sentence.W_K, "w_v": sentence.W_V}
            y = sentence.OTHER
            tokens = sentence.TOKENS if tokens is None else tokens
            key_tokens = sentence.OTHER_TOKENS if key_tokens is None else key_tokens
            features = sentence.FEATURES if features is None else features
        elif missing:
            raise ValueError(
                f"Projections got no {' and no '.join(missing)}; pass x, w_q, w_k and w_v, or"
                " nothing."
            )
        self.x = matrix("x", given["x"], "(L, E)")
        self.y = None if y is None else matrix("y", y, "(S, E)")
        self.projections = {name: matrix(name, given[name], "(E, E)") for name in SYMBOLS}
        one_type(**given, **({} if y is None else {"y": y}))
        self._check()
        self.tokens = labels("tokens", tokens, len(self.x), "positions of x")
        self.key_tokens = (
            ()
            if self.y is None
            else labels("key_tokens", key_tokens, len(self.y), "positions of y")
        )
        self.features = labels("features", features, self.x.shape[1], "features")
        words = ("self: the same sentence", "cross: another sentence")
        self.controls = {
            "key_from": Choice(
                "Keys and values from",
                ("self", "other"),
                "self",
                "Which sentence is looked at.",
                words,
            ),
            **{
                name: Toggle(f"{symbol} = identity", help="Leave the words as they are.")
                for name, symbol in SYMBOLS.items()
            },
            "shuffle": Choice(
                "Shuffle",
                ("none", "swap", "reverse", "random"),
                "none",
                "Reorder what is looked at.",
            ),
        }
        for state in self.states(("key_from", *SYMBOLS)):
            self.compute(**self.complete(**state))  # says now if numbers are too large

    def _check(self) -> None:
        E = self.x.shape[1]
        for name, tensor in self.projections.items():
            if tensor.shape != (E, E):
                raise ValueError(
                    f"{name} has shape {tuple(tensor.shape)}, but x has {E} features; pass {name}"
                    f" as ({E}, {E})."
                )
        if self.y is not None and self.y.shape[1] != E:
            raise ValueError(
                f"y has shape {tuple(self.y.shape)}, but x has {E} features; pass y as (S, {E})."
            )

    def disabled(self, **state: Any) -> Mapping[str, str]:
        """Return the controls that do nothing in a complete state, each with the reason."""
        reasons = {}
        if self.y is None:
            reasons["key_from"] = "There is no other sentence: pass y."
        if len(self._looked_at(state)) == 1:
            reasons["shuffle"] = "One word has only one order."
        return reasons

    def _looked_at(self, state: Mapping[str, Any]) -> Tensor:
        return self.x if self.y is None or state["key_from"] == "self" else self.y

    @fresh_torch()
    def compute(self, **state: Any) -> Record:
        """Return the projections, the weights and the output of a complete state."""
        own = state["key_from"] == "self"
        order = _order(state["shuffle"], len(self._looked_at(state)))
        looked_at = self._looked_at(state)
        x, y = (self.x[order],) * 2 if own else (self.x, looked_at[order])
        identity = tuple(name for name in SYMBOLS if state[name])
        made = self._attend(x, y, identity)
        before = self._attend(self.x, looked_at, identity)
        undo = torch.tensor(order).argsort()
        rows = undo if own else slice(None)
        moved = (
            made["weights"][rows][:, undo] - before["weights"],
            made["output"][rows] - before["output"],
        )
        columns = tuple((self.tokens if own else self.key_tokens)[i] for i in order)
        return Record(
            rows=columns if own else self.tokens,
            columns=columns,
            features=self.features,
            x=x.numpy(),
            y=None if own else y.numpy(),
            **{name: tensor.numpy() for name, tensor in made.items()},
            identity=identity,
            shuffled=state["shuffle"] != "none",
            moved=max(difference.abs().max().item() for difference in moved),
        )

    def _attend(self, x: Tensor, y: Tensor, identity: Sequence[str]) -> dict[str, Tensor]:
        E = x.shape[1]
        w_q, w_k, w_v = (
            torch.eye(E).to(x) if name in identity else self.projections[name] for name in SYMBOLS
        )
        query, key, value = x @ w_q.T, y @ w_k.T, y @ w_v.T
        if not torch.cat([query, key, value.abs().cumsum(dim=0)]).isfinite().all():
            raise ValueError(
                f"Words times projections overflow {x.dtype}; pass smaller numbers or float64."
            )
        check_scores(query, key)
        scores = query @ key.T / E**0.5
        weights = softmax(scores)
        return {
            "query": query,
            "key": key,
            "value": value,
            "scores": scores,
            "weights": weights,
            "output": weights @ value,
        }

    def draw(self, record: Record) -> go.Figure:
        """Draw the sentences, the projections, the weights and the output."""
        return panels.draw(maps(record), per_row=4)

    def facts(self, record: Record) -> tuple[Fact, ...]:
        """Return where a word looks, what the projections do, and what order does not do."""
        facts = [_told_roles(record), _told_look(record)]
        if record.identity:
            facts.append(_told_identity(record))
        facts.append(_told_direction(record) if record.y is None else _told_lengths(record))
        if record.shuffled:
            facts.append(_told_shuffle(record))
        return tuple(facts)

    @fresh_torch()
    def code(self, **state: Any) -> str:
        """Return a program that makes everything that is shown for a complete state."""
        own, E = state["key_from"] == "self", self.x.shape[1]
        source = "x" if own else "y"
        lines = ["import torch", assignment("x", self.x) + f"  # (L, E) = ({len(self.x)}, {E})"]
        if not own:
            y = self._looked_at(state)
            lines.append(assignment("y", y) + f"  # (S, E) = ({len(y)}, {E})")
        if state["shuffle"] != "none":
            lines.append(
                f"{source} = {source}[{_order(state['shuffle'], len(self._looked_at(state)))}]  #"
                " another order"
            )
        dtype = "" if self.x.dtype == torch.float32 else f", dtype={self.x.dtype}"
        for name in SYMBOLS:
            lines.append(
                f"{name} = torch.eye({E}{dtype})"
                if state[name]
                else assignment(name, self.projections[name])
            )
        lines.append("query = x @ w_q.T  # as nn.Linear does")
        lines += [
            f"{role} = {source} @ {name}.T" for role, name in (("key", "w_k"), ("value", "w_v"))
        ]
        lines.append(f"weights = (query @ key.T / {E} ** 0.5).softmax(dim=-1)")
        lines.append("output = weights @ value")
        return "\n".join(lines)


def _order(shuffle: str, length: int) -> list[int]:
    order = list(range(length))
    if shuffle == "swap":
        order[:2] = reversed(order[:2])
    if shuffle == "reverse":
        order.reverse()
    if shuffle == "random":
        order = torch.randperm(length, generator=torch.Generator().manual_seed(16)).tolist()
    return order


def _clearest(record: Record) -> tuple[int, int]:
    """Return the query with the largest weight, and its key."""
    row = int(record.weights.max(axis=1).round(5).argmax())
    return row, int(record.weights[row].round(5).argmax())


def _told_look(record: Record) -> Fact:
    row, column = _clearest(record)
    asked = (
        quoted(record.rows[row], "query"),
        " asks for ",
        Word(vector(record.query[row]), "query"),
        ", ",
    )
    offered = (
        quoted(record.columns[column], "key"),
        " offers ",
        Word(vector(record.key[column]), "key"),
        ": ",
    )
    return (*asked, *offered, *strongest(record.rows[row], record.columns, record.weights[row]))


def _told_roles(record: Record) -> Fact:
    _, column = _clearest(record)
    source, name = (record.x, "X") if record.y is None else (record.y, "Y")
    fact: Fact = (
        quoted(record.columns[column], "key"),
        f" is {vector(source[column])} in {name}: it ",
    )
    if record.y is None:
        fact += ("asks for ", Word(vector(record.query[column]), "query"), ", ")
    fact += ("can be found by ", Word(vector(record.key[column]), "key"))
    return (*fact, " and hands over ", Word(vector(record.value[column]), "value"), ".")


def _told_identity(record: Record) -> Fact:
    source = "X" if record.y is None else "Y"
    same = {"w_q": "Q is X", "w_k": f"K is {source}", "w_v": f"V is {source}"}
    start = f"{' = '.join(SYMBOLS[name] for name in record.identity)} = identity: "
    start += ", ".join(same[name] for name in record.identity)
    if not {"w_q", "w_k"} <= set(record.identity):
        return (f"{start}, word for word.",)
    if record.y is not None:
        return (f"{start}; scores compare the words of both sentences as they are.",)
    own = record.scores.diagonal()
    others = np.flatnonzero(record.scores.max(axis=1) > own + 1e-5 * np.abs(own))
    if not len(others):
        return (f"{start}; no word looks at another more than at itself.",)
    row, column = others[0], int(record.scores[others[0]].argmax())
    pair = quoted(record.rows[row], "query"), " at ", quoted(record.columns[column], "key")
    scores = (
        f"q·k ÷ √{record.x.shape[1]} is {format_number(record.scores[row, column])} instead of"
        f" {format_number(own[row])}"
    )
    most = (
        f"{start}; {len(own) - len(others)} of {len(own)} words look at nothing more than at"
        " themselves, but "
    )
    return (most, *pair, f", which is longer ({scores}).")


def _told_direction(record: Record) -> Fact:
    apart = record.scores - record.scores.T
    if apart.max() <= 1e-5 * np.abs(record.scores).max():
        return (
            "Scores have no direction here: from one word to another they are the same as back.",
        )
    row, column = np.unravel_index(apart.argmax(), apart.shape)
    one, other = quoted(record.rows[row], "query"), quoted(record.columns[column], "key")
    back = quoted(record.rows[column], "query"), " → ", quoted(record.columns[row], "key")
    there, here = (
        format_number(float(record.scores[row, column])),
        format_number(float(record.scores[column, row])),
    )
    scale = f"q·k ÷ √{record.x.shape[1]}"
    return (
        f"Scores, {scale}, have a direction: ",
        one,
        " → ",
        other,
        f" {there}, ",
        *back,
        f" {here}.",
    )


def _told_lengths(record: Record) -> Fact:
    L, S = record.weights.shape
    return (
        (
            f"{L} queries come from X, {S} keys and values from Y: weights (L, S) = ({L}, {S}), and"
            f" {L} rows of output."
        ),
    )


def _told_shuffle(record: Record) -> Fact:
    moved = difference(record.moved)
    if record.y is None:
        back = (
            "with rows and columns put back, weights and output differ from those before by"
            f" {moved}"
        )
        return (f"Only the order changed: {back}; attention alone is blind to order.",)
    return (
        (
            "Y changed its order: the columns of the weights moved with it, the output changed by"
            f" {moved}."
        ),
    )
