"""Module: a whole call of nn.MultiheadAttention, every argument a control."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from torch import Tensor, nn

from mha_widgets.attention import MultiheadAttention
from mha_widgets.attention.fresh import fresh_torch
from mha_widgets.explorer import Explorer
from mha_widgets.explorers.module.appended import appended, describe_appended
from mha_widgets.explorers.module.example_call import ExampleCall
from mha_widgets.explorers.module.given_call import refused
from mha_widgets.explorers.module.made_call import CallResult, make_call
from mha_widgets.explorers.module.own_call import OwnCall
from mha_widgets.figures import Map, block, panels, reduced
from mha_widgets.kit import copy_to_cpu, format_number, quoted
from mha_widgets.view import Fact, Word

FEATURE = ("feature", "soft")


@dataclass(frozen=True)
class Record:
    """One call, as it went.

    Attributes:
        output: what the call returns first.
        weights: what it returns second; None without ``need_weights``.
        rows, columns: the labels of the queries and keys of the sample that is shown, appended
            positions too.
        heads: head to (L, S), the weights of the heads that are shown, after dropout; in a large
            call before it.
        blocked: head to (L, S), True where a mask adds -inf; None without a mask.
        mean: (L, S), the mean over the heads, if that is what the call returns.
        shown: (L, E), the output of the sample.
        shapes: of the inputs, and of what is made of them.
        path: the way that the call goes.
        reason: the first thing that keeps it off the fast path, or nothing.
        warnings: what people trip over and this call does, a sentence each.
        parameters: how many numbers the module learns.
        appended: the labels of the columns that the module appends.
        row: the query to look at.
    """

    output: np.ndarray
    weights: np.ndarray | None
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    heads: Mapping[int, np.ndarray]
    blocked: Mapping[int, np.ndarray | None]
    mean: np.ndarray | None
    shown: np.ndarray
    shapes: str
    path: str
    reason: str
    warnings: tuple[str, ...]
    parameters: int
    appended: tuple[str, ...]
    row: int


class Module(Explorer):
    """Shows a whole call of ``nn.MultiheadAttention``: shapes, maps, output, path and parameters.

    Given nothing, it shows a small example whose constructor and forward arguments are all
    controls. Given a module and its inputs, it calls a copy of the module on one sequence of the
    batch at a time. The last call is kept, so that looking at another head or query makes no new
    one. Kept are its output and either its weights and mask, 2²² numbers each at most, or the
    projected inputs, from which heads are worked out.

    Args:
        module: an ``nn.MultiheadAttention``, or ours.
        query: as for the call, in the module's layout, with at most 2,048 positions.
        key: likewise; ``query`` if not given.
        value: likewise; ``key`` if not given.
        tokens: S labels for the keys, or a list of them for each sequence.
        query_tokens: L labels for the queries, likewise; those of the keys if L = S.
        forward_arguments: the other arguments of the call; a mask gets a control that leaves it
            out.

    Raises:
        TypeError: no multi-head attention, inputs or masks that are no tensors, or an argument that
            the call doesn't take.
        ValueError: inputs without a module, a call that torch refuses, more than 2,048 positions or
            64 heads, or tokens that don't fit.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html

    >>> module = nn.MultiheadAttention(embed_dim=8, num_heads=2, batch_first=True)
    >>> explorer = Module(module, torch.randn(3, 5, 8))
    >>> explorer.compute(**explorer.complete(sample=2, average_attn_weights=False)).weights.shape
    (1, 2, 5, 5)
    """

    title = "One call of nn.MultiheadAttention"
    prompt = (
        "Try: switch add_zero_attn on. Where do the weights of the last column come from, and what"
        " did they cost?"
    )
    page_controls: tuple[str, ...] = (
        "num_heads",
        "add_zero_attn",
        "key_padding_mask",
        "attn_mask",
        "need_weights",
        "sample",
    )

    @fresh_torch()
    def __init__(
        self,
        module: nn.MultiheadAttention | MultiheadAttention | None = None,
        query: Tensor | None = None,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        tokens: Sequence[Any] | None = None,
        query_tokens: Sequence[Any] | None = None,
        **forward_arguments: Any,
    ) -> None:
        given = {
            "query": query,
            "key": key,
            "value": value,
            "tokens": tokens,
            "query_tokens": query_tokens,
            **forward_arguments,
        }
        given = {name: argument for name, argument in given.items() if argument is not None}
        if module is None and given:
            raise ValueError(
                f"Module got {', '.join(given)} but no module; pass a module and its query too, or"
                " nothing."
            )
        if module is None:
            self._source: ExampleCall | OwnCall = ExampleCall()
        else:
            own: Any = query  # OwnCall says that it is missing
            self._source = OwnCall(module, own, key, value, tokens, query_tokens, forward_arguments)
            self.page_controls = ()
            self.prompt = self._source.prompt
        self.controls = self._source.controls
        self._made = functools.lru_cache(maxsize=1)(functools.partial(make_call, self._source))
        if isinstance(self._source, OwnCall):
            self.compute(**self.complete())  # says now what torch would refuse

    def disabled(self, **state: Any) -> Mapping[str, str]:
        """Return the controls that do nothing in a complete state, each with the reason."""
        return self._source.disabled(state)

    @fresh_torch()
    def compute(self, **state: Any) -> Record:
        """Make the call of a complete state, and return what happens in it.

        Raises:
            ValueError: torch refuses the call, or something of the reader's own fails in it; the
                message is what it says.
        """
        try:
            with torch.random.fork_rng(), torch.set_grad_enabled(not state.get("no_grad", True)):
                settings = (
                    setting
                    for setting in state.items()
                    if setting[0] not in self._source.only_shown
                )
                return _record(self._source, state, self._made(*settings))
        except Exception as error:  # the reader's own module may raise anything
            if isinstance(error, ValueError) and isinstance(self._source, ExampleCall):
                raise  # it is a sentence of its own
            raise refused(error) from error

    def draw(self, record: Record) -> go.Figure:
        """Draw the weights of each head, their mean if it is returned, and the output."""
        drawn = [
            _weights(record, f"head {head}", weights, head)
            for head, weights in record.heads.items()
        ]
        if record.mean is not None and len(drawn) > 1:
            drawn.append(_weights(record, "mean, returned", record.mean, None))
        output, rows, columns = reduced(
            record.shown, record.rows, tuple(map(str, range(record.shown.shape[1])))
        )
        limit = float(np.nanmax(np.abs(output), initial=0)) or 1.0
        subtitle = f"(L, E) = {record.shown.shape}"
        labels: dict[str, Any] = {"rows": rows, "columns": columns, "column_axis": FEATURE}
        drawn.append(
            Map("output", subtitle, output, role="output", limit=limit, nan=_nan(output), **labels)
        )
        return panels.draw(drawn, per_row=min(3, len(drawn) - 1))

    def facts(self, record: Record) -> tuple[Fact, ...]:
        """Return shapes, what comes back, the path, the sharpest look, what people trip over,
        and what is learned.
        """
        back = (
            "None for the weights" if record.weights is None else f"weights {record.weights.shape}"
        )
        high, wide = block(next(iter(record.heads.values())))
        if (high, wide) != (1, 1):
            back += f"; each cell of a map shows the largest weight of {high} × {wide}"
        facts: list[Fact] = [
            (record.shapes,),
            (f"The call returns output {record.output.shape} and {back}.",),
        ]
        reason = f": {record.reason}" if record.reason else ""
        facts.append(
            (f"Its way: {record.path}{'; not the native fast path' if reason else ''}{reason}.",)
        )
        facts.append(_sharpest(record))
        if record.warnings:
            facts.append((Word(" ".join(record.warnings), "warn"),))
        if record.appended:
            return (
                *facts,
                describe_appended(record.appended, record.heads.values(), record.parameters),
            )
        return (
            *facts,
            (f"The module learns {record.parameters:,} numbers, however many heads share them.",),
        )

    @fresh_torch()
    def code(self, **state: Any) -> str:
        """Return a program that makes the call of a complete state."""
        return self._source.program(state)


def _record(source: ExampleCall | OwnCall, state: Mapping[str, Any], made: CallResult) -> Record:
    module, n, output, weights = made.call.module, source.index(state), made.output, made.weights
    chosen = range(module.num_heads) if state.get("head", "all") == "all" else [state["head"]]
    looks = {head: made.look(n, head) for head in chosen}
    rows, columns = source.labels(state)
    columns += appended(module)
    shown = output if output.dim() == 2 else output[n] if module.batch_first else output[:, n]
    averaged = weights is not None and made.call.average_attn_weights
    if weights is not None and made.call.query.dim() == 2:
        weights = weights.squeeze(0)
    return Record(
        output=_array(output),
        weights=None if weights is None else _array(weights),
        rows=rows,
        columns=columns,
        heads={head: _array(one) for head, (one, _) in looks.items()},
        blocked={
            head: None if mask is None else (mask == -math.inf).cpu().numpy()
            for head, (_, mask) in looks.items()
        },
        mean=_array(made.weights[n]) if averaged and made.weights is not None else None,
        shown=_array(shown),
        shapes=made.shapes,
        path=made.path.value,
        reason=made.reasons[0].words if made.reasons else "",
        warnings=tuple(made.warnings),
        parameters=sum(parameter.numel() for parameter in module.parameters()),
        appended=appended(module),
        row=state["row"],
    )


def _array(tensor: Tensor) -> np.ndarray:
    return copy_to_cpu(tensor).numpy()


def _nan(values: np.ndarray) -> np.ndarray | None:
    return np.isnan(values) if np.isnan(values).any() else None


def _weights(record: Record, title: str, weights: np.ndarray, head: int | None) -> Map:
    values, rows, columns = reduced(weights, record.rows, record.columns)
    blocked = None if head is None else record.blocked[head]
    crossed = None if blocked is None or block(weights) != (1, 1) else blocked
    nan = _nan(values)
    if crossed is not None:
        values = np.where(crossed, np.nan, values)  # a cross stands there
    return Map(
        title,
        f"(L, S) = {weights.shape}",
        values,
        rows,
        columns,
        role="ink" if head is None else f"head-{head % 8}",
        colours="weight",
        blocked=crossed,
        nan=nan,
        selected_row=record.row // block(weights)[0],
    )


def _sharpest(record: Record) -> Fact:
    """Say where the shown query looks most, over all heads that are shown."""
    query = quoted(record.rows[record.row], "query")
    row = {head: weights[record.row] for head, weights in record.heads.items()}
    if any(np.isnan(weights).any() for weights in row.values()):
        return (
            query,
            " has a row of ",
            Word("NaN", "warn"),
            ": no key is left for it, or a number in it is not finite.",
        )
    head = max(row, key=lambda head: row[head].max())
    if row[head].max() == 0:
        return (
            query,
            " has a row of ",
            Word("zeros", "warn"),
            ": nothing is left for it to look at.",
        )
    key = record.columns[int(row[head].argmax())]
    return (
        query,
        " looks most at ",
        quoted(key, "key"),
        f" in head {head} ({format_number(float(row[head].max()))}).",
    )
