"""Heads: attentions side by side, each on its slice of queries, keys and values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_widgets.attention import MultiheadAttention
from mha_widgets.attention.fresh import fresh_torch
from mha_widgets.explorer import Explorer
from mha_widgets.explorers.heads import example
from mha_widgets.figures import PALETTE, HeadMap, JoinedHeads, Map, panels
from mha_widgets.kit import (
    as_code,
    assignment,
    biases,
    check_output,
    copy_for_inference,
    counted,
    cut,
    format_number,
    habits,
    head_words,
    labels,
    matrix,
    one_type,
    quoted,
    sentence,
)
from mha_widgets.view import Choice, Fact, Toggle, Word

MOST_MAPS, MOST_POSITIONS, MOST_FEATURES = 16, 128, 32  # that can be looked at together


@dataclass(frozen=True)
class Record:
    """One call of the module, and how its heads are joined.

    Attributes:
        tokens: (L,), the labels of the positions.
        x: (L, E).
        weights: what the call returns: (H, L, L), or their mean (L, L).
        output: (L, E), with the heads joined in the way that was asked for.
        per_head: (H, L, L), the weights of each head.
        mean: (L, L), their mean.
        mask: (L, L), True = blocked, or None.
        head: the head to look at, or None for all.
        averaged: whether the mean is returned.
        whose: (L, E), the head that each feature of the joined heads comes from.
        position: (L, E), the position that it was computed for.
        damage: the largest difference between this output and the right one.
        parameters: how many numbers the module learns.
    """

    tokens: tuple[str, ...]
    x: np.ndarray
    weights: np.ndarray
    output: np.ndarray
    per_head: np.ndarray
    mean: np.ndarray
    mask: np.ndarray | None
    head: int | None
    averaged: bool
    whose: np.ndarray
    position: np.ndarray
    damage: float
    parameters: int


class Heads(Explorer):
    """Shows the map of each head, their mean, and how the heads are joined again.

    Args:
        module: an ``nn.MultiheadAttention``, or ours; by default one whose four heads look at four
            different things. Its weights can be cut into every number of heads that divides
            ``embed_dim``.
        x: (L, E), one sequence without a batch axis, which looks at itself.
        tokens: L labels.

    Raises:
        TypeError: something other than a multi-head attention, a tensor and a list of strings.
        ValueError: a module for inputs of several widths or with appended keys, an ``x`` that
            doesn't fit it or has more than 128 positions, numbers that aren't finite, or too few or
            too many tokens.

    Source: Vaswani et al. 2017, https://arxiv.org/abs/1706.03762, section 3.2.2.

    >>> module = nn.MultiheadAttention(embed_dim=12, num_heads=3)
    >>> heads = Heads(module, torch.randn(5, 12))
    >>> heads.controls["num_heads"].values
    (1, 2, 3, 4, 6)
    >>> heads.compute(**heads.complete(num_heads=6)).weights.shape
    (6, 5, 5)
    """

    title = "Heads: queries, keys and values, cut into slices"
    prompt = (
        "Try: average the heads, as nn.MultiheadAttention does by default, and look for what each"
        " head was doing."
    )

    @fresh_torch()
    def __init__(
        self,
        module: nn.MultiheadAttention | MultiheadAttention | None = None,
        x: Tensor | None = None,
        tokens: Sequence[str] | None = None,
    ) -> None:
        if (module is None) != (x is None):
            raise ValueError(
                f"Heads got {'x but no module' if module is None else 'a module but no x'}; pass"
                " both, or neither."
            )
        self._example = module is None
        if module is None or x is None:
            module, x = example.make_module(), example.X
            tokens = sentence.TOKENS if tokens is None else tokens
        self.module = copy_for_inference(module)
        self.x = matrix("x", x, "(L, E)")
        one_type(**{"the module": module.out_proj.weight, "x": x})
        self._check()
        if module.num_heads == 1:
            self.prompt = (
                "Try: switch the mask to causal. Where does the weight of the later tokens go?"
            )
        self.tokens = labels("tokens", tokens, len(self.x), "positions")
        own, E = self.module.num_heads, self.module.embed_dim
        cuts = tuple(H for H in range(1, max(own, PALETTE) + 1) if E % H == 0)
        if self._example:
            cuts = (1, 2, 3, 4, 8)  # 3 can't be: the error is a lesson
        self.controls = {
            "num_heads": Choice(
                "num_heads", cuts, own, "How many slices queries, keys and values are cut into."
            ),
            "average_attn_weights": Toggle(
                "average_attn_weights", help="Return the mean over the heads, not each."
            ),
            "head": Choice(
                *(
                    "Head",
                    ("all", *range(cuts[-1])),
                    "all" if own <= MOST_MAPS else 0,
                    "Which head to look at.",
                ),
                ("all", *head_words([H for H in cuts if E % H == 0])),
            ),
            "attn_mask": Choice(
                "Mask",
                ("none", "causal"),
                "none",
                "Which keys are blocked: the same for every head.",
            ),
            "merge": Choice(
                *(
                    "Joining the heads",
                    ("transpose", "reshape"),
                    "transpose",
                    "How (H, L, D) becomes (L, E) again.",
                ),
                ("right", "transpose forgotten"),
            ),
        }

    def _check(self) -> None:
        E, kdim, vdim = self.module.embed_dim, self.module.kdim, self.module.vdim
        if not E == kdim == vdim:
            raise ValueError(
                f"module has embed_dim={E}, kdim={kdim} and vdim={vdim}; pass one where all are"
                " equal: x attends to itself."
            )
        if len(self.x) > MOST_POSITIONS:
            raise ValueError(
                f"x has {len(self.x)} positions, too many to look at; pass at most"
                f" {MOST_POSITIONS}."
            )
        if self.x.shape[1] != E:
            raise ValueError(
                f"x has shape {tuple(self.x.shape)}, but the module has embed_dim={E}; pass x as"
                f" (L, {E})."
            )
        check_output(self.module, *[self.x] * 3)

    def disabled(self, **state: Any) -> Mapping[str, str]:
        """Return the controls that do nothing in a complete state, each with the reason."""
        reasons = {}
        if state["average_attn_weights"]:
            reasons["head"] = "The heads are averaged."
        if len(self.x) == 1:
            reasons["merge"] = "With one position there is nothing to mix up."
        if state["num_heads"] == 1:
            reasons |= dict.fromkeys(
                ("average_attn_weights", "head", "merge"), "There is only one head."
            )
        return reasons

    @fresh_torch()
    def compute(self, **state: Any) -> Record:
        """Return the weights of every head, and the output for a way to join them.

        Raises:
            ValueError: a number of heads that doesn't divide the features, or a head that doesn't
                exist.
        """
        (L, E), H, averaged = self.x.shape, state["num_heads"], state["average_attn_weights"]
        module, D = cut(self.module, H), E // H
        head = None if averaged or state["head"] == "all" else state["head"]
        if head is not None and head >= H:
            raise ValueError(
                f"There is no head {head} among {H}: choose one from 0 to {H - 1}, or all."
            )
        if head is None and not averaged and H > MOST_MAPS:
            raise ValueError(
                f"The maps of {H} heads are too many to be looked at together; choose one head, or"
                " average them."
            )
        mask = (
            torch.ones(L, L, dtype=torch.bool).triu(1) if state["attn_mask"] == "causal" else None
        )
        right, per_head = module(self.x, self.x, self.x, attn_mask=mask, average_attn_weights=False)
        source, output = torch.arange(H * L).view(H, L, 1).expand(H, L, D), right
        if state["merge"] == "transpose":
            source = source.transpose(0, 1)
        else:
            value = F.linear(self.x, module.in_proj_weight[2 * E :], biases(module)[2])
            value = value.view(L, H, D).transpose(0, 1)  # (H, L, D)
            output = module.out_proj((per_head @ value).reshape(L, E))
        whose, position = np.divmod(source.reshape(L, E).numpy(), L)
        mean = per_head.mean(dim=0)
        return Record(
            tokens=self.tokens,
            x=self.x.numpy(),
            weights=(mean if averaged else per_head).numpy(),
            output=output.numpy(),
            per_head=per_head.numpy(),
            mean=mean.numpy(),
            mask=None if mask is None else mask.numpy(),
            head=head,
            averaged=averaged,
            whose=whose,
            position=position,
            damage=float((output - right).abs().max()),
            parameters=sum(parameter.numel() for parameter in module.parameters()),
        )

    def draw(self, record: Record) -> go.Figure:
        """Draw the maps of the heads or their mean,
        and where each feature of the joined heads comes from.
        """
        drawn: list[Map] = []
        if not record.averaged:
            drawn += [_head(record, h) for h in _shown(record)]
        if record.averaged or record.head is not None:
            returned = "what the call returns" if record.averaged else "of all heads, to compare"
            drawn.append(_weights(record, "Mean", returned, record.mean))
        return panels.draw([*drawn, _joined(record)], per_row=4)

    def facts(self, record: Record) -> tuple[Fact, ...]:
        """Return the width of a head, what the heads look at, what their mean hides,
        and how they were joined.
        """
        (H, L, _), E = record.per_head.shape, record.x.shape[1]
        shown = {head: record.per_head[head] for head in _shown(record)}
        width = f"head_dim = embed_dim ÷ num_heads = {E} ÷ {H} = {E // H}"
        formula = f"4·{E}² + 4·{E} = " if record.parameters == 4 * E * E + 4 * E else ""
        size = (
            (
                f"{formula}{record.parameters:,} parameters, whatever num_heads is: the same"
                " weights are cut differently."
            ),
        )
        mask = (
            (
                f"One ({L}, {L}) mask is for every head: none sees a later position, whatever it"
                " looks for."
            ),
        )
        masked: list[Fact] = [] if record.mask is None else [mask]
        if H == 1:
            alone = (
                f"{width}: the one head has all features, and one softmax for all that they ask."
            )
            return (habits(shown, record.tokens, False), (alone,), *masked, size)
        each = (f"{width}: each head has {counted(E // H, 'feature')} of its own.",)
        return (
            habits(shown, record.tokens, record.averaged),
            _hidden(record),
            each,
            _told_join(record),
            *masked,
            size,
        )

    @fresh_torch()
    def code(self, **state: Any) -> str:
        """Return a program that makes ``weights`` and ``output`` of a complete state."""
        (L, E), H, averaged = self.x.shape, state["num_heads"], state["average_attn_weights"]
        wrong, mask = state["merge"] == "reshape", state["attn_mask"] == "causal"
        lines = ["import torch", "from torch import nn"]
        if self._example:
            lines += example.CODE.format(H=H).split("\n")
        else:
            written = as_code(self.module, H)
            lines += written if written[0].startswith("#") else [*written, assignment("x", self.x)]
        lines += (
            [f"mask = torch.ones({L}, {L}, dtype=torch.bool).triu(1)  # True = blocked"]
            if mask
            else []
        )
        options = ", attn_mask=mask" if mask else ""
        if not averaged or wrong:
            options += f", average_attn_weights=False)  # weights: (H, L, S) = ({H}, {L}, {L}"
        else:
            options += f")  # weights: ({L}, {L}"
        lines.append(f"output, weights = module(x, x, x{options})")
        if wrong:
            bias = biases(self.module)[2]
            added = "" if bias is None or not bias.any() else f" + module.in_proj_bias[{2 * E}:]"
            lines.append(f"v = x @ module.in_proj_weight[{2 * E}:].T{added}")
            lines.append(f"v = v.view({L}, {H}, {E // H}).transpose(0, 1)  # (H, L, D)")
            lines.append(
                f"output = module.out_proj((weights @ v).reshape({L}, {E}))  # forgot"
                " .transpose(0, 1)"
            )
            lines += (
                ["weights = weights.mean(dim=0)  # what average_attn_weights=True returns"]
                if averaged
                else []
            )
        return "\n".join(lines)


def _shown(record: Record) -> list[int]:
    return list(range(len(record.per_head))) if record.head is None else [record.head]


def _weights(
    record: Record, title: str, subtitle: str, weights: np.ndarray, border: str = "line"
) -> Map:
    values = weights if record.mask is None else np.where(record.mask, np.nan, weights)
    labels: dict[str, Any] = {
        "rows": record.tokens,
        "columns": record.tokens,
        "blocked": record.mask,
    }
    return HeadMap(
        title,
        subtitle,
        values,
        colours="weight",
        hover="%{y} → %{x}: %{z:.4f}",
        border=border,
        **labels,
    )


def _head(record: Record, head: int) -> Map:
    D = record.x.shape[1] // len(record.per_head)
    features = (
        f"feature {head}"
        if D == 1
        else f"features {head * D} {'and' if D == 2 else 'to'} {head * D + D - 1}"
    )
    return _weights(
        record, f"Head {head}", features, record.per_head[head], f"head-{head % PALETTE}"
    )


def _joined(record: Record) -> Map:
    L, E = record.x.shape
    features = np.arange(0, E, -(-E // MOST_FEATURES))  # of many every so-many-th
    whose, position = record.whose[:, features], record.position[:, features]
    cells = zip(whose.ravel(), position.ravel(), strict=True)
    wrong = (record.position != np.arange(L)[:, None]).any()
    return JoinedHeads(
        "Heads joined wrongly" if wrong else "Heads joined",
        f"cell = head·position, (L, E) = ({L}, {E})",
        whose % PALETTE,
        record.tokens,
        tuple(map(str, features)),
        role="warn" if wrong else "output",
        row_axis=("output", "output"),
        column_axis=("feature", "soft"),
        number="%{text}",
        hover="%{y}, feature %{x}<br>head·position %{text}",
        text=np.array([f"{head}·{position}" for head, position in cells], dtype=object).reshape(
            whose.shape
        ),
    )


def _hidden(record: Record) -> Fact:
    H, L, _ = record.per_head.shape
    heads = record.per_head if record.head is None else record.per_head[[record.head]]
    away = (heads - record.mean).round(5)
    start = f"The call returns ({H}, {L}, {L})"
    if record.averaged:
        start = f"average_attn_weights=True returns one ({L}, {L}) map for {H} heads"
    if away.max() < 0.005:
        return (f"{start}; the heads give nearly the same weights, so their mean hides nothing.",)
    index, row, column = np.unravel_index(away.argmax(), away.shape)
    weight, mean = heads[index, row, column], record.mean[row, column]
    return (
        *(
            f"{start}: in head {_shown(record)[index]} ",
            quoted(record.tokens[row], "query"),
            f" (row {row}) gives ",
        ),
        *(
            quoted(record.tokens[column], "key"),
            f" (key {column}) {weight:.2f}, in the mean over the heads {mean:.2f}.",
        ),
    )


def _told_join(record: Record) -> Fact:
    (H, L, _), E = record.per_head.shape, record.x.shape[1]
    apart, beside = f"({H}, {L}, {E // H})", f"({L}, {E})"
    strange = int((record.position != np.arange(L)[:, None]).sum())
    if not strange:
        return (
            (
                f"Joined: {apart}.transpose(0, 1).reshape{beside} puts the heads of a position side"
                " by side, in its own row."
            ),
        )
    heads, positions = (
        counted(len(set(record.whose[0])), "head"),
        counted(len(set(record.position[0])), "position"),
    )
    return (
        "Without the transpose ",
        Word(f"{strange} of {L * E} features", "warn"),
        (
            " are another position's, and no error says so: "
            f"row 0 holds {heads} for {positions} instead of {H} heads for its own, "
            f"and the output is off by up to {format_number(record.damage)}."
        ),
    )
