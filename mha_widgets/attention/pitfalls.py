"""What people trip over, found in one call and said in words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

from mha_widgets.attention.call import Call, Path
from mha_widgets.attention.masks import causal_mask

MASKS = ("attn_mask", "key_padding_mask")


def pitfalls(call: Call, path: Path, mask: Tensor | None) -> tuple[str, ...]:
    """Return a sentence for each thing in this call that people trip over.

    Args:
        call: the call.
        path: the way that it goes.
        mask: (N, H, L, S), what is added to its scores in the end, or None.

    Returns:
        The sentences. A sound call may have some too: a batch as large as a sequence is long,
        dropout in training, padding in front.

    >>> x = torch.zeros(1, 2, 8)
    >>> module = nn.MultiheadAttention(8, 2, batch_first=True)
    >>> call = Call(module, x, x, x, attn_mask=torch.tensor([[0.0, 1.0], [0.0, 0.0]]))
    >>> pitfalls(call, Path.EXPLICIT, None)[0][:54]
    'attn_mask is float and holds nothing but 0 and 1: they'
    """
    if call.query.is_nested:
        return ()
    found = [
        *_rows_without_a_key(path, mask),
        *(sentence for look in LOOKS for sentence in look(call)),
        *_causal(call, path, mask),
    ]
    return tuple(found)


def _rows_without_a_key(path: Path, mask: Tensor | None) -> Iterable[str]:
    if mask is None:
        return
    empty = (mask == -math.inf).all(dim=-1)  # (N, H, L)
    if not empty.any():
        return
    rows: dict[int, set[int]] = {}
    for n, _, row in empty.nonzero().tolist():
        rows.setdefault(n, set()).add(row)
    where = [f"sequence {n}: {_listed(sorted(queries))}" for n, queries in rows.items()]
    heads = "" if (empty == empty[:, :1]).all() else " in some of the heads"
    gradients = ", and so does every gradient behind them" if torch.is_grad_enabled() else ""
    here = {
        Path.EXPLICIT: (
            f"here they become NaN{gradients}; with need_weights=False, off the fast path, they"
            " would be zeros before the output projection"
        ),
        Path.SDPA: (
            "here they become zeros before the output projection; "
            "with need_weights=True or on the native fast path they are NaN"
        ),
        Path.NATIVE: (
            "here they become NaN; off the fast path with need_weights=False they would be zeros"
            " before the output projection"
        ),
    }[path]
    yield (
        f"Queries with no key left{heads}"
        f" ({'; '.join(where[:4])}{'; …' if len(where) > 4 else ''}): {here}."
    )


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:6])) + (", …" if len(numbers) > 6 else "")


def _layout(call: Call) -> Iterable[str]:
    if (
        call.query.dim() == 3
        and call.query.shape[0] == call.query.shape[1] > 1
        and call.key.shape[:2] == call.query.shape[:2]
    ):
        read = "(N, L, E)" if call.module.batch_first else "(L, N, E)"
        yield (
            f"query is {tuple(call.query.shape)}: the batch is as large as the sequence is long, so"
            f" no shape can tell the layouts apart; batch_first={call.module.batch_first} reads it"
            f" as {read}."
        )
    padding = call.key_padding_mask
    if padding is not None and padding.dim() == 2 and padding.shape[0] == padding.shape[1] > 1:
        yield (
            f"key_padding_mask is {tuple(padding.shape)}, square: a transposed one would pass too;"
            " its rows are sequences."
        )


def _polarity(call: Call) -> Iterable[str]:
    padding, attn = call.key_padding_mask, call.attn_mask
    if (
        padding is not None
        and padding.numel()
        and padding.shape[-1] > 1
        and _blocked(padding)[..., 0].all()
    ):
        yield (
            "key_padding_mask blocks the first key of every sequence: unless every sequence is"
            " padded on the left, it looks inverted, since"
            f" {_meaning('key_padding_mask', padding, '; if True meant a real token, ')}."
        )
    if attn is None or attn.shape[-2] != attn.shape[-1] or attn.shape[-1] == 1:
        return
    if (_blocked(attn) == causal_mask(attn.shape[-1], device=attn.device)).all():
        opposite = " and True = may look in F.scaled_dot_product_attention; "
        meaning = _meaning("attn_mask", attn, opposite)
        yield (
            f"attn_mask blocks what a causal mask lets through: it looks inverted, since {meaning}."
        )


def _meaning(name: str, mask: Tensor, of_true: str) -> str:
    if mask.dtype == torch.bool:
        return f"True = blocked here{of_true}pass ~{name}"
    return "-inf = blocked; put 0 where a key may be looked at and -inf where it may not"


def _blocked(mask: Tensor) -> Tensor:
    return mask if mask.dtype == torch.bool else mask <= torch.finfo(mask.dtype).min


def _float_masks(call: Call) -> Iterable[str]:
    given = {
        name: mask
        for name in MASKS
        if (mask := getattr(call, name)) is not None and mask.is_floating_point()
    }
    ones = [
        name for name, mask in given.items() if mask.any() and ((mask == 0) | (mask == 1)).all()
    ]
    if ones:
        verbs = "is float and holds" if len(ones) == 1 else "are float and hold"
        yield (
            f"{' and '.join(ones)} {verbs} nothing but 0 and 1: they are added to the scores, so 1"
            " makes a key count more and blocks nothing; if 1 means blocked pass"
            f" {' and '.join(f'{name}.bool()' for name in ones)}, if it means a real token"
            f" {' and '.join(f'{name} == 0' for name in ones)}."
        )
    for name, mask in given.items():
        if not (mask < math.inf).all():
            yield (
                f"{name} holds NaN or +inf, as 0 * inf makes it: every row that meets it is NaN; "
                "use masked_fill(blocked, -inf)."
            )
        lowest = mask[mask > -math.inf].min().item() if (mask > -math.inf).any() else 0.0
        if lowest <= -1e4:
            yield (
                f"{name} holds {lowest:.3g}, which is not -inf: a row with nothing else is spread"
                " evenly over its blocked keys, without a NaN that would tell; use -inf or a"
                " boolean mask."
            )


def _mixed(call: Call) -> Iterable[str]:
    attn, padding = call.attn_mask, call.key_padding_mask
    if attn is not None and padding is not None and attn.dtype != padding.dtype:
        yield (
            f"attn_mask is {attn.dtype} and key_padding_mask is {padding.dtype}: torch deprecates"
            " mixed types; make both boolean, or both float."
        )


def _order_of_heads(call: Call) -> Iterable[str]:
    mask, H = call.attn_mask, call.module.num_heads
    if mask is None or mask.dim() != 3 or H == 1 or len(mask) == H:
        return
    N = len(mask) // H
    # by_head: as repeat(H, 1, 1) lays out
    by_head, by_sequence = (
        mask.unflatten(0, (H, N)),
        mask.unflatten(0, (N, H)),
    )
    if not (by_head == by_head[:1]).all() or (by_sequence == by_sequence[:, :1]).all():
        return
    advice = (
        "the heads of a sequence lie side by side: use mask.repeat_interleave(num_heads, dim=0)"
    )
    of_heads = (
        by_sequence == by_sequence[:1]
    ).all()  # or one for each head, such as ALiBi's: both make it if N divides H
    blocked, padding = _blocked(mask[:N]), call.key_padding_mask
    hidden = blocked.all(dim=-2)  # (N, S), the keys that no query sees
    like_padding = (
        not (hidden == hidden[:1]).all() and (blocked == blocked.all(dim=0) | hidden[:, None]).all()
    )
    if not of_heads or (
        like_padding and padding is not None and (hidden == _blocked(padding)).all()
    ):
        yield (
            f"attn_mask repeats itself every {N} masks, as mask.repeat(num_heads, 1, 1) makes it, "
            f"so sequences get each other's masks; {advice}."
        )
    elif like_padding and padding is None and (hidden == hidden.cummax(dim=-1).values).all():
        yield (
            "attn_mask gives each head a mask of its own, the same in every sequence, and they"
            " hide other keys at the end, as padding does. Are they masks of the sequences? If so,"
            f" {advice}."
        )


def _not_finite(call: Call) -> Iterable[str]:
    first = {
        id(x): name
        for name, x in reversed(list(zip(("query", "key", "value"), call[1:4], strict=True)))
    }
    for x, name in ((call.query, "query"), (call.key, "key"), (call.value, "value")):
        bad = ~x.isfinite().all(dim=-1)  # (N, L), (L, N) or (L,)
        if first[id(x)] != name or not bad.any():
            continue
        padding, only = call.key_padding_mask, ""
        if (
            padding is not None
            and padding.dtype == torch.bool
            and (name != "query" or call.query is call.key)
        ):
            real = bad if bad.dim() == 1 or call.module.batch_first else bad.T
            if not (real & ~padding).any():
                only = (
                    ", all of them padding: a weight of 0 times NaN is NaN, so blocking them does"
                    " not help; fill them with 0"
                )
        yield f"{name} holds NaN or inf at {int(bad.sum())} of {bad.numel()} positions{only}."


def _dropout(call: Call) -> Iterable[str]:
    if call.module.training and call.module.dropout > 0:
        yield (
            f"Dropout {call.module.dropout} is at work: the weights that the module returns are"
            " those after it, and their rows don't sum to 1; call module.eval() to look at maps."
        )


def _output_projection(call: Call) -> Iterable[str]:
    out_proj = call.module.out_proj
    own = "forward" in vars(out_proj) or type(out_proj).forward is not nn.Linear.forward
    if own or out_proj._forward_hooks or out_proj._forward_pre_hooks:
        yield (
            "out_proj is never called, only its weight and bias are read: "
            "hooks on it, and a forward of its own, have no effect."
        )


def _causal(call: Call, path: Path, mask: Tensor | None) -> Iterable[str]:
    if not call.is_causal:
        return
    if call.attn_mask is None:
        yield (
            "is_causal=True without attn_mask blocks nothing here, where one fused operation does"
            " it all (the native fast path), and raises elsewhere; pass the causal mask."
        )
        return
    attn = call.attn_mask
    replaced = path is Path.SDPA and call.key_padding_mask is None
    appended = (call.module.bias_k is not None) + call.module.add_zero_attn
    if replaced and appended and mask is not None:
        hidden = mask[..., -appended:] == -math.inf
        if hidden.any():
            yield (
                f"is_causal=True has a causal mask made over all {mask.shape[-1]} keys, which hides"
                f" the appended keys from {'every query' if hidden.all() else 'some queries'};"
                " leave is_causal out."
            )
    blocked = _blocked(attn)
    causal = not (attn[~blocked] != 0).any() if attn.is_floating_point() else True
    if causal and (blocked == ~causal_mask(*attn.shape[-2:], device=attn.device)).all():
        return
    if replaced:
        yield (
            "is_causal=True with an attn_mask that is not causal: here your mask is dropped and a"
            " causal one is used."
        )
    else:
        yield (
            "is_causal=True with an attn_mask that is not causal: here the hint has no effect, only"
            " your mask."
        )


LOOKS: tuple[Callable[[Call], Iterable[str]], ...] = (
    _layout,
    _polarity,
    _float_masks,
    _mixed,
    _order_of_heads,
    _not_finite,
    _dropout,
    _output_projection,
)
