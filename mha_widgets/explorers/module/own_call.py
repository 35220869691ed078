"""A call of the reader's own module."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mha_widgets.attention import MultiheadAttention, fast_path
from mha_widgets.attention.call import Call
from mha_widgets.attention.pitfalls import pitfalls
from mha_widgets.explorers.module.given_call import MASKS, check_call, largest_mask_term, sizes
from mha_widgets.explorers.module.written_call import calls
from mha_widgets.kit import labels
from mha_widgets.view import Choice, Control, Range, Toggle

MOST_POSITIONS, MOST_HEADS = 2048, 64
MOST_TOGETHER = 8  # heads that can be drawn together
MOST_WEIGHTS = 2**22  # of one sample, up to which they are all computed
SEED = 0  # of what a call in training drops


class OwnCall:
    """The source of what ``Module`` shows if it is given a module; see there for the arguments."""

    only_shown = ("head", "row")  # the controls that change nothing about the call

    def __init__(
        self,
        module: nn.MultiheadAttention | MultiheadAttention,
        query: Tensor,
        key: Tensor | None,
        value: Tensor | None,
        tokens: Sequence[Any] | None,
        query_tokens: Sequence[Any] | None,
        forward_arguments: Mapping[str, Any],
    ) -> None:
        self._call = check_call(module, query, key, value, forward_arguments)
        self._buffers = [buffer.clone() for buffer in self._call.module.buffers()]
        self.N, L, S = sizes(self._call)
        H = module.num_heads
        if max(L, S) > MOST_POSITIONS or H > MOST_HEADS:
            raise ValueError(
                f"Got {L} queries, {S} keys and {H} heads; at most {MOST_POSITIONS} positions and"
                f" {MOST_HEADS} heads can be shown: cut the sequence, or look at"
                " capture(model)[path] yourself."
            )
        self.large = H * L * S > MOST_WEIGHTS
        tokens, query_tokens = _read(tokens), _read(query_tokens)
        self._columns = _each("tokens", tokens, self.N, S, "keys")
        self._rows = _each(
            "query_tokens",
            tokens if query_tokens is None and L == S else query_tokens,
            self.N,
            L,
            "queries",
        )
        self.controls = self._controls(L, H)
        self._pitfalls = functools.lru_cache(maxsize=1)(self._pitfalls_of)

    def _controls(self, L: int, H: int) -> dict[str, Control]:
        call = self._call
        controls: dict[str, Control] = {
            name: Toggle(name, default=True, help="Pass your mask, or leave it out.")
            for name in MASKS
            if getattr(call, name) is not None
        }
        if call.attn_mask is not None:
            controls["is_causal"] = Toggle(
                "is_causal", default=call.is_causal, help="A hint that attn_mask is causal."
            )
        returned = call.need_weights and not self.large
        controls["need_weights"] = Toggle(
            "need_weights", default=returned, help="Return the weights."
        )
        controls["average_attn_weights"] = Toggle(
            "average_attn_weights",
            default=call.average_attn_weights,
            help="Return their mean over the heads.",
        )
        controls["training"] = Toggle(
            "training",
            default=call.module.training,
            help="module.train() instead of module.eval().",
        )
        with torch.no_grad():
            could_be_fast = not fast_path(
                copy.deepcopy(call.module).eval(), call.query, call.key, call.value
            )
        if could_be_fast:
            controls["no_grad"] = Toggle(
                "no_grad", default=True, help="Call it under torch.no_grad()."
            )
        controls["sample"] = Range(
            "sample", tuple(range(self.N)), 0, "Which sequence of the batch is called and shown."
        )
        heads = tuple(range(H))
        if H <= MOST_TOGETHER and not self.large:
            controls["head"] = Choice("head", ("all", *heads), "all", "Which heads are drawn.")
        else:
            controls["head"] = Range("head", heads, 0, "Which head is drawn.")
        controls["row"] = Range("query row", tuple(range(L)), 0, "The query to look at.")
        return controls

    def disabled(self, state: Mapping[str, Any]) -> dict[str, str]:
        """Return the controls that do nothing, each with the reason."""
        reasons = {}
        if self.large:
            reasons["need_weights"] = (
                "The weights of all heads together would be too large; those shown are computed"
                " alone."
            )
        if not state["need_weights"]:
            reasons["average_attn_weights"] = "need_weights=False returns none to average."
        if "is_causal" in state and not state["attn_mask"]:
            reasons["is_causal"] = "It is a hint about attn_mask, which is left out."
        if self.N == 1:
            reasons["sample"] = "There is one sequence."
        return reasons

    @property
    def prompt(self) -> str:
        """What to try: only with controls that are there."""
        if self.large:
            return "Try: go from head to head. Does this query keep looking at the same key?"
        return (
            "Try: switch need_weights. What does the call return with it and without it, and which"
            " way does it go?"
        )

    def alone(self, state: Mapping[str, Any]) -> str:
        """Say which sequence of a batch is called."""
        return (
            ""
            if self.N == 1
            else f"Sample {state['sample']}, of {self.N} counted from 0, is called alone: "
        )

    def index(self, _: Mapping[str, Any]) -> int:
        """Return where in the batch of the call the sample that is shown stands:
        it is called alone.
        """
        return 0

    def labels(self, state: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the tokens of the sample that is shown, as queries and as keys."""
        return self._rows[state["sample"]], self._columns[state["sample"]]

    def call(self, state: Mapping[str, Any]) -> Call:
        """Return the call of a state for one sample of the batch,
        one tensor where there was one.
        """
        call, n, H = self._whole(state), state["sample"], self._call.module.num_heads
        if self.N == 1:
            return call
        cut = {
            id(x): x[n : n + 1] if call.module.batch_first else x[:, n : n + 1] for x in call[1:4]
        }
        changes: dict[str, Any] = {
            name: cut[id(getattr(call, name))] for name in ("query", "key", "value")
        }
        if call.key_padding_mask is not None:
            changes["key_padding_mask"] = call.key_padding_mask[n : n + 1]
        if call.attn_mask is not None and call.attn_mask.dim() == 3:
            changes["attn_mask"] = call.attn_mask[n * H : (n + 1) * H]
        return call._replace(**changes)

    def _whole(self, state: Mapping[str, Any]) -> Call:
        """Return the call of a state for the whole batch."""
        call = self._call
        call.module.train(state["training"])
        with torch.no_grad():
            for buffer, first in zip(call.module.buffers(), self._buffers, strict=True):
                buffer.copy_(first)  # in training spectral_norm changes its own with every call
        changes: dict[str, Any] = {
            name: getattr(call, name) if state.get(name) else None for name in MASKS
        }
        changes |= {name: state[name] for name in ("need_weights", "average_attn_weights")}
        return call._replace(
            **changes, is_causal=bool(state.get("attn_mask") and state["is_causal"])
        )

    def warnings(self, state: Mapping[str, Any]) -> tuple[str, ...]:
        """Return what people trip over in the call of the whole batch."""
        return self._pitfalls(*((name, value) for name, value in state.items() if name != "sample"))

    def _pitfalls_of(self, *settings: tuple[str, Any]) -> tuple[str, ...]:
        call = self._whole(dict(settings))
        path = call.path()
        # which asks only where all of a row is -inf
        told = pitfalls(call, path, largest_mask_term(call, path))
        dropped = self.large and call.module.training and call.module.dropout > 0
        return (
            (*told, "The maps of so large a call are those from before dropout.")
            if dropped
            else told
        )

    def program(self, state: Mapping[str, Any]) -> str:
        """Write the call of a state as a program that takes the reader's own module and tensors."""
        call, n, H = self._call, state["sample"], self._call.module.num_heads
        part = (
            ""
            if self.N == 1
            else f"[{n} : {n + 1}]"
            if call.module.batch_first
            else f"[:, {n} : {n + 1}]"
        )
        lines = ["import torch", "# module, query and so on are your own"]
        lines.append(f"module.{'train' if state['training'] else 'eval'}()")
        if state["training"] and call.module.dropout:
            lines.append(f"torch.manual_seed({SEED})")
        lines.append(f"q = query{part}")
        k, v = "q", "q"
        if call.key is not call.query:
            k = v = "k"
            lines.append(f"k = key{part}")
        if call.value is not call.key:
            v = "q" if call.value is call.query else "v"
            lines += [f"v = value{part}"] if v == "v" else []
        options = []
        if state.get("key_padding_mask"):
            rows = f"[{n} : {n + 1}]" if self.N > 1 else ""
            options.append(f"key_padding_mask=key_padding_mask{rows}")
        if state.get("attn_mask") and call.attn_mask is not None:
            rows = f"[{n * H} : {(n + 1) * H}]" if self.N > 1 and call.attn_mask.dim() == 3 else ""
            options.append(f"attn_mask=attn_mask{rows}")
        arguments, no_grad = [f"q, {k}, {v}", *options], state.get("no_grad", True)
        return "\n".join(
            lines + calls(self.call(state), arguments, no_grad=no_grad, before_dropout=self.large)
        )


def _read(tokens: Any) -> Any:
    """Return tokens that can be read more than once."""
    if hasattr(tokens, "tolist"):  # an array or a tensor of their numbers
        return tokens.tolist()
    return (
        list(tokens)
        if isinstance(tokens, Iterable) and not isinstance(tokens, Sequence)
        else tokens
    )


def _each(
    name: str, tokens: Sequence[Any] | None, N: int, length: int, what: str
) -> list[tuple[str, ...]]:
    """Return the labels of every sample: its own where there are N lists,
    otherwise the same for all.
    """
    if not isinstance(tokens, Sequence) or not all(
        isinstance(one, Sequence) and not isinstance(one, str) for one in tokens or [""]
    ):
        return [labels(name, tokens, length, what) for _ in range(N)]
    if len(tokens) != N:
        raise ValueError(
            f"{name} has {len(tokens)} lists for {N} sequences; pass one for each, or one for all."
        )
    return [labels(name, own, length, what) for own in tokens]
