"""Answers to the exercises on masks."""

import torch

from answers import Answers
from mha_widgets import causal_mask, padding_mask, window_mask

POSITION = torch.arange(6)
BACK = POSITION[:, None] - POSITION
FITTING = ((1, 6), (3, 1, 1, 6), (3, 4, 6))
REAL, EYE = padding_mask([4], 6).expand(6, 6), torch.eye(6).bool()

ANSWERS = {
    "masks-1": Answers(
        right=(
            [(1, 6), (3, 1, 1, 6), (3, 4, 6)],
            {"(3, 4, 6)", "(1, 6)", "(3, 1, 1, 6)"},
            [torch.ones(s) for s in FITTING],
        ),
        wrong=(
            (
                [(1, 6), (3, 6), (3, 1, 1, 6), (3, 4, 6)],
                r"\(3, 6\) does not fit: counted from the right, its 3 meets L = 4",
            ),
            ([(1, 6), (3, 1, 1, 6)], "1 more: compare from the right"),
            ([(2, 4, 6)], r"\(2, 4, 6\) does not fit: .* its 2 meets H = 3"),
            ("(1, 6)", "give the shapes that fit in a list"),
            ((1, 6), "give the shapes that fit in a list"),
        ),
    ),
    "masks-2": Answers(
        right=(
            causal_mask(6) & window_mask(6, window=2),
            ((BACK >= 0) & (BACK <= 2)).tolist(),
            list((BACK >= 0) & (BACK <= 2)),
        ),
        wrong=(
            (BACK <= 2, "word 0 still sees word 1, which comes after it"),
            (~((BACK >= 0) & (BACK <= 2)), "it is the wrong way round"),
            (causal_mask(6) & window_mask(6, window=1), "word 2 does not see word 0"),
            (((BACK >= 0) & (BACK <= 2)).float(), "your mask holds torch.float32; a boolean one"),
            (causal_mask(5), r"your mask has shape \(5, 5\); there should be \(6, 6\)"),
        ),
    ),
    "masks-3": Answers(
        right=(
            (REAL | EYE, window_mask(6, window=2)),
            [(REAL | EYE).float() * 0.3, window_mask(6, window=2).int()],
            torch.stack([REAL | EYE, window_mask(6, window=2)]),
        ),
        wrong=(
            ((REAL, window_mask(6, window=2)), "a padding row depends on itself too"),
            ((REAL | EYE, window_mask(6, window=1)), "map b shows one layer"),
            (
                ((REAL | EYE).T, window_mask(6, window=2)),
                "map a says that output 0 depends on word 4",
            ),
            (
                (REAL | EYE, causal_mask(6) & window_mask(6, window=2)),
                "map b says that output 0 does not depend on word 1",
            ),
            (REAL | EYE, "give two maps"),
        ),
    ),
}
