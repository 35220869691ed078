"""Answers to the exercises on packed projections."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from answers import Answers


def swap(
    columns: bool = True, biases: bool = True, weights: bool = True, last_bias: bool = False
) -> object:
    def swapped(module: nn.MultiheadAttention) -> None:
        D = module.head_dim
        packed = [module.in_proj_weight] * weights + [module.in_proj_bias] * biases
        for third in (third for one in packed for third in one.data.chunk(3)):
            third.copy_(third.roll(D, dims=0))
        module.out_proj.weight.data = module.out_proj.weight.roll(D, dims=int(columns))
        module.out_proj.bias.data = module.out_proj.bias.roll(D * last_bias)

    return swapped


def queries_and_keys(module: nn.MultiheadAttention) -> None:
    for third in (
        third
        for one in (module.in_proj_weight, module.in_proj_bias)
        for third in one.data.chunk(3)[:2]
    ):
        third.copy_(third.roll(module.head_dim, dims=0))


def swapped_copy(module: nn.MultiheadAttention) -> nn.MultiheadAttention:
    order = torch.tensor([4, 5, 6, 7, 0, 1, 2, 3])
    copy = nn.MultiheadAttention(8, 2, batch_first=True)
    every = torch.cat([order, order + 8, order + 16])
    state = module.state_dict()
    copy.load_state_dict(
        {
            "in_proj_weight": state["in_proj_weight"][every],
            "in_proj_bias": state["in_proj_bias"][every],
            "out_proj.weight": state["out_proj.weight"][:, order],
            "out_proj.bias": state["out_proj.bias"],
        }
    )
    return copy


def to_packed(stored: Tensor, num_heads: int) -> Tensor:
    return stored.unflatten(0, (num_heads, 3, -1)).transpose(0, 1).flatten(0, 2)


def by_rows(stored: Tensor, num_heads: int) -> Tensor:
    D = len(stored) // (3 * num_heads)
    return torch.stack(
        [
            stored[3 * h * D + third * D + row]
            for third in range(3)
            for h in range(num_heads)
            for row in range(D)
        ]
    )


def backwards(stored: Tensor, num_heads: int) -> Tensor:
    return stored.unflatten(0, (3, num_heads, -1)).transpose(0, 1).flatten(0, 2)


def interleaved(stored: Tensor, num_heads: int) -> Tensor:
    cut = stored.unflatten(0, (num_heads, 3, -1))
    return torch.cat([cut[:, third].transpose(0, 1).flatten(0, 1) for third in range(3)])


def every_third(stored: Tensor, num_heads: int) -> Tensor:
    return torch.cat([stored[third::3] for third in range(3)])


def one_by_one(module: nn.MultiheadAttention) -> None:
    for third in module.in_proj_weight.detach().chunk(3):
        nn.init.xavier_uniform_(third)


def enlarged(module: nn.MultiheadAttention) -> nn.MultiheadAttention:
    module.in_proj_weight.data *= 2**0.5
    return module


def drawn_once(module: nn.MultiheadAttention) -> None:
    E = module.embed_dim
    module.in_proj_weight.data = nn.init.xavier_uniform_(torch.empty(E, E)).repeat(3, 1)


def stacked(module: nn.MultiheadAttention) -> None:
    nn.init.xavier_uniform_(module.in_proj_weight)


def normal(module: nn.MultiheadAttention) -> None:
    nn.init.normal_(module.in_proj_weight, std=0.125)


def all_parameters(module: nn.MultiheadAttention) -> None:
    one_by_one(module)
    nn.init.xavier_uniform_(module.out_proj.weight)


def two_thirds(module: nn.MultiheadAttention) -> None:
    for third in module.in_proj_weight.detach().chunk(3)[:2]:
        nn.init.xavier_uniform_(third)


def new_names(module: nn.MultiheadAttention) -> None:
    module.W_q = nn.Parameter(torch.ones(2))


ANSWERS = {
    "packed-projections-1": Answers(
        right=(
            (4, (20, 24), (24, 28)),
            [torch.tensor(4), slice(20, 24), range(24, 28)],
            (4.0, [20, 24], [24, 28]),
            ("4", "(20, 24)", "24:28"),
        ),
        wrong=(
            ((8, (20, 24), (24, 28)), r"\(a\) is not 8: all heads together"),
            ((2, (20, 24), (24, 28)), r"\(a\) is not 2: 2 is the number of heads"),
            ((16, (20, 24), (24, 28)), r"\(a\) is not 16: no slice is wider"),
            (((4, 8), (20, 24), (24, 28)), r"\(a\) holds 2 numbers; give one"),
            ((4, (20, 23), (24, 28)), "the last row is excluded"),
            ((4, (8, 12), (24, 28)), r"\(b\) is not \(8, 12\): its third starts at row 12"),
            ((4, (20, 24), (12, 16)), r"\(c\) is not \(12, 16\): its third starts at row 24"),
            ((4, 20, 24), r"\(b\) is 20; give the rows"),
            (4, "give three answers"),
        ),
    ),
    "packed-projections-2": Answers(
        right=(swap(), swapped_copy),
        wrong=(
            (swap(last_bias=True), "the bias of out_proj changed too"),
            (swap(columns=False), "are the slices of out_proj rows or columns"),
            (queries_and_keys, "do the values move along"),
            (swap(biases=False), "do the biases of the projections move along"),
            (swap(columns=False, biases=False), "do the biases of the projections move along"),
            (
                swap(weights=False, biases=False),
                "the maps of the two heads have not changed places",
            ),
            (lambda module: module.missing, "your function raises AttributeError"),
        ),
    ),
    "packed-projections-3": Answers(
        right=(to_packed, by_rows, lambda stored, num_heads: list(by_rows(stored, num_heads))),
        wrong=(
            (
                lambda stored, num_heads: stored,
                "the weight of 2 heads .* the rows still stand head by head",
            ),
            (backwards, "the weight of 2 heads .* this goes the other way"),
            (interleaved, "the weight of 2 heads .* but not its rows"),
            (every_third, "the weight of 2 heads .* the D rows of a head's query stay together"),
            (
                lambda stored, num_heads: to_packed(stored.view(24, 8), num_heads),
                "your function raises RuntimeError",
            ),
            (
                lambda stored, num_heads: stored.unflatten(0, (num_heads, 3, -1)).transpose(0, 1),
                "has shape",
            ),
        ),
    ),
    "packed-projections-4": Answers(
        right=(one_by_one, enlarged),
        wrong=(
            (stacked, r"W_q is still within ±0.153"),
            (two_thirds, r"W_v is still within ±0.153"),
            (
                normal,
                (
                    r"the largest number of W_q is 0.\d\d\d; drawn evenly, all should lie within"
                    r" ±0.217"
                ),
            ),
            (drawn_once, "two of the three matrices hold the same numbers"),
            (all_parameters, "out_proj.weight changed too"),
            (lambda module: None, "in_proj_weight has not changed"),
            (new_names, "should keep its parameters"),
            (lambda module: module.nothing, "your function raises AttributeError"),
        ),
    ),
}
