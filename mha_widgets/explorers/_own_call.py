"""A call of the reader's own module."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from mha_widgets.attention import MultiheadAttention, fast_path
from mha_widgets.attention.call import Call
from mha_widgets.explorer import Choice, Control, Range, Toggle
from mha_widgets.explorers._inputs import labels
from mha_widgets.explorers._written_call import calls

MOST_POSITIONS, MOST_HEADS = 2048, 64
MOST_TOGETHER = 8  # heads that can be drawn together
MOST_WEIGHTS = 2**22  # of one sample, up to which they are all computed
MASKS = ("key_padding_mask", "attn_mask")


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
        if not isinstance(module, nn.MultiheadAttention | MultiheadAttention):
            raise TypeError(f"Got a {type(module).__name__}; pass an nn.MultiheadAttention (capture finds those of a model).")
        key = query if key is None else key
        value = key if value is None else value
        for name, x in {"query": query, "key": key, "value": value}.items():
            if not isinstance(x, Tensor) or x.is_nested or x.dim() not in (2, 3):
                got = f"a tensor of {x.dim()} dimensions" if isinstance(x, Tensor) else f"a {type(x).__name__}"
                raise TypeError(f"{name} is {got}; pass a tensor in the layout of the module, or (L, E) for one sequence.")
        self._call = Call(copy.deepcopy(module), query, key, value, **forward_arguments)
        batch_first = module.batch_first or query.dim() == 2
        self.N = 1 if query.dim() == 2 else query.shape[0 if batch_first else 1]
        L, S = (x.shape[-2] if batch_first else x.shape[0] for x in (query, key))
        H = module.num_heads
        if max(L, S) > MOST_POSITIONS or H > MOST_HEADS:
            raise ValueError(
                f"Got {L} queries, {S} keys and {H} heads; at most {MOST_POSITIONS} positions and {MOST_HEADS} heads can be "
                "shown: cut the sequence, or look at capture(model)[path] yourself."
            )
        self.large = H * L * S > MOST_WEIGHTS
        self._columns = _each("tokens", tokens, self.N, S, "keys")
        self._rows = _each("query_tokens", tokens if query_tokens is None and L == S else query_tokens, self.N, L, "queries")
        self.controls = self._controls(L, H)

    def _controls(self, L: int, H: int) -> dict[str, Control]:
        call = self._call
        controls: dict[str, Control] = {
            name: Toggle(name, default=True, help="Pass your mask, or leave it out.")
            for name in MASKS
            if getattr(call, name) is not None
        }
        if call.attn_mask is not None:
            controls["is_causal"] = Toggle("is_causal", default=call.is_causal, help="A hint that attn_mask is causal.")
        returned = call.need_weights and not self.large
        controls["need_weights"] = Toggle("need_weights", default=returned, help="Return the weights.")
        controls["average_attn_weights"] = Toggle(
            "average_attn_weights", default=call.average_attn_weights, help="Return their mean over the heads."
        )
        controls["training"] = Toggle("training", default=call.module.training, help="module.train() instead of module.eval().")
        with torch.no_grad():
            could_be_fast = not fast_path(copy.deepcopy(call.module).eval(), call.query, call.key, call.value)
        if could_be_fast:
            controls["no_grad"] = Toggle("no_grad", default=True, help="Call it under torch.no_grad().")
        controls["sample"] = Range("sample", tuple(range(self.N)), 0, "Which sequence of the batch is called and shown.")
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
            reasons["need_weights"] = "The weights of all heads together would be too large; those shown are computed alone."
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
        return "Try: switch need_weights. What does the call return with it and without it, and which way does it go?"

    def alone(self, state: Mapping[str, Any]) -> str:
        """Say which sequence of a batch is called."""
        return "" if self.N == 1 else f"Sample {state['sample']}, of {self.N} counted from 0, is called alone: "

    def index(self, _: Mapping[str, Any]) -> int:
        """Return where in the batch of the call the sample that is shown stands: it is called alone."""
        return 0

    def labels(self, state: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the tokens of the sample that is shown, as queries and as keys."""
        return self._rows[state["sample"]], self._columns[state["sample"]]

    def call(self, state: Mapping[str, Any]) -> Call:
        """Return the call of a state for one sample of the batch, one tensor where there was one."""
        call, n, H = self._call, state["sample"], self._call.module.num_heads
        call.module.train(state["training"])
        changes: dict[str, Any] = {name: None for name in MASKS if not state.get(name)}
        changes |= {name: state[name] for name in ("need_weights", "average_attn_weights")}
        changes["is_causal"] = state.get("is_causal", False)
        if self.N > 1:
            cut: dict[int, Tensor] = {}
            for name in ("query", "key", "value"):
                x = getattr(call, name)
                if id(x) not in cut:
                    cut[id(x)] = x[n : n + 1] if call.module.batch_first else x[:, n : n + 1]
                changes[name] = cut[id(x)]
            if state.get("key_padding_mask"):
                changes["key_padding_mask"] = call.key_padding_mask[n : n + 1]
            if state.get("attn_mask") and call.attn_mask.dim() == 3:
                changes["attn_mask"] = call.attn_mask[n * H : (n + 1) * H]
        return call._replace(**changes)

    def program(self, state: Mapping[str, Any]) -> str:
        """Write the call of a state as a program that takes the reader's own module and tensors."""
        call, n, H = self._call, state["sample"], self._call.module.num_heads
        part = "" if self.N == 1 else f"[{n} : {n + 1}]" if call.module.batch_first else f"[:, {n} : {n + 1}]"
        lines = ["import torch", "# module, query and so on are your own"]
        lines.append(f"module.{'train' if state['training'] else 'eval'}()")
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
        if state.get("attn_mask"):
            rows = f"[{n * H} : {(n + 1) * H}]" if self.N > 1 and call.attn_mask.dim() == 3 else ""
            options.append(f"attn_mask=attn_mask{rows}")
        return "\n".join(lines + calls(self.call(state), [f"q, {k}, {v}", *options], no_grad=state.get("no_grad", True)))


def _each(name: str, tokens: Sequence[Any] | None, N: int, length: int, what: str) -> list[tuple[str, ...]]:
    """Return the labels of every sample: its own where there are N lists, otherwise the same for all."""
    several = isinstance(tokens, Sequence) and tokens
    lists = several and all(isinstance(one, Sequence) and not isinstance(one, str) for one in tokens)
    if lists and len(tokens) != N:
        raise ValueError(f"{name} has {len(tokens)} lists for {N} sequences; pass one for each, or one for all.")
    return [labels(name, tokens[n] if lists else tokens, length, what) for n in range(N)]
