"""Answers to the exercises on heads."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from answers import Answers


def attention(
    scale: float | None = None,
    split: bool = True,
    transposed: bool = True,
    mixed: bool = True,
    one: bool = False,
) -> object:
    def attend(
        x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, num_heads: int
    ) -> Tensor:
        N, L, E = x.shape
        H = 1 if one else num_heads
        made = (x @ w.T for w in (w_q, w_k, w_v))
        q, k, v = (
            t.view(N, L, H, -1).transpose(1, 2) if split else t.view(N, H, L, -1) for t in made
        )
        heads = F.scaled_dot_product_attention(q, k, v, scale=scale)
        joined = (heads.transpose(1, 2) if transposed else heads).reshape(N, L, E)
        return joined @ w_o.T if mixed else joined

    return attend


def by_torch(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, num_heads: int
) -> Tensor:
    module = nn.MultiheadAttention(x.shape[-1], num_heads, bias=False, batch_first=True)
    module.in_proj_weight.data, module.out_proj.weight.data = torch.cat([w_q, w_k, w_v]), w_o
    return module(x, x, x, need_weights=False)[0]


def interleaved(
    x: Tensor, w_q: Tensor, w_k: Tensor, w_v: Tensor, w_o: Tensor, num_heads: int
) -> Tensor:
    q, k, v = (
        (x @ w.T).unflatten(-1, (-1, num_heads)).permute(0, 3, 1, 2) for w in (w_q, w_k, w_v)
    )
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2) @ w_o.T


def silenced(joined: Tensor, w_o: Tensor, num_heads: int) -> list[float]:
    D, moved = joined.shape[1] // num_heads, []
    for head in range(num_heads):
        silent = joined.clone()
        silent[:, head * D : (head + 1) * D] = 0
        moved.append((joined @ w_o.T - silent @ w_o.T).abs().max().item())
    return moved


def silenced_in_place(joined: Tensor, w_o: Tensor, num_heads: int) -> list[Tensor]:
    before, moved = joined @ w_o.T, []
    for one in joined.chunk(num_heads, dim=1):
        one.zero_()
        moved.append((before - joined @ w_o.T).abs().max())
    return moved


def parts(joined: Tensor, w_o: Tensor, num_heads: int) -> list[Tensor]:
    return [
        a @ b.T
        for a, b in zip(joined.chunk(num_heads, dim=1), w_o.chunk(num_heads, dim=1), strict=True)
    ]


ANSWERS = {
    "heads-1": Answers(
        right=(
            ((2, 3, 5, 4), (2, 3, 5, 7), (2, 5, 12)),
            ["(2, 3, 5, 4)", torch.Size([2, 3, 5, 7]), [2, 5, 12]],
        ),
        wrong=(
            (((2, 5, 3, 4), (2, 3, 5, 7), (2, 5, 12)), "heads behind the words"),
            (((2, 3, 5, 12), (2, 3, 5, 7), (2, 5, 12)), "each head gets a slice"),
            (((6, 5, 4), (6, 5, 7), (2, 5, 12)), r"the split query is not \(6, 5, 4\)"),
            (((2, 3, 5, 4), (2, 5, 7), (2, 5, 12)), "one map for each head: did you average"),
            (((2, 3, 5, 4), (2, 3, 5, 5), (2, 5, 12)), r"the weights are not \(2, 3, 5, 5\)"),
            (((2, 3, 5, 4), (2, 3, 5, 7), (2, 5, 4)), r"the joined heads are not \(2, 5, 4\)"),
            ((2, 3), "give three shapes"),
        ),
    ),
    "heads-2": Answers(
        right=(
            lambda heads: heads.transpose(1, 2).flatten(2),
            lambda heads: torch.cat(heads.unbind(1), dim=-1),
            lambda heads: [torch.cat(list(sentence), dim=-1) for sentence in heads],
        ),
        wrong=(
            (
                lambda heads: heads.permute(0, 2, 3, 1).flatten(2),
                "feature 0 of all heads comes first",
            ),
            (lambda heads: heads.reshape(2, 7, 15), "the rows hold other words' features"),
            (
                lambda heads: heads.transpose(1, 2).reshape(2, 5, 12),
                "your function raises RuntimeError: shape",
            ),
            (lambda heads: heads.transpose(1, 2), "put the last two axes together"),
            (lambda heads: heads.flatten(1, 2), "put heads and features together"),
            (
                lambda heads: heads.flip(1).transpose(1, 2).flatten(2),
                "head 0 has for word l, then those of head 1",
            ),
        ),
    ),
    "heads-3": Answers(
        right=(attention(), by_torch),
        wrong=(
            (attention(scale=12**-0.5), "for 3 heads differs .* the scale is √D"),
            (attention(scale=1.0), "for 1 head differs .* divide the scores by √D"),
            (
                attention(split=False),
                r"for 3 heads differs .* split into \(N, L, H, D\), then transpose",
            ),
            (
                attention(split=False, transposed=False),
                "for 3 heads differs .* behind the split and before the join",
            ),
            (attention(transposed=False), "for 3 heads differs .* transpose before you join"),
            (attention(mixed=False), "for 1 head differs .* apply w_o at the end"),
            (attention(one=True), "for 3 heads differs .* it attends with one head"),
            (
                lambda x, *inputs: by_torch(x, *inputs[:3], inputs[3].T, inputs[4]),
                "for 1 head differs .* your w_o is not transposed",
            ),
            (
                lambda x, *inputs: by_torch(x, *[w.T for w in inputs[:3]], *inputs[3:]),
                "for 1 head differs .* w_q, w_k and w_v are not transposed",
            ),
            (
                lambda x, *inputs: by_torch(x, *[w.T for w in inputs[:4]], inputs[4]),
                "for 1 head differs .* no matrix is transposed",
            ),
            (interleaved, "for 3 heads differs .* compare it with the cells"),
        ),
    ),
    "heads-4": Answers(
        right=(
            silenced,
            lambda *inputs: torch.stack([part.abs().max() for part in parts(*inputs)]),
            lambda *inputs: [part.abs().max()[None].requires_grad_() for part in parts(*inputs)],
        ),
        wrong=(
            (
                lambda joined, w_o, num_heads: [
                    a.abs().max() for a in joined.chunk(num_heads, dim=1)
                ],
                "the slices themselves",
            ),
            (silenced_in_place, "a head stays at zero when the next one is taken"),
            (
                lambda *inputs: max(silenced(*inputs)),
                r"has shape \(\); there should be \(3,\): one for each head",
            ),
            (lambda *inputs: [part.max() for part in parts(*inputs)], "take absolute values"),
            (
                lambda joined, w_o, num_heads: silenced(joined, w_o.T, num_heads),
                "your w_o is not transposed",
            ),
            (
                lambda *inputs: [part.abs().mean() for part in parts(*inputs)],
                "for each head, set its D features to zero",
            ),
            (
                lambda *inputs: parts(*inputs)[0],
                r"its output has shape \(5, 12\); there should be \(3,\)",
            ),
        ),
    ),
}
