"""MaskArguments: what nn.MultiheadAttention makes of its masks."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from torch import Tensor, nn

from mha_widgets.attention import padding_mask, trace
from mha_widgets.attention.call import Call, Path
from mha_widgets.explorer import Explorer, Fact, Word
from mha_widgets.explorers import _masked_call, _own_batch
from mha_widgets.figures import panels
from mha_widgets.figures.maps import Frame, Map

SENTENCES = (("the", "cat", "sat", "down"), ("birds", "sing", "<pad>", "<pad>"))
LENGTHS = (4, 2)
EXAMPLE = _own_batch.Example(seed=8, sizes=(2, 4, 8))
MOST_CELLS = 32  # rows and columns of the map of all masks


@dataclass(frozen=True)
class Record:
    """One call with masks.

    Attributes:
        tokens: (N, L), the words of each sentence.
        sample, head: which of all to look at.
        padded: (N, L), where the padding is.
        attn_mask, key_padding_mask: the arguments, or None.
        wanted: (N, L, S), who is meant to look at whom.
        mask: (N, H, L, S), what is added to the scores in the end; zeros without a mask.
        scores: (N, H, L, S), before the mask.
        weights: (N, H, L, S); NaN if the call raises.
        output: (N, L, E), or None if the call raises.
        path: the way that the call takes, in words, and None if it raises.
        reason: why not the fast path; "" if it is.
        message: what torch itself says, an error or a warning.
        merged: the type that ``module.merge_masks`` gives, and the shape of the merged mask; None without a mask.
        traps: what people trip over in this call, a sentence each.
    """

    tokens: tuple[tuple[str, ...], ...]
    sample: int
    head: int
    padded: np.ndarray
    attn_mask: np.ndarray | None
    key_padding_mask: np.ndarray | None
    wanted: np.ndarray
    mask: np.ndarray
    scores: np.ndarray
    weights: np.ndarray
    output: np.ndarray | None
    path: Path | None
    reason: str
    message: str
    merged: tuple[int, tuple[int, ...]] | None
    traps: tuple[str, ...]

    @property
    def blocked(self) -> np.ndarray:
        """(N, H, L, S), the cells whose score becomes minus infinity."""
        return self.mask == -np.inf

    @property
    def amiss(self) -> np.ndarray:
        """(N, H, L, S), the cells that are blocked and should not be, or the other way round."""
        return self.blocked == self.wanted[:, None]


class MaskArguments(Explorer):
    """Shows both masks of ``nn.MultiheadAttention`` merged, for every sentence and head, and the weights that they leave.

    Args:
        module: an ``nn.MultiheadAttention``, here with ``batch_first`` and without dropout; a small one if none is given.
        x: (N, L, E), N sentences of L words, the padding on the right.
        lengths: N numbers of real words; L if not given.
        tokens: N lists of L words.

    Raises:
        TypeError: something other than a module, a tensor and lists.
        ValueError: one without the other, a module of other than self-attention, or sizes that don't fit.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html

    >>> explorer = MaskArguments()
    >>> explorer.compute(**explorer.complete(attn_mask="3D", order="repeat")).blocked[0].sum(axis=(1, 2))
    array([6, 9])
    """

    title = "attn_mask, key_padding_mask, is_causal: what the module makes of them"
    prompt = "Try: turn the masks the wrong way round. Who becomes NaN, and what do the others look at?"
    page_controls = (
        *("attn_mask", "key_padding_mask", "mask_type", "polarity", "order"),
        *("is_causal", "need_weights", "training", "sample"),
    )

    def __init__(
        self,
        module: nn.MultiheadAttention | None = None,
        x: Tensor | None = None,
        *,
        lengths: Sequence[int] | None = None,
        tokens: Sequence[Sequence[str]] | None = None,
    ) -> None:
        own = _own_batch.both("MaskArguments", module, x)
        self.own = own is not None
        self.module, self.x = own or EXAMPLE.made()
        self.module.batch_first, self.module.dropout = True, 0.0
        if not self.own:
            lengths = LENGTHS if lengths is None else lengths
            tokens = SENTENCES if tokens is None else tokens
        N, L, _ = self.x.shape
        H = self.module.num_heads
        if max(N, H) * L > MOST_CELLS:
            raise ValueError(
                f"x has N × L = {N} × {L} words, and the module H = {H}; pass at most {MOST_CELLS} for N × L and for H × L, "
                "so that all masks can be seen."
            )
        self.padding = ~padding_mask([L] * N if lengths is None else lengths, L)
        if len(self.padding) != N:
            raise ValueError(f"lengths has {len(self.padding)} entries for {N} sentences; pass one for each.")
        self.tokens = _own_batch.sentences(tokens, N, L)
        self.controls = _masked_call.controls(N, H)

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

    def compute(self, **state: Any) -> Record:
        """Return masks, weights and what torch says of one complete state."""
        module = copy.copy(self.module).train(state["training"])
        x, (attn_mask, key_padding_mask) = self.x, _masked_call.masks(self.padding, self.module.num_heads, self.x.dtype, state)
        call = Call(module, x, x, x, key_padding_mask, state["need_weights"], attn_mask, False, state["is_causal"])
        with torch.set_grad_enabled(state["training"]):
            output, message = _masked_call.made(call)
            with warnings.catch_warnings():  # what torch says is in the message
                warnings.simplefilter("ignore")
                traced = trace(*call) if output is not None else trace(*call._replace(is_causal=False))
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
            wanted=_masked_call.wanted(self.padding, state).numpy(),
            mask=(traced["mask"] if masked else torch.zeros_like(scores)).numpy(),
            scores=scores.numpy(),
            weights=(nothing if output is None else traced["weights"].detach()).numpy(),
            output=None if output is None else output.detach().numpy(),
            path=None if output is None else traced.path,
            reason=reasons[0].words.split(";")[0] if reasons else "",
            message=message,
            merged=_masked_call.merged(call),
            traps=() if output is None else traced.warnings,
        )

    def draw(self, record: Record) -> go.Figure:
        """Draw all masks, and the mask and the weights of one sentence and head."""
        return panels.draw([_all_masks(record), _one_mask(record), _weights(record)])

    def facts(self, record: Record) -> tuple[Fact, ...]:
        """Return what torch says, the path, what people trip over, and what is blocked."""
        if record.path is None:
            return (*_said(record), _path(record), *_merging(record))
        traps = tuple((Word("Careful:", "warn"), f" {trap}") for trap in _traps(record))
        always = (*_said(record), _counted(record), _path(record))
        return (*always, *traps, *_polarity(record), *_merging(record), *_queries(record))[:6]

    def code(self, **state: Any) -> str:
        """Return a program that makes the masks, ``output``, ``weights`` and ``message`` of a complete state."""
        setting = _own_batch.rebuilt(self.module, self.x, True) if self.own else EXAMPLE.program(True)
        setting[-1] += f"  # (N, L, E) = {tuple(self.x.shape)}"
        raises = state["is_causal"] and state["attn_mask"] == "none" and self.compute(**state).path is None
        return _masked_call.program(setting, self.padding, self.module.num_heads, state, raises)


def _all_masks(r: Record) -> Map:
    N, H, L, S = r.mask.shape

    def laid_out(cells: np.ndarray) -> np.ndarray:
        return cells.transpose(0, 2, 1, 3).reshape(N * L, H * S)

    marks = np.where(r.blocked, "✕", "").astype(object) + np.where(r.amiss, "!", "").astype(object)
    return Map(
        "All masks",
        "✕ = blocked, ! = not as it is meant",
        laid_out(~r.blocked),
        [f"{n} {token}" for n, sentence in enumerate(r.tokens) for token in sentence],
        [f"{h}·{j}" for h in range(H) for j in range(S)],
        row_axis=("sentence, query", "query"),
        column_axis=("head · key", "key"),
        colours="mask",
        number="%{text}",
        text=laid_out(marks),
        blocked=laid_out(r.blocked),
        frames=[Frame("query", r.head * S, r.sample * L, r.head * S + S, r.sample * L + L)],
        hover="%{y} → %{x} %{text}",
    )


def _of_one(r: Record) -> dict[str, Any]:
    terms = r.mask[r.sample, r.head]
    text = np.array([[f"{term:+g}" if term else "0" for term in row] for row in terms], dtype=object)
    text[terms == -np.inf] = "−∞"
    return {
        "rows": r.tokens[r.sample],
        "columns": r.tokens[r.sample],
        "text": text,
        "customdata": r.scores[r.sample, r.head, ..., None],
        "hover": "%{y} → %{x}<br>score %{customdata[0]:.3f}<br>mask %{text}<br>weight %{z:.4f}",
    }


def _one_mask(r: Record) -> Map:
    return Map(
        f"Sentence {r.sample}, head {r.head}: mask",
        "added to the scores",
        ~r.blocked[r.sample, r.head],
        colours="mask",
        number="%{text}",
        **_of_one(r) | {"hover": "%{y} → %{x}<br>score %{customdata[0]:.3f}<br>mask %{text}"},
    )


def _weights(r: Record) -> Map:
    weights, blocked = r.weights[r.sample, r.head], r.blocked[r.sample, r.head]
    raised, nan = r.path is None, np.isnan(weights)
    empty = blocked.all(axis=-1, keepdims=True)
    return Map(
        "Weights",
        "none: the call raises" if raised else "softmax(scores + mask)",
        np.where(blocked & ~empty, np.nan, weights),
        colours="weight",
        blocked=blocked & ~empty & (not raised),
        nan=nan if nan.any() and not raised else None,
        **_of_one(r),
    )


def _said(r: Record) -> list[Fact]:
    if not r.message:
        return []
    first = r.message.split(". ")[0].rstrip(".")
    return [("torch raises a RuntimeError: " if r.path is None else "torch warns: ", Word(first, "warn"), ".")]


def _traps(r: Record) -> list[str]:
    """Return what people trip over, but for what other facts say."""
    told = ["deprecates mixed types"] if r.message else []
    if any(trap.startswith("attn_mask is float and") for trap in r.traps):
        told.append("key_padding_mask is float and")  # the same once more
    return [trap for trap in r.traps if not any(words in trap for words in told)]


def _path(r: Record) -> Fact:
    if r.path is None:
        off = f"Off the fast path (here {r.reason}) the hint needs an attn_mask"
        return (f"{off}; on it the same call passes, and blocks no future.",)
    taken = {
        Path.NATIVE: "This call takes the native fast path, where a row with no key left becomes NaN.",
        Path.EXPLICIT: f"This call computes explicit weights ({r.reason}): a row with no key left becomes NaN.",
        Path.SDPA: f"This call goes through F.scaled_dot_product_attention ({r.reason}): a row with no key left becomes zeros, "
        "and its output the bias of the output projection.",
    }
    return (taken[r.path],)


def _polarity(r: Record) -> list[Fact]:
    masks = [mask for mask in (r.attn_mask, r.key_padding_mask) if mask is not None]
    if not masks or any(mask.dtype != bool for mask in masks) or any("looks inverted" in trap for trap in r.traps):
        return []
    return [("True blocks here. F.scaled_dot_product_attention takes the opposite: True = may look.",)]


def _counted(r: Record) -> Fact:
    mask, amiss = r.mask[r.sample, r.head], r.amiss[r.sample, r.head]
    blocked, grown = mask == -np.inf, int((mask > 0).sum())
    start = f"Sentence {r.sample}, head {r.head}: {blocked.sum()} of {mask.size} cells are blocked"
    if not amiss.any():
        return (f"{start}, all that should be and no other.",)
    counts = {"blocked": int((blocked & amiss).sum()), "open": int((~blocked & amiss).sum())}
    wrong = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
    return (f"{start}; ", Word(f"by mistake: {wrong}", "warn"), f"; scores that grow: {grown}." if grown else ".")


def _merging(r: Record) -> list[Fact]:
    if r.merged is None:
        return [("Nothing is blocked: there is no mask.",)]
    kind, shape = r.merged
    which = "1, key_padding_mask alone" if kind == 1 else "2, as with any attn_mask; 1 is key_padding_mask alone"
    return [(f"module.merge_masks makes {shape} of them: type {which}.",)]


def _queries(r: Record) -> list[Fact]:
    if r.key_padding_mask is None or not r.padded.any():
        return []
    return [("The rows of padding are still computed: key_padding_mask hides keys, not queries.",)]
