"""Open up one call of a multi-head attention module: every intermediate, by name."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrize

from mha_widgets.attention.call import Call, Path
from mha_widgets.attention.checks import (
    check_inputs,
    check_masks,
    check_merged,
    check_tensors,
    put_first,
)
from mha_widgets.attention.fast_path import fast_path
from mha_widgets.attention.masks import additive_mask, causal_mask
from mha_widgets.attention.native import Reason
from mha_widgets.attention.nested import nest, pad_nested
from mha_widgets.attention.pitfalls import pitfalls
from mha_widgets.attention.steps import append_positions, merge_heads, merge_masks

# of outputs near 1
ROUNDING = {
    torch.float64: 1e-10,
    torch.float32: 1e-4,
    torch.float16: 2e-2,
    torch.bfloat16: 1e-1,
}


class Step(NamedTuple):
    """One intermediate of a call.

    Attributes:
        name: what it is called in ``trace[name]``.
        letters: its shape in letters, as in ``"(N, H, L, D)"``.
        meaning: what it is, in words.
        tensor: its numbers; they keep their gradient if one is recorded.
    """

    name: str
    letters: str
    meaning: str
    tensor: Tensor

    @property
    def sizes(self) -> str:
        """The sizes that the letters stand for; if the tensor is nested,
        those of its first sequences.
        """
        if not self.tensor.is_nested:
            return str(tuple(self.tensor.shape))
        each = [str(tuple(sequence.shape)) for sequence in self.tensor.unbind()]
        return f"[{', '.join(each[:3] + ['…'] * (len(each) > 3))}]"


@dataclass(frozen=True, repr=False, eq=False)
class Trace(Mapping[str, Tensor]):
    """What happens in one call of a module: made by :func:`trace`.
    A mapping from names of steps to their numbers.

    Attributes:
        title: the module and its mode.
        steps: the intermediates in the order in which they are computed.
        path: the way that the real call goes.
        why_not_fast_path: what keeps it off the native fast path; empty if it takes it.
        warnings: what people trip over and this call does, a sentence each.
        difference: by how much the last steps differ at most from what the module itself returns,
            output and weights; NaN in both is no difference.
        returned: what the module itself returns: output and weights, or None for these.
    """

    title: str
    steps: tuple[Step, ...]
    path: Path
    why_not_fast_path: tuple[Reason, ...]
    warnings: tuple[str, ...]
    difference: float
    returned: tuple[Tensor, Tensor | None]

    def __getitem__(self, name: str) -> Tensor:
        """Return the numbers of a step."""
        for step in self.steps:
            if step.name == name:
                return step.tensor
        raise KeyError(
            f"This call has no step {name!r}; it has {', '.join(step.name for step in self.steps)}."
        )

    __eq__, __hash__ = object.__eq__, object.__hash__

    def __iter__(self) -> Iterator[str]:
        return (step.name for step in self.steps)

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def output(self) -> Tensor:
        """The output, in the layout of the module."""
        return self["output"]

    def _notes(self) -> list[tuple[str, str]]:
        notes = [("path", self.path.value)]
        notes += [("not the fast path", reason.words) for reason in self.why_not_fast_path]
        notes.append(
            ("difference", f"from what the module itself returns: at most {self.difference:.3g}")
        )
        return notes + [("warning", warning) for warning in self.warnings]

    def __repr__(self) -> str:
        rows = [(step.name, f"{step.letters} = {step.sizes}", step.meaning) for step in self.steps]
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        lines = [
            f"  {name:{widths[0]}}  {shape:{widths[1]}}  {meaning}" for name, shape, meaning in rows
        ]
        return "\n".join([self.title, *lines, *(f"{name}: {text}" for name, text in self._notes())])

    def _repr_html_(self) -> str:
        def row(cells: tuple[str, ...], tag: str) -> str:
            style = "padding: 2px 8px; text-align: left; vertical-align: top"
            *narrow, last = cells
            narrow = [
                f'<{tag} style="{style}; white-space: nowrap">{cell}</{tag}>' for cell in narrow
            ]
            return (
                f'<tr>{"".join(narrow)}<{tag} style="{style}; min-width: 16em">{last}</{tag}></tr>'
            )

        steps = [
            (f"<code>{step.name}</code>", step.letters, step.sizes, escape(step.meaning))
            for step in self.steps
        ]
        notes = "".join(
            f"<li><strong>{name}</strong>: {escape(text)}</li>" for name, text in self._notes()
        )
        return (
            # the class that themes know, from pandas:
            '<div style="overflow-x: auto"><table class="dataframe">'
            f'<caption style="text-align: left">{escape(self.title)}</caption>'
            f"<thead>{row(('step', 'shape', 'sizes', 'what it is'), 'th')}</thead>"
            f"<tbody>{''.join(row(step, 'td') for step in steps)}</tbody></table></div>"
            f"<ul>{notes}</ul>"
        )


def trace(
    module: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> Trace:
    """Make a call and return all that happens in it.

    The module is called once, as it is, in its mode and under the caller's gradient mode. Beside it
    every step is computed one by one, with the same dropout (threads that draw random numbers too
    would disturb it), and compared. All steps are held: two to four times the N * H * L * S numbers
    of the weights.

    Args:
        module: an ``nn.MultiheadAttention``, or ours.
        query: as for ``module(query, key, value)``, and so are all other arguments.
        key: see ``query``.
        value: see ``query``.
        key_padding_mask: see ``query``.
        need_weights: without them, the real call goes through
            ``F.scaled_dot_product_attention``; the trace has weights all the same.
        attn_mask: see ``query``.
        average_attn_weights: the trace has the weights of every head all the same.
        is_causal: see ``query``.

    Returns:
        The :class:`Trace`. Its steps are, with N sequences, H heads of D = E / H features,
        L queries and S keys: ``q``, ``k``, ``v`` (N, L or S, E), projected; ``q_heads``,
        ``k_heads``, ``v_heads`` (N, H, L or S, D); ``k_appended`` and ``v_appended``, if positions
        are; ``scores`` (N, H, L, S); ``mask`` (N, H, L, S), if there is one, as it takes effect;
        ``weights`` and ``weights_after_dropout`` (N, H, L, S); ``heads`` (N, H, L, D); ``joined``
        (N, L, E); ``output``. With one sequence alone N is 1, except in the output.

    Raises:
        TypeError: a module that is no multi-head attention, a mask that is no tensor, or a hook or
            a forward of its own that makes the module return something else than output and
            weights.
        AssertionError, RuntimeError, ValueError: what the call raises.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html

    >>> module = nn.MultiheadAttention(embed_dim=8, num_heads=2, batch_first=True)
    >>> x = torch.randn(3, 5, 8)
    >>> traced = trace(module, x, x, x)
    >>> traced["weights"].shape, traced.path.value
    (torch.Size([3, 2, 5, 5]), 'explicit weights')
    """
    if not isinstance(module, nn.MultiheadAttention):
        raise TypeError(
            f"trace opens an nn.MultiheadAttention, or ours, but got {type(module).__name__}; of a"
            " compiled module give _orig_mod, of a parallel one .module, and see capture for whole"
            " models."
        )
    check_tensors(
        query=query, key=key, value=value, attn_mask=attn_mask, key_padding_mask=key_padding_mask
    )
    call = Call(
        module,
        query,
        key,
        value,
        key_padding_mask,
        need_weights,
        attn_mask,
        average_attn_weights,
        is_causal,
    )
    with parametrize.cached():  # some weights change with every reading
        path, why_not = call.path(), fast_path(*call)
        try:
            with torch.random.fork_rng():
                output, weights = called(call)
        except (AssertionError, RuntimeError) as error:
            try:
                steps_of(call, path)  # says better than torch what is wrong
            except type(error) as ours:
                put_first(str(error), ours)
                raise
            raise
        steps = steps_of(call, path)
    found = {step.name: step.tensor for step in steps}
    differences = [difference("output", found["output"], output)]
    if weights is not None:
        every = found["weights_after_dropout"]
        every = every.mean(dim=1) if average_attn_weights else every
        differences.append(
            difference("weights", every if query.dim() == 3 else every.squeeze(0), weights)
        )
    most = max(differences, key=lambda one: math.inf if math.isnan(one) else one)
    told = (*unlike(most, path, found["joined"]), *pitfalls(call, path, found.get("mask")))
    mode = "training" if module.training else "evaluation"
    title = (
        f"{type(module).__name__}(embed_dim={module.embed_dim}, num_heads={module.num_heads}) in"
        f" {mode}"
    )
    return Trace(title, steps, path, why_not, told, most, (output, weights))


def called(call: Call) -> tuple[Tensor, Tensor | None]:
    """Make a call and return its output and weights;
    a module that returns something else is said to.
    """
    returned = call.module(*call[1:4], **call.options())
    kinds = [type(part) for part in returned] if isinstance(returned, tuple) else []
    if len(kinds) == 2 and issubclass(kinds[0], Tensor) and issubclass(kinds[1], Tensor | None):
        return returned
    got = (
        f"a tuple of {', '.join(kind.__name__ for kind in kinds)}"
        if kinds
        else f"one {type(returned).__name__}"
    )
    raise TypeError(
        f"The module returned {got}, not (output, weights); look at its hooks, or at its own"
        " forward."
    )


def steps_of(call: Call, path: Path) -> tuple[Step, ...]:
    """Compute the steps of a call that goes this way, without making it."""
    module, query, key, value = call[:4]
    padding = None
    if query.is_nested:
        query, padding = pad_nested(query)
        call = call._replace(query=query, key=query, value=query, key_padding_mask=padding)
        key = value = query
    H, packed = module.num_heads, module.in_proj_weight is not None
    check_inputs(query, key, value, module.embed_dim, H, module.batch_first, not packed)
    batch_first = module.batch_first or query.dim() == 2
    q, k, v = call.projections()
    steps = [
        Step("q", "(N, L, E)", "queries: query @ W_q.T + b_q", merge_heads(q)),
        Step("k", "(N, S, E)", "keys: key @ W_k.T + b_k", merge_heads(k)),
        Step("v", "(N, S, E)", "values: value @ W_v.T + b_v", merge_heads(v)),
        Step("q_heads", "(N, H, L, D)", f"queries, their features cut into {H} heads", q),
        Step("k_heads", "(N, H, S, D)", "keys, cut likewise", k),
        Step("v_heads", "(N, H, S, D)", "values, cut likewise", v),
    ]
    mask = effective_mask(call, path, q, k)
    S = "S"
    appended = [
        word
        for word, there in (("bias", module.bias_k is not None), ("zero", module.add_zero_attn))
        if there
    ]
    if appended:
        k, v = (
            append_positions(k, module.bias_k, module.add_zero_attn),
            append_positions(v, module.bias_v, module.add_zero_attn),
        )
        S = f"S + {len(appended)}"
        steps.append(
            Step(
                "k_appended", f"(N, H, {S}, D)", f"keys, with {' and '.join(appended)} appended", k
            )
        )
        steps.append(
            Step(
                "v_appended",
                f"(N, H, {S}, D)",
                f"values, with {' and '.join(appended)} appended",
                v,
            )
        )

    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    steps.append(
        Step(
            "scores",
            f"(N, H, L, {S})",
            "how well keys match queries: q_heads @ keys.T / sqrt(D)",
            scores,
        )
    )
    if mask is not None:
        mask = mask.to(scores.dtype).expand(scores.shape)
        steps.append(
            Step("mask", f"(N, H, L, {S})", "what is added to the scores; -inf blocks", mask)
        )
        scores = scores + mask
    weights = scores.softmax(dim=-1)
    if mask is not None and path is Path.SDPA:
        weights = weights.masked_fill((mask == -math.inf).all(dim=-1, keepdim=True), 0.0)
    if padding is not None:
        weights = weights.masked_fill(padding[:, None, :, None], 0.0)
    steps.append(
        Step(
            "weights",
            f"(N, H, L, {S})",
            "softmax(scores + mask): shares that sum to 1 over the keys",
            weights,
        )
    )
    weights = F.dropout(weights, module.dropout, module.training)
    share = (
        f"each weight 0 with probability {module.dropout}, the rest grown"
        if module.training
        else "the same: no dropout now"
    )
    steps.append(Step("weights_after_dropout", f"(N, H, L, {S})", share, weights))
    heads = weights @ v
    steps.append(Step("heads", "(N, H, L, D)", "what each head gathers: weights @ values", heads))
    joined = merge_heads(heads)
    steps.append(Step("joined", "(N, L, E)", "the heads side by side", joined))
    output = F.linear(joined, module.out_proj.weight, module.out_proj.bias)
    letters = "(N, L, E)" if batch_first else "(L, N, E)"
    if call.query.dim() == 2:
        letters, output = "(L, E)", output.squeeze(0)
    elif padding is not None:
        output = nest(output, padding)
    elif not batch_first:
        output = output.transpose(0, 1)
    steps.append(Step("output", letters, "joined @ W_o.T + b_o", output))
    return tuple(steps)


def effective_mask(call: Call, path: Path, q: Tensor, k: Tensor) -> Tensor | None:
    """Return what is really added to the scores, four dimensions that broadcast to (N, H, L,
    S and what is appended).
    """
    module = call.module
    (N, H, L, _), S = q.shape, k.shape[2]
    appended = (module.bias_k is not None) + module.add_zero_attn
    if (
        call.is_causal
        and path is Path.SDPA
        and call.key_padding_mask is None
        and call.attn_mask is not None
    ):
        return additive_mask(causal_mask(L, S + appended, device=q.device), q.dtype)[None, None]
    # pitfalls tells it
    check_masks(call.attn_mask, call.key_padding_mask, call.query, (N, H, L, S), warn=False)
    mask = merge_masks(call.attn_mask, call.key_padding_mask, H, call.query.dtype)
    if mask is not None and call.need_weights:
        check_merged(mask, call.query, call.attn_mask, call.key_padding_mask)
    return F.pad(mask, (0, appended)) if mask is not None and appended else mask


def difference(name: str, ours: Tensor, theirs: Tensor) -> float:
    """Return by how much two tensors differ at most; NaN in both is no difference."""
    if ours.is_nested:
        ours, theirs = ours.to_padded_tensor(0.0), theirs.to_padded_tensor(0.0)
    if ours.shape != theirs.shape:
        shapes = f"{name} {tuple(theirs.shape)}, not {tuple(ours.shape)}"
        raise TypeError(f"The module returned {shapes}; look at its hooks, or at its own forward.")
    same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    differences = (ours - theirs).abs().masked_fill(same, 0.0).double()
    return differences.max().item() if differences.numel() else 0.0


def unlike(difference: float, path: Path, joined: Tensor) -> tuple[str, ...]:
    """Say so if what a module returns differs from the steps by more than rounding,
    given its heads side by side.
    """
    if not math.isfinite(difference) and not joined.isfinite().all():
        return (
            (
                "The steps hold NaN or inf where what the module returns holds none, or the other"
                f" way round: {path.value} does not carry such numbers on as softmax and"
                " products do."
            ),
        )
    largest = joined.detach().abs().nan_to_num().max().item() if joined.numel() else 0.0
    if difference <= ROUNDING.get(joined.dtype, 0.0) * max(1.0, largest):
        return ()
    return (
        (
            f"The module returns something else, by up to {difference:.3g}: a forward of its own or"
            " a hook is at work."
        ),
    )
