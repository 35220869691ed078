"""Every explorer in the catalogue: its code reproduces what it shows, in every state."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from samples import OWN_DATA, makes_sense, states_of, words

from mha_widgets import explorers
from mha_widgets.explorer import Explorer
from mha_widgets.hosts.page import compact

MOST_STATES = 200
CATALOG = explorers.catalog()
INSTANCES = [pytest.param(explorer(), id=name) for name, explorer in CATALOG.items()]
INSTANCES += [
    pytest.param(CATALOG[name](**data), id=f"{name}, own data") for name, data in OWN_DATA.items()
]


def settled(explorer: Explorer) -> list[dict[str, Any]]:
    """Return up to 200 complete states that make sense, the defaults first."""
    found = [
        explorer.complete(),
        *(explorer.complete(**state) for state in states_of(explorer, 2 * MOST_STATES)),
    ]
    return list({tuple(state.items()): state for state in found}.values())[:MOST_STATES]


def assert_equal(made: Any, expected: Any, where: Any) -> None:
    if isinstance(made, torch.Tensor):
        expected = np.asarray(expected)
        assert made.dtype == torch.from_numpy(expected).dtype, where
        np.testing.assert_allclose(
            made.detach().numpy(), expected, rtol=1e-5, atol=1e-6, err_msg=str(where)
        )
    else:
        assert made == expected, where


# torch's own, where masks of two types are shown
@pytest.mark.filterwarnings("ignore:Support for mismatched:UserWarning")
@pytest.mark.parametrize("explorer", INSTANCES)
def test_code_reproduces_the_record(explorer: Explorer) -> None:
    for state in settled(explorer):
        made = (
            dict(OWN_DATA[explorer.name])
            if explorer.name in OWN_DATA and "your own" in explorer.code(**state)
            else {}
        )
        exec(explorer.code(**state), made)
        record = explorer.compute(**state)
        names = {field.name for field in fields(record)} & made.keys()
        assert names, state
        for name in names:
            assert_equal(made[name], getattr(record, name), (name, state))


@pytest.mark.parametrize("explorer", INSTANCES)
def test_plotly_finds_nothing_to_mend_in_a_figure(explorer: Explorer) -> None:
    for state in settled(explorer)[:40]:
        figure = explorer.view(**state).figure
        data = [trace.to_plotly_json() for trace in figure.data]
        checked = go.Figure(data, figure.layout.to_plotly_json())
        assert compact(checked) == compact(figure), state


@pytest.mark.parametrize("explorer", INSTANCES)
def test_the_code_is_short_and_torch_alone(explorer: Explorer) -> None:
    for state in settled(explorer):
        code = explorer.code(**state)
        assert len(code.splitlines()) <= 15, code
        assert "mha_widgets" not in code


@pytest.mark.parametrize("explorer", INSTANCES)
def test_facts_are_few_sentences(explorer: Explorer) -> None:
    for state in settled(explorer):
        facts = words(explorer, **state)
        assert 1 <= len(facts) <= 6
        assert all(fact.endswith((".", ".)")) for fact in facts), facts


@pytest.mark.parametrize("explorer", INSTANCES)
def test_every_control_changes_what_is_seen_somewhere(explorer: Explorer) -> None:
    still = {name for name, control in explorer.controls.items() if len(control.values) > 1}
    for state in settled(explorer):
        for name in tuple(still):
            others = [state | {name: value} for value in explorer.controls[name].values]
            seen = {
                str((explorer.view(**other).figure, words(explorer, **other)))
                for other in others
                if makes_sense(explorer, other)
            }
            still -= {name} if len(seen) > 1 else set()
        if not still:
            return
    assert not still


@pytest.mark.parametrize("name", CATALOG)
def test_it_invites_to_try_something(name: str) -> None:
    assert CATALOG[name].prompt.startswith("Try: ")
    assert all(control.help.endswith(".") for control in CATALOG[name]().controls.values())
