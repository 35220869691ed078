"""The exercises of the chapter on the mask arguments."""

from __future__ import annotations

from typing import Any

import torch

from mha_widgets.attention import causal_mask, padding_mask
from mha_widgets.exercises._checking import (
    Wrong,
    as_number,
    called,
    close,
    exercise,
    expect,
    several,
    shape_of,
    shaped,
)

LENGTHS, SLOPES = [5, 2, 4], [0.0, 0.5, 1.5]


@exercise("mask-arguments-1")
def shapes_and_place(answer: Any) -> str:
    """The shapes of two masks for N = 3, H = 4, L = 5 and S = 7, and the place of one table."""
    a, b, c = several(answer, 3, "give two shapes and a number, (a, b, c)")
    default = "which of N, H, L and S does it need, and in which order?"
    hints = dict.fromkeys(
        [(3, 5), (7, 3)], "a row is a sentence, a column a key, whatever batch_first says"
    )
    expect(shape_of(a), (3, 7), "(a) is", default, hints)
    tables: dict[tuple[int, ...], str] = dict.fromkeys(
        [(3, 5, 7), (3, 4, 5, 7)], "sentences and heads share the first axis"
    )
    tables[12, 7, 5] = "in a table, a row is a query and a column is a key"
    expect(shape_of(b), (12, 5, 7), "(b) is", default, tables)
    numbers = {7: "h · N + n would be right if the sentences of a head lay side by side"}
    expect(
        as_number(c, "(c)"),
        6,
        "(c) is",
        "sentence 0 has the tables 0 to 3, one for each head",
        numbers,
    )
    return "Table n · H + h, here 1 · 4 + 2, belongs to sentence n and head h."


@exercise("mask-arguments-2")
def decoder_mask(answer: Any) -> str:
    """A function of lengths, L and num_heads: causal and padding as a boolean mask (N * H, L,
    L), True = blocked.
    """
    N, L, H = len(LENGTHS), 6, 3
    hints = {
        (N, L, L): "one table for each head too",
        (N, H, L, L): "sentences and heads share the first axis",
    }
    mask = shaped(called(answer, LENGTHS, L, H), (N * H, L, L), hints, what="your mask")
    if mask.dtype != torch.bool:
        raise Wrong(f"your mask holds {mask.dtype}; a boolean one is asked for, True = blocked.")
    future, padding = ~causal_mask(L), ~padding_mask(LENGTHS, L)[:, None]
    right = (future | padding).repeat_interleave(H, dim=0)
    if torch.equal(mask, ~right):
        raise Wrong("it is the wrong way round: True must mean blocked.")
    if torch.equal(mask, (future & padding).repeat(H, 1, 1)):
        raise Wrong(
            "this is the function as it was: when is a cell blocked, and which sentence has"
            " table 1?"
        )
    if torch.equal(mask, (future & padding).repeat_interleave(H, dim=0)):
        raise Wrong(
            "the order is right now, but a cell is blocked here only if both masks block it."
        )
    if torch.equal(mask, (future | padding).repeat(H, 1, 1)):
        raise Wrong(
            "the right cells are blocked now, but table 1 belongs to sentence 0, head 1, and yours"
            " is of sentence 1."
        )
    if not torch.equal(mask, right):
        table, row, column = (mask != right).nonzero()[0].tolist()
        wanted = "open" if mask[table, row, column] else "blocked"
        cell = (
            f"query {row} → key {column} of table {table} (sentence {table // H}, head {table % H})"
        )
        raise Wrong(f"for lengths {LENGTHS}, L = {L} and {H} heads, {cell} should be {wanted}.")
    return (
        "A cell is blocked if either mask blocks it, and the heads of a sentence lie side by side."
    )


@exercise("mask-arguments-3")
def distance_mask(answer: Any) -> str:
    """A function of N, L and slopes: minus slope times distance, (N * H, L, L),
    the heads of a sentence side by side.
    """
    N, L, H = 2, 5, len(SLOPES)
    hints = {
        (H, L, L): "N copies of it, one for each sentence",
        (N, H, L, L): "sentences and heads share the first axis",
    }
    mask = shaped(called(answer, N, L, SLOPES), (N * H, L, L), hints, what="your mask")
    if not mask.is_floating_point():
        raise Wrong(f"your mask holds {mask.dtype}; it is added to the scores: use floats.")
    back = torch.arange(L)[:, None] - torch.arange(L)
    per_head = -torch.tensor(SLOPES)[:, None, None] * back.abs()  # (H, L, L)
    if close(mask, -per_head.repeat(N, 1, 1)):
        raise Wrong("far keys count more with yours: the slope is to be taken off the scores.")
    if close(mask, per_head.repeat_interleave(N, dim=0)):
        raise Wrong(
            "table 1 belongs to head 1 of sentence 0; the H tables are to be repeated as a whole."
        )
    if close(mask, (-torch.tensor(SLOPES)[:, None, None] * back).repeat(N, 1, 1)):
        raise Wrong("later keys get a bonus with yours: count the steps either way.")
    if not close(mask, per_head.repeat(N, 1, 1)):
        raise Wrong("the numbers are not minus slope times distance, -slopes[h] * |i - j|.")
    return "A slope of its own for each head, and the same tables for each sentence."
