"""MaskArguments: what nn.MultiheadAttention makes of its masks."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from torch import Tensor, nn

from mha_widgets.attention import padding_mask, trace
from mha_widgets.attention.call import Call, Path
from mha_widgets.attention.fresh import fresh_torch
from mha_widgets.explorer import Explorer
from mha_widgets.explorers.mask_arguments import masked_call
from mha_widgets.explorers.mask_arguments.figure import (
    Record,
    all_masks,
    numbered,
    one_mask,
    weights,
)
from mha_widgets.figures import panels
from mha_widgets.kit import batch, format_number, listed, quoted
from mha_widgets.view import Fact, Word

SENTENCES = (("the", "cat", "sat", "down"), ("birds", "sing", "<pad>", "<pad>"))
LENGTHS = (4, 2)
EXAMPLE = batch.Example(seed=8, sizes=(2, 4, 8))
MOST_CELLS = 32  # rows and columns of the map of all masks
MOST_PLACES = 3
MOST_WORDS = 4


class MaskArguments(Explorer):
    """Shows both masks of ``nn.MultiheadAttention`` merged, for every sentence and head,
    and the weights that they leave.

    Args:
        module: an ``nn.MultiheadAttention``, here with ``batch_first`` and without dropout; a small
            one if none is given.
        x: (N, L, E), N sentences of L words, the padding on the right.
        lengths: N numbers of real words; L if not given.
        tokens: N lists of L words.

    Raises:
        TypeError: something other than a module, a tensor and lists.
        ValueError: one without the other, a module of other than self-attention, or sizes that
            don't fit.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html

    >>> explorer = MaskArguments()
    >>> record = explorer.compute(**explorer.complete(attn_mask="3D", order="repeat"))
    >>> record.blocked[0].sum(axis=(1, 2))
    array([6, 9])
    """

    title = "attn_mask, key_padding_mask, is_causal: what the module makes of them"
    prompt = (
        "Try: turn the masks the wrong way round. Who becomes NaN, and what do the others look at?"
    )
    page_controls = (
        *("attn_mask", "key_padding_mask", "mask_type", "polarity", "order"),
        *("is_causal", "need_weights", "training", "sample"),
    )

    @fresh_torch()
    def __init__(
        self,
        module: nn.MultiheadAttention | None = None,
        x: Tensor | None = None,
        *,
        lengths: Sequence[int] | None = None,
        tokens: Sequence[Sequence[str]] | None = None,
    ) -> None:
        own = batch.check_module_and_batch("MaskArguments", module, x)
        self.own = own is not None
        self.module, self.x = own or EXAMPLE.make()
        self.module.batch_first, self.module.dropout = True, 0.0
        if not self.own:
            lengths = LENGTHS if lengths is None else lengths
            tokens = SENTENCES if tokens is None else tokens
        N, L, _ = self.x.shape
        H = self.module.num_heads
        if max(N, H) * L > MOST_CELLS:
            raise ValueError(
                f"x has N × L = {N} × {L} words, and the module H = {H}; pass at most {MOST_CELLS}"
                " for N × L and for H × L, so that all masks can be seen."
            )
        self.padding = ~padding_mask([L] * N if lengths is None else lengths, L)
        if len(self.padding) != N:
            raise ValueError(
                f"lengths has {len(self.padding)} entries for {N} sentences; pass one for each."
            )
        self.tokens = batch.sentences(tokens, N, L)
        self.controls = masked_call.controls(N, H)

    def disabled(self, **state: Any) -> Mapping[str, str]:
        """Return the controls that do nothing in a complete state, each with the reason."""
        reasons = {}
        if state["attn_mask"] != "3D":
            reasons["order"] = "Only a 3D mask has an order."
        elif len(self.x) == 1 or self.module.num_heads == 1:
            reasons["order"] = "With one sentence or one head both orders are the same."
        if state["attn_mask"] == "none" and not state["key_padding_mask"]:
            reasons |= dict.fromkeys(("mask_type", "polarity"), "There is no mask.")
        return reasons

    @fresh_torch()
    def compute(self, **state: Any) -> Record:
        """Return masks, weights and what torch says of one complete state."""
        module = copy.copy(self.module).train(state["training"])
        x, (attn_mask, key_padding_mask) = (
            self.x,
            masked_call.masks(self.padding, self.module.num_heads, self.x.dtype, state),
        )
        call = Call(
            module,
            x,
            x,
            x,
            key_padding_mask,
            state["need_weights"],
            attn_mask,
            False,
            state["is_causal"],
        )
        with torch.set_grad_enabled(state["training"]):
            output, message = masked_call.make_call(call)
            with warnings.catch_warnings():  # what torch says is in the message
                warnings.simplefilter("ignore")
                traced = (
                    trace(*call) if output is not None else trace(*call._replace(is_causal=False))
                )
        reasons, scores = traced.why_not_fast_path, traced["scores"].detach()
        nothing = torch.full_like(scores, torch.nan)
        masked = attn_mask is not None or key_padding_mask is not None
        return Record(
            tokens=self.tokens,
            sample=state["sample"],
            head=state["head"],
            padded=self.padding.numpy(),
            attn_mask=None if attn_mask is None else attn_mask.numpy(),
            key_padding_mask=None if key_padding_mask is None else key_padding_mask.numpy(),
            wanted=masked_call.wanted(self.padding, state).numpy(),
            mask=(traced["mask"] if masked else torch.zeros_like(scores)).numpy(),
            scores=scores.numpy(),
            weights=(nothing if output is None else traced["weights"].detach()).numpy(),
            output=None if output is None else output.detach().numpy(),
            gradients=state["training"],
            path=None if output is None else traced.path,
            reason=reasons[0].words.split(";")[0] if reasons else "",
            message=message,
            merged=masked_call.merged(call),
            traps=() if output is None else traced.warnings,
        )

    def draw(self, record: Record) -> go.Figure:
        """Draw all masks, and the mask and the weights of one sentence and head."""
        return panels.draw([all_masks(record), one_mask(record), weights(record)])

    def facts(self, record: Record) -> tuple[Fact, ...]:
        """Return what torch says, what is blocked, what people trip over, what is looked at,
        and the path.
        """
        if record.path is None:
            return (*_said(record), _refused(record), *_merging(record))
        first = (
            *_said(record),
            _counted(record),
            *_without_a_key(record),
            *_traps(record),
            *_looks(record),
        )
        return (
            *first,
            _path(record, record.path),
            *_polarity(record),
            *_merging(record),
            *_queries(record),
        )[:6]

    @fresh_torch()
    def code(self, **state: Any) -> str:
        """Return a program that makes the masks, ``output``,
        ``weights`` and ``message`` of a complete state.
        """
        setting = batch.rebuilt(self.module, self.x, True) if self.own else EXAMPLE.program(True)
        setting[-1] += f"  # (N, L, E) = {tuple(self.x.shape)}"
        raises = (
            state["is_causal"]
            and state["attn_mask"] == "none"
            and self.compute(**state).path is None
        )
        return masked_call.program(setting, self.padding, self.module.num_heads, state, raises)


def _said(r: Record) -> list[Fact]:
    if not r.message:
        return []
    first = r.message.split(". ")[0].rstrip(".")
    return [
        (
            "torch raises a RuntimeError: " if r.path is None else "torch warns: ",
            Word(first, "warn"),
            ".",
        )
    ]


def _refused(r: Record) -> Fact:
    return (
        (
            "Alone, the hint passes only where torch runs the call as one fused operation, its"
            f" fast path, and there it blocks no future; here that way is closed: {r.reason}."
        ),
    )


def _counted(r: Record) -> Fact:
    """Say how many cells are blocked, and where they are not those that should be."""
    if r.merged is None:
        too = "padding and later words" if r.padded.any() else "later words"
        return (
            (
                f"Nothing is blocked, since there is no mask: every query looks at every key, {too}"
                " too."
            ),
        )
    N, H = r.mask.shape[:2]
    alike = bool((r.mask == r.mask[:, :1]).all())
    heads = [r.head] if alike else range(H)
    mask, here = r.mask[r.sample, r.head], _mistakes(r, r.sample, r.head)
    start = f"Sentence {r.sample}, {'every head' if alike and H > 1 else f'head {r.head}'}: "
    fact: Fact = (f"{start}{(mask == -np.inf).sum()} of {mask.size} cells are blocked",)
    fact += (
        ("; ", Word(f"by mistake: {here}", "warn"))
        if here
        else (", all that should be and no other",)
    )
    if (mask > 0).any():
        fact += (f"; the mask makes {(mask > 0).sum()} scores larger instead",)
    others = [
        (n, head)
        for n in range(N)
        for head in heads
        if (n, head) != (r.sample, r.head) and r.amiss[n, head].any()
    ]
    if not others:
        return (*fact, "." if here or N * H == 1 else ", as everywhere.")
    wrong = [
        f"{_mistakes(r, n, head)} in sentence {n}{'' if alike else f', head {head}'}"
        for n, head in others
    ]
    return (
        *fact,
        ". ",
        Word(f"Elsewhere by mistake: {listed(wrong, MOST_PLACES, '; ')}", "warn"),
        ".",
    )


def _mistakes(r: Record, n: int, head: int) -> str:
    blocked, amiss = r.blocked[n, head], r.amiss[n, head]
    counts = {"blocked": (blocked & amiss).sum(), "open": (~blocked & amiss).sum()}
    return ", ".join(f"{count} {what}" for what, count in counts.items() if count)


def _without_a_key(r: Record) -> list[Fact]:
    empty: np.ndarray = np.asarray(r.blocked.all(axis=-1))  # (N, H, L)
    if not empty.any():
        return []
    places = []
    for n in np.flatnonzero(empty.any(axis=(1, 2))):
        words = [
            f"“{word}”"
            for word, none in zip(numbered(r.tokens[n]), empty[n].any(axis=0), strict=True)
            if none
        ]
        places.append(f"{listed(words, MOST_WORDS)} (sentence {n})")
    some = "" if (empty == empty[:, :1]).all() else " in some of the heads"
    start = f"No key is left{some} for {listed(places, MOST_PLACES)}: "
    if r.path is Path.SDPA:
        return [
            (
                start,
                Word("weights of zeros", "warn"),
                ", so that only the bias of out_proj, the last step, is their output.",
            )
        ]
    return [
        (
            start,
            Word("NaN", "warn"),
            f" as weights and as output{', and as every gradient' if r.gradients else ''}.",
        )
    ]


def _traps(r: Record) -> list[Fact]:
    """Return what people trip over, but for what other facts say."""
    told = ["Queries with no key left", "repeat_interleave"] + ["deprecates mixed types"] * bool(
        r.message
    )
    traps = [trap for trap in r.traps if not any(words in trap for words in told)]
    of_sentences = (
        None if r.attn_mask is None or r.attn_mask.ndim == 2 else r.attn_mask.reshape(*r.mask.shape)
    )
    if of_sentences is not None and not (of_sentences == of_sentences[:, :1]).all():
        traps.insert(
            0,
            "mask.repeat lays out all sentences and then all of them again, but the module takes"
            " the first num_heads masks for sentence 0, and so on: sentences get each other's"
            " masks; use mask.repeat_interleave(num_heads, dim=0).",
        )
    return [(Word("Careful:", "warn"), f" {trap}") for trap in traps]


def _looks(r: Record) -> list[Fact]:
    """Return what the words of the sentence look at most, if they look at anything."""
    names, fact = numbered(r.tokens[r.sample]), list[str | Word]()
    for name, row, padded in zip(
        names, r.weights[r.sample, r.head], r.padded[r.sample], strict=True
    ):
        if row.max() > 0 and not padded:
            looks = " looks most at " if not fact else " at "
            fact += [", " if fact else f"In head {r.head} ", quoted(name, "query"), looks]
            fact += [quoted(names[row.argmax()], "key"), f" ({format_number(row.max())})"]
    if len(fact) > 5 * MOST_WORDS:
        return [(*fact[: 5 * MOST_WORDS], ", ….")]
    return [(*fact, ".")] if fact else []


def _path(r: Record, path: Path) -> Fact:
    slower = f"torch's fast path, one fused operation, is closed: {r.reason}."
    taken = {
        Path.NATIVE: "This call runs as one fused operation, torch's fast path.",
        Path.EXPLICIT: (
            f"This call works out every weight, to return them (need_weights=True); {slower}"
        ),
        Path.SDPA: (
            "This call uses F.scaled_dot_product_attention, which keeps no weights"
            f" (need_weights=False); {slower}"
        ),
    }
    return (taken[path],)


def _polarity(r: Record) -> list[Fact]:
    masks = [mask for mask in (r.attn_mask, r.key_padding_mask) if mask is not None]
    if (
        not masks
        or any(mask.dtype != bool for mask in masks)
        or any("looks inverted" in trap for trap in r.traps)
    ):
        return []
    return [
        ("True blocks here. F.scaled_dot_product_attention takes the opposite: True = may look.",)
    ]


def _merging(r: Record) -> list[Fact]:
    if r.merged is None:
        return []
    kind, shape = r.merged
    if kind == 1:
        made = (
            f"key_padding_mask stays one row for each sentence, (N, S) = {shape}, which its heads"
            " and queries share"
        )
    else:
        start = (
            "attn_mask becomes one mask" if r.key_padding_mask is None else "Both masks become one"
        )
        made = f"{start} with a cell for each sentence, head, query and key, (N, H, L, S) = {shape}"
    return [(f"{made}; module.merge_masks calls that type {kind}.",)]


def _queries(r: Record) -> list[Fact]:
    if r.key_padding_mask is None or not r.padded.any():
        return []
    return [("The rows of padding are still computed: key_padding_mask hides keys, not queries.",)]
