"""Answers to the exercises on the fast path."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor, nn

from answers import Answers


def block(module: nn.MultiheadAttention, norm: nn.Module, x: Tensor) -> Tensor:
    normed = norm(x)
    return x + module(normed, normed, normed, need_weights=False)[0]


def by_variable(module: nn.MultiheadAttention, norm: nn.Module, x: Tensor) -> Tensor:
    query = key = value = norm(x)
    attended, _ = module(query, key, value)
    return attended.add(x)


def in_place(module: nn.MultiheadAttention, norm: nn.Module, x: Tensor) -> Tensor:
    normed = norm(x)
    x += module(normed, normed, normed, need_weights=False)[0]
    return x


def broken(module: nn.MultiheadAttention, norm: nn.Module, x: Tensor) -> Tensor:
    return x + module(norm(x), norm(x), norm(x), need_weights=False)[0]


def nested_of(x: Tensor, lengths: list[int]) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of nested tensors is in prototype")
        return torch.nested.nested_tensor(
            [sentence[:length] for sentence, length in zip(x, lengths, strict=True)]
        )


def unpadded(module: nn.MultiheadAttention, x: Tensor, lengths: list[int]) -> Tensor:
    nested = nested_of(x, lengths)
    with torch.inference_mode():
        output, _ = module(nested, nested, nested)
    return torch.nested.to_padded_tensor(output, 0.0, output_size=x.shape)


def into_zeros(module: nn.MultiheadAttention, x: Tensor, lengths: list[int]) -> Tensor:
    nested, filled = nested_of(x, lengths), torch.zeros_like(x)
    with torch.no_grad():
        for n, sentence in enumerate(
            module(nested, nested, nested, need_weights=False)[0].unbind()
        ):
            filled[n, : len(sentence)] = sentence
    return filled


def still_nested(module: nn.MultiheadAttention, x: Tensor, lengths: list[int]) -> Tensor:
    nested = nested_of(x, lengths)
    with torch.no_grad():
        return module(nested, nested, nested)[0]


def to_the_longest(module: nn.MultiheadAttention, x: Tensor, lengths: list[int]) -> Tensor:
    return torch.nested.to_padded_tensor(still_nested(module, x, lengths), 0.0)


def by_mask(module: nn.MultiheadAttention, x: Tensor, lengths: list[int]) -> Tensor:
    padding = torch.arange(x.shape[1]) >= torch.tensor(lengths)[:, None]
    with torch.no_grad():
        return module(x, x, x, key_padding_mask=padding)[0].masked_fill(padding[..., None], 0.0)


def unmasked(module: nn.MultiheadAttention, x: Tensor, lengths: list[int]) -> Tensor:
    padding = torch.arange(x.shape[1]) >= torch.tensor(lengths)[:, None]
    return module(x, x, x)[0].masked_fill(padding[..., None], 0.0)


ANSWERS = {
    "fast-path-1": Answers(
        right=(
            "ace",
            ["A", "c", "e"],
            "(a), (c), (e)",
            "a, c and e",
            ["a and c", "e"],
            {"c", "e", "a"},
        ),
        wrong=(
            ("ac", r"\(e\) takes it: boolean masks"),
            ("ae", r"\(c\) takes it: gradients are on, but neither"),
            ("abce", r"\(b\) has 1 head"),
            ("ace d", r"\(d\) passes another tensor"),
            ("acef", r"\(f\) has a float mask"),
            ("ce", r"\(a\) takes it: inference_mode"),
            ("g", r"there is no call g; the calls are"),
            (5, "give letters"),
        ),
    ),
    "fast-path-2": Answers(
        right=(block, by_variable, in_place),
        wrong=(
            (broken, "but the fast path is not taken: are query, key and value one tensor"),
            (lambda module, norm, x: x + module(x, x, x)[0], "the module gets x as it is"),
            (lambda module, norm, x: block(module, norm, x) - x, "x is not added"),
            (
                lambda module, norm, x: block(module, norm, x) - x + norm(x),
                "x itself should be added",
            ),
            (lambda module, norm, x: norm(x) + x, "not the one that the broken function returns"),
            (lambda module, norm, x: module(*[norm(x)] * 3), "returns several things"),
        ),
    ),
    "fast-path-3": Answers(
        right=(unpadded, into_zeros),
        wrong=(
            (by_mask, "no NestedTensor went through"),
            (still_nested, "its output is still nested"),
            (to_the_longest, r"shape \(3, 4, 4\).*filled up to the longest sentence only"),
            (unmasked, "on the real positions its output is not"),
            (lambda module, x, lengths: unpadded(module, x, [5, 5, 5]), "not 0 on the padding"),
            (lambda module, x, lengths: module(x, x, x), "return the output alone"),
            (
                lambda module, x, lengths: module(*[nested_of(x, lengths)] * 3),
                "your function raises AssertionError",
            ),
        ),
    ),
    "fast-path-4": Answers(
        right=(25, torch.tensor(25), "25", [25]),
        wrong=(
            (24, "at 24 both hold as many"),
            (97, "97 is the bound for one head"),
            (9, "compares the maps with the queries alone"),
            (64, "compare H · L · L with L · 3E"),
            ("many", "your answer is 'many'; give one number"),
        ),
    ),
}
