"""The cards say what torch does: recipes are run in every convention, shapes are compared."""

from __future__ import annotations

import inspect
import re
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import flex_attention as flex

import mha_widgets

BOOK = Path(__file__).parents[2] / "book"
MASK_CARD = (BOOK / "mask-card.md").read_text(encoding="utf-8")
SETUP, *RECIPES = re.findall(
    r"^## ([^\n]+)\n(?:(?!^## ).)*?```python\n(.*?)```", MASK_CARD, flags=re.DOTALL | re.MULTILINE
)


class _Model:
    """Stands for a Hugging Face model: what it is given is kept."""

    dtype = torch.float32

    def __init__(self, made: dict[str, Any]) -> None:
        self.made = made

    def __call__(self, ids: Tensor, attention_mask: Tensor | None = None) -> None:
        self.made["attention_mask"] = attention_mask


def run(program: str, model: Any = None) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Run a recipe; return its names, and the output of each convention as (N, L, E)."""
    made: dict[str, Any] = {}
    exec(SETUP[1], made)
    made["past"] = made["key_at"] <= made["query_at"]  # a recipe may take it from the one before
    n, h, length, e = made["N"], made["H"], made["L"], 8
    torch.manual_seed(0)
    x = torch.randn(n, length, e)
    module = nn.MultiheadAttention(e, h, bias=False, batch_first=True)
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.eye(e).repeat(3, 1))
        module.out_proj.weight.copy_(torch.eye(e))
    # (N, H, L, D): with identity matrices the module's own
    heads = x.unflatten(-1, (h, -1)).transpose(1, 2)
    outputs: dict[str, Tensor] = {}

    def keep(name: str, call: Any) -> Any:
        def called(*args: Any, **kwargs: Any) -> None:
            output = call(*args, **kwargs)
            outputs[name] = output if output.ndim == 3 else output.transpose(1, 2).flatten(2)

        return called

    def compiled(*args: Any, **kwargs: Any) -> Tensor:
        with warnings.catch_warnings():  # that it isn't compiled here
            warnings.filterwarnings(
                "ignore", "flex_attention called without torch.compile", UserWarning
            )
            return flex.flex_attention(*args, **kwargs)

    made |= {
        "x": x,
        "q": heads,
        "k": heads,
        "v": heads,
        "ids": torch.zeros(n, length, dtype=torch.long),
        "module": keep("module", lambda *args, **kwargs: module(*args, **kwargs)[0]),
        "F": SimpleNamespace(
            scaled_dot_product_attention=keep("sdpa", F.scaled_dot_product_attention)
        ),
        "flex_attention": keep("flex", compiled),
        "model": model or _Model(made),
    }
    exec(program, made)
    return made, outputs | {"x": x, "unmasked": module(x, x, x)[0]}


@pytest.mark.parametrize(("title", "program"), RECIPES, ids=[title for title, _ in RECIPES])
def test_a_recipe_means_the_same_in_all_conventions(title: str, program: str) -> None:
    made, outputs = run(program)
    assert not torch.allclose(outputs["module"], outputs["unmasked"], atol=1e-3)
    torch.testing.assert_close(outputs["sdpa"], outputs["module"])
    torch.testing.assert_close(outputs["flex"], outputs["module"])
    mask = made.get("attention_mask")
    if mask is not None and mask.ndim == 2:
        assert ((mask == 1) == made["real"]).all()
    elif mask is not None:
        assert ((mask == 0) == made["same"][:, None]).all()


def test_every_recipe_is_run() -> None:
    assert len(RECIPES) == 8 and MASK_CARD.count("```python") == 9


def test_conversions_between_conventions() -> None:
    real, square = torch.rand(3, 7) > 0.5, torch.rand(5, 7) > 0.5  # True = may look
    per_head = torch.rand(3, 2, 5, 7) > 0.5
    numbers = torch.zeros(5, 7).masked_fill(~square, -torch.inf)
    given = {
        "key_padding_mask": ~real,
        "attention_mask": real.long(),
        "N": 3,
        "H": 2,
        "L": 5,
        "S": 7,
        "mha_widgets": mha_widgets,
    }
    cases = {
        "attention_mask == 0": ({}, ~real),
        "attention_mask[:, None, None, :] == 1": ({}, real[:, None, None]),
        "(~key_padding_mask).long()": ({}, real.long()),
        "~key_padding_mask[:, None, None, :]": ({}, real[:, None, None]),
        "~attn_mask": ({"attn_mask": ~square}, square),
        "~attn_mask.unflatten(0, (N, H))": ({"attn_mask": ~per_head.flatten(0, 1)}, per_head),
        "~attn_mask.expand(N, H, L, S).flatten(0, 1)": (
            {"attn_mask": per_head[:, :1]},
            ~per_head[:, :1].repeat(1, 2, 1, 1).flatten(0, 1),
        ),
        "mha_widgets.additive_mask(mask)": ({"mask": square}, numbers),
        "mask == 0": ({"mask": numbers}, square),
    }
    assert re.findall(
        r"^\| [^|]+ \| [^|]+ \| `([^`]+)` \|$", MASK_CARD, flags=re.MULTILINE
    ) == list(cases)
    for line, (names, expected) in cases.items():
        torch.testing.assert_close(eval(line, given | names), expected)


SIZES = {"N": 3, "L": 5, "S": 7, "E": 22, "Ek": 13, "Ev": 17, "H": 2, "D": 11}
APPENDED = {
    "neither": (False, False),
    "`add_bias_kv`": (True, False),
    "`add_zero_attn`": (False, True),
    "both": (True, True),
}


def _table(heading: str) -> list[dict[str, str]]:
    """The rows under a heading of the shape card, by the names of the columns."""
    text = (
        (BOOK / "shape-card.md")
        .read_text(encoding="utf-8")
        .split(f"## {heading}\n")[1]
        .split("\n## ")[0]
    )
    names, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line[:1] == "|"
    )
    return [dict(zip(names, row, strict=True)) for row in rows]


def _shape(cell: str, **sizes: int) -> tuple[int, ...]:
    return eval(cell.replace("·", "*").replace("′", "x"), SIZES | sizes)


def _call(
    module: nn.MultiheadAttention, shapes: dict[str, tuple[int, ...]], **options: Any
) -> tuple[Tensor, Tensor | None]:
    inputs = [torch.randn(shapes[name]) for name in ("query", "key", "value")]
    masks = {
        name: torch.zeros(shape, dtype=torch.bool)
        for name, shape in shapes.items()
        if "mask" in name
    }
    return module(*inputs, **masks, **options)


@pytest.mark.parametrize(
    "layout", ["one sequence", "`batch_first=False`, the default", "`batch_first=True`"]
)
def test_the_three_layouts(layout: str) -> None:
    query, key, value, padding, *masks = (_shape(row[layout]) for row in _table("What goes in"))
    output, average, per_head, none = (row[layout] for row in _table("What comes out"))
    module = nn.MultiheadAttention(22, 2, kdim=13, vdim=17, batch_first="True" in layout)
    assert len(masks) == 2
    for mask in masks:
        shapes = {
            "query": query,
            "key": key,
            "value": value,
            "key_padding_mask": padding,
            "attn_mask": mask,
        }
        got, weights = _call(module, shapes)
        assert (got.shape, weights.shape) == (_shape(output), _shape(average))
        assert _call(module, shapes, average_attn_weights=False)[1].shape == _shape(per_head)
        assert f"`{_call(module, shapes, need_weights=False)[1]}`" == none


@pytest.mark.parametrize("column", APPENDED)
def test_appended_positions(column: str) -> None:
    rows = {
        row["output"].strip("`"): _shape(row[column]) for row in _table("With positions appended")
    }
    bias, zero = APPENDED[column]
    module = nn.MultiheadAttention(22, 2, add_bias_kv=bias, add_zero_attn=zero, batch_first=True)
    inputs = {"query": (3, 5, 22), "key": (3, 7, 22), "value": (3, 7, 22)}
    masks = {name: shape for name, shape in rows.items() if "mask" in name}
    output, weights = _call(module, inputs | masks)
    assert (output.shape, weights.shape) == (rows["attn_output"], rows["attn_output_weights"])
    assert len(masks) == 2


@pytest.mark.parametrize("both", [False, True])
def test_the_steps(both: bool) -> None:
    module = nn.MultiheadAttention(22, 2, add_bias_kv=both, add_zero_attn=both, batch_first=True)
    query, key = torch.randn(3, 5, 22), torch.randn(3, 7, 22)
    traced = mha_widgets.trace(
        module, query, key, key, attn_mask=torch.zeros(5, 7, dtype=torch.bool)
    )
    rows = {row["step"].strip("`"): row["shape"] for row in _table("On the way")}
    assert rows.pop("output") == "that of `query`" and traced["output"].shape == query.shape
    shapes = {
        name: _shape(cell, Sx=9 if both else 7)
        for name, cell in rows.items()
        if both or "appended" not in name
    }
    assert {name: tuple(step.shape) for name, step in traced.items() if name != "output"} == shapes


def test_the_parameters() -> None:
    rows = {
        row["parameter"].strip("`"): (_shape(row["shape"]), row["when"])
        for row in _table("What is learned")
    }
    options = {
        "Ek = Ev = E": {},
        "another Ek or Ev": {"kdim": 13, "vdim": 17},
        "`add_bias_kv=True`": {"add_bias_kv": True},
    }
    for chosen in ({}, {"kdim": 13, "vdim": 17}, {"bias": False}, {"add_bias_kv": True}):
        module = nn.MultiheadAttention(22, 2, **chosen)
        for name, parameter in module.named_parameters():
            assert tuple(parameter.shape) == rows[name][0]
        expected = {
            name
            for name, (_, when) in rows.items()
            if when == "always"
            or (when == "`bias=True`" and chosen.get("bias", True))
            or options.get(when) == {key: chosen[key] for key in chosen if key != "bias"}
            or (when == "Ek = Ev = E" and "kdim" not in chosen)
        }
        assert {name for name, _ in module.named_parameters()} == expected


@pytest.mark.parametrize(
    "layer", [nn.TransformerEncoderLayer, nn.TransformerEncoder, nn.TransformerDecoder]
)
def test_the_layers_have_the_masks_that_the_card_names(layer: type[nn.Module]) -> None:
    named = set(
        re.findall(
            r"`((?:src_|tgt_|memory_)?(?:key_padding_)?mask)`",
            MASK_CARD.split("PyTorch's layers")[1].split("\n\n")[0],
        )
    )
    taken = {name for name in inspect.signature(layer.forward).parameters if name.endswith("mask")}
    assert taken and taken <= named


def test_alibi_and_padding_in_numbers_are_added_without_a_warning() -> None:
    line = re.search(r"`(\(-slopes.*)`, \(H, L, S\)", MASK_CARD)[1]
    slopes, past = torch.tensor([0.5, 0.25]), torch.ones(6, 6, dtype=torch.bool).tril()
    names = {
        "slopes": slopes,
        "query_at": torch.arange(6)[:, None],
        "key_at": torch.arange(6),
        "past": past,
        "torch": torch,
    }
    bias = eval(line, names)
    by_hand = [
        [[-slope * (i - j) if j <= i else -torch.inf for j in range(6)] for i in range(6)]
        for slope in (0.5, 0.25)
    ]
    torch.testing.assert_close(bias, torch.tensor(by_hand))
    real, x = torch.arange(6) < torch.tensor([[6], [4], [5]]), torch.randn(3, 6, 8)
    module = nn.MultiheadAttention(8, 2, batch_first=True)
    padding = mha_widgets.additive_mask(real, x.dtype)
    _, weights = module(
        x,
        x,
        x,
        attn_mask=bias.repeat(3, 1, 1),
        key_padding_mask=padding,
        average_attn_weights=False,
    )
    assert (weights == 0).equal(~(past & real[:, None, None, :]).expand_as(weights))


APPENDING = [{"add_zero_attn": True}, {"add_bias_kv": True}]


@pytest.mark.parametrize("options", APPENDING, ids=str)
@pytest.mark.parametrize(
    ("hint", "need_weights", "padding", "hidden"),
    [
        (True, False, False, True),
        (True, True, False, False),
        (True, False, True, False),
        (False, False, False, False),
    ],
)
def test_a_hint_without_weights_hides_appended_keys(
    options: dict[str, bool], hint: bool, need_weights: bool, padding: bool, hidden: bool
) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(22, 2, batch_first=True, **options)
    bare = nn.MultiheadAttention(22, 2, batch_first=True)
    bare.load_state_dict(module.state_dict(), strict=False)
    x, future = torch.randn(3, 5, 22), torch.ones(5, 5, dtype=torch.bool).triu(1)
    masks = {"attn_mask": future}
    masks |= {"key_padding_mask": torch.zeros(3, 5, dtype=torch.bool)} if padding else {}
    output, _ = module(x, x, x, is_causal=hint, need_weights=need_weights, **masks)
    opened, without = module(x, x, x, attn_mask=future)[0], bare(x, x, x, attn_mask=future)[0]
    assert (opened - without).abs().max() > 0.1
    torch.testing.assert_close(output, without if hidden else opened)


def test_one_sequence_is_expanded_as_the_card_says() -> None:
    lines = re.search(
        r"`(x\.expand[^`]+)` of an\s\(L, 1, E\), and `(x\.expand[^`]+)` of a \(1, L, E\)",
        (BOOK / "shape-card.md").read_text(encoding="utf-8"),
    )
    for line, one, many in zip(
        lines.groups(), [(5, 1, 22), (1, 5, 22)], [(5, 3, 22), (3, 5, 22)], strict=True
    ):
        assert eval(line, {"x": torch.zeros(one), "N": 3}).shape == many


def test_numbers_of_another_type_raise_with_weights_only() -> None:
    mask = torch.zeros(4, 4)
    module, x = nn.MultiheadAttention(8, 2, dtype=torch.bfloat16), torch.randn(4, 2, 8)
    inputs = [x.bfloat16()] * 3
    with pytest.raises(RuntimeError, match="must be the same"):
        module(*inputs, attn_mask=mask)
    unmasked = module(*inputs, need_weights=False)[0]
    torch.testing.assert_close(module(*inputs, attn_mask=mask, need_weights=False)[0], unmasked)
    with torch.autocast("cpu", torch.bfloat16):
        for need_weights in (True, False):
            output, _ = nn.MultiheadAttention(8, 2)(
                x, x, x, attn_mask=mask, need_weights=need_weights
            )
            assert output.dtype == torch.bfloat16 and output.isfinite().all()


def test_padding_behind_the_words_needs_no_mask_of_its_own_beside_a_causal_one() -> None:
    real, future = torch.arange(5) < torch.tensor([[5], [2]]), torch.ones(5, 5).triu(1).bool()
    module, x = nn.MultiheadAttention(22, 2, batch_first=True), torch.randn(2, 5, 22)
    both, _ = module(x, x, x, attn_mask=future, key_padding_mask=~real)
    torch.testing.assert_close(module(x, x, x, attn_mask=future)[0][real], both[real])


def test_the_most_negative_number_twice_blocks_as_minus_infinity_does() -> None:
    lowest = torch.finfo(torch.float32).min
    module, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 4, 8)
    row, table = torch.full((1, 4), lowest), torch.full((4, 4), lowest)
    assert module(x, x, x, attn_mask=table)[1].isfinite().all()
    assert module(x, x, x, attn_mask=table, key_padding_mask=row)[1].isnan().all()


def test_rows_that_padding_in_front_empties() -> None:
    real, past = torch.arange(4) >= 2, torch.ones(4, 4).tril().bool()
    seen = past & real
    module, x = nn.MultiheadAttention(8, 2, batch_first=True), torch.randn(1, 4, 8)
    with torch.no_grad():
        assert module(x, x, x, attn_mask=~seen)[0][0, :2].isnan().all()
        fast, _ = module.eval()(x, x, x, attn_mask=~seen, need_weights=False)
    assert fast[0, :2].isnan().all()
    q = torch.randn(1, 2, 4, 4)
    assert not F.scaled_dot_product_attention(q, q, q, attn_mask=seen)[..., :2, :].any()
    block_mask = flex.create_block_mask(
        lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (kv_idx >= 2), None, None, 4, 4, "cpu"
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "flex_attention called without", UserWarning)
        assert not flex.flex_attention(q, q, q, block_mask=block_mask)[..., :2, :].any()
