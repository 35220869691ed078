"""What Scaling shows: scores that spread with head_dim,
and a softmax that saturates unless they are scaled.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from samples import words

from mha_widgets.explorers.scaling import HEAD_DIMS, Record, Scaling
from mha_widgets.hosts import markup

SMALL = {"num_keys": 7, "seed": 3}


def record(explorer: Scaling | None = None, **state: Any) -> Record:
    explorer = explorer or Scaling()
    return explorer.compute(**explorer.complete(**state))


def test_the_scores_are_dot_products_of_seeded_random_vectors() -> None:
    generator = torch.Generator().manual_seed(3)
    query, key = (
        torch.randn(1000, 1, 4, generator=generator),
        torch.randn(1000, 7, 4, generator=generator),
    )
    products = (query * key).sum(dim=-1)
    own = Scaling(**SMALL)
    np.testing.assert_allclose(
        record(own, head_dim=4, scale=False).scores, products, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(record(own, head_dim=4).scores, products / 2, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        record(own, head_dim=4, temperature=8).scores, products / 16, rtol=1e-4, atol=1e-5
    )
    assert record(own, head_dim=4).scores.dtype == np.float32


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_the_standard_deviation_is_about_the_root_of_head_dim_or_1(head_dim: int) -> None:
    assert record(head_dim=head_dim, scale=False).scores.std() == pytest.approx(
        head_dim**0.5, rel=0.04
    )
    assert record(head_dim=head_dim).scores.std() == pytest.approx(1, rel=0.04)


def test_entropy_and_gradient_by_hand() -> None:
    r = record(Scaling(**SMALL), head_dim=8, temperature=2)
    weights = r.weights.astype(float)
    np.testing.assert_allclose(
        weights, (e := np.exp(r.scores.astype(float))) / e.sum(axis=1, keepdims=True), rtol=1e-5
    )
    entropies, slopes = (
        -(weights * np.log(weights)).sum(axis=1),
        (weights * (1 - weights)).sum(axis=1),
    )
    assert r.entropy == pytest.approx(np.quantile(entropies, 0.5, method="lower"), rel=1e-5)
    assert r.gradient == pytest.approx(np.quantile(slopes, 0.5, method="lower"), rel=1e-5)


def test_the_gradient_is_the_sum_of_what_autograd_says() -> None:
    scores = torch.tensor(record(head_dim=16, scale=False).scores[0])
    slopes = torch.autograd.functional.jacobian(lambda s: s.softmax(dim=-1), scores).diagonal()
    weights = scores.softmax(dim=-1)
    torch.testing.assert_close(slopes, weights * (1 - weights))


def test_without_the_scale_one_key_takes_everything_and_the_gradient_is_gone() -> None:
    r = record(head_dim=512, scale=False)
    assert r.row[0] > 0.99 and r.entropy < 0.01 and r.gradient < 0.001
    assert words(Scaling(), head_dim=512, scale=False)[1:4] == [
        (
            f"In the row shown the strongest of 16 keys takes {r.row[0]:.2f} of the weight; it is"
            " spread as widely as over 1.0 keys that share evenly."
        ),
        (
            "The median of 1000 rows has an entropy (the mean of −ln w) of 0.00 nats: e^0.00 = 1.0"
            " effective keys of 16."
        ),
        (
            "Move a score a little, and its weight moves w(1 − w) as much: summed over the median"
            " row less than 0.001 (with the scale 0.882)."
        ),
    ]


def test_with_the_scale_nothing_changes_with_head_dim() -> None:
    r = record()
    assert np.ptp(r.entropies[True][2:]) < 0.1 and np.ptp(r.gradients[True][2:]) < 0.02
    assert r.entropies[False][0] - r.entropies[False][-1] > 2.5
    fact = (
        "From head_dim 1 to 512 the effective keys stay between 10.9 and 13.3 when scaled, and go"
        " from 13.3 to 1.0 when not."
    )
    assert fact in words(Scaling())
    assert "the effective keys stay at 16.0 when scaled" in words(Scaling(), temperature=16)[4]


@pytest.mark.parametrize(
    "state",
    [{"head_dim": 32, "scale": False}, {"head_dim": 256, "temperature": 4}, {"head_dim": 1}],
)
def test_the_curves_go_through_the_state_shown(state: dict[str, Any]) -> None:
    r = record(**state)
    at = HEAD_DIMS.index(r.head_dim)
    assert r.entropies[r.scale][at] == r.entropy and r.gradients[r.scale][at] == r.gradient
    other = record(**state | {"scale": not r.scale}) if r.head_dim > 1 else r
    assert r.gradients[not r.scale][at] == other.gradient
    marks = [trace for trace in Scaling().view(**state).figure.data if trace.name.endswith("here")]
    assert [mark.name for mark in marks] == [f"{'scaled' if r.scale else 'not scaled'}, here"] * 2
    assert [mark.x[0] for mark in marks] == [r.head_dim] * 2
    np.testing.assert_allclose([mark.y[0] for mark in marks], [r.entropy, r.gradient], atol=1e-4)


def test_a_temperature_of_the_root_of_head_dim_is_the_scale() -> None:
    plain, scaled = record(head_dim=64, scale=False, temperature=8), record(head_dim=64)
    np.testing.assert_allclose(plain.weights, scaled.weights, rtol=1e-6)
    fact = (
        "Temperature 8 without the scale is the same as temperature 1 with it: both divide by √64."
    )
    assert words(Scaling(), scale=False)[-1] == fact
    assert fact not in words(Scaling())


@pytest.mark.parametrize(
    "state, fact",
    [
        (
            {},
            (
                "Dot products of 64 random features have a standard deviation of about √64 = 8;"
                " divided by 8, of 1.01 here."
            ),
        ),
        (
            {"scale": False},
            (
                "Dot products of 64 random features have a standard deviation of about √64 = 8:"
                " 8.05 here."
            ),
        ),
        (
            {"temperature": 2},
            (
                "Dot products of 64 random features have a standard deviation of about √64 = 8; "
                "divided by 8 and by temperature 2, of 0.50 here."
            ),
        ),
        (
            {"head_dim": 1},
            (
                "Dot products of 1 random feature have a standard deviation of about √1 = 1: 1.02"
                " here."
            ),
        ),
    ],
)
def test_the_spread_is_told_with_what_divides_it(state: dict[str, Any], fact: str) -> None:
    assert words(Scaling(), **state)[0] == fact


def test_one_feature_has_nothing_to_scale() -> None:
    assert Scaling().view(head_dim=1).disabled == {
        "scale": "√1 = 1: dividing by it changes nothing."
    }
    assert Scaling().view(head_dim=2).disabled == {}
    assert "scale" not in words(Scaling(), head_dim=1)[3]


def test_bars_are_sorted_and_the_table_names_their_keys() -> None:
    r, view = record(head_dim=8), Scaling().view(head_dim=8)
    bars = view.figure.data[1]
    assert bars.type == "bar" and list(bars.y) == sorted(bars.y, reverse=True)
    assert bars.meta["columns"][0] == f"key {r.weights[0].argmax()}" and sum(
        bars.y
    ) == pytest.approx(1, abs=1e-3)
    assert f"the largest takes {r.weights[0].max():.2f}" in view.figure.layout.annotations[3].text


def test_the_distribution_keeps_its_axis_and_says_what_lies_outside() -> None:
    figure = Scaling().view(head_dim=512, scale=False).figure
    r = record(head_dim=512, scale=False)
    outside = (np.abs(r.scores) > 30.5).mean()
    assert (
        figure.layout.annotations[1].text
        == f"standard deviation {r.scores.std():.2f}, {outside:.0%} outside"
    )
    assert (
        list(figure.layout.xaxis.range)
        == [-30, 30]
        == list(Scaling().view().figure.layout.xaxis.range)
    )
    counts = [
        ((r.scores >= middle - 0.5) & (r.scores < middle + 0.5)).sum() for middle in range(-30, 31)
    ]
    np.testing.assert_allclose(figure.data[0].y, np.array(counts) / max(counts), atol=1e-3)
    cells = figure.data[0].meta["cells"][0]
    assert cells[3] == f"{((r.scores >= -1) & (r.scores < 1)).mean():.1%}"
    assert sum(float(cell[:-1]) for cell in cells) == pytest.approx(100, abs=0.4)
    assert '<th scope="col">−1 to 1</th>' in markup.tables(figure)


def test_it_leaves_the_random_numbers_of_the_reader_alone() -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    Scaling(num_keys=5, seed=13).view()
    assert torch.rand(3).tolist() == expected.tolist()


def test_own_numbers_of_keys() -> None:
    own = Scaling(**SMALL)
    assert record(own).weights.shape == (1000, 7)
    assert "effective keys of 7." in words(own)[2]
    assert own.view().figure.layout.yaxis3.range[1] == pytest.approx(1.05 * math.log(7))


@pytest.mark.parametrize(
    "data, error, message",
    [
        ({"num_keys": 1}, ValueError, "^num_keys is 1; pass 2 to 64"),
        ({"num_keys": 65}, ValueError, "^num_keys is 65; pass 2 to 64"),
        ({"num_keys": 7.0}, TypeError, "^num_keys is 7.0; pass a whole number.$"),
        ({"seed": True}, TypeError, "^seed is True; pass a whole number.$"),
        ({"seed": -1}, ValueError, "^seed is -1; pass 0 or more, below 2"),
    ],
)
def test_data_that_do_not_fit_are_named(
    data: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Scaling(**data)
