"""Answers to the exercises on calling the module."""

from typing import Any

import torch
from torch import Tensor, nn

from answers import Answers


def received(module: nn.MultiheadAttention, x: Tensor) -> Tensor:
    return module(x, x, x, average_attn_weights=False)[1].sum(dim=-2)


def received_one_by_one(module: nn.MultiheadAttention, x: Tensor) -> list[Any]:
    return [module(s, s, s, average_attn_weights=False)[1].sum(dim=1).tolist() for s in x]


class SelfAttention(nn.Module):
    def __init__(
        self, embed_dim: int, num_heads: int, need_weights: bool = False, **options: Any
    ) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(
            embed_dim, num_heads, **{"batch_first": True, **options}
        )
        self.need_weights = need_weights

    def forward(self, x: Tensor) -> Any:
        return self.attention(x, x, x, need_weights=self.need_weights)[0]


class Turning(SelfAttention):
    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__(embed_dim, num_heads, batch_first=False, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.transpose(0, 1)).transpose(0, 1)


class Inherited(nn.MultiheadAttention):
    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__(embed_dim, num_heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, x, x, need_weights=False)[0]


class WithoutGradients(SelfAttention):
    def forward(self, x: Tensor) -> Any:
        with torch.no_grad():
            return super().forward(x)


class Pair(SelfAttention):
    def forward(self, x: Tensor) -> Any:
        return self.attention(x, x, x)


ANSWERS = {
    "calling-the-module-1": Answers(
        right=(
            ((5, 7, 9), (5, 3, 7, 9), (3, 7, 9)),
            ["(5, 7, 9)", torch.Size([5, 3, 7, 9]), [3, 7, 9]],
        ),
        wrong=(
            (
                ((5, 3, 7, 9), (5, 3, 7, 9), (3, 7, 9)),
                r"^Not yet: \(a\) is not .* averaged over the heads",
            ),
            (((5, 7, 12), (5, 3, 7, 9), (3, 7, 9)), r"\(a\) is not .* weights have no features"),
            (((5, 7, 9), (5, 3, 9, 7), (3, 7, 9)), r"\(b\) is not .* a row is a query"),
            (
                ((5, 7, 9), (3, 5, 7, 9), (3, 7, 9)),
                r"\(b\) is not .* the batch comes first, then the heads",
            ),
            (
                ((5, 7, 9), (5, 3, 7, 9), (1, 3, 7, 9)),
                r"\(c\) is not .* one sequence has no batch axis",
            ),
            (((5, 7, 9), (5, 3, 7, 9), (7, 9)), r"\(c\) is not \(7, 9\): which of N, H, L and S"),
            ((5, 7, 9, 3), "give three shapes"),
        ),
    ),
    "calling-the-module-2": Answers(
        right=(
            received,
            received_one_by_one,
            lambda module, x: [
                module(s, s, s, average_attn_weights=False)[1].sum(dim=1) for s in x
            ],
            lambda module, x: received(module.double(), x.double()),
        ),
        wrong=(
            (
                lambda module, x: module(x, x, x)[1].sum(dim=-1),
                "the heads are averaged; ask for each",
            ),
            (
                lambda module, x: module(x, x, x, average_attn_weights=False)[1].sum(dim=-1),
                "1 for every query",
            ),
            (
                lambda module, x: module(x, x, x, average_attn_weights=False)[1].sum(dim=0),
                "there should be",
            ),
            (
                lambda module, x: module(x, x, x, average_attn_weights=False)[1].sum(dim=1),
                "the heads are added up",
            ),
            (lambda module, x: received(module, x) / 5, "the mean over the queries"),
            (lambda module, x: 2 * received(module, x), "not the sums over the queries"),
            (
                lambda module, x: module(x, x, x, need_weights=False)[1].sum(),
                "your function raises AttributeError",
            ),
            (lambda module, x: module(x, x, x), "is of type tuple; give one tensor"),
        ),
    ),
    "calling-the-module-3": Answers(
        right=(SelfAttention, Turning, Inherited),
        wrong=(
            (WithoutGradients, "its output lets no gradient through"),
            (Pair, "it returns 2 things"),
            (lambda *sizes: SelfAttention(*sizes, need_weights=True), "pass need_weights=False"),
            (
                lambda *sizes: SelfAttention(*sizes, batch_first=False),
                "not what each sentence gives alone",
            ),
            (lambda *sizes: SelfAttention(16, 4), "makes 16 features and 4 heads"),
            (SelfAttention(8, 2), "pass the class itself"),
            (nn.Linear, r"one nn.MultiheadAttention in it"),
            (nn.MultiheadAttention, "your module raises TypeError"),
            (lambda: SelfAttention(8, 2), "your function raises TypeError"),
        ),
    ),
}
