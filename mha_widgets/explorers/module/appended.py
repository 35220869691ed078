"""What add_bias_kv and add_zero_attn append to the keys, and what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from torch import nn

from mha_widgets.view import Fact

WHAT = {
    "bias": "a key that add_bias_kv learns, with its value",
    "zero": "a key of zeros that add_zero_attn appends, with a value of zeros: its score is 0",
}


def appended(module: nn.Module) -> tuple[str, ...]:
    """Return the names of the columns that a module appends, in order.

    >>> appended(nn.MultiheadAttention(4, 2, add_bias_kv=True, add_zero_attn=True))
    ('bias', 'zero')
    """
    return ("bias",) * (module.bias_k is not None) + ("zero",) * bool(module.add_zero_attn)


def describe_appended(names: Sequence[str], heads: Iterable[np.ndarray], parameters: int) -> Fact:
    """Say what appended columns are and what they cost, given the weights (L, S) of the heads.

    >>> describe_appended(["bias"], [np.array([[0.75, 0.25]])], 304)[0].split("; ")[-1]
    '304 numbers are learned.'
    """
    heads = list(heads)
    sentences = []
    for back, name in zip(range(len(names), 0, -1), names, strict=True):
        most = max(float(np.nanmax(weights[:, -back], initial=0)) for weights in heads)
        sentences.append(
            f"Column “{name}” is {WHAT[name]}; it takes up to {most:.2f} of a row's weight."
        )
    learned = (
        f"{parameters:,} numbers are learned{'' if 'bias' in names else ', as many as without it'}"
    )
    return (f"{' '.join(sentences)} The fast path takes no such call; {learned}.",)
