"""PackedProjection: where W_q, W_k and W_v of every head lie in a module."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_widgets.attention import MultiheadAttention
from mha_widgets.attention.fresh import fresh_torch
from mha_widgets.explorer import Explorer
from mha_widgets.explorers.packed_projection.figure import (
    THIRDS,
    Record,
    packed_map,
    product_maps,
    separate_maps,
)
from mha_widgets.figures import panels
from mha_widgets.kit import (
    all_by_hand,
    as_code,
    assignment,
    biases,
    check_output,
    copy_for_inference,
    cut,
    difference,
    format_number,
    head_words,
    inputs_for,
    labels,
    one_type,
    quoted,
    sentence,
    thirds,
    vector,
)
from mha_widgets.view import Choice, Control, Fact, Range, Toggle, Word

LARGEST = 128  # features whose matrix can still be looked at


class PackedProjection(Explorer):
    """Shows ``in_proj_weight``, which holds three projections of all heads, and one slice at work.

    Args:
        module: an ``nn.MultiheadAttention``, or ours; a small one with random weights by default.
        x: (L, E), what the queries are made of.
        key: (S, kdim), what the keys are made of; ``x`` if not given.
        value: (S, vdim), likewise; ``key`` if not given.
        tokens: L labels for ``x``.
        key_tokens: S labels for ``key`` and ``value``; those of ``x`` if L = S.

    Raises:
        TypeError: something other than a multi-head attention, tensors and lists of strings.
        ValueError: a module with appended keys or an ``embed_dim`` above 128, inputs that don't fit
            it, numbers that aren't finite, or too few or too many tokens.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html

    >>> explorer = PackedProjection()
    >>> record = explorer.compute(**explorer.complete(third="value", num_heads=4, head=3))
    >>> record.rows, record.weight.shape
    ((22, 24), (2, 8))
    """

    title = "in_proj_weight: three projections in one matrix"
    prompt = (
        "Try: set kdim to 5, and see what becomes of in_proj_weight and of the size that its"
        " numbers start with."
    )

    @fresh_torch()
    def __init__(
        self,
        module: nn.MultiheadAttention | MultiheadAttention | None = None,
        x: Tensor | None = None,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        tokens: Sequence[str] | None = None,
        key_tokens: Sequence[str] | None = None,
    ) -> None:
        if (module is None) != (x is None):
            got = "x but no module" if module is None else "a module but no x"
            raise ValueError(f"PackedProjection got {got}; pass both, or neither.")
        self.controls: dict[str, Control] = {}
        self.module: nn.MultiheadAttention | None = None
        if module is None or x is None:
            self.controls["kdim"] = Choice(
                "kdim", (8, 5), 8, "Features of the keys' input; embed_dim is 8."
            )
            self.controls["vdim"] = Choice(
                "vdim", (8, 3), 8, "Features of the values' input; embed_dim is 8."
            )
            self.controls["bias"] = Toggle(
                "bias", default=True, help="Add biases in the projections."
            )
            own = 2
            cuts: tuple[int, ...] = (1, 2, 4)
            self.tokens = self.key_tokens = labels(
                "tokens", sentence.TOKENS if tokens is None else tokens, 6, "positions"
            )
        else:
            self.module = copy_for_inference(module)
            self.prompt = (
                "Try: choose query, then value. At which row does the framed slice start, and why"
                " there?"
            )
            if (E := self.module.embed_dim) > LARGEST:
                raise ValueError(
                    f"module has embed_dim={E}, a matrix too large to look at; pass one with at"
                    f" most {LARGEST}."
                )
            self.inputs, own = inputs_for(self.module, x, key, value), self.module.num_heads
            given = {"the module": module.out_proj.weight, "x": x, "key": key, "value": value}
            one_type(**{name: tensor for name, tensor in given.items() if tensor is not None})
            check_output(self.module, *self.inputs)
            self.names = ["x", "x" if key is None or key is x else "key", "value"]
            if value is None or value is key or value is x:
                self.names[2] = "x" if value is x else self.names[1]
            L, S = len(self.inputs[0]), len(self.inputs[1])
            self.tokens = labels("tokens", tokens, L, "positions of x")
            self.key_tokens = labels("key_tokens", key_tokens, S, "keys", like=self.tokens)
            cuts = tuple(H for H in range(1, max(own, 8) + 1) if E % H == 0)
        self.controls["num_heads"] = Choice(
            "num_heads", cuts, own, "How many slices each third is cut into."
        )
        self.controls["head"] = Range(
            "Head", tuple(range(cuts[-1])), 0, "Which head's slice is framed.", head_words(cuts)
        )
        self.controls["third"] = Choice("Third", THIRDS, "key", "Which projection is framed.")

    def disabled(self, **state: Any) -> Mapping[str, str]:
        """Return the controls that do nothing in a complete state, each with the reason."""
        return {"head": "There is only one head."} if state["num_heads"] == 1 else {}

    def _called(
        self, state: Mapping[str, Any]
    ) -> tuple[nn.MultiheadAttention, tuple[Tensor, Tensor, Tensor], list[str]]:
        if self.module is not None:
            return cut(self.module, state["num_heads"]), self.inputs, self.names
        with fresh_torch(seed=0):
            x = torch.randn(6, 8)
            module = nn.MultiheadAttention(
                8, state["num_heads"], bias=state["bias"], kdim=state["kdim"], vdim=state["vdim"]
            )
        widths = (8, state["kdim"], state["vdim"])
        names = ["x" if width == 8 else f"x[:, :{width}]" for width in widths]
        return module.requires_grad_(False), (x, x[:, : widths[1]], x[:, : widths[2]]), names

    @fresh_torch()
    def compute(self, **state: Any) -> Record:
        """Return the matrices, the slice of a complete state, and what comes of it.

        Raises:
            ValueError: the head doesn't exist.
        """
        H, head, third = state["num_heads"], state["head"], THIRDS.index(state["third"])
        if head >= H:
            raise ValueError(f"There is no head {head} among {H}: choose one from 0 to {H - 1}.")
        module, inputs, names = self._called(state)
        E, D = module.embed_dim, module.embed_dim // H
        weights, added = thirds(module), biases(module)
        part = slice(head * D, (head + 1) * D)
        own = added[third]
        bias = None if own is None else own[part]
        q, k, v = (
            F.linear(x, w, b).view(-1, H, D).transpose(0, 1)
            for x, w, b in zip(inputs, weights, added, strict=True)
        )
        heads = F.scaled_dot_product_attention(q, k, v).transpose(0, 1)  # (L, H, D)
        by_hand = module.out_proj(heads.reshape(-1, E))
        packed = module.in_proj_weight
        offset = 0 if packed is None else third * E
        return Record(
            tokens=self.tokens if third == 0 else self.key_tokens,
            x=inputs[0].numpy(),
            source_name=names[third],
            source=inputs[third].numpy(),
            packed=None if packed is None else packed.numpy(),
            separate=tuple(weight.numpy() for weight in weights),
            third=state["third"],
            head=head,
            rows=(offset + part.start, offset + part.stop),
            weight=weights[third][part].numpy(),
            projected=F.linear(inputs[third], weights[third][part], bias).numpy(),
            biased=bias is not None and bool(bias.any()),
            by_hand=by_hand.numpy(),
            missed=(by_hand - module(*inputs)[0]).abs().max().item(),
            state_dict={name: tuple(tensor.shape) for name, tensor in module.state_dict().items()},
        )

    def draw(self, record: Record) -> go.Figure:
        """Draw the matrix, or the three, with the slice framed,
        and the product of an input with it.
        """
        if record.packed is None:
            return panels.draw([*separate_maps(record), *product_maps(record)], per_row=3)
        packed = record.packed
        return panels.draw([packed_map(record, packed), *product_maps(record)])

    def facts(self, record: Record) -> tuple[Fact, ...]:
        """Return where the slice lies, what it makes, how large its numbers start,
        and what there is to learn.
        """
        own = ", ".join(f"{name} {shape}" for name, shape in record.state_dict.items())
        total = sum(math.prod(shape) for shape in record.state_dict.values())
        biased = (
            "biases among them, which start at 0"
            if "in_proj_bias" in record.state_dict
            else "no biases"
        )
        return (
            _told_rows(record),
            _told_product(record),
            _told_scale(record),
            (
                (
                    "By hand, from slices like this one, the module's output is off by"
                    f" {difference(record.missed)}."
                ),
            ),
            (f"state_dict: {own}.",),
            (f"{total:,} parameters, {biased}; num_heads only decides where they are cut.",),
        )

    @fresh_torch()
    def code(self, **state: Any) -> str:
        """Return a program that makes ``weight``, ``projected`` and,
        for the example, ``by_hand``.
        """
        module, inputs, names = self._called(state)
        H, head, third = state["num_heads"], state["head"], THIRDS.index(state["third"])
        E, D = module.embed_dim, module.embed_dim // H
        lines = ["import torch", "from torch import nn"]
        if self.module is None:
            options = "" if state["bias"] else ", bias=False"
            options += "".join(
                f", {name}={state[name]}" for name in ("kdim", "vdim") if state[name] != E
            )
            lines += ["torch.manual_seed(0)", "x = torch.randn(6, 8)  # (L, E)"]
            lines.append(f"module = nn.MultiheadAttention({E}, {H}{options})")
        else:
            written = as_code(module, H)
            lines += (
                written
                if written[0].startswith("#")
                else [*written, assignment(names[third], inputs[third])]
            )
        row, start = third * E + head * D, head * D
        name = f"{THIRDS[third][0]}_proj_weight"
        if module.in_proj_weight is not None:
            name, start = "in_proj_weight", row
        added = "" if module.in_proj_bias is None else f" + module.in_proj_bias[{row}:{row + D}]"
        lines.append(
            f"weight = module.{name}[{start}:{start + D}]  # head {head}: (D, F) = ({D},"
            f" {inputs[third].shape[1]})"
        )
        lines.append(f"projected = {names[third]} @ weight.T{added}")
        return "\n".join(
            lines + (all_by_hand(module, names, len(inputs[0])) if self.module is None else [])
        )


def _told_rows(record: Record) -> Fact:
    (start, stop), E, D = record.rows, record.x.shape[1], len(record.weight)
    index = THIRDS.index(record.third)
    if record.packed is None:
        name, shapes = (
            f"{record.third[0]}_proj_weight",
            ", ".join(str(weight.shape) for weight in record.separate),
        )
        where, why = (
            f"{name}[{start}:{stop}]",
            f"inputs of different widths need a matrix each: {shapes}",
        )
    else:
        where = f"in_proj_weight[{start}:{stop}]"
        why = f"its third starts at row {index}·{E} = {index * E}, and each head has {D} rows of it"
    return (
        f"The {record.third} of head {record.head} comes from ",
        Word(where, record.third),
        f": {why}.",
    )


def _told_product(record: Record) -> Fact:
    word, made = (
        quoted(record.tokens[0], record.third),
        Word(vector(record.projected[0]), record.third),
    )
    return (
        word,
        " → ",
        made,
        f": {record.weight.shape[1]} features become its {record.third} in head {record.head}.",
    )


def _told_scale(record: Record) -> Fact:
    E, F = record.x.shape[1], record.weight.shape[1]
    packed, alone = (format_number(math.sqrt(6 / (E + rows))) for rows in (3 * E, F))
    together, apart = f"±√(6 ⁄ ({E} + {3 * E})) = ±{packed}", f"±√(6 ⁄ ({E} + {F})) = ±{alone}"
    if record.packed is None:
        name = f"{record.third[0]}_proj_weight"
        return (
            (
                f"{name} starts with numbers within {apart}; in a packed matrix they would be"
                f" within {together}."
            ),
        )
    why = f"all {3 * E} rows count; those of a matrix ({E}, {E}) alone would be within {apart}"
    return (f"in_proj_weight starts with numbers within {together}, since {why}.",)
