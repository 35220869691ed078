"""The exercises of the chapter on what goes wrong."""

from __future__ import annotations

import re
import reprlib
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from mha_widgets.exercises._checking import Wrong, called, close, exercise, random, several, shaped

FATES = ("wrong", "error", "right", "error", "right", "wrong")
HINTS = {
    "a": "the mask is the wrong way round: True blocks, so the words look at padding alone",
    "b": "integers are no mask; torch refuses them",
    "c": "the hint is_causal fits the mask that comes with it",
    "d": "a mask with three axes must be (N * num_heads, L, S)",
    "e": "all four masks are one and the same, so their order doesn't matter",
    "f": "-1 is added to the scores: later words count less, but they count",
}


@exercise("when-it-goes-wrong-1")
def fates(answer: Any) -> str:
    """What becomes of six calls: each "error", "wrong" or "right"."""
    if isinstance(answer, str):
        answer = re.findall(r"\w+", answer)
    wanted = 'give six words, one for each call, each "error", "wrong" or "right"'
    given = [str(word).strip(" .'\"").lower() for word in several(answer, 6, wanted)]
    for letter, word, fate in zip(HINTS, given, FATES, strict=True):
        if word not in FATES:
            raise Wrong(f'{reprlib.repr(word)} is none of "error", "wrong" and "right".')
        if word != fate:
            raise Wrong(f"{letter} is not {word!r}: {HINTS[letter]}.")
    return "Two errors, and two mistakes that nobody reports."


@exercise("when-it-goes-wrong-2")
def attends(answer: Any) -> str:
    """A function of a module, x (N, L, E) and left padding (N, L): causal output and weights (N,
    L, S), no NaN.
    """
    module, x, padding = _left_padded()
    plain = deepcopy(module)
    made = called(answer, module, x, padding)
    if not isinstance(made, (tuple, list)) or len(made) != 2:
        raise Wrong("return two things, the output and the weights.")
    output, weights = made
    if weights is None:
        raise Wrong(
            "your weights are None; need_weights=False avoids the NaN, but the weights are wanted."
        )
    N, L, E = x.shape
    if not isinstance(output, Tensor) or not output.requires_grad:
        raise Wrong(
            "your output has no gradient; don't call detach or no_grad, since the module is trained"
            " with it."
        )
    shaped(output, (N, L, E), what="your output")
    shaped(
        weights,
        (N, L, L),
        {(N, module.num_heads, L, L): "average over the heads"},
        what="your tensor of weights",
    )
    if not output.isfinite().all() or not weights.isfinite().all():
        raise Wrong(
            "there is still NaN in what you return: each row needs a key before the softmax."
        )
    for n, words in enumerate(~padding):
        alone, seen = _causal_alone(plain, x[n, words])
        expected = torch.zeros(len(alone), L)
        expected[:, words] = seen
        if not close(weights[n, words], expected):
            other = "do they see padding, or words that come later?"
            hint = (
                "do the masks lie in the order that the module takes?"
                if _repeated(plain, x, padding, weights)
                else other
            )
            raise Wrong(f"the real words of sentence {n} don't see what they saw before; {hint}")
        if not close(output[n, words], alone):
            raise Wrong(
                f"the output for the real words of sentence {n} is not what the sentence gives"
                " alone."
            )
    if not _finite_gradients(output[~padding], module):
        raise Wrong(
            "the gradients are still NaN: what is cleaned after the softmax comes too late on the"
            " way back."
        )
    return "Every row has a key now, and nobody reads those of the padding."


@exercise("when-it-goes-wrong-3")
def vectors(answer: Any) -> str:
    """A function of a module, x (N, L, E) and attention_mask (N, L):
    the mean output of the real words, (N, E).
    """
    module, x, padding = _left_padded()
    mask = (~padding).long()
    # padding on the right; an empty sentence
    mask = torch.cat([mask.flip(-1), torch.zeros_like(mask[:1])])
    x = torch.cat([x, random(1, *x.shape[1:], seed=3)])
    every = module(x, x, x, key_padding_mask=mask == 0)[0]
    for training in (True, False):
        given = deepcopy(module).train(training).requires_grad_(training)
        made = called(answer, given, x, mask)
        found = shaped(made, (len(x), x.shape[2]), {tuple(x.shape): "average"}, what="its output")
        mode = "in training" if training else "in evaluation"
        if not found[:-1].isfinite().all():
            raise Wrong(
                f"{mode} a sentence with words is NaN: does True mean blocked in your mask?"
            )
        for n, words in enumerate(mask[:-1].bool()):
            outputs = every[n]
            if close(found[n], outputs[words].mean(dim=0)):
                continue
            if close(found[n], outputs[words].sum(dim=0)):
                raise Wrong("these are sums; divide by the number of real words.")
            if close(found[n], outputs.mean(dim=0)) or close(
                found[n], outputs[words].sum(dim=0) / len(outputs)
            ):
                raise Wrong("the mean still counts the rows of padding: they have outputs too.")
            raise Wrong(
                f"the vector of sentence {n} is not the mean of its real words; is padding blocked,"
                " True in the mask?"
            )
        if not close(found[-1], torch.zeros_like(found[-1])):
            got = "NaN" if found[-1].isnan().any() else "no vector of zeros"
            raise Wrong(
                f"{mode} the sentence without a word gives {got}: leave it a key, and don't divide"
                " by 0."
            )
        made = (
            torch.stack(list(made))
            if isinstance(made, (tuple, list)) and isinstance(made[0], Tensor)
            else made
        )
        if training and (not isinstance(made, Tensor) or not made.requires_grad):
            raise Wrong(
                "the vectors are right, but no gradient comes back; don't call detach or no_grad in"
                " training."
            )
        if training and not _finite_gradients(made, given):
            raise Wrong(
                "the vectors are right, but the gradients are NaN: cleaned outputs come too late,"
                " leave a key before."
            )
    return "Each word meets real words only, and an empty sentence harms nobody."


def _left_padded() -> tuple[nn.MultiheadAttention, Tensor, Tensor]:
    """Return a module in training, x (N, L, E) = (3, 5, 8) and left padding."""
    module, x = nn.MultiheadAttention(8, 4, batch_first=True), 2 * random(3, 5, 8, seed=7)
    return module, x, torch.arange(5) < torch.tensor([[0], [3], [1]])


def _finite_gradients(output: Tensor, module: nn.MultiheadAttention) -> bool:
    """Say whether a loss on this output sends no NaN back to the module's parameters."""
    gradients = torch.autograd.grad(output.square().sum(), list(module.parameters()))
    return all(bool(gradient.isfinite().all()) for gradient in gradients)


def _repeated(module: nn.MultiheadAttention, x: Tensor, padding: Tensor, weights: Tensor) -> bool:
    """Say whether the weights of real words are those of masks that were laid out with repeat."""
    causal = torch.ones(x.shape[1], x.shape[1]).triu(1).bool()
    blocked = (causal | padding[:, None, :]) & ~torch.eye(x.shape[1]).bool()
    found = module(x, x, x, attn_mask=blocked.repeat(module.num_heads, 1, 1))[1]
    return close(weights[~padding], found[~padding])


def _causal_alone(module: nn.MultiheadAttention, words: Tensor) -> tuple[Tensor, Tensor]:
    """Return output and weights of one sentence without padding,
    each word seeing itself and those before it.
    """
    return module(words, words, words, attn_mask=torch.ones(len(words), len(words)).triu(1).bool())
