"""What MaskArguments records, and its maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mha_widgets.attention.call import Path
from mha_widgets.figures import Frame, Map

BELOW = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


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
        gradients: whether it is made with gradients.
        path: the way that the call takes, in words, and None if it raises.
        reason: why not the fast path; "" if it is.
        message: what torch itself says, an error or a warning.
        merged: the type that ``module.merge_masks`` gives, and the shape of the merged mask; None
            without a mask.
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
    gradients: bool
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


def numbered(sentence: Sequence[str]) -> list[str]:
    """Return the words of a sentence, with their position where a word occurs more than once.

    >>> numbered(["birds", "sing", "<pad>", "<pad>"])
    ['birds', 'sing', '<pad>₂', '<pad>₃']
    """
    return [
        word + str(position).translate(BELOW) if sentence.count(word) > 1 else word
        for position, word in enumerate(sentence)
    ]


def all_masks(r: Record) -> Map:
    """Draw the masks of all sentences and heads."""
    N, H, L, S = r.mask.shape

    def laid_out(cells: np.ndarray) -> np.ndarray:
        return cells.transpose(0, 2, 1, 3).reshape(N * L, H * S)

    marks = np.where(r.blocked, "✕", "").astype(object) + np.where(r.amiss, "!", "").astype(object)
    return Map(
        "All masks",
        "✕ = blocked, ! = not as it is meant",
        laid_out(~r.blocked),
        [f"{n} {token}" for n, sentence in enumerate(r.tokens) for token in numbered(sentence)],
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
    text = np.array(
        [[f"{term:+g}" if term else "0" for term in row] for row in terms], dtype=object
    )
    text[terms == -np.inf] = "−∞"
    return {
        "rows": numbered(r.tokens[r.sample]),
        "columns": numbered(r.tokens[r.sample]),
        "text": text,
        "customdata": r.scores[r.sample, r.head, ..., None],
        "hover": "%{y} → %{x}<br>score %{customdata[0]:.3f}<br>mask %{text}<br>weight %{z:.4f}",
    }


def one_mask(r: Record) -> Map:
    """Draw the mask of the sentence and head to look at."""
    return Map(
        f"Sentence {r.sample}, head {r.head}: mask",
        "added to the scores",
        ~r.blocked[r.sample, r.head],
        colours="mask",
        number="%{text}",
        **_of_one(r) | {"hover": "%{y} → %{x}<br>score %{customdata[0]:.3f}<br>mask %{text}"},
    )


def weights(r: Record) -> Map:
    """Draw the weights that it leaves."""
    shown, blocked = r.weights[r.sample, r.head], r.blocked[r.sample, r.head]
    raised, nan = r.path is None, np.isnan(shown)
    empty = blocked.all(axis=-1, keepdims=True)
    return Map(
        "Weights",
        "none: the call raises" if raised else "softmax(scores + mask)",
        np.where(blocked & ~empty, np.nan, shown),
        colours="weight",
        blocked=blocked & ~empty & (not raised),
        nan=nan if nan.any() and not raised else None,
        **_of_one(r),
    )
