"""Masks: who may look at whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from torch import Tensor
from torch.nn import functional as F

from mha_widgets.attention import additive_mask, causal_mask, padding_mask, softmax, window_mask
from mha_widgets.attention.fresh import fresh_torch
from mha_widgets.explorer import Explorer
from mha_widgets.figures import Map, panels
from mha_widgets.kit import (
    assignment,
    check_scores,
    labels,
    matrix,
    one_type,
    quoted,
    row_in_numbers,
    sentence,
    strongest,
)
from mha_widgets.view import Choice, Fact, Range, Word

PAD = "<pad>"


@dataclass(frozen=True)
class Record:
    """One masked softmax.

    Attributes:
        rows, columns: (L,) and (S,), the labels of the queries and of the keys.
        scores: (L, S), scaled, before the mask.
        keep: (L, S), True = may look.
        mask: (L, S), what is given to attention: booleans, or numbers to add to the scores.
        weights: (L, S), after the softmax.
        no_key_left: (L,), the rows in which every key is blocked.
        padding: (S,), the keys that are padding.
        row: the row to look at.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    scores: np.ndarray
    keep: np.ndarray
    mask: np.ndarray
    weights: np.ndarray
    no_key_left: np.ndarray
    padding: np.ndarray
    row: int


class Masks(Explorer):
    """Shows scores, a mask, and the weights that the softmax leaves, side by side.

    Args:
        query: (L, E), one sequence (and one head); the book's running example if not given.
        key: (S, E); the query if only that is given.
        tokens: S labels for the keys.
        query_tokens: L labels for the queries; the keys' labels if L = S.

    Raises:
        TypeError: something other than tensors and lists of strings.
        ValueError: shapes that don't fit, numbers that aren't finite, or too few or too many
            tokens.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html

    >>> Masks(torch.randn(3, 8), torch.randn(5, 8)).compute(**Masks().complete(row=0)).weights.shape
    (3, 5)
    """

    title = "Masks: who may look at whom"
    prompt = (
        "Try: choose causal + padding and put the padding on the left. Which keys are left for the"
        " first row?"
    )

    @fresh_torch()
    def __init__(
        self,
        query: Tensor | None = None,
        key: Tensor | None = None,
        *,
        tokens: Sequence[str] | None = None,
        query_tokens: Sequence[str] | None = None,
    ) -> None:
        if query is None and key is None:
            query, key = sentence.QUERY, sentence.KEY
            tokens = sentence.TOKENS if tokens is None else tokens
        if query is None:
            raise ValueError("Masks got a key but no query; pass both, or the query alone.")
        self.query = matrix("query", query, "(L, E)")
        self.key = self.query if key is None else matrix("key", key, "(S, E)")
        one_type(query=query, key=query if key is None else key)
        if self.query.shape[1] != self.key.shape[1]:
            raise ValueError(
                f"query has shape {tuple(self.query.shape)} and key {tuple(self.key.shape)}; their"
                " last sizes must be equal."
            )
        check_scores(self.query, self.key)
        L, S = len(self.query), len(self.key)
        self.tokens = labels("tokens", tokens, S, "keys")
        self.query_tokens = labels("query_tokens", query_tokens, L, "queries", like=self.tokens)
        self.controls = {
            "attn_mask": Choice(
                "Mask",
                ("none", "causal", "padding", "causal + padding", "window"),
                "causal",
                "Which keys are blocked.",
            ),
            "padding": Range(
                "Padding keys", tuple(range(S + 1)), min(2, S), "How many positions are padding."
            ),
            "padding_side": Choice(
                "Padding side", ("right", "left"), "right", "Where the padding stands."
            ),
            "window": Range(
                "Window",
                tuple(range(min(4, S))),
                min(1, S - 1),
                "How many positions away a key may be.",
            ),
            "mask_type": Choice(
                "Mask type", ("boolean", "float"), "boolean", "How the mask is written."
            ),
            "empty_row": Choice(
                "A row without keys",
                ("nan", "zeros"),
                "nan",
                "What computes it: a plain softmax, or F.scaled_dot_product_attention.",
                ("NaN (softmax)", "zeros (SDPA)"),
            ),
            "row": Range(
                "Query row",
                tuple(range(L)),
                min(2, L - 1),
                "The row to look at, from 0 at the top.",
                tuple(f"{row}: {token}" for row, token in enumerate(self.query_tokens)),
            ),
        }

    @fresh_torch()
    def disabled(self, **state: Any) -> Mapping[str, str]:
        """Return the controls that do nothing in a complete state, each with the reason."""
        reasons: dict[str, str] = {}
        if "padding" not in state["attn_mask"]:
            reasons |= dict.fromkeys(("padding", "padding_side"), "This mask blocks no padding.")
        elif state["padding"] == 0:
            reasons["padding_side"] = "There is no padding."
        if state["attn_mask"] != "window":
            reasons["window"] = "This mask has no window."
        if self._keep(state)[0].any(dim=-1).all():
            reasons["empty_row"] = "Every row keeps at least one key."
        return reasons

    def _keep(self, state: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        L, S = len(self.query), len(self.key)
        keep, real = torch.ones(L, S, dtype=torch.bool), torch.ones(S, dtype=torch.bool)
        if "causal" in state["attn_mask"]:
            keep = causal_mask(L, S)
        if "padding" in state["attn_mask"]:
            real = padding_mask([S - state["padding"]], S, side=state["padding_side"])[0]
        if state["attn_mask"] == "window":
            keep = window_mask(L, S, window=state["window"])
        return keep & real, ~real

    @fresh_torch()
    def compute(self, **state: Any) -> Record:
        """Return scores, mask and weights of one complete state."""
        S, E = self.key.shape
        scores = self.query @ self.key.T / E**0.5  # (L, S)
        keep, padding = self._keep(state)
        if state["empty_row"] == "zeros":  # the identity as values makes the output the weights
            weights = F.scaled_dot_product_attention(
                self.query, self.key, torch.eye(S).to(scores), attn_mask=keep
            )
        else:
            weights = softmax(scores + additive_mask(keep, scores.dtype))
        mask = keep if state["mask_type"] == "boolean" else additive_mask(keep, scores.dtype)
        shown = [
            PAD if pad else token for token, pad in zip(self.tokens, padding.tolist(), strict=True)
        ]
        return Record(
            rows=tuple(shown) if self.query_tokens == self.tokens else self.query_tokens,
            columns=tuple(shown),
            scores=scores.numpy(),
            keep=keep.numpy(),
            mask=mask.numpy(),
            weights=weights.numpy(),
            no_key_left=(~keep.any(dim=-1)).numpy(),
            padding=padding.numpy(),
            row=state["row"],
        )

    def draw(self, record: Record) -> go.Figure:
        """Draw the scores, the mask and the weights of a record."""
        boolean = record.mask.dtype == bool
        terms = np.where(
            record.keep, "True" if boolean else "0", "False" if boolean else "−∞"
        ).astype(object)
        hover = (
            "%{y} → %{x}<br>score %{customdata[0]:.3f}<br>mask %{text}<br>weight"
            " %{customdata[1]:.4f}"
        )
        weights = np.where(np.isnan(record.weights), "NaN", record.weights.astype(object))
        limit = float(np.ceil(np.abs(record.scores).max())) or 1.0
        common: dict[str, Any] = {
            "rows": record.rows,
            "columns": record.columns,
            "selected_row": record.row,
            "hover": hover,
            "text": terms,
            "customdata": np.stack([record.scores.astype(object), weights], axis=-1),
        }
        return panels.draw(
            [
                Map(
                    "Scores",
                    f"q·k ⁄ √E, colours −{limit:.3g} to {limit:.3g}",
                    record.scores,
                    limit=limit,
                    number="%{z:.1f}",
                    **common,
                ),
                Map(
                    "Mask",
                    "True = may look, ✕ = False" if boolean else "added to the scores",
                    record.keep,
                    colours="mask",
                    number="" if boolean else "%{text}",
                    blocked=~record.keep,
                    **common,
                ),
                Map(
                    "Weights",
                    "after the softmax",
                    np.where(record.keep | record.no_key_left[:, None], record.weights, np.nan),
                    colours="weight",
                    blocked=~record.keep & ~record.no_key_left[:, None],
                    nan=np.isnan(record.weights),
                    **common,
                ),
            ]
        )

    def facts(self, record: Record) -> tuple[Fact, ...]:
        """Return what the row looks at, what is blocked, and what becomes of rows without keys."""
        row = record.row
        facts: list[Fact] = []
        if not record.no_key_left[row]:
            facts.append(strongest(record.rows[row], record.columns, record.weights[row]))
        blocked, cells = int((~record.keep).sum()), record.keep.size
        if record.no_key_left.any():
            facts.append(_without_keys(record))
        else:
            facts.append(
                (
                    (
                        f"{blocked} of {cells} cells are blocked; every row keeps at least one key,"
                        " so no row is NaN."
                    ),
                )
            )
        facts.append(
            row_in_numbers(
                record.columns, record.scores[row], record.weights[row], record.keep[row]
            )
        )
        if record.padding.any():
            which = ", ".join(map(str, np.flatnonzero(record.padding)))
            own = (
                "; its own row is still computed: a mask hides keys, not queries"
                if PAD in record.rows
                else ""
            )
            facts.append(
                (
                    "Nobody looks at padding (",
                    Word(f"key {which}", "key"),
                    f"){own}.",
                )
            )
        if record.mask.dtype == bool:
            opposite = "nn.MultiheadAttention takes the opposite: pass ~mask."
            facts.append((f"True = may look, for F.scaled_dot_product_attention. {opposite}",))
        else:
            facts.append(
                (
                    (
                        "A float mask is added to the scores: 0 changes nothing, −∞ leaves a weight"
                        " of 0."
                    ),
                )
            )
        return tuple(facts)

    @fresh_torch()
    def code(self, **state: Any) -> str:
        """Return a program that makes ``scores``, ``mask`` and ``weights`` of a complete state."""
        (L, E), S = self.query.shape, len(self.key)
        sdpa = state["empty_row"] == "zeros"
        lines = ["import torch"]
        lines += ["import torch.nn.functional as F"] if sdpa else []
        lines += [assignment("query", self.query), assignment("key", self.key)]
        lines.append(f"scores = query @ key.T / {E} ** 0.5  # (L, S) = ({L}, {S})")
        shape = f"torch.ones({L}, {S}, dtype=torch.bool)"
        if "causal" in state["attn_mask"]:
            shape += ".tril()"
        if state["attn_mask"] == "window":
            shape += f".tril({state['window']}).triu(-{state['window']})"
        lines.append(f"mask = {shape}  # True = may look")
        if "padding" in state["attn_mask"] and state["padding"]:
            start, stop = (
                (S - state["padding"], "")
                if state["padding_side"] == "right"
                else ("", state["padding"])
            )
            lines.append(f"mask[:, {start}:{stop}] = False  # padding")
        if state["mask_type"] == "float":
            lines.append(
                "mask = torch.zeros_like(scores).masked_fill(~mask, -torch.inf)  # added to the"
                " scores"
            )
        if sdpa:
            lines.append(
                f"identity = torch.eye({S}).to(query)  # as values, it makes the output the weights"
            )
            lines.append(
                "weights = F.scaled_dot_product_attention(query, key, identity, attn_mask=mask)"
            )
        elif state["mask_type"] == "float":
            lines.append("weights = (scores + mask).softmax(dim=-1)")
        else:
            lines.append("weights = scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)")
        return "\n".join(lines)


def _without_keys(record: Record) -> Fact:
    which = np.flatnonzero(record.no_key_left).tolist()
    if len(which) > 1:
        listed = ", ".join(map(str, which[:4])) + (", …" if len(which) > 4 else "")
        start: Fact = (f"{len(which)} rows ({listed}) have no key left",)
    else:
        start = (quoted(record.rows[which[0]], "query"), f" (row {which[0]}) has no key left")
    if np.isnan(record.weights).any():
        return (*start, ": the softmax divides 0 by 0 and gives ", Word("NaN", "warn"), ".")
    return (
        *start,
        ": F.scaled_dot_product_attention makes the weights ",
        Word("zeros", "warn"),
        ", a softmax NaN.",
    )
