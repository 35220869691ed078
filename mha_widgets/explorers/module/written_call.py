"""The last lines of a program: a call, and the weights of every head in it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from mha_widgets.attention.call import Call, Path
from mha_widgets.explorers.module.given_call import largest_mask_term

UNSEEN = (
    "# The maps come back from no call: without weights to return, torch takes is_causal in place"
    " of attn_mask."
)


def calls(
    call: Call, arguments: Sequence[str], *, no_grad: bool, before_dropout: bool = False
) -> list[str]:
    """Write a call of ``module``, and if it returns no weights of each head,
    a second one that does.

    Args:
        call: the call.
        arguments: how its inputs and masks are written.
        no_grad: whether it is made under ``torch.no_grad``.
        before_dropout: whether the second call is made without dropout.

    >>> x, module = torch.ones(3, 8), torch.nn.MultiheadAttention(8, 2)
    >>> print(*calls(Call(module, x, x, x), ["x, x, x"], no_grad=False), sep="\\n")
    output, weights = module(x, x, x)
    per_head = module(x, x, x, average_attn_weights=False)[1]  # the maps
    """
    hint = ["is_causal=True"] if call.is_causal else []
    options = [
        f"{name}=False"
        for name in ("need_weights", "average_attn_weights")
        if not getattr(call, name)
    ]
    made = [f"output, weights = module({', '.join([*arguments, *options, *hint])})"]
    with torch.set_grad_enabled(not no_grad):
        unseen, zeros = _hint_replaces_mask(call), _rows_of_zeros(call)
    if unseen:
        made.append(UNSEEN)
    elif call.average_attn_weights or not call.need_weights:
        maps = (
            f"per_head = module({', '.join([*arguments, 'average_attn_weights=False', *hint])})[1]"
        )
        maps += ".nan_to_num()  # the maps, zeros without a key" if zeros else "  # the maps"
        if before_dropout and call.module.training and call.module.dropout:
            made += ["module.eval()", maps]
        elif call.module.training and call.module.dropout:
            made = [
                "with torch.random.fork_rng():  # so that the call drops the same",
                f"    {maps}",
                *made,
            ]
        else:
            made.append(maps)
    return ["with torch.no_grad():", *(f"    {line}" for line in made)] if no_grad else made


def _rows_of_zeros(call: Call) -> bool:
    if call.need_weights or call.path() is not Path.SDPA:
        return False
    most = largest_mask_term(call, Path.SDPA)
    return most is not None and bool((most == -torch.inf).any())


def _hint_replaces_mask(call: Call) -> bool:
    """Say whether the call takes is_causal for a mask, and that is another one than attn_mask."""
    if (
        not call.is_causal
        or call.attn_mask is None
        or call.key_padding_mask is not None
        or call.path() is not Path.SDPA
    ):
        return False
    mask, module = call.attn_mask, call.module
    blocked = mask if mask.dtype == torch.bool else mask == -torch.inf
    appended = module.bias_k is not None or module.add_zero_attn
    return appended or not torch.equal(blocked, torch.ones_like(blocked).triu(1))
