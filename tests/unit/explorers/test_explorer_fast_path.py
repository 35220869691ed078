"""What FastPath says about the way of a call, against what the call really does."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from samples import states_of, words
from torch import nn
from torch.profiler import ProfilerActivity, profile

from mha_widgets.attention.call import Call, Path
from mha_widgets.attention.cost import cost, fast_path_enabled
from mha_widgets.explorers import FastPath
from mha_widgets.explorers.fast_path import ASKED, Record

EXPLORER = FastPath(L=8)
FAST = {"training": False, "batch_first": True, "no_grad": True}
BLOCKERS = {  # what each control does to a call that would take the fast path
    "attn_mask": ("float", "attn_mask"),
    "enabled": (False, "the switch"),
    "batched": (False, "query.dim()"),
    "same": (False, "q is k is v"),
    "training": (True, "training"),
    "num_heads": (3, "num_heads"),
    "batch_first": (False, "batch_first"),
    "add_bias_kv": (True, "add_bias_kv"),
    "add_zero_attn": (True, "add_zero_attn"),
    "no_grad": (False, "gradients"),
    "bias": (False, "bias"),
}
LABELS = [label for label, _, _ in ASKED]


def record(**state: Any) -> Record:
    return EXPLORER.compute(**EXPLORER.complete(**state))


def test_each_blocker_alone_keeps_the_call_off_the_fast_path() -> None:
    assert record(**FAST).path is Path.NATIVE and record(**FAST).calls == 1
    for name, (value, label) in BLOCKERS.items():
        found = record(**FAST | {name: value})
        assert [LABELS[row] for row in found.reasons] == [label], name
        assert (found.path, found.calls) == (Path.EXPLICIT, 0)
        assert (
            words(EXPLORER, **FAST | {name: value})[0]
            == "1 thing keeps the call off the fast path; it goes through explicit weights, "
            "and torch._native_multi_head_attention was not called."
        )
        assert words(EXPLORER, **FAST | {name: value})[1].startswith(f"{label}: ")


def test_what_blocks_nothing() -> None:
    for state in ({"attn_mask": "boolean"}, {"need_weights": False}):
        found = record(**FAST | state)
        assert (found.path, found.calls, found.reasons) == (Path.NATIVE, 1, {})
        assert (
            "Nothing blocks: the call takes the native fast path"
            in words(EXPLORER, **FAST | state)[0]
        )


def test_other_widths_are_two_reasons() -> None:
    found = record(**FAST, kdim=5)
    assert [LABELS[row] for row in found.reasons] == ["q is k is v", "kdim, vdim"]
    assert EXPLORER.view(**FAST, kdim=5).disabled == {
        "same": "Keys and values of another width can't be the query."
    }
    assert EXPLORER.view().disabled == {}


def test_the_reasons_tell_how_often_the_native_operation_is_called() -> None:
    for state in states_of(EXPLORER, 200):
        found = record(**state)
        blocked = {
            label
            for name, (value, label) in BLOCKERS.items()
            if EXPLORER.complete(**state)[name] == value
        }
        blocked |= {"q is k is v", "kdim, vdim"} if state["kdim"] == 5 else set()
        assert [LABELS[row] for row in found.reasons] == [
            label for label in LABELS if label in blocked
        ]
        assert found.calls == (not blocked)
        way = Path.NATIVE if not blocked else Path.EXPLICIT if state["need_weights"] else Path.SDPA
        assert found.path is way


def test_the_first_view_is_a_new_module() -> None:
    found = record()
    assert [LABELS[row] for row in found.reasons] == ["training", "batch_first", "gradients"]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module, x = nn.MultiheadAttention(12, 4), torch.randn(8, 2, 12)
    np.testing.assert_array_equal(found.output, module(x, x, x)[0].detach())
    facts = words(EXPLORER)
    assert facts[0].startswith(
        "3 things keep the call off the fast path; it goes through explicit weights"
    )
    assert (
        facts[1] == "training: the module is in training mode; call module.eval(). Torch asks:"
        " self.training."
    )
    assert (
        facts[4]
        == "All weights are held at once, N·H·L·S = 2·4·8·8 numbers; with need_weights=False the"
        " largest tensor has 2304 B."
    )
    assert (
        facts[-1]
        == "Fewer operations need not mean less time: for (N, L, E) = (8, 512, 256) and 8 heads one"
        " CPU took 56 ms on the fast path, and in this package’s module 57 ms with explicit"
        " weights. The code takes the time on yours."
    )
    assert (
        "took 47 ms on the fast path, and in this package’s module 25 ms through F"
        in words(EXPLORER, need_weights=False)[-1]
    )


def test_the_program_takes_the_time_of_the_call_that_it_shows() -> None:
    fast, slow = ({}, {})
    exec(EXPLORER.code(**EXPLORER.complete(**FAST, need_weights=False)), fast)
    exec(EXPLORER.code(**EXPLORER.complete(enabled=False)), slow)
    assert (fast["calls"], slow["calls"]) == (1, 0)  # the calls that are timed are not counted
    assert fast["ms"] > 0 and slow["ms"] > 0
    assert torch.backends.mha.get_fastpath_enabled()


def test_the_checklist_has_the_words_and_marks_of_the_call() -> None:
    figure = EXPLORER.view(attn_mask="float", bias=False).figure
    call, module, last, ways = figure.data
    assert call.text.tolist()[0] == ["float", "no float", "✕ blocks"] and call.z.tolist()[0] == [
        0,
        0,
        2,
    ]
    assert call.text.tolist()[1] == ["on", "on", "✓"] and call.z.tolist()[1] == [0, 0, 1]
    assert module.meta["rows"] == LABELS[4:10] and module.y.tolist() == [4, 5, 6, 7, 8, 9]
    assert last.text.tolist() == [["recorded", "none", "✕ blocks"], ["False", "True", "✕ blocks"]]
    assert [row[0] for row in ways.text] == ["", "▶ taken", ""]
    assert last.customdata[1, 0, 0] == "blocks if self.in_proj_bias is None"


@pytest.mark.parametrize("sizes", [(12, 2, 64), (36, 3, 29), (24, 1, 5)])
@pytest.mark.parametrize("need_weights", [True, False])
def test_the_native_operation_holds_all_weights_at_once(
    sizes: tuple[int, int, int], need_weights: bool
) -> None:
    E, N, L = sizes
    explorer = FastPath(*sizes)
    module, x = nn.MultiheadAttention(E, 4, batch_first=True).eval(), torch.randn(N, L, E)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
            module(x, x, x, need_weights=need_weights)
    allocated = [
        event.nbytes()
        for event in profiled.profiler.kineto_results.events()
        if event.name() == "[memory]"
    ]
    operations, largest = explorer.compute(
        **explorer.complete(**FAST, need_weights=need_weights)
    ).costs[Path.NATIVE]
    assert operations == 1
    assert largest == max(allocated) == 4 * max(N * 4 * L * L, N * L * 3 * E)


def test_explicit_weights_are_the_largest_tensor_and_sdpa_makes_none() -> None:
    explorer = FastPath()
    for state in states_of(explorer, 60):
        found = explorer.compute(**explorer.complete(**state))
        weights = 4 * math.prod(found.sizes)
        assert found.costs[Path.EXPLICIT][1] == weights
        assert found.costs[Path.SDPA][1] < weights / 2
        assert (
            found.costs[Path.NATIVE][0]
            == 1
            < found.costs[Path.SDPA][0]
            < found.costs[Path.EXPLICIT][0]
        )


def test_appended_keys_widen_the_weights() -> None:
    assert record(add_zero_attn=True, add_bias_kv=True, num_heads=3).sizes == (2, 3, 8, 10)
    assert record(batched=False).sizes == (1, 4, 8, 8)


def test_without_weights_the_fast_path_holds_more_than_sdpa() -> None:
    explorer = FastPath()
    state = FAST | {"need_weights": False}
    fast, slow = (
        explorer.compute(**explorer.complete(**state, **more)) for more in ({}, {"enabled": False})
    )
    assert (fast.path, slow.path) == (Path.NATIVE, Path.SDPA)
    assert fast.costs[Path.NATIVE][1] == 131_072 and slow.costs[Path.SDPA][1] == 18_432
    assert (
        words(explorer, **state)[1]
        == "need_weights=False does not spare the weights here: on a CPU the native operation holds"
        " all N·H·L·S = 2·4·64·64 numbers (131 kB); off the fast path 18 kB are the most."
    )
    assert "never held at once on this way" in words(explorer, **state, enabled=False)[2]
    assert "One operation is dispatched in place of" in words(explorer, **FAST)[1]


def test_a_cost_is_what_is_dispatched() -> None:
    module, x = nn.MultiheadAttention(8, 2, batch_first=True).eval(), torch.randn(3, 7, 8)
    with torch.no_grad():
        # the output: what happens inside is not seen
        assert cost(Call(module, x, x, x)) == (
            1,
            4 * 3 * 7 * 8,
        )


def test_the_switch_goes_back() -> None:
    assert torch.backends.mha.get_fastpath_enabled()
    record(enabled=False)
    assert torch.backends.mha.get_fastpath_enabled()
    with pytest.raises(KeyError), fast_path_enabled(False):
        assert not torch.backends.mha.get_fastpath_enabled()
        raise KeyError
    assert torch.backends.mha.get_fastpath_enabled()
    with fast_path_enabled(False):
        assert record(**FAST).path is Path.NATIVE
        assert not torch.backends.mha.get_fastpath_enabled()


def test_the_readers_gradient_mode_and_random_numbers_stay() -> None:
    torch.manual_seed(123)
    draw = torch.random.get_rng_state()
    with torch.no_grad():
        assert "gradients" in [LABELS[row] for row in record().reasons]
    assert torch.is_grad_enabled() and torch.equal(torch.random.get_rng_state(), draw)


@pytest.mark.parametrize(
    "sizes, error, message",
    [
        (
            {"embed_dim": 16},
            ValueError,
            "^embed_dim is 16; pass a multiple of 12, to be cut into 4 or into 3 heads.$",
        ),
        ({"N": 0}, ValueError, "^N is 0; pass a number from 1 to 512"),
        ({"L": 1000}, ValueError, "^L is 1000; pass a number from 1 to 512"),
        ({"L": 64.0}, TypeError, "^L is a float; pass a whole number.$"),
    ],
)
def test_sizes_that_do_not_fit_are_named(
    sizes: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        FastPath(**sizes)
