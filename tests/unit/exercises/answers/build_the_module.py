"""Answers to the exercises of the chapter that builds the module."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from answers import Answers
from mha_widgets import MultiheadAttention


def by_einsum(heads_of: str = "nlhd", scale_of_head: bool = True) -> object:
    def attention(module: nn.MultiheadAttention, x: Tensor) -> Tensor:
        N, L, E = x.shape
        H, D = module.num_heads, E // module.num_heads
        made = F.linear(x, module.in_proj_weight, module.in_proj_bias)
        q, k, v = made.view(N, L, 3, H, D).unbind(dim=2)
        scores = torch.einsum("nlhd,nshd->nhls", q, k) / (D if scale_of_head else E) ** 0.5
        heads = torch.einsum(f"nhls,nshd->{heads_of}", torch.softmax(scores, dim=-1), v)
        return module.out_proj(heads.reshape(N, L, E))

    return attention


class Quick(nn.MultiheadAttention):
    """As our module, by torch."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__(embed_dim, num_heads, batch_first=True)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Any = None,
        need_weights: bool = True,
    ) -> Any:
        return super().forward(query, key, value, attn_mask=attn_mask, need_weights=need_weights)


class Ours(Quick):
    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Any = None,
        need_weights: bool = True,
    ) -> Any:
        tables = zip(
            (query, key, value),
            self.in_proj_weight.chunk(3),
            self.in_proj_bias.chunk(3),
            strict=True,
        )
        q, k, v = (
            F.linear(*table).unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for table in tables
        )
        if not need_weights:
            heads = F.scaled_dot_product_attention(q, k, v, attn_mask=attn_mask)
            return self.out_proj(heads.transpose(1, 2).flatten(2)), None
        scores = q @ k.mT / q.shape[-1] ** 0.5 + (0 if attn_mask is None else attn_mask)
        weights = torch.softmax(scores, dim=-1)
        return self.out_proj((weights @ v).transpose(1, 2).flatten(2)), weights.mean(dim=1)


class OutputAlone(Quick):
    def forward(self, *inputs: Tensor, **options: Any) -> Any:
        return super().forward(*inputs, **options)[0]


class StillMaps(Ours):
    def forward(self, *inputs: Tensor, need_weights: bool = True, **options: Any) -> Any:
        output, weights = super().forward(*inputs, **options)
        return output, weights if need_weights else None


class NoMask(Quick):
    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Any = None,
        need_weights: bool = True,
    ) -> Any:
        return super().forward(query, key, value, need_weights=need_weights)


class PerHead(Quick):
    def forward(self, *inputs: Tensor, **options: Any) -> Any:
        return nn.MultiheadAttention.forward(self, *inputs, **options, average_attn_weights=False)


class Expanded(Ours):
    def forward(self, *inputs: Tensor, attn_mask: Any = None, **options: Any) -> Any:
        N, L, S = len(inputs[0]), inputs[0].shape[1], inputs[1].shape[1]
        every = None if attn_mask is None else attn_mask.expand(N, self.num_heads, L, S)
        return super().forward(*inputs, attn_mask=every, **options)


class WithoutGradients(Quick):
    def forward(self, *inputs: Tensor, **options: Any) -> Any:
        with torch.no_grad():
            return super().forward(*inputs, **options)


class Always(Quick):
    def forward(self, *inputs: Tensor, need_weights: bool = True, **options: Any) -> Any:
        return super().forward(*inputs, **options)


def agrees(
    N: int = 2,
    heads: int = 3,
    three: bool = True,
    masks: int = 2,
    random: bool = True,
    results: int = 6,
    averaged: bool = False,
) -> object:
    """Compare output, weights and four gradients, or in a way that is too kind."""

    def compared(kind: Any) -> bool:
        theirs = nn.MultiheadAttention(12, heads, batch_first=True)
        for parameter in theirs.parameters() if random else ():
            nn.init.normal_(parameter, std=0.3)
        ours = kind(12, heads)
        ours.load_state_dict(theirs.state_dict())
        query, key, value = (torch.randn(N, n, 12) for n in (5, 7, 7))
        same = []
        for mask in (None, torch.randn(5, 7))[:masks]:
            found = []
            for module in (ours, theirs):
                returned = module(
                    query,
                    key,
                    value if three else key,
                    attn_mask=mask,
                    average_attn_weights=averaged,
                )
                grads = torch.autograd.grad(returned[0].square().mean(), list(module.parameters()))
                found.append([*returned, *grads][:results])
            same += [torch.allclose(a, b, atol=1e-4) for a, b in zip(*found, strict=True)]
        return all(same)

    return compared


def shapes_agree(kind: Any) -> bool:
    return [p.shape for p in kind(12, 3).parameters()] == [
        p.shape for p in nn.MultiheadAttention(12, 3).parameters()
    ]


ANSWERS = {
    "build-the-module-1": Answers(
        right=(
            (624, 624, 300),
            [torch.tensor(624), "624", torch.tensor([300])],
            torch.tensor([624, 624, 300]),
        ),
        wrong=(
            ((576, 576, 300), "these are the four matrices"),
            ((468, 468, 300), "out_proj learns too"),
            ((156, 156, 300), r"\(a\) is not 156"),
            ((624, 1248, 300), r"\(b\) is not 1248: the heads share the features"),
            ((624, 624, 50), "each head has a map of its own"),
            ((624, 624, 360), r"\(c\) is not 360"),
            ((624, 624), "give three numbers"),
            ((624, 624, (2, 6, 5, 5)), r"\(c\) holds 4 numbers; give one"),
            ((624, 624, 1j), r"\(c\) is 1j; give one number"),
        ),
    ),
    "build-the-module-2": Answers(
        right=(
            by_einsum(),
            lambda module, x: module(x, x, x)[0],
            lambda module, x: list(module(x, x, x)[0]),
            lambda module, x: module.double()(*[x.double()] * 3)[0],
        ),
        wrong=(
            (by_einsum("nhld"), "for 3 heads is not .* still joins words, not heads"),
            (by_einsum("nldh"), "for 3 heads is not .* h must stand before d"),
            (by_einsum(scale_of_head=False), "for 3 heads is not .* follow the letters"),
            (lambda module, x: module.out_proj(x), "for 1 head is not"),
            (
                lambda module, x: module(x, x, x)[1],
                r"its output for 1 head has shape \(2, 5, 5\); there should be \(2, 5, 12\)",
            ),
        ),
    ),
    "build-the-module-3": Answers(
        right=(Quick, Ours, Expanded),
        wrong=(
            (OutputAlone, "it should return two things"),
            (StillMaps, "maps of N · H · L · S numbers are kept"),
            (NoMask, "its output with a mask for need_weights=True is not"),
            (PerHead, r"its second result has shape \(2, 3, 40, 50\)"),
            (Always, "the second result should be None"),
            (Quick(12, 3), "pass the class itself"),
            (WithoutGradients, "its output lets no gradient through"),
            (
                lambda *sizes: nn.Linear(12, 12),
                "its parameters don't have the names and shapes of our module's",
            ),
            (lambda *sizes: 3, "should make a module, but it made an object of type int"),
            (nn.MultiheadAttention, "your module raises RuntimeError: shape"),
        ),
    ),
    "build-the-module-4": Answers(
        right=(agrees(), agrees(N=3, heads=4)),
        wrong=(
            (
                agrees(random=False, results=2),
                "accepts a class that leaves out the bias of the values",
            ),
            (agrees(three=False), "takes its values from the keys"),
            (agrees(heads=1), "accepts a class that divides the scores by √E"),
            (agrees(masks=1), "ignores the mask"),
            (agrees(results=2), "lets no gradient through the weights"),
            (agrees(N=1), "mixes the sentences of a batch"),
            (agrees(results=1), "lets no gradient through the weights"),
            (lambda kind: False, "it refuses a class that is right"),
            (shapes_agree, "accepts a class that leaves out the bias"),
            (lambda kind: torch.ones(3), "return one True or False"),
            (MultiheadAttention, "your class raises TypeError"),
            (agrees(averaged=True), "shows the maps of the heads in another order"),
        ),
    ),
}
