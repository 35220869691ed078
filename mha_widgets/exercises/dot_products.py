"""The exercises of the chapter on dot products."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

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

KEY = torch.tensor(
    [[0.0, 0, 0, 1], [2, 0, -1, 0], [0, 2, 0, 0], [0, 0, 1, 2], [0, 0, 1, 1], [1, 0, 2, 0]]
)
ON = 3


@exercise("dot-products-1")
def shapes(answer: Any) -> str:
    """The shapes of the scores of one query, of two, and of the two outputs."""
    parts = several(
        answer,
        3,
        "give three shapes: of the scores of one query, of those of two, and of the output",
    )
    if isinstance(parts[0], int):
        raise Wrong(
            f"a shape with one axis is written with a comma, ({parts[0]},); what are the scores of"
            " one query?"
        )
    one, two, output = map(shape_of, parts)
    expect(
        one,
        (6,),
        "the scores of one query are",
        "the axis E is added up, and one number a key is left, (S,)",
    )
    if two == (6, 2):
        raise Wrong(
            "two queries have a row each and a column for each key, not the other way round."
        )
    expect(
        two, (2, 6), "the scores of two queries are", "one number for each query and key, (L, S)"
    )
    expect(output, (2, 3), "the output is", "one average of values for each query, (L, Ev)")
    return (
        "E has gone from the scores, S from the output: each product adds up the axis that both"
        " sides share."
    )


@exercise("dot-products-2")
def lookup(answer: Any) -> str:
    """A function lookup(query, key, value) for L queries."""
    generator = torch.Generator().manual_seed(0)
    for L, S in ((6, 6), (5, 7)):
        query, key, value = (
            torch.randn(size, generator=generator) for size in ((L, 4), (S, 4), (S, 3))
        )
        output = shaped(
            called(answer, query, key, value),
            (L, 3),
            {(3,): "it compares query i with key i only"},
            f"its output for {L} queries and {S} keys",
        )
        expected = F.scaled_dot_product_attention(query, key, value, scale=1.0)
        if not close(output, expected):
            raise Wrong(
                f"its output for {L} queries and {S} keys is off by"
                f" {(output - expected).abs().max():.2g}: are the scores query @ key.T, and do the"
                " rows of weights sum to 1?"
            )
    return "(L, E) @ (E, S) compares every query with every key."


@exercise("dot-products-3")
def query_for_on(answer: Any) -> str:
    """A query that gives "on" 0.9 or more."""
    query = shaped(answer, (4,), {(1, 4): "drop the outer brackets"}, "your query").float()
    if not query.isfinite().all() or query.abs().max() > 4:
        raise Wrong("a number of your query lies outside −4 to 4.")
    weights = (KEY @ query).softmax(dim=-1)
    share = weights[ON].item()
    if weights.max() > share + 1e-6:
        raise Wrong(
            f'"on" gets {share:.2f}, and another word more: "on" has much grammar and a little'
            " place."
        )
    if share < 0.9:
        raise Wrong(f'"on" gets {share:.2f}: ask more strongly, or push away what comes second.')
    return f'"on" gets {share:.3f}.'


@exercise("dot-products-4")
def found(answer: Any) -> str:
    """The shares of damaged keys that are found, for 64 and for 1024 features."""
    narrow, wide = map(
        as_number, several(answer, 2, "give two shares, for E = 64 and for E = 1024")
    )
    if max(narrow, wide) > 1:
        raise Wrong("a share lies between 0 and 1; divide the number of keys found by 1000.")
    if not abs(narrow - 0.24) < 0.07:
        raise Wrong(
            f"for E = 64, {narrow:.2f} is not what noise three times as strong as the key leaves."
        )
    if not abs(wide - 1) < 0.02:
        raise Wrong(
            f"for E = 1024, {wide:.2f} is too few: is each damaged key compared with all 1,000?"
        )
    return "More features, more room: the same noise is outvoted."
