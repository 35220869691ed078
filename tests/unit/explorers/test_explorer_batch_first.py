"""What BatchFirst shows, where it leaks and where not,
and what it says about modules and data that don't fit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from samples import words
from torch import nn

from mha_widgets.explorers import BatchFirst

RIGHT = [{"batch_first": True, "data": "(N, L, E)"}, {"batch_first": False, "data": "(L, N, E)"}]
WRONG = [{"batch_first": False, "data": "(N, L, E)"}, {"batch_first": True, "data": "(L, N, E)"}]
E, H, N, L = 6, 3, 5, 7


def own(N: int = N, L: int = L, **options: Any) -> dict[str, Any]:
    torch.manual_seed(1)
    module = nn.MultiheadAttention(E, H, dtype=torch.float64, **options)
    return {"module": module, "x": torch.randn(N, L, E, dtype=torch.float64)}


def one_by_one(module: nn.MultiheadAttention, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Attend in each sentence alone, without a batch."""
    with torch.no_grad():
        pairs = [module.eval()(sentence, sentence, sentence) for sentence in x]
    return torch.stack([output for output, _ in pairs]), torch.stack(
        [weights for _, weights in pairs]
    )


@pytest.mark.parametrize("state", RIGHT)
def test_read_right_every_sentence_is_alone(state: dict[str, Any]) -> None:
    data = own()
    explorer = BatchFirst(**data)
    record = explorer.compute(**explorer.complete(**state, edit=3))
    output, weights = one_by_one(data["module"], data["x"])
    found = record.output if state["batch_first"] else record.output.swapaxes(0, 1)
    np.testing.assert_allclose(found, output, atol=1e-12)
    np.testing.assert_allclose(record.weights, weights, atol=1e-12)
    blocks = np.kron(np.eye(N), np.ones((L, L))) == 1
    assert (np.isnan(record.who) == ~blocks).all()
    np.testing.assert_allclose(record.who[blocks].reshape(N, L, L), weights, atol=1e-12)
    edited, _ = one_by_one(data["module"], -data["x"])
    np.testing.assert_allclose(
        record.change[3], (edited - output)[3].abs().amax(dim=-1), atol=1e-12
    )
    assert np.delete(record.change, 3, axis=0).max() == 0


@pytest.mark.parametrize("state", WRONG)
def test_read_wrong_each_place_is_a_sequence_of_its_own(state: dict[str, Any]) -> None:
    data = own()
    explorer = BatchFirst(**data)
    record = explorer.compute(**explorer.complete(**state, edit=3))
    places = data["x"].transpose(0, 1)
    output, weights = one_by_one(data["module"], places)
    np.testing.assert_allclose(record.weights, weights, atol=1e-12)
    stripes = np.kron(np.ones((N, N)), np.eye(L)) == 1
    assert (np.isnan(record.who) == ~stripes).all()
    for place in range(L):
        np.testing.assert_allclose(record.who[place::L, place::L], weights[place], atol=1e-12)
    edited = data["x"].clone()
    edited[3] *= -1
    moved, _ = one_by_one(data["module"], edited.transpose(0, 1))
    np.testing.assert_allclose(record.change.T, (moved - output).abs().amax(dim=-1), atol=1e-12)
    assert record.change.min() > 0


def test_the_first_view_is_the_leak() -> None:
    explorer = BatchFirst()
    record = explorer.compute(**explorer.complete())
    assert (record.batch_first, record.data, record.x.shape, record.weights.shape) == (
        False,
        "(N, L, E)",
        (3, 4, 6),
        (4, 3, 3),
    )
    facts = words(explorer)
    assert (
        facts[0]
        == "batch_first=False takes x of (3, 4, 6) for (L, N, E): 4 sequences of 3 words, not 3"
        " of 4. "
        "Every word looks at the words in the same place of all sentences, and there is no error."
    )
    assert (
        "(N, H, L, D) = (4, 2, 3, 3) → scores (N, H, L, S) = (4, 2, 3, 3) → weights (N, L, S) = (4,"
        " 3, 3)" in facts[1]
    )
    assert facts[2] == "weights.shape[0] must be your batch size, 3, but is 4."
    moved = f"{record.change[0].max():.2f}"
    assert (
        facts[3]
        == f"Editing sentence 1 moves sentence 0’s output by up to {moved}: attention leaks over"
        " the batch."
    )
    assert record.change[0].max() > max(1.0, record.change[2].max())
    assert facts[4].startswith(
        "The cure: nn.MultiheadAttention(…, batch_first=True), or x.transpose(0, 1)."
    )


def test_read_right_the_facts_say_that_nothing_leaks() -> None:
    explorer = BatchFirst()
    facts = words(explorer, **RIGHT[1])
    assert (
        facts[0]
        == "batch_first=False takes x of (4, 3, 6) for (L, N, E): 3 sequences of 4 words, as you"
        " mean it. Every word looks at its own sentence alone."
    )
    assert facts[2] == "weights.shape[0] is 3, your batch size, as it must be."
    assert facts[3].endswith("and those of the other sentences by 0.")
    assert (
        words(explorer, **WRONG[1])[4]
        == "The cure: x.transpose(0, 1), or a module with batch_first=False."
    )


def test_without_an_edit_nothing_moves() -> None:
    explorer = BatchFirst()
    assert explorer.compute(**explorer.complete(edit=None)).change.max() == 0
    assert words(explorer, edit=None)[3] == "Edit a sentence: only its own outputs may move."
    assert "edited" not in explorer.code(**explorer.complete(edit=None))


def test_a_square_batch_hides_the_layout_from_the_shapes() -> None:
    explorer = BatchFirst(**own(5, 5))
    says = (
        "weights.shape[0] is 5 either way, since N = L = 5: only an edit tells the layouts apart."
    )
    for state in RIGHT + WRONG:
        assert words(explorer, **state)[2] == says


def test_one_sentence_and_one_word() -> None:
    alone = BatchFirst(**own(1, 4))
    wrong = words(alone, batch_first=False)
    assert "4 sequences of 1 word, not 1 of 4. Every word looks at nothing but itself" in wrong[0]
    assert wrong[3].endswith("there is no other sentence.")
    assert np.nanmin(alone.compute(**alone.complete(batch_first=False)).who) == 1
    single = BatchFirst(**own(4, 1))
    assert (
        "1 sequence of 4 words, not 4 of 1. Every word looks at the words in the same place"
        in words(single)[0]
    )


def test_own_module_sets_the_start_and_its_code_rebuilds_it() -> None:
    explorer = BatchFirst(**own(batch_first=True, bias=False, dropout=0.5))
    assert explorer.state["batch_first"] is True
    made: dict[str, Any] = {}
    code = explorer.code(**explorer.complete(edit=4))
    exec(code, made)
    record = explorer.compute(**explorer.complete(edit=4))
    for name in ("x", "weights", "output", "change"):
        assert made[name].dtype == torch.float64
        np.testing.assert_allclose(made[name].numpy(), getattr(record, name), atol=1e-12)
    assert (
        len(code.splitlines()) <= 15 and "bias=False, dtype=torch.float64, batch_first=True" in code
    )


def test_a_large_module_stays_the_readers_own_in_the_code() -> None:
    module, x = nn.MultiheadAttention(32, 2), torch.randn(2, 3, 32)
    explorer = BatchFirst(module, x)
    state = explorer.complete(batch_first=True)
    made: dict[str, Any] = {"module": module, "x": x}
    exec(explorer.code(**state), made)
    np.testing.assert_allclose(
        made["weights"].numpy(), explorer.compute(**state).weights, atol=1e-6
    )
    assert len(explorer.code(**state)) < 1000


def test_tokens_are_shown_as_they_are() -> None:
    tokens = [["<pad>", "$x$", "antidisestablishment"], ["a", "b", "c"]]
    figure = BatchFirst(**own(2, 3), tokens=tokens).view(batch_first=True).figure
    assert figure.data[0].text[0].tolist() == ["&lt;pad&gt;", "&#36;x&#36;", "antid…"]
    assert figure.data[0].meta["cells"] == tokens
    assert figure.data[1].meta["rows"][2:4] == ["0 antidisestablishment", "1 a"]
    assert figure.layout.yaxis2.ticktext[2] == "0 antidisest…"[:11] + "…"


def test_the_frames_are_the_sequences_that_the_module_sees() -> None:
    explorer = BatchFirst()
    columns, rows = explorer.view().figure, explorer.view(batch_first=True).figure
    boxes = [
        [(s.x0, s.y0, s.x1, s.y1) for s in figure.layout.shapes if s.xref == "x"]
        for figure in (columns, rows)
    ]
    assert boxes[0] == [(i - 0.5, -0.5, i + 0.5, 2.5) for i in range(4)]
    assert boxes[1] == [(-0.5, i - 0.5, 3.5, i + 0.5) for i in range(3)]
    assert np.argwhere(np.asarray(columns.data[0].z) == 1).tolist() == [
        [1, 0],
        [1, 1],
        [1, 2],
        [1, 3],
    ]
    assert columns.layout.yaxis.title.text == "axis 0: N"
    assert explorer.view(**RIGHT[1]).figure.layout.yaxis.title.text == "axis 0: L"


@pytest.mark.parametrize(
    "change, error, message",
    [
        (
            {"module": nn.Linear(6, 6)},
            TypeError,
            "^module is a Linear; pass an nn.MultiheadAttention",
        ),
        (
            {"module": nn.MultiheadAttention(6, 3, kdim=5)},
            ValueError,
            "^module has kdim=5 and vdim=6 beside embed_dim=6",
        ),
        (
            {"module": nn.MultiheadAttention(6, 3, add_zero_attn=True)},
            ValueError,
            "^module has add_bias_kv or add_zero_attn, which append keys",
        ),
        (
            {"module": nn.MultiheadAttention(6, 3, add_bias_kv=True)},
            ValueError,
            "^module has add_bias_kv or add_zero_attn, which append keys",
        ),
        (
            {"module": nn.MultiheadAttention(6, 3)},
            ValueError,
            "^x is torch.float64 and the module torch.float32",
        ),
        ({"x": [[1.0]]}, TypeError, r"^x is a list; pass a tensor \(N, L, E\)"),
        (
            {"x": torch.ones(5, 6).double()},
            ValueError,
            r"^x has shape \(5, 6\); pass sentences \(N, L, E\) with E = 6",
        ),
        ({"x": torch.ones(5, 7, 4).double()}, ValueError, r"^x has shape \(5, 7, 4\)"),
        ({"x": torch.ones(0, 7, 6).double()}, ValueError, r"^x has shape \(0, 7, 6\)"),
        (
            {"x": torch.full((5, 7, 6), torch.nan).double()},
            ValueError,
            r"^x holds nan at \(0, 0, 0\); pass finite numbers",
        ),
        (
            {"x": torch.ones(7, 7, 6).double()},
            ValueError,
            "^x holds 7 × 7 = 49 words, too many for one map; pass at most 48",
        ),
        ({"x": None}, ValueError, "^BatchFirst got a module but no x; pass both, or neither.$"),
        ({"module": None}, ValueError, "^BatchFirst got x but no module"),
        ({"tokens": ["a b"]}, ValueError, "^tokens has 1 entries for 5 sentences of 7 words"),
        ({"tokens": "abcde"}, TypeError, "^tokens is a str; pass 5 lists of 7 words"),
        ({"tokens": 5}, TypeError, "^tokens is a int; pass 5 lists"),
        (
            {"tokens": ["abcdefg"] * 5},
            TypeError,
            r"^tokens\[0\] is one string; pass a list of 7 strings",
        ),
        (
            {"tokens": [["a"]] * 5},
            ValueError,
            r"^tokens\[0\] has 1 entries for 7 words; pass one for each.$",
        ),
    ],
)
def test_what_does_not_fit_is_named(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        BatchFirst(**own() | change)


def test_the_reader_keeps_module_data_and_random_numbers() -> None:
    data = own()
    torch.manual_seed(123)
    before, draw = data["x"].clone(), torch.random.get_rng_state()
    data["module"].train()
    explorer = BatchFirst(**data)
    BatchFirst().view()
    explorer.view(**RIGHT[0])
    assert (
        torch.equal(data["x"], before)
        and data["module"].training
        and data["module"].batch_first is False
    )
    assert torch.equal(torch.random.get_rng_state(), draw)


def test_half_precision_is_shown_as_float32() -> None:
    module, x = nn.MultiheadAttention(6, 3).half(), torch.randn(5, 7, 6).half()
    record = BatchFirst(module, x).compute(batch_first=True, data="(N, L, E)", edit=None)
    module.float().eval().batch_first, x = True, x.float()
    with torch.no_grad():
        np.testing.assert_array_equal(record.output, module(x, x, x)[0].numpy())
