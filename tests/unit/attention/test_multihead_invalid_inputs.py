"""Invalid inputs and modules: the class that torch's slow path raises,
and one sentence with what came and what is expected.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pairs import (
    KEY,
    ONE,
    QUERY,
    SEPARATE,
    SEPARATE_X,
    VALUE,
    VDIM,
    E,
    H,
    L,
    N,
    S,
    Wrong,
    X,
    assert_fails_alike,
    assert_one_sentence,
    failure,
    mask,
    narrow,
    uniform,
)
from torch import nn

from mha_widgets.attention.multihead import MultiheadAttention

DIMENSIONS: dict[str, Wrong] = {
    "query 1-D": (
        {},
        {"query": QUERY[0, 0]},
        ["query (33,), key (2, 7, 33) and value (2, 7, 33)", "(N, L, E), or as (L, E)"],
    ),
    "query 2-D": (
        {},
        {"query": QUERY[0]},
        ["query (5, 33), key (2, 7, 33)", "(N, L, E), or as (L, E)"],
    ),
    "query 4-D": ({}, {"query": QUERY[None]}, ["query (1, 2, 5, 33)", "(N, L, E), or as (L, E)"]),
    "key 1-D": (
        {"batch_first": False},
        {"key": KEY[0, 0]},
        ["key (33,) and value (2, 7, 33)", "(L, N, E), or as (L, E)"],
    ),
    "key 2-D": (
        {},
        {"key": KEY[0]},
        ["key (7, 33) and value (2, 7, 33)", "(N, L, E), or as (L, E)"],
    ),
    "key 4-D": (
        {},
        {"key": KEY[None]},
        ["key (1, 2, 7, 33) and value (2, 7, 33)", "(N, L, E), or as (L, E)"],
    ),
    "value 1-D": (
        {"batch_first": False},
        {"value": VALUE[0, 0]},
        ["value (33,)", "(L, N, E), or as (L, E)"],
    ),
    "value 2-D": (
        {},
        {"value": VALUE[0]},
        ["key (2, 7, 33) and value (7, 33)", "(N, L, E), or as (L, E)"],
    ),
    "value 4-D": ({}, {"value": VALUE[None]}, ["value (1, 2, 7, 33)", "(N, L, E), or as (L, E)"]),
    "key and value 2-D": (
        {},
        {"key": KEY[0], "value": VALUE[0]},
        ["query (2, 5, 33), key (7, 33) and value (7, 33)"],
    ),
    "query of one sequence": (
        {},
        ONE | {"key": KEY},
        ["query (5, 33), key (2, 7, 33) and value (7, 33)"],
    ),
    "all 1-D": (
        {},
        {name: x[0, 0] for name, x in X.items()},
        ["query (33,), key (33,) and value (33,)", "or as (L, E)"],
    ),
    "all 4-D": (
        {},
        {name: x[None] for name, x in X.items()},
        ["query (1, 2, 5, 33), key (1, 2, 7, 33)", "(N, L, E)"],
    ),
}
FEATURES: dict[str, Wrong] = {
    "query": ({}, {"query": narrow(QUERY)}, ["query (2, 5, 32)", "embed_dim = 33 features"]),
    "query of one sequence": (
        {},
        ONE | {"query": narrow(QUERY[0])},
        ["query (5, 32)", "embed_dim = 33 features"],
    ),
    "query, separate": (
        SEPARATE,
        SEPARATE_X | {"query": narrow(QUERY)},
        ["query (2, 5, 32)", "embed_dim = 33 features"],
    ),
    "key": ({}, {"key": narrow(KEY)}, ["key (2, 7, 32) and value (2, 7, 33)", "the same shape"]),
    "value": (
        {},
        {"value": narrow(VALUE)},
        ["key (2, 7, 33) and value (2, 7, 32)", "the same shape"],
    ),
    "key and value": (
        {},
        {"key": narrow(KEY), "value": narrow(VALUE)},
        [
            "query (2, 5, 33), key (2, 7, 32) and value (2, 7, 32)",
            "need 33 features",
            "kdim and vdim",
        ],
    ),
    "key is value": (
        {},
        dict.fromkeys(["key", "value"], narrow(KEY)),
        ["key (2, 7, 32)", "need 33 features", "kdim and vdim"],
    ),
    "self": (
        {},
        dict.fromkeys(X, narrow(QUERY)),
        ["query (2, 5, 32), key (2, 5, 32)", "embed_dim = 33 features"],
    ),
    "kdim": (
        SEPARATE,
        SEPARATE_X | {"key": KEY},
        ["k_proj_weight has shape (33, 13)", "must be (33, 33)", "kdim and vdim"],
    ),
    "vdim": (
        SEPARATE,
        SEPARATE_X | {"value": VALUE},
        ["v_proj_weight has shape (33, 17)", "must be (33, 33)"],
    ),
    "both": (
        SEPARATE,
        {"key": SEPARATE_X["value"], "value": SEPARATE_X["key"]},
        [
            "k_proj_weight has shape (33, 13)",
            "key (2, 7, 17) and value (2, 7, 13)",
            "must be (33, 17)",
        ],
    ),
    "kdim = 0": ({"kdim": 0}, {}, ["k_proj_weight has shape (33, 0)", "must be (33, 33)"]),
}
SIZES: dict[str, Wrong] = {
    "values": (
        {},
        {"value": VALUE[:, :5]},
        ["key (2, 7, 33) and value (2, 5, 33)", "every key has one value"],
    ),
    "keys": (
        {},
        {"key": KEY[:, :5]},
        ["key (2, 5, 33) and value (2, 7, 33)", "every key has one value"],
    ),
    "values, separate": (
        SEPARATE,
        SEPARATE_X | {"value": uniform(N, 5, VDIM).float()},
        ["key (2, 7, 13) and value (2, 5, 17)", "every key has one value"],
    ),
    "values of one sequence": (
        {},
        ONE | {"value": VALUE[0, :5]},
        ["key (7, 33) and value (5, 33)", "every key has one value"],
    ),
    "batch of values": (
        {},
        {"value": VALUE[[0, 0, 1]]},
        ["key (2, 7, 33) and value (3, 7, 33)", "every key has one value"],
    ),
    "batch of keys": (
        {},
        {"key": KEY[[0, 0, 1]]},
        ["key (3, 7, 33) and value (2, 7, 33)", "every key has one value"],
    ),
    "batch of values, separate": (
        SEPARATE,
        SEPARATE_X | {"value": uniform(3, S, VDIM).float()},
        ["key (2, 7, 13) and value (3, 7, 17)", "every key has one value"],
    ),
    "batch of both": (
        {},
        {"key": KEY[[0, 0, 1]], "value": VALUE[[0, 0, 1]]},
        [
            "query (2, 5, 33), key (3, 7, 33)",
            "2 sequences of queries and 3 of keys",
            "the batch first (batch_first=True)",
        ],
    ),
    "batch of both, one tensor": (
        {},
        dict.fromkeys(["key", "value"], KEY[:1]),
        ["2 sequences of queries and 1 of keys"],
    ),
    "batch of both, separate": (
        SEPARATE,
        {name: x[[0, 0, 1]] for name, x in SEPARATE_X.items()},
        ["2 sequences of queries and 3 of keys"],
    ),
    "batch_first forgotten": (
        {"batch_first": False},
        {},
        [
            "query (2, 5, 33), key (2, 7, 33)",
            "5 sequences of queries and 7 of keys",
            "second; did you mean batch_first=True?",
        ],
    ),
}
TYPES: dict[str, Wrong] = {
    **{
        f"{name}: {dtype}": (
            {},
            {name: mask(*shape, dtype=dtype)},
            [f"{name} is {dtype}", "boolean (True = bl", f"{name} == 0"],
        )
        for name, shape in {"attn_mask": (L, S), "key_padding_mask": (N, S)}.items()
        for dtype in (torch.int64, torch.int32, torch.uint8, torch.complex64)
    },
    **{
        f"{name}: {dtype}, weights": (
            {},
            {name: mask(*shape, dtype=dtype), "need_weights": True},
            [f"{name} is {dtype} and the query torch.float32", f"use {name}.to(query.dtype)"],
        )
        for name, shape in {"attn_mask": (L, S), "key_padding_mask": (N, S)}.items()
        for dtype in (torch.float64, torch.float16)
    },
    **{
        f"{name}: double, no weights": (
            {},
            {name: mask(*shape, dtype=torch.float64), "need_weights": False},
            ["double", "float"],
        )
        for name, shape in {"attn_mask": (N * H, L, S), "key_padding_mask": (N, S)}.items()
    },
    "both masks: double": (
        {},
        {
            "attn_mask": mask(L, S, dtype=torch.float64),
            "key_padding_mask": mask(N, S, dtype=torch.float64),
            "need_weights": True,
        },
        ["attn_mask is torch.float64 and the query torch.float32"],
    ),
    **{
        f"{name}: float, module: {dtype}": (
            {"dtype": dtype},
            {n: x.to(dtype) for n, x in X.items()}
            | {name: mask(*shape).float(), "need_weights": True},
            [f"{name} is torch.float32 and the query {dtype}"],
        )
        for name, shape in {"attn_mask": (L, S), "key_padding_mask": (N, S)}.items()
        for dtype in (torch.bfloat16, torch.float64)
    },
    "all integers": ({}, {name: x.long() for name, x in X.items()}, ["Long and Float"]),
    "query of integers": ({}, {"query": QUERY.long()}, ["Long and Float"]),
    "key of integers": ({}, {"key": KEY.long()}, ["Long and Float"]),
    "value of integers": ({}, {"value": VALUE.long()}, ["Long and Float"]),
    "all double": ({}, {name: x.double() for name, x in X.items()}, ["Double and Float"]),
    "module: bfloat16": ({"dtype": torch.bfloat16}, {}, ["Float and BFloat16"]),
    **{
        f"{name}: {type(wrong).__name__}": (
            {},
            {name: wrong},
            [f"{name} must be a tensor", f"got {type(wrong).__name__}", f"torch.as_tensor({name})"],
        )
        for name in X
        for wrong in (None, QUERY.tolist(), QUERY.numpy(), 3)
    },
    "all lists": (
        {},
        {name: x.tolist() for name, x in X.items()},
        ["query must be a tensor", "list", "as_tensor(query)"],
    ),
}
WRONG = {
    f"{group}, {name}": case
    for group, cases in {
        "dimensions": DIMENSIONS,
        "features": FEATURES,
        "sizes": SIZES,
        "types": TYPES,
    }.items()
    for name, case in cases.items()
}


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("build, changes, words", WRONG.values(), ids=WRONG)
def test_invalid_calls(
    build: dict[str, Any], changes: dict[str, Any], words: list[str], need_weights: bool
) -> None:
    assert_fails_alike(build, changes, words, need_weights)


CONSTRUCTOR: dict[str, tuple[dict[str, Any], list[str]]] = {
    "embed_dim = 0": ({"embed_dim": 0}, ["greater than 0", "got embed_dim=0 and num_heads=3"]),
    "embed_dim < 0": ({"embed_dim": -33}, ["embed_dim=-33 and num_heads=3"]),
    "num_heads = 0": ({"num_heads": 0}, ["embed_dim=33 and num_heads=0"]),
    "num_heads < 0": ({"num_heads": -3}, ["embed_dim=33 and num_heads=-3"]),
    "both": ({"embed_dim": 0, "num_heads": 0}, ["embed_dim=0 and num_heads=0"]),
    "not divisible": (
        {"num_heads": 5},
        ["33 features", "5 heads", "a num_heads that divides them"],
    ),
    "more heads than features": ({"num_heads": 66}, ["33 features", "66 heads"]),
    "kdim < 0": ({"kdim": -1}, ["[33, -1]"]),
    "vdim < 0": ({"vdim": -1}, ["[33, -1]"]),
    "integers": ({"dtype": torch.int64}, ["floating point"]),
    "embed_dim is text": ({"embed_dim": "33"}, ["'str'", "'int'"]),
    "embed_dim is a fraction": ({"embed_dim": 33.0}, []),
    "an unknown argument": ({"heads": 3}, ["'heads'"]),
}


@pytest.mark.parametrize("changes, words", CONSTRUCTOR.values(), ids=CONSTRUCTOR)
def test_invalid_modules(changes: dict[str, Any], words: list[str]) -> None:
    arguments = {"embed_dim": E, "num_heads": H} | changes
    theirs, ours = (
        failure(kind, **arguments) for kind in (nn.MultiheadAttention, MultiheadAttention)
    )
    assert type(ours) is type(theirs)
    assert_one_sentence(ours, words, theirs)
