"""Answers to the exercises on what goes wrong."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from answers import Answers


def blocked(x: Tensor, padding: Tensor) -> Tensor:
    """What is blocked in each sentence, (N, L, S): padding and the future."""
    return torch.ones(x.shape[1], x.shape[1]).triu(1).bool() | padding[:, None, :]


def at_themselves(module: nn.MultiheadAttention, x: Tensor, padding: Tensor) -> Any:
    mask = blocked(x, padding) & ~torch.eye(x.shape[1]).bool()
    return module(x, x, x, attn_mask=mask.repeat_interleave(module.num_heads, dim=0))


def at_all(module: nn.MultiheadAttention, x: Tensor, padding: Tensor) -> Any:
    mask = blocked(x, padding)
    mask = mask & ~mask.all(dim=-1, keepdim=True)
    return list(module(x, x, x, attn_mask=mask.repeat_interleave(module.num_heads, dim=0)))


def one_by_one(module: nn.MultiheadAttention, x: Tensor, padding: Tensor) -> Any:
    outputs, maps = torch.zeros_like(x), torch.zeros(len(x), x.shape[1], x.shape[1])
    for n, pad in enumerate(padding):
        words = x[n, ~pad]
        causal = torch.ones(len(words), len(words)).triu(1).bool()
        outputs[n, ~pad], seen = module(words, words, words, attn_mask=causal)
        maps[n, len(pad) - len(words) :, len(pad) - len(words) :] = seen
    return outputs, maps


def cleaned(module: nn.MultiheadAttention, x: Tensor, padding: Tensor) -> Any:
    causal = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
    output, weights = module(x, x, x, key_padding_mask=padding, attn_mask=causal)
    return output.nan_to_num(0), weights.nan_to_num(0)


def as_given(module: nn.MultiheadAttention, x: Tensor, padding: Tensor) -> Any:
    return module(x, x, x, attn_mask=blocked(x, padding).repeat_interleave(module.num_heads, dim=0))


def without_weights(module: nn.MultiheadAttention, x: Tensor, padding: Tensor) -> Any:
    mask = blocked(x, padding).repeat_interleave(module.num_heads, dim=0)
    return module(x, x, x, attn_mask=mask, need_weights=False)


def repeated(module: nn.MultiheadAttention, x: Tensor, padding: Tensor) -> Any:
    mask = blocked(x, padding) & ~torch.eye(x.shape[1]).bool()
    return module(x, x, x, attn_mask=mask.repeat(module.num_heads, 1, 1))


def without_padding(module: nn.MultiheadAttention, x: Tensor, padding: Tensor) -> Any:
    return module(x, x, x, attn_mask=torch.ones(x.shape[1], x.shape[1]).triu(1).bool())


def each_head(module: nn.MultiheadAttention, x: Tensor, padding: Tensor) -> Any:
    mask = blocked(x, padding) & ~torch.eye(x.shape[1]).bool()
    return module(
        x,
        x,
        x,
        attn_mask=mask.repeat_interleave(module.num_heads, dim=0),
        average_attn_weights=False,
    )


def detached(module: nn.MultiheadAttention, x: Tensor, padding: Tensor) -> Any:
    return [part.detach() for part in at_themselves(module, x, padding)]


def scaled(module: nn.MultiheadAttention, x: Tensor, padding: Tensor) -> Any:
    output, weights = at_themselves(module, x, padding)
    return 2 * output, weights


def attend(module: nn.MultiheadAttention, x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Return the outputs, (N, L, E), and which words are real, (N, L, 1)."""
    real = mask.bool()
    output, _ = module(x, x, x, key_padding_mask=~real & real.any(dim=1, keepdim=True))
    return output, real[..., None]


def vectors(module: nn.MultiheadAttention, x: Tensor, mask: Tensor) -> Tensor:
    output, real = attend(module, x, mask)
    return (output * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)


def vector_by_vector(module: nn.MultiheadAttention, x: Tensor, mask: Tensor) -> Tensor:
    found = torch.zeros(len(x), x.shape[2])
    for n, real in enumerate(mask.bool()):
        if real.any():
            words = x[n, real]
            found[n] = module(words, words, words, need_weights=False)[0].mean(dim=0)
    return found


def as_it_stood(module: nn.MultiheadAttention, x: Tensor, mask: Tensor) -> Tensor:
    return module(x, x, x, key_padding_mask=mask.bool())[0].mean(dim=1)


def half_repaired(module: nn.MultiheadAttention, x: Tensor, mask: Tensor) -> Tensor:
    return attend(module, x, mask)[0].mean(dim=1)


def over_all(module: nn.MultiheadAttention, x: Tensor, mask: Tensor) -> Tensor:
    output, real = attend(module, x, mask)
    return (output * real).mean(dim=1)


def summed(module: nn.MultiheadAttention, x: Tensor, mask: Tensor) -> Tensor:
    output, real = attend(module, x, mask)
    return (output * real).sum(dim=1)


def by_zero(module: nn.MultiheadAttention, x: Tensor, mask: Tensor) -> Tensor:
    output, real = attend(module, x, mask)
    return (output * real).sum(dim=1) / real.sum(dim=1)


def in_training_alone(module: nn.MultiheadAttention, x: Tensor, mask: Tensor) -> Tensor:
    real = mask.bool()[..., None]
    output, _ = module(x, x, x, key_padding_mask=mask == 0, need_weights=False)
    return (output * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)


def cleaned_too_late(module: nn.MultiheadAttention, x: Tensor, mask: Tensor) -> Tensor:
    real = mask.bool()[..., None]
    output, _ = module(x, x, x, key_padding_mask=mask == 0)
    return output.masked_fill(~real, 0).sum(dim=1) / real.sum(dim=1).clamp(min=1)


def wrong_way_round(module: nn.MultiheadAttention, x: Tensor, mask: Tensor) -> Tensor:
    real = mask.bool()[..., None]
    blocks = mask.bool() & ~mask.bool().all(dim=1, keepdim=True)
    output, _ = module(x, x, x, key_padding_mask=blocks)
    return (output * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)


def without_gradients(module: nn.MultiheadAttention, x: Tensor, mask: Tensor) -> Tensor:
    return cleaned_too_late(module, x, mask).detach()


def in_place(module: nn.MultiheadAttention, x: Tensor, mask: Tensor) -> Tensor:
    empty = ~mask.any(dim=1)
    mask[empty, 0] = 1
    return vectors(module, x, mask).masked_fill(empty[:, None], 0)


def a_list_of_vectors(module: nn.MultiheadAttention, x: Tensor, mask: Tensor) -> list[Tensor]:
    return list(vector_by_vector(module, x, mask))


def of_two_heads(module: nn.MultiheadAttention, x: Tensor, padding: Tensor) -> Any:
    mask = blocked(x, padding) & ~torch.eye(x.shape[1]).bool()
    return module(x, x, x, attn_mask=mask.repeat_interleave(2, dim=0))


WORDS = np.array(["wrong", "error", "right", "error", "right", "wrong"])

ANSWERS = {
    "when-it-goes-wrong-1": Answers(
        right=(
            ["wrong", "error", "right", "error", "right", "wrong"],
            "wrong, Error, right, error, right, wrong",
            WORDS,
            [f'"{word}".' for word in WORDS],
        ),
        wrong=(
            (
                ["right", "error", "right", "error", "right", "wrong"],
                "a is not 'right': the mask is the wrong way round",
            ),
            (
                ["wrong", "wrong", "right", "error", "right", "wrong"],
                "b is not 'wrong': integers are no mask",
            ),
            (
                ["wrong", "error", "error", "error", "right", "wrong"],
                "c is not 'error': the hint is_causal fits",
            ),
            (
                ["wrong", "error", "right", "wrong", "right", "wrong"],
                r"d is not 'wrong': .*\(N \* num_heads, L, S\)",
            ),
            (
                ["wrong", "error", "right", "error", "wrong", "wrong"],
                "e is not 'wrong': all four masks are one and the same",
            ),
            (
                ["wrong", "error", "right", "error", "right", "right"],
                "f is not 'right': -1 is added",
            ),
            (["wrong", "fails", "right", "error", "right", "wrong"], "'fails' is none of"),
            (["wrong", "error"], "give six words"),
        ),
    ),
    "when-it-goes-wrong-2": Answers(
        right=(
            at_themselves,
            at_all,
            one_by_one,
            lambda module, x, padding: at_themselves(module.double(), x.double(), padding),
        ),
        wrong=(
            (
                cleaned,
                "the gradients are still NaN: what is cleaned after the softmax comes too late",
            ),
            (as_given, "there is still NaN in what you return"),
            (without_weights, "your weights are None"),
            (repeated, "do the masks lie in the order that the module takes"),
            (
                without_padding,
                "the real words of sentence 1 don't see what they saw before; do they see padding",
            ),
            (each_head, r"your tensor of weights has shape \(3, 4, 5, 5\).*average over the heads"),
            (of_two_heads, "your function raises RuntimeError: The shape of the 3D attn_mask"),
            (detached, "your output has no gradient"),
            (scaled, "is not what the sentence gives alone"),
            (lambda *inputs: at_themselves(*inputs)[0], "return two things"),
        ),
    ),
    "when-it-goes-wrong-3": Answers(
        right=(
            vectors,
            vector_by_vector,
            a_list_of_vectors,
            in_place,
            lambda module, x, mask: vectors(module.double(), x.double(), mask),
        ),
        wrong=(
            (
                as_it_stood,
                "in training a sentence with words is NaN: does True mean blocked in your mask",
            ),
            (half_repaired, "the mean still counts the rows of padding"),
            (over_all, "the mean still counts the rows of padding"),
            (summed, "these are sums"),
            (by_zero, "in training the sentence without a word gives NaN"),
            (in_training_alone, "in evaluation the sentence without a word gives NaN"),
            (wrong_way_round, "is not the mean of its real words; is padding blocked"),
            (lambda *inputs: vectors(*inputs).tolist(), "no gradient comes back"),
            (without_gradients, "no gradient comes back; don't call detach"),
            (cleaned_too_late, "the vectors are right, but the gradients are NaN"),
            (lambda module, x, mask: attend(module, x, mask)[0], r"shape \(4, 5, 8\).*: average"),
        ),
    ),
}
