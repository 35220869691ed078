"""Invalid masks: the class that torch's slow path raises,
and one sentence with what came and what is expected.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pairs import (
    HALF,
    MISMATCHED,
    ONE,
    H,
    L,
    N,
    S,
    Wrong,
    X,
    assert_fails_alike,
    assert_same,
    blocked,
    inputs,
    mask,
    pair,
)

SHAPES: dict[str, Wrong] = {
    **{
        f"attn_mask {shape}": (
            {},
            {"attn_mask": mask(*shape)},
            [
                f"attn_mask has shape {shape}",
                "(L, S) = (5, 7)",
                "(N * num_heads, L, S) = (6, 5, 7)",
                "repeat_interleave(",
            ],
        )
        for shape in [
            (),
            (S,),
            (L,),
            (S, L),
            (L, S + 1),
            (1, S),
            (L, 1),
            (N, L, S),
            (H, L, S),
            (1, L, S),
            (6, S, L),
            (6, 1, S),
        ]
        + [(6, L, 1), (N, H, L, S), (1, 1, L, S), (N, 1, 1, L, S)]
    },
    "attn_mask, float": (
        {},
        {"attn_mask": mask(N, L, S).float()},
        ["has shape (2, 5, 7)", "(6, 5, 7)"],
    ),
    "attn_mask and padding": (
        {},
        {"attn_mask": mask(N, L, S), "key_padding_mask": mask(N, S)},
        ["attn_mask has shape (2, 5, 7)", "(N * num_heads, L, S) = (6, 5, 7)"],
    ),
    **{
        f"attn_mask {shape}, one sequence": (
            {},
            ONE | {"attn_mask": mask(*shape)},
            [
                f"attn_mask has shape {shape}",
                "(L, S) = (5, 7)",
                "(N * num_heads, L, S) = (3, 5, 7)",
            ],
        )
        for shape in [(S,), (L, L), (N, L, S), (6, L, S), (1, L, S), (H, S, L), (1, H, L, S)]
    },
    **{
        f"key_padding_mask {shape}": (
            {},
            {"key_padding_mask": mask(*shape)},
            [
                f"key_padding_mask has shape {shape}",
                "must be (N, S) = (2, 7)",
                "one entry for each key",
            ],
        )
        for shape in [
            (),
            (S,),
            (N,),
            (S, N),
            (1, S),
            (N, 1),
            (N, S + 1),
            (N, L),
            (N + 1, S),
            (N, 1, S),
            (N, 1, 1, S),
        ]
    },
    "key_padding_mask, float": (
        {},
        {"key_padding_mask": mask(S, N).float()},
        ["has shape (7, 2)", "(N, S) = (2, 7)"],
    ),
    "key_padding_mask and attn_mask": (
        {},
        {"key_padding_mask": mask(S, N), "attn_mask": mask(L, S)},
        ["key_padding_mask has shape (7, 2)", "(N, S) = (2, 7)"],
    ),
    **{
        f"key_padding_mask {shape}, one sequence": (
            {},
            ONE | {"key_padding_mask": mask(*shape)},
            [f"key_padding_mask has shape {shape}", "must be (S,) = (7,)"],
        )
        for shape in [(), (1, S), (N, S), (S + 1,), (1,), (L,)]
    },
    **{
        f"{flag}: a column more in {name}": (
            {flag: True},
            {name: mask(rows, S + 1)},
            [f"{name} has shape ({rows}, 8)", expected],
        )
        for flag in ("add_bias_kv", "add_zero_attn")
        for name, rows, expected in (
            ("attn_mask", L, "(L, S) = (5, 7)"),
            ("key_padding_mask", N, "without the positions that"),
        )
    },
}
OTHERS: dict[str, Wrong] = {
    "is_causal alone": (
        {},
        {"is_causal": True},
        ["is_causal=True", "attn_mask", "pass the causal mask too"],
    ),
    "is_causal alone, padding": (
        {},
        {"is_causal": True, "key_padding_mask": mask(N, S)},
        ["is_causal=True", "there is none"],
    ),
    "is_causal and a wrong mask": (
        {},
        {"is_causal": True, "attn_mask": mask(S, L), "need_weights": True},
        ["attn_mask has shape (7, 5)", "(L, S) = (5, 7)"],
    ),
    "dropout 1.5": ({"dropout": 1.5}, {}, ["between 0 and 1", "but got 1.5"]),
}
NO_TENSORS: dict[str, Wrong] = {
    f"{name}: {type(wrong).__name__}": (
        {},
        {name: wrong},
        [f"{name} must be a tensor", f"got {type(wrong).__name__}"],
    )
    for name, shape in {"attn_mask": (L, S), "key_padding_mask": (N, S)}.items()
    for wrong in (mask(*shape).tolist(), mask(*shape).numpy(), True)
}
WRONG = SHAPES | OTHERS | NO_TENSORS


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("build, changes, words", WRONG.values(), ids=WRONG)
def test_invalid_calls(
    build: dict[str, Any], changes: dict[str, Any], words: list[str], need_weights: bool
) -> None:
    assert_fails_alike(build, changes, words, need_weights)


IGNORED: dict[str, Wrong] = {  # is_causal replaces these masks, but torch looks at them first
    "integers": (
        {},
        {"attn_mask": mask(L, S).long()},
        ["attn_mask is torch.int64", "attn_mask == 0"],
    ),
    "1-D": ({}, {"attn_mask": mask(S)}, ["attn_mask has shape (7,)", "(L, S) = (5, 7)"]),
    "4-D": (
        {},
        {"attn_mask": mask(N, H, L, S)},
        ["attn_mask has shape (2, 3, 5, 7)", "(L, S) = (5, 7)"],
    ),
    "another sequence's": (
        {},
        ONE | {"attn_mask": mask(N * H, L, S)},
        ["attn_mask has shape (6, 5, 7)", "= (3, 5, 7)"],
    ),
}


@pytest.mark.parametrize("build, changes, words", IGNORED.values(), ids=IGNORED)
def test_invalid_masks_that_is_causal_replaces(
    build: dict[str, Any], changes: dict[str, Any], words: list[str]
) -> None:
    assert_fails_alike(build, changes | {"is_causal": True}, words, need_weights=False)


@pytest.mark.filterwarnings(*MISMATCHED)
@pytest.mark.parametrize("narrow", HALF)
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("other", [torch.bool, torch.float32])
@pytest.mark.parametrize("attn_is_narrow", [True, False])
def test_a_narrow_mask_beside_a_wider_one_is_taken(
    attn_is_narrow: bool, other: torch.dtype, need_weights: bool, narrow: torch.dtype
) -> None:
    attn_type, padding_type = (narrow, other) if attn_is_narrow else (other, narrow)
    masks = {
        "attn_mask": blocked(L, S).to(attn_type),
        "key_padding_mask": blocked(N, S).to(padding_type),
    }
    theirs, ours = pair(dtype=torch.float32)
    expected = theirs(*X.values(), **masks, need_weights=need_weights)  # both together are float32
    assert_same(ours(*X.values(), **masks, need_weights=need_weights), expected)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("dropout", [1.5, -0.5])
def test_dropout_is_looked_at_in_training_only(dropout: float, need_weights: bool) -> None:
    theirs, ours = pair(dropout=dropout)
    assert_same(
        ours(*inputs(), need_weights=need_weights), theirs(*inputs(), need_weights=need_weights)
    )
