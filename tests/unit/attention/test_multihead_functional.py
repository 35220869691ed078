"""The functional where the module doesn't reach: weights,
learned and static positions given by the caller.
"""

from __future__ import annotations

from typing import Any

import pytest
from pairs import (
    KDIM,
    PROTOTYPE,
    VDIM,
    E,
    H,
    L,
    N,
    S,
    assert_one_sentence,
    assert_same,
    blocked,
    failure,
    mask,
    nested,
    uniform,
)
from torch.nn import functional as F

from mha_widgets.attention.functional import multi_head_attention_forward

D = E // H
FUNCTIONAL: dict[str, Any] = {
    "query": uniform(L, N, E, seed=10),
    "key": uniform(S, N, E, seed=11),
    "value": uniform(S, N, E, seed=12),
    "embed_dim_to_check": E,
    "num_heads": H,
    "in_proj_weight": uniform(3 * E, E),
    "in_proj_bias": uniform(3 * E, seed=1),
    "bias_k": None,
    "bias_v": None,
    "add_zero_attn": False,
    "dropout_p": 0.0,
    "out_proj_weight": uniform(E, E, seed=2),
    "out_proj_bias": uniform(E, seed=3),
}
APART: dict[str, Any] = {
    "use_separate_proj_weight": True,
    "in_proj_weight": None,
    "key": uniform(S, N, KDIM, seed=11),
    "value": uniform(S, N, VDIM, seed=12),
    "q_proj_weight": uniform(E, E, seed=4),
    "k_proj_weight": uniform(E, KDIM, seed=5),
    "v_proj_weight": uniform(E, VDIM, seed=6),
}
LEARNED = {"bias_k": uniform(1, 1, E, seed=7), "bias_v": uniform(1, 1, E, seed=8)}
STATIC = {"static_k": uniform(N * H, S, D, seed=9), "static_v": uniform(N * H, S, D, seed=13)}
LONGER = {
    "static_k": uniform(N * H, S + 4, D, seed=9),
    "static_v": uniform(N * H, S + 4, D, seed=13),
}
SHAPES_OF_APART = "query (5, 2, 33), key (7, 2, 13) and value (7, 2, 17)"
WRONG_FUNCTIONAL: dict[str, tuple[dict[str, Any], list[str]]] = {
    "embed_dim_to_check": (
        {"embed_dim_to_check": 32},
        ["query (5, 2, 33)", "embed_dim = 32 features"],
    ),
    "num_heads": ({"num_heads": 5}, ["33 features", "5 heads", "a num_heads that divides them"]),
    **{
        f"{name} is missing": (
            APART | {name: None},
            [f"{name} is missing", SHAPES_OF_APART, f"must be (33, {features})"],
        )
        for name, features in {
            "q_proj_weight": E,
            "k_proj_weight": KDIM,
            "v_proj_weight": VDIM,
        }.items()
    },
    **{
        f"{name}: {shape}": (
            APART | {name: uniform(*shape)},
            [f"{name} has shape {shape}", SHAPES_OF_APART, f"must be (33, {features})"],
        )
        for name, features in {
            "q_proj_weight": E,
            "k_proj_weight": KDIM,
            "v_proj_weight": VDIM,
        }.items()
        for shape in (
            (E, 11),
            (11, features),
            (features, 31),
            *([(features, E)] if features != E else []),
        )
    },
    "separate, but packed given": (
        {"use_separate_proj_weight": True},
        ["q_proj_weight is missing", "must be (33, 33)"],
    ),
    "bias_k alone": (
        {"bias_k": LEARNED["bias_k"]},
        ["One of bias_k and bias_v is missing", "both a key and a value"],
    ),
    "bias_v alone": (
        {"bias_v": LEARNED["bias_v"]},
        ["One of bias_k and bias_v is missing", "both a key and a value"],
    ),
    **{
        f"{name} and a learned position": (
            LEARNED | {name: STATIC[name]},
            [f"Got {name} and bias_k", f"to {name} yourself"],
        )
        for name in STATIC
    },
    **{
        f"{name}: {shape}": (
            {name: uniform(*shape)},
            [f"{name} has shape {shape}", "must be (N * H, S, D) = (6, S, 11)"],
        )
        for name in STATIC
        for shape in ((N, S, D), (N * H + 1, S, D), (N * H, S, D + 1), (N * H, D, S))
    },
    "attn_mask as long as static_k": (
        LONGER | {"attn_mask": mask(L, S + 4)},
        ["attn_mask has shape (5, 11)", "(L, S) = (5, 7)"],
    ),
    "dropout_p": ({"dropout_p": 1.5}, ["between 0 and 1", "but got 1.5"]),
    "query is missing": ({"query": None}, ["query must be a tensor", "NoneType"]),
    "key is a list": ({"key": [1.0]}, ["key must be a tensor", "list", "as_tensor(key)"]),
    "in_proj_weight": ({"in_proj_weight": uniform(3 * E, E + 1)}, ["33", "34"]),
    "out_proj_weight": ({"out_proj_weight": uniform(E, E + 1)}, ["33", "34"]),
    "out_proj_weight of another type": (
        {"out_proj_weight": uniform(E, E).float()},
        ["Double and Float"],
    ),
}
MORE_WRONG_FUNCTIONAL: dict[str, tuple[dict[str, Any], list[str]]] = {
    "in_proj_weight is missing": ({"in_proj_weight": None}, ["in_proj_weight"]),
    "separate, in_proj_bias": (
        APART | {"in_proj_bias": uniform(3 * E + 3)},
        ["in_proj_bias", "(102,)", "99"],
    ),
    "static_k and static_v differ": (
        LONGER | {"static_v": STATIC["static_v"]},
        ["static_k", "11", "7"],
    ),
    "static_k alone, of another length": (
        {"static_k": LONGER["static_k"]},
        ["static_k", "11", "7"],
    ),
    "static, key_padding_mask as long as key": (
        LONGER | {"key_padding_mask": mask(N, S)},
        ["key_padding_mask", "(2, 7)", "11"],
    ),
    "static and zero, key_padding_mask as long as key": (
        {name: x[:, : S + 1] for name, x in LONGER.items()}
        | {"add_zero_attn": True, "key_padding_mask": mask(N, S)},
        ["key_padding_mask", "(2, 7)", "8"],
    ),
}


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize(
    "changes, words",
    [
        pytest.param(*case, id=name)
        for name, case in (WRONG_FUNCTIONAL | MORE_WRONG_FUNCTIONAL).items()
    ],
)
def test_invalid_calls_of_the_functional(
    changes: dict[str, Any], words: list[str], need_weights: bool
) -> None:
    arguments = FUNCTIONAL | {"need_weights": need_weights} | changes
    theirs, ours = (
        failure(function, **arguments)
        for function in (F.multi_head_attention_forward, multi_head_attention_forward)
    )
    assert type(ours) is type(theirs)
    assert_one_sentence(ours, words, theirs)


VALID_FUNCTIONAL: dict[str, dict[str, Any]] = {
    "packed": {},
    "separate": APART,
    "separate weights that are not used": {"q_proj_weight": uniform(E, E)},
    "learned position": LEARNED,
    "learned position, flat": {name: x.flatten() for name, x in LEARNED.items()},
    "static": STATIC,
    "static keys": {"static_k": STATIC["static_k"]},
    "static values": {"static_v": STATIC["static_v"]},
    "static, longer": LONGER,
    "static, longer, zero": LONGER | {"add_zero_attn": True},
    "static, masks": STATIC | {"attn_mask": blocked(L, S), "key_padding_mask": blocked(N, S)},
    "another output": {"out_proj_weight": uniform(19, E), "out_proj_bias": uniform(19)},
}


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("changes", VALID_FUNCTIONAL.values(), ids=VALID_FUNCTIONAL)
def test_valid_calls_of_the_functional(changes: dict[str, Any], need_weights: bool) -> None:
    arguments = FUNCTIONAL | {"need_weights": need_weights, "average_attn_weights": False} | changes
    assert_same(
        multi_head_attention_forward(**arguments), F.multi_head_attention_forward(**arguments)
    )


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("add_zero_attn", [True, False])
def test_static_keys_have_padding_of_their_own_length(
    add_zero_attn: bool, need_weights: bool
) -> None:
    arguments = FUNCTIONAL | LONGER | {"add_zero_attn": add_zero_attn, "need_weights": need_weights}
    arguments["key_padding_mask"] = blocked(N, S + 4)
    assert_same(
        multi_head_attention_forward(**arguments), F.multi_head_attention_forward(**arguments)
    )


@pytest.mark.filterwarnings(PROTOTYPE)
def test_the_functional_names_the_nested_query() -> None:
    x = nested(5, 3, features=E)
    error = failure(multi_head_attention_forward, **FUNCTIONAL | {"query": x, "key": x, "value": x})
    assert_one_sentence(error, ["query is a NestedTensor"])
    assert "the query is not" not in str(error)
