"""Module, CapturedMaps and explore: the reader's own module, and what torch refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from samples import captured, words
from torch import nn

from mha_widgets import MultiheadAttention, capture, explore, explorers


def test_what_torch_refuses_is_said_with_its_own_words() -> None:
    module = explorers.Module()
    says = (
        "says “embed_dim must be divisible by num_heads”: 8 features .* choose one of 1, 2, 4, 8.$"
    )
    with pytest.raises(ValueError, match=says):
        module.view(num_heads=3)
    with pytest.raises(
        ValueError, match="^RuntimeError: Need attn_mask if specifying the is_causal hint"
    ):
        module.view(is_causal=True, training=True)


def test_appended_positions_are_named_and_take_weight() -> None:
    module = explorers.Module()
    record = module.compute(**module.complete(add_bias_kv=True, add_zero_attn=True))
    assert record.columns[-2:] == ("bias", "zero")
    assert all((weights[:, -2:] > 0).all() for weights in record.heads.values())
    np.testing.assert_allclose(record.mean.sum(axis=-1), 1, rtol=1e-6)
    most = [
        max(weights[:, column].max() for weights in record.heads.values()) for column in (-2, -1)
    ]
    assert (
        words(module, add_bias_kv=True, add_zero_attn=True)[-1]
        == "Column “bias” is a key that add_bias_kv learns, with its value; it takes up to"
        f" {most[0]:.2f} of a row's weight. Column “zero” is a key of zeros that add_zero_attn"
        f" appends, with a value of zeros: its score is 0; it takes up to {most[1]:.2f} of a"
        " row's weight. The fast path takes no such call; 304 numbers are learned."
    )
    assert words(module, add_zero_attn=True)[-1].endswith(
        "; 288 numbers are learned, as many as without it."
    )
    assert words(module)[-1] == "The module learns 288 numbers, however many heads share them."


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"need_weights": False, "add_zero_attn": True},
        {"training": True, "dropout": 0.3, "attn_mask": "one a head", "no_grad": False},
        {
            "training": True,
            "dropout": 0.3,
            "need_weights": False,
            "kdim": 5,
            "vdim": 3,
            "key_padding_mask": "float",
        },
        {
            "attn_mask": "causal",
            "is_causal": True,
            "need_weights": False,
            "training": True,
            "key_padding_mask": "None",
        },
    ],
)
def test_the_program_makes_the_maps_that_are_shown(state: dict[str, Any]) -> None:
    module, made = explorers.Module(), {}
    complete = module.complete(**state)
    record = module.compute(**complete)
    exec(module.code(**complete), made)
    for head, weights in record.heads.items():
        np.testing.assert_allclose(
            made["per_head"][complete["sample"], head].detach(), weights, rtol=1e-5, atol=1e-7
        )
    np.testing.assert_allclose(made["output"].detach(), record.output, rtol=1e-5, atol=1e-6)


def test_maps_that_no_call_returns_are_said_to_be() -> None:
    state = {
        "attn_mask": "one a head",
        "is_causal": True,
        "need_weights": False,
        "training": True,
        "key_padding_mask": "None",
    }
    module = explorers.Module()
    code = module.code(**module.complete(**state))
    assert "per_head" not in code
    assert (
        "# The maps come back from no call: without weights to return, torch takes is_causal in"
        " place of attn_mask." in code
    )
    assert "per_head" in module.code(**module.complete(**state | {"key_padding_mask": "boolean"}))


def test_a_sample_of_the_readers_batch_is_said_to_be_called_alone() -> None:
    own = nn.MultiheadAttention(12, 3, batch_first=True)
    batch, one = explore(own, torch.randn(2, 5, 12)), explore(own, torch.randn(5, 12))
    alone = "Sample 1, of 2 counted from 0, is called alone: query (1, 5, 12), key (1, 5, 12) → "
    assert words(batch, sample=1)[0].startswith(alone)
    assert words(one)[0].startswith("query (5, 12), key (5, 12) → ")
    assert (
        batch.prompt.startswith("Try: switch need_weights.")
        and "need_weights" not in batch.view().disabled
    )


def test_a_row_without_a_key_and_the_way_of_the_call() -> None:
    module = explorers.Module()
    assert words(module)[2] == "Its way: native fast path."
    slow = (
        "Its way: explicit weights; not the native fast path: the module was made with"
        " batch_first=False."
    )
    assert words(module, batch_first=False)[2] == slow
    assert (
        words(module, need_weights=False)[1]
        == "The call returns output (2, 4, 8) and None for the weights."
    )


@pytest.mark.parametrize("kind", [nn.MultiheadAttention, MultiheadAttention])
@pytest.mark.parametrize("batch_first", [True, False])
def test_one_sequence_of_the_readers_own_batch(kind: type[nn.Module], batch_first: bool) -> None:
    torch.manual_seed(0)
    own = kind(15, 5, batch_first=batch_first, dtype=torch.float64)
    x = torch.randn(3, 7, 15).double()
    padding = torch.arange(7) >= torch.tensor([[7], [5], [2]])
    explorer = explore(
        own,
        x if batch_first else x.transpose(0, 1),
        key_padding_mask=padding,
        tokens=list("abcdefg"),
    )
    record = explorer.compute(**explorer.complete(sample=1, head=3, average_attn_weights=False))
    with torch.no_grad():
        inputs = [x if batch_first else x.transpose(0, 1)] * 3
        output, weights = own(*inputs, key_padding_mask=padding, average_attn_weights=False)
    np.testing.assert_allclose(record.heads[3], weights[1, 3], rtol=1e-10)
    np.testing.assert_allclose(record.shown, output[1] if batch_first else output[:, 1], rtol=1e-10)
    assert record.rows == tuple("abcdefg") and list(record.heads) == [3]
    made = {"module": own, "query": inputs[0], "key_padding_mask": padding}
    exec(explorer.code(**explorer.complete(sample=1, need_weights=False)), made)
    np.testing.assert_allclose(made["per_head"][0], weights[1], rtol=1e-10)


def test_the_readers_module_is_left_as_it_is() -> None:
    own = nn.MultiheadAttention(8, 2, batch_first=True, dropout=0.5)
    explorer = explore(own, torch.randn(2, 3, 8))
    torch.manual_seed(1)
    expected = torch.rand(2)
    torch.manual_seed(1)
    explorer.view(training=False)
    explorer.view(training=True)
    assert torch.equal(torch.rand(2), expected)
    assert own.training


def test_large_maps_are_reduced_and_said_to_be() -> None:
    own = nn.MultiheadAttention(16, 8, batch_first=True)
    explorer = explore(own, torch.randn(1, 1024, 16))
    told = words(explorer, head=3, row=700)
    assert explorer.view(head=3).figure.data[0].z.shape == (64, 64)
    assert told[1].endswith(
        " and None for the weights; each cell of a map shows the largest weight of 16 × 16."
    )
    assert (
        explorer.prompt
        == "Try: go from head to head. Does this query keep looking at the same key?"
    )
    assert "need_weights" in explorer.view().disabled


def test_one_head_of_a_large_call_is_that_of_torch() -> None:
    torch.manual_seed(0)
    own = nn.MultiheadAttention(
        16, 8, add_bias_kv=True, add_zero_attn=True, batch_first=True, dtype=torch.float64
    )
    x, mask = torch.randn(2, 740, 16).double(), torch.rand(16, 740, 740) < 0.3
    explorer = explore(own, x, attn_mask=mask)
    record = explorer.compute(**explorer.complete(sample=1, head=5))
    with torch.no_grad():
        output, weights = own(x, x, x, attn_mask=mask, average_attn_weights=False)
    np.testing.assert_allclose(record.heads[5], weights[1, 5], rtol=1e-10)
    np.testing.assert_array_equal(record.blocked[5][:, :-2], mask[8 + 5])
    np.testing.assert_allclose(record.shown, output[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("length", [7, 1024])
def test_another_head_or_query_of_a_call_costs_no_new_one(length: int) -> None:
    made = []
    own = nn.MultiheadAttention(16, 8, batch_first=True)
    own.register_forward_hook(lambda *_: made.append("a call"))
    explorer = explore(own, torch.randn(2, length, 16))
    for state in ({}, {"head": 3}, {"row": 5}, {"head": 1, "row": 2}):
        explorer.view(**state)
    assert made == ["a call"]
    explorer.view(sample=1)
    explorer.view(sample=1, training=False)
    assert len(made) == 3


@pytest.mark.parametrize(
    "arguments, error, message",
    [
        (
            (nn.Linear(8, 8), torch.ones(2, 3, 8)),
            TypeError,
            "^Got a Linear; pass an nn.MultiheadAttention",
        ),
        (
            (nn.MultiheadAttention(8, 2),),
            TypeError,
            "^Got a MultiheadAttention and no query; pass explore",
        ),
        ((nn.MultiheadAttention(8, 2), [1.0]), TypeError, "^query is a list; pass a tensor"),
        (
            (nn.MultiheadAttention(8, 2), torch.ones(2049, 1, 8)),
            ValueError,
            "^Got 2049 queries, 2049 keys",
        ),
        (
            (nn.MultiheadAttention(8, 2), torch.ones(3, 1, 6)),
            ValueError,
            "^AssertionError: .*embed",
        ),
        ((captured(), torch.ones(3)), TypeError, "^Got captured weights and inputs too"),
    ],
)
def test_what_can_not_be_explored_is_said(
    arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        explore(*arguments)


def test_captured_weights_module_by_module_and_call_by_call() -> None:
    weights = captured()
    explorer = explore(weights)
    record = explorer.compute(
        **explorer.complete(module="multihead_attn", call=1, sample=2, head=1)
    )
    np.testing.assert_array_equal(record.maps[1], weights["multihead_attn"][1][2, 1])
    assert record.weights.shape == (3, 3, 4, 7)
    with pytest.raises(
        ValueError, match="^row 4 is not in 'self_attn', which has 4; choose one below 4.$"
    ):
        explorer.view(module="self_attn", call=1, row=4)


def test_both_layers_of_the_example_are_the_same_and_a_head_finds_its_habit_in_the_second() -> None:
    maps = explorers.CapturedMaps()
    made: dict[str, Any] = {}
    exec(maps.code(**maps.complete()), made)
    first, second = (layer.self_attn.state_dict() for layer in made["model"].layers)
    assert all(torch.equal(first[name], second[name]) for name in first)
    start = "A head's habit is what gets more than half of the weight in most rows: "
    before, after = (words(maps, module=f"layers.{layer}.self_attn")[1] for layer in (0, 1))
    assert (
        before
        == f"{start}the previous token in head 0 (0.89), itself in heads 2, 3 (0.75, 0.89), none in"
        " head 1."
    )
    assert (
        after
        == f"{start}the previous token in head 0 (0.82), the next token in head 1 (0.60), itself in"
        " heads 2, 3 (0.70, 0.82)."
    )
    for module in (
        "layers.0.self_attn",
        "layers.1.self_attn",
    ):  # no word knows its place: nobody finds a neighbour
        assert (
            words(maps, module=module, call=1)[1]
            == f"{start}itself in head 2 (0.83), none in heads 0, 1, 3."
        )
    assert words(maps)[-1].startswith(
        "Made by hand, not trained: both layers have the same weights."
    )


def test_the_sharpest_head_is_named_among_several_only() -> None:
    maps = explorers.CapturedMaps()
    assert words(maps, row=3)[2].startswith(
        "In head 0, the sharpest here, “on” looks mostly at “sat” (0.89)"
    )
    assert words(maps, row=3, head=2)[2].startswith("In head 2, “on” looks mostly at “on” (0.")


def test_what_to_try_is_there_in_the_readers_own_maps() -> None:
    def prompt(layers: int, heads: int) -> str:
        layer = nn.TransformerEncoderLayer(6, heads, 7, batch_first=True)
        model = nn.TransformerEncoder(layer, num_layers=layers, enable_nested_tensor=False).eval()
        with torch.no_grad(), capture(model) as weights:
            model(torch.randn(1, 5, 6))
        return explore(weights).prompt

    assert (
        prompt(2, 3)
        == "Try: go from the first module to the last. Do the heads go on looking at the same"
        " places?"
    )
    assert (
        prompt(1, 3)
        == "Try: move the query row. Is it always the same head that looks most sharply?"
    )
    assert prompt(1, 1) == "Try: move the query row. Which key does each query look at most?"
