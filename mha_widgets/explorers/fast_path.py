"""FastPath: which way a call of nn.MultiheadAttention goes, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

import numpy as np
import plotly.graph_objects as go
import torch

from mha_widgets.attention import fast_path
from mha_widgets.attention.call import Call, Path
from mha_widgets.attention.cost import cost, fast_path_enabled
from mha_widgets.attention.fresh import fresh_torch
from mha_widgets.attention.native import Reason
from mha_widgets.explorer import Explorer
from mha_widgets.figures import BAD, GOOD, PLAIN, Table, panels
from mha_widgets.view import Choice, Fact, Toggle, Word

MOST_REASONS = 3  # that are told one by one
OTHER = 5  # features of keys and values, if theirs differ
NATIVE = "torch._native_multi_head_attention"
# By need_weights, the milliseconds of a call on the fast path and off it: medians of
# benchmarks/multihead.csv, in its rows inference, no masks, (N, L, E) = (8, 512, 256), 8 heads. Off
# the fast path is our module, which takes no other way.
MEASURED = {True: (56, 57), False: (47, 25)}
# What the fast path needs, in the order in which torch asks: a label, the need,
# and torch's condition for its opposite.
ASKED = (
    ("attn_mask", "no float", "torch.is_floating_point(attn_mask)"),
    ("the switch", "on", "not torch.backends.mha.get_fastpath_enabled()"),
    ("query.dim()", "3", "not query.dim() == 3"),
    ("q is k is v", "True", "query is not key or key is not value"),
    ("kdim, vdim", "embed_dim", "self.in_proj_weight is None"),
    ("training", "False", "self.training"),
    ("num_heads", "even", "(self.num_heads % 2) != 0"),
    ("batch_first", "True", "not self.batch_first"),
    ("add_bias_kv", "False", "self.bias_k is not None"),
    ("add_zero_attn", "False", "self.add_zero_attn"),
    (
        "gradients",
        "none",
        "torch.is_grad_enabled() and any(_arg_requires_grad(x) for x in tensor_args)",
    ),
    ("bias", "True", "self.in_proj_bias is None"),
)


@dataclass(frozen=True)
class Record:
    """One call, and the way that it takes.

    Attributes:
        yours: what the call has, for each of the conditions.
        reasons: what keeps it off the fast path, for the conditions that do.
        path: the way that it takes.
        calls: how often it really called the native operation.
        output: (N, L, E) in the layout of the module, or (L, E).
        need_weights: whether it returns weights.
        sizes: N, H, L and S, as the weights have them.
        costs: for each way the operations that Python dispatches, and the bytes of the largest
            tensor.
    """

    yours: tuple[str, ...]
    reasons: Mapping[int, Reason]
    path: Path
    calls: int
    output: np.ndarray
    need_weights: bool
    sizes: tuple[int, int, int, int]
    costs: Mapping[Path, tuple[int, int]]


class FastPath(Explorer):
    """Shows what the native fast path of ``nn.MultiheadAttention`` needs,
    which way a call takes, and what it costs.

    Args:
        embed_dim: E, to be cut into 4 or 3 heads.
        N: the number of sequences.
        L: their length.

    Raises:
        TypeError: a size that is no whole number.
        ValueError: an ``embed_dim`` that 12 doesn't divide, or sizes that are not from 1 to 512.

    Source: ``forward`` in https://github.com/pytorch/pytorch/blob/v2.13.0/torch/nn/modules/activation.py

    >>> explorer = FastPath()
    >>> state = explorer.complete(training=False, batch_first=True, no_grad=True)
    >>> explorer.compute(**state).path.value
    'native fast path'
    """

    title = "The fast path: which way does a call take?"
    prompt = (
        "Try: lead this module onto the fast path, then switch need_weights off. What does it save?"
    )
    page_controls = (
        *("training", "batch_first", "no_grad", "need_weights", "same", "num_heads"),
        *("attn_mask", "bias", "add_zero_attn"),
    )

    @fresh_torch()
    def __init__(self, embed_dim: int = 12, N: int = 2, L: int = 64) -> None:
        for name, size in {"embed_dim": embed_dim, "N": N, "L": L}.items():
            if not isinstance(size, int) or isinstance(size, bool):
                raise TypeError(f"{name} is a {type(size).__name__}; pass a whole number.")
            if not 1 <= size <= 512:
                raise ValueError(
                    f"{name} is {size}; pass a number from 1 to 512: every change makes the call."
                )
        if embed_dim % 12:
            raise ValueError(
                f"embed_dim is {embed_dim}; pass a multiple of 12, to be cut into 4 or into 3"
                " heads."
            )
        self.sizes = embed_dim, N, L
        self.controls = {
            "training": Toggle(
                "training", default=True, help="As a new module is; module.eval() ends it."
            ),
            "batch_first": Toggle("batch_first", help="(N, L, E) instead of (L, N, E)."),
            "no_grad": Toggle("no_grad", help="The call is made under torch.no_grad()."),
            "need_weights": Toggle("need_weights", default=True, help="The call returns weights."),
            "same": Toggle(
                "query is key is value",
                default=True,
                help="One and the same tensor, or an equal copy of it.",
            ),
            "num_heads": Choice("num_heads", (4, 3), 4, "An even or an odd number of heads."),
            "attn_mask": Choice(
                "attn_mask",
                ("none", "boolean", "float"),
                "none",
                "A causal mask, and how it is written.",
            ),
            "bias": Toggle("bias", default=True, help="Biases in the projections."),
            "add_zero_attn": Toggle("add_zero_attn", help="Appends a key and a value of zeros."),
            "add_bias_kv": Toggle("add_bias_kv", help="Appends a learned key and value."),
            "kdim": Choice(
                "kdim, vdim",
                (embed_dim, OTHER),
                embed_dim,
                "Features of both.",
                ("embed_dim", str(OTHER)),
            ),
            "batched": Toggle("batched", default=True, help="A batch, or one sequence (L, E)."),
            "enabled": Toggle(
                "fast path enabled", default=True, help="torch.backends.mha.set_fastpath_enabled."
            ),
        }

    def disabled(self, **state: Any) -> Mapping[str, str]:
        """Return the controls that do nothing in a complete state, each with the reason."""
        if state["kdim"] == OTHER:
            return {"same": "Keys and values of another width can't be the query."}
        return {}

    @fresh_torch()
    def compute(self, **state: Any) -> Record:
        """Make the call of one complete state, count what it does,
        and ask why it takes this way.
        """
        call = self._call(state)
        with fast_path_enabled(state["enabled"]), torch.set_grad_enabled(not state["no_grad"]):
            with mock.patch(NATIVE, wraps=torch._native_multi_head_attention) as native:
                output, _ = call.module(*call[1:])
            path, reasons = call.path(), fast_path(*call)
        E, N, L = self.sizes
        sizes = (
            N if state["batched"] else 1,
            state["num_heads"],
            L,
            L + state["add_zero_attn"] + state["add_bias_kv"],
        )
        native_bytes = 4 * max(sizes[0] * state["num_heads"] * L * L, sizes[0] * L * 3 * E)
        with fast_path_enabled(False), torch.set_grad_enabled(not state["no_grad"]):
            costs = {
                Path.NATIVE: (1, native_bytes),
                Path.EXPLICIT: cost(call._replace(need_weights=True)),
            }
            costs[Path.SDPA] = cost(call._replace(need_weights=False))
        return Record(
            yours=_yours(state),
            reasons={_row(reason): reason for reason in reasons},
            path=path,
            calls=native.call_count,
            output=output.detach().numpy(),
            need_weights=state["need_weights"],
            sizes=sizes,
            costs=costs,
        )

    def _call(self, state: Mapping[str, Any]) -> Call:
        made: dict[str, Any] = {}
        program = "\n".join(self._setting(state)).replace(
            "torch.manual_seed", "torch.default_generator.manual_seed"
        )
        # what is shown, up to the call; but it leaves the random numbers of GPUs alone
        exec(program, made)
        key = made.get("key", made["x"])
        return Call(
            made["module"], made["x"], key, key, None, state["need_weights"], made.get("attn_mask")
        )

    def _setting(self, state: Mapping[str, Any]) -> list[str]:
        """Write the lines that make the module and its inputs."""
        E, N, L = self.sizes
        options = [
            f"{name}=True"
            for name in ("add_bias_kv", "add_zero_attn", "batch_first")
            if state[name]
        ]
        options += ["bias=False"] if not state["bias"] else []
        options += [f"kdim={OTHER}, vdim={OTHER}"] if state["kdim"] == OTHER else []
        made = (
            f"torch.nn.MultiheadAttention({', '.join([str(E), str(state['num_heads']), *options])})"
        )
        layout = [N, L] if state["batch_first"] else [L, N]
        layout = layout if state["batched"] else [L]
        lines = ["import torch", "torch.manual_seed(0)"]
        lines.append(f"module = {made}{'' if state['training'] else '.eval()'}")
        lines.append(f"x = torch.randn({', '.join(map(str, [*layout, E]))})")
        if state["kdim"] == OTHER:
            lines.append(f"key = torch.randn({', '.join(map(str, [*layout, OTHER]))})")
        elif not state["same"]:
            lines.append("key = x.clone()  # equal, but another tensor")
        if state["attn_mask"] == "boolean":
            lines.append(
                f"attn_mask = torch.ones({L}, {L}, dtype=torch.bool).triu(1)  # True = blocked"
            )
        elif state["attn_mask"] == "float":
            lines.append(
                f"attn_mask = torch.full(({L}, {L}), -torch.inf).triu(1)  # added to the scores"
            )
        return lines

    def draw(self, record: Record) -> go.Figure:
        """Draw what torch asks beside what the call has, and the three ways with their costs."""
        return panels.draw([_checklist(record), _ways(record)])

    def facts(self, record: Record) -> tuple[Fact, ...]:
        """Return the way, what keeps the call off the fast path, and what the ways cost."""
        reasons = [
            _reason(ASKED[row][0], reason)
            for row, reason in list(record.reasons.items())[:MOST_REASONS]
        ]
        return (_way(record), *reasons, _memory(record), _time(record))

    @fresh_torch()
    def code(self, **state: Any) -> str:
        """Return a program that makes ``output``, counts ``calls`` of the native operation,
        and takes the time: ``ms``.
        """
        lines = ["from timeit import timeit", "from unittest import mock", *self._setting(state)]
        inputs = "x, x, x" if state["same"] and state["kdim"] != OTHER else "x, key, key"
        options = ", attn_mask=attn_mask" if state["attn_mask"] != "none" else ""
        options += "" if state["need_weights"] else ", need_weights=False"
        if not state["enabled"]:
            lines.append("torch.backends.mha.set_fastpath_enabled(False)")
        call = f"module({inputs}{options})"
        made = [
            f'with mock.patch("{NATIVE}", wraps={NATIVE}) as counted:',
            f"    output, weights = {call}",
            f"ms = 50 * timeit(lambda: {call}, number=20)  # for one call",
        ]
        lines += (
            ["with torch.no_grad():", *(f"    {line}" for line in made)]
            if state["no_grad"]
            else made
        )
        if not state["enabled"]:
            lines.append("torch.backends.mha.set_fastpath_enabled(True)  # as it was")
        return "\n".join([*lines, "calls = counted.call_count  # 1 on the fast path"])


def _row(reason: Reason) -> int:
    return next(row for row, (_, _, condition) in enumerate(ASKED) if condition in reason.condition)


def _yours(state: Mapping[str, Any]) -> tuple[str, ...]:
    same = state["same"] and state["kdim"] != OTHER
    return (
        state["attn_mask"],
        "on" if state["enabled"] else "off",
        "3" if state["batched"] else "2",
        str(same),
        str(OTHER) if state["kdim"] == OTHER else "embed_dim",
        str(state["training"]),
        str(state["num_heads"]),
        str(state["batch_first"]),
        str(state["add_bias_kv"]),
        str(state["add_zero_attn"]),
        "none" if state["no_grad"] else "recorded",
        str(state["bias"]),
    )


def _checklist(r: Record) -> Table:
    blocks = [row in r.reasons for row in range(len(ASKED))]
    return Table(
        "What torch asks, in this order",
        [label for label, _, _ in ASKED],
        ["yours", "needed", ""],
        [
            [mine, need, "✕ blocks" if bad else "✓"]
            for mine, (_, need, _), bad in zip(r.yours, ASKED, blocks, strict=True)
        ],
        [[PLAIN, PLAIN, BAD if bad else GOOD] for bad in blocks],
        [f"blocks if {condition}" for _, _, condition in ASKED],
        [
            (4, "What torch asks of the call"),
            (6, "What torch asks of the module"),
            (2, "What torch asks at last"),
        ],
    )


def _ways(r: Record) -> Table:
    labels = {Path.NATIVE: "fast path", Path.EXPLICIT: "explicit", Path.SDPA: "SDPA"}
    return Table(
        "What each way costs",
        list(labels.values()),
        ["taken", "operations", "largest"],
        [
            ["▶ taken" if way is r.path else "", str(r.costs[way][0]), _kilobytes(r.costs[way][1])]
            for way in labels
        ],
        [[GOOD if way is r.path else PLAIN] * 3 for way in labels],
        [
            "one native operation: torch._native_multi_head_attention",
            "softmax(scores) @ values, one operation after the other",
            "F.scaled_dot_product_attention, which returns no weights",
        ],
        [(3, "Three ways")],
        role="output",
    )


def _kilobytes(count: int) -> str:
    return f"{count / 1000:.0f} kB" if count >= 10_000 else f"{count} B"


def _way(r: Record) -> Fact:
    called = f"{NATIVE} was {'called once' if r.calls else 'not called'}"
    if not r.reasons:
        return (
            "Nothing blocks: the call takes the ",
            Word("native fast path", "output"),
            f"; {called}.",
        )
    way = "explicit weights" if r.path is Path.EXPLICIT else "F.scaled_dot_product_attention"
    things = "1 thing keeps" if len(r.reasons) == 1 else f"{len(r.reasons)} things keep"
    return (
        f"{things} the call off the fast path; it goes through ",
        Word(way, "output"),
        f", and {called}.",
    )


def _reason(label: str, reason: Reason) -> Fact:
    condition = next(condition for name, _, condition in ASKED if name == label)
    return (Word(label, "warn"), f": {reason.words}. Torch asks: {condition}.")


def _memory(r: Record) -> Fact:
    N, H, L, S = r.sizes
    native, sdpa = (_kilobytes(r.costs[way][1]) for way in (Path.NATIVE, Path.SDPA))
    weights = f"N·H·L·S = {N}·{H}·{L}·{S}"
    if r.path is Path.EXPLICIT:
        return (
            (
                f"All weights are held at once, {weights} numbers; with need_weights=False the"
                f" largest tensor has {sdpa}."
            ),
        )
    if r.path is Path.SDPA:
        return (
            (
                f"The weights, {weights} numbers, are never held at once on this way; the fast path"
                " of a CPU holds them."
            ),
        )
    if r.need_weights:
        many = r.costs[Path.EXPLICIT][0]
        return (
            (
                f"One operation is dispatched in place of {many}; inside, it still holds all"
                f" weights, {weights} numbers."
            ),
        )
    return (
        *("need_weights=False ", Word("does not spare the weights here", "warn")),
        (
            f": on a CPU the native operation holds all {weights} numbers ({native}); off the fast"
            f" path {sdpa} are the most."
        ),
    )


def _time(r: Record) -> Fact:
    fast, slow = MEASURED[r.need_weights]
    way = "with explicit weights" if r.need_weights else "through F.scaled_dot_product_attention"
    return (
        (
            "Fewer operations need not mean less time: for (N, L, E) = (8, 512, 256) and 8 heads"
            f" one CPU took {fast} ms on the fast path, and in this package’s module {slow} ms"
            f" {way}. The code takes the time on yours."
        ),
    )
