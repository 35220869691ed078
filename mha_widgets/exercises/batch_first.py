"""The exercises of the chapter on batch_first."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from mha_widgets.exercises._checking import (
    Wrong,
    called,
    close,
    exercise,
    expect,
    random,
    says,
    several,
    shape_of,
    shaped,
)


@exercise("batch-first-1")
def shapes_of_a_default_call(answer: Any) -> str:
    """The shapes of output and weights: query (5, 2, 8), key and value (7, 2,
    8), batch_first=False, 4 heads.
    """
    output, weights = map(
        shape_of, several(answer, 2, "give two shapes, that of the output and that of the weights")
    )
    expect(output, (5, 2, 8), "the output is", "it has the layout and the sizes of the query")
    hints = {(5, 2, 7): "that takes axis 0 for the batch; here the sequence comes first, so N = 2"}
    default = (
        "by default they are averaged over the heads"
        if len(weights) == 4
        else "they are (N, L, S) whatever batch_first is"
    )
    expect(weights, (2, 5, 7), "the weights are", default, hints)
    return "The output keeps the layout of the query; the weights are batch first, always."


@exercise("batch-first-2")
def means_of_sentences(answer: Any) -> str:
    """A function of a module with batch_first=False and x (N, L, E):
    the mean of each sentence's outputs, (N, E).
    """
    module, x = _example()
    N, L, E = x.shape
    right, columns = _attend(module, x.transpose(0, 1)).mean(dim=0), _attend(module, x).mean(dim=1)
    made = called(answer, module, x)
    if isinstance(made, tuple):
        raise Wrong("your function returns several things; return the means alone.")
    hints = {
        (L, E): "this is one vector for each place, a mean over the sentences",
        (N, L, E): "the mean over the words is missing",
        (L, N, E): "the mean over the words is missing",
    }
    means = shaped(made, (N, E), hints, what="its output")
    if module.batch_first:
        raise Wrong("your function sets batch_first; leave the module as it is and turn the data.")
    if close(means, columns):
        raise Wrong(
            "the means are over the words, but the module still reads your sentences as columns:"
            " turn x before the call."
        )
    if not close(means, right):
        raise Wrong(
            "its output is not the mean over what each sentence gives alone, module(x[n], x[n],"
            " x[n])."
        )
    return "What comes back has the layout of what went in: here the words are axis 0."


@exercise("batch-first-3")
def finds_leaks(answer: Any) -> str:
    """A function of a model and x (N, L,
    E) that says whether an edit of one sentence moves another's output.
    """
    module, x = _example()
    models = {
        "doubles x, word by word": (lambda x: 2 * x, False),
        "attends in each sentence": (
            lambda x: _attend(module, x.transpose(0, 1)).transpose(0, 1),
            False,
        ),
        "attends over the batch": (lambda x: _attend(module, x), True),
        "adds the last sentence to the first": (_last_to_first, True),
        "adds the first sentence to the last": (lambda x: _last_to_first(x.flip(0)).flip(0), True),
        "divides by the length of all sentences together": (lambda x: x / x.norm(), True),
    }
    for name, (model, expected) in models.items():
        given = x.clone()
        found = says(answer, model, given, copies=False)
        if not torch.equal(given, x):
            raise Wrong("your function changes x itself; edit a clone.")
        if found and not expected:
            hint = "an edited sentence's own output may move, and each edit needs a fresh clone"
            raise Wrong(f"a model that {name} is said to leak; {hint}.")
        if expected and not found and "length" in name:
            raise Wrong(
                f"a model that {name} is said not to leak; does your edit change lengths? A turned"
                " sign doesn't."
            )
        if expected and not found:
            raise Wrong(
                f"a model that {name} is said not to leak; do you edit each sentence in turn, and"
                " look at all others?"
            )
    return "It needs no weights, only outputs."


def _example() -> tuple[nn.MultiheadAttention, Tensor]:
    """Return a module with batch_first=False and a batch (N, L, E) = (3, 5, 4)."""
    return nn.MultiheadAttention(4, 2).requires_grad_(False), 2 * random(3, 5, 4, seed=7)


def _attend(module: nn.MultiheadAttention, x: Tensor) -> Tensor:
    return module(x, x, x)[0]


def _last_to_first(x: Tensor) -> Tensor:
    return torch.cat([x[:1] + x[-1:], x[1:]])
