"""Answers to the exercises on batch_first."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from answers import Answers


def means(module: nn.MultiheadAttention, x: Tensor) -> Tensor:
    turned = x.transpose(0, 1)
    return module(turned, turned, turned)[0].mean(dim=0)


def one_by_one(module: nn.MultiheadAttention, x: Tensor) -> Tensor:
    return torch.stack([module(sentence, sentence, sentence)[0].mean(dim=0) for sentence in x])


def a_list_of_means(module: nn.MultiheadAttention, x: Tensor) -> list[Tensor]:
    return list(one_by_one(module, x))


def in_double_precision(module: nn.MultiheadAttention, x: Tensor) -> Tensor:
    return means(module.double(), x.double())


def over_the_sentences(module: nn.MultiheadAttention, x: Tensor) -> Tensor:
    turned = x.transpose(0, 1)
    return module(turned, turned, turned)[0].mean(dim=1)


def told(module: nn.MultiheadAttention, x: Tensor) -> Tensor:
    module.batch_first = True
    return module(x, x, x)[0].mean(dim=1)


def leaks(model: Any, x: Tensor) -> bool:
    for n in range(len(x)):
        edited = x.clone()
        edited[n] = torch.randn_like(x[n])
        others = [other for other in range(len(x)) if other != n]
        if (model(edited) - model(x))[others].abs().max() > 1e-5:
            return True
    return False


def by_gradient(model: Any, x: Tensor) -> Tensor:
    # (N, N)
    flows = (
        torch.autograd.functional.jacobian(lambda x: model(x).sum(dim=(1, 2)), x)
        .abs()
        .sum(dim=(2, 3))
    )
    return (flows - flows.diag().diag()).any()


def by_sign(model: Any, x: Tensor) -> bool:
    for n in range(len(x)):
        edited = x.clone()
        edited[n] *= -1
        moved = (model(edited) - model(x)).abs().amax(dim=(1, 2))
        moved[n] = 0
        if moved.max() > 1e-5:
            return True
    return False


def never_afresh(model: Any, x: Tensor) -> bool:
    edited = x.clone()
    for n in range(len(x)):
        edited[n] += 1
        moved = (model(edited) - model(x)).abs().amax(dim=(1, 2))
        moved[n] = 0
        if moved.max() > 1e-5:
            return True
    return False


def only_the_first(model: Any, x: Tensor) -> bool:
    edited = x.clone()
    edited[0] += 1
    return bool((model(edited) - model(x))[1:].any())


def in_place(model: Any, x: Tensor) -> bool:
    before = model(x)
    x[0] += 1
    return bool((model(x) - before)[1:].any())


ANSWERS = {
    "batch-first-1": Answers(
        right=(
            ((5, 2, 8), (2, 5, 7)),
            ["5, 2, 8", torch.Size([2, 5, 7])],
            ("5 x 2 x 8", "torch.Size([2, 5, 7])"),
            (torch.zeros(5, 2, 8), np.zeros((2, 5, 7))),
            (torch.tensor([5, 2, 8]), np.array([2, 5, 7])),
        ),
        wrong=(
            (
                ((5, 2, 8), (5, 2, 7)),
                r"the weights are not \(5, 2, 7\): that takes axis 0 for the batch",
            ),
            (((5, 2, 8), (2, 4, 5, 7)), "averaged over the heads"),
            (((5, 2, 8), (2, 7, 5)), r"they are \(N, L, S\)"),
            (((2, 5, 8), (2, 5, 7)), "it has the layout and the sizes of the query"),
            ((5, 2, 8), "give two shapes"),
            (((5, 2, 8.5), (2, 5, 7)), r"your answer is \(5, 2, 8.5\); give a shape"),
        ),
    ),
    "batch-first-2": Answers(
        right=(means, one_by_one, a_list_of_means, in_double_precision),
        wrong=(
            (
                over_the_sentences,
                r"has shape \(5, 4\); there should be \(3, 4\): this is one vector for each place",
            ),
            (
                lambda module, x: module(x, x, x)[0].mean(dim=1),
                "still reads your sentences as columns",
            ),
            (
                lambda module, x: module(x, x, x)[0],
                r"shape \(3, 5, 4\).*the mean over the words is missing",
            ),
            (lambda module, x: module(x, x, x), "return the means alone"),
            (
                lambda module, x: -means(module, x),
                "not the mean over what each sentence gives alone",
            ),
            (told, "your function sets batch_first"),
            (means(nn.MultiheadAttention(4, 2), torch.zeros(3, 5, 4)), "pass the function itself"),
        ),
    ),
    "batch-first-3": Answers(
        right=(
            leaks,
            by_gradient,
            lambda model, x: [leaks(model, x)],
            lambda model, x: int(leaks(model, x)),
        ),
        wrong=(
            (
                by_sign,
                (
                    "divides by the length of all sentences together is said not to leak; does your"
                    " edit change lengths"
                ),
            ),
            (
                only_the_first,
                (
                    "adds the last sentence to the first is said not to leak; do you edit each"
                    " sentence in turn"
                ),
            ),
            (
                lambda model, x: bool((model(-x) != model(x)).any()),
                "doubles x, word by word is said to leak",
            ),
            (
                never_afresh,
                "doubles x, word by word is said to leak; .* each edit needs a fresh clone",
            ),
            (lambda model, x: False, "attends over the batch is said not to leak"),
            (in_place, "edit a clone"),
            (lambda model, x: model(x), "return one True or False"),
            (lambda model, x: str(leaks(model, x)), "return one True or False"),
        ),
    ),
}
