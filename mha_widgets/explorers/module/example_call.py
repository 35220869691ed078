"""A small call of nn.MultiheadAttention whose every argument can be chosen,
and the program that makes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mha_widgets.attention.call import Call
from mha_widgets.explorers.module.written_call import calls
from mha_widgets.kit import check_cut
from mha_widgets.view import Choice, Control, Range, Toggle

# N = 2 sentences of L = 4
WORDS = (
    ("the", "cat", "sat", "down"),
    ("birds", "sing", "<pad>", "<pad>"),
)
# of S = 5
OTHER_WORDS = (
    ("le", "chat", "s’est", "assis", "là"),
    ("les", "oiseaux", "chantent", "<pad>", "<pad>"),
)
CONSTRUCTOR = (
    "embed_dim",
    "num_heads",
    "dropout",
    "bias",
    "add_bias_kv",
    "add_zero_attn",
    "kdim",
    "vdim",
    "batch_first",
)
DEFAULTS: dict[str, Any] = {
    "dropout": 0.0,
    "bias": True,
    "add_bias_kv": False,
    "add_zero_attn": False,
    "kdim": None,
    "vdim": None,
    "batch_first": False,
    "device": None,
    "dtype": "float32",
}
PADDING = torch.tensor([[False, False, False, False, False], [False, False, False, True, True]])

CONTROLS: dict[str, Control] = {
    "embed_dim": Choice("embed_dim", (8, 12), 8, "Features of queries and outputs."),
    "num_heads": Choice("num_heads", (1, 2, 3, 4), 2, "Heads; embed_dim must be divisible by it."),
    "bias": Toggle("bias", default=True, help="Biases in the projections."),
    "add_bias_kv": Toggle("add_bias_kv", help="Appends a learned key and value to every sequence."),
    "add_zero_attn": Toggle("add_zero_attn", help="Appends a key and a value of zeros."),
    "kdim": Choice("kdim", (None, 5), None, "Features of the keys; embed_dim if None."),
    "vdim": Choice("vdim", (None, 3), None, "Features of the values; embed_dim if None."),
    "dropout": Choice("dropout", (0.0, 0.3), 0.0, "The share of weights that training sets to 0."),
    "batch_first": Toggle("batch_first", default=True, help="(N, L, E) instead of (L, N, E)."),
    "dtype": Choice(
        "dtype", ("float32", "float64"), "float32", "The floating type of parameters and inputs."
    ),
    "device": Choice(
        "device",
        ("cpu",),
        "cpu",
        "Where it runs; every other device gives these numbers too, but for rounding.",
    ),
    "key": Choice(
        "key",
        ("query", "another sentence"),
        "query",
        "Self-attention, or cross-attention with S = 5.",
    ),
    "batched": Toggle(
        "batched", default=True, help="A batch of two sentences, or the first alone."
    ),
    "key_padding_mask": Choice(
        "key_padding_mask", ("None", "boolean", "float"), "boolean", "Blocks <pad> as a key."
    ),
    "attn_mask": Choice(
        "attn_mask",
        ("None", "causal", "causal, float", "one a head"),
        "None",
        "Blocks keys for each query: (L, S) or (N·H, L, S).",
    ),
    "is_causal": Toggle("is_causal", help="A hint that attn_mask is causal."),
    "need_weights": Toggle("need_weights", default=True, help="Return the weights."),
    "average_attn_weights": Toggle(
        "average_attn_weights", default=True, help="Return their mean over the heads."
    ),
    "training": Toggle("training", help="module.train() instead of module.eval()."),
    "no_grad": Toggle("no_grad", default=True, help="Call it under torch.no_grad()."),
}


class ExampleCall:
    """The source of what ``Module`` shows if it is given nothing.

    >>> example = ExampleCall()
    >>> state = {name: control.default for name, control in example.controls.items()}
    >>> example.call(state).query.shape
    torch.Size([2, 4, 8])
    """

    large = False
    only_shown = ("sample", "row")  # the controls that change nothing about the call
    controls = CONTROLS | {
        "sample": Choice("sample", (0, 1), 1, "Which sentence of the batch is shown."),
        "row": Range("query row", (0, 1, 2, 3), 1, "The query to look at."),
    }

    def disabled(self, state: Mapping[str, Any]) -> dict[str, str]:
        """Return the controls that do nothing, each with the reason."""
        reasons = {"device": "These numbers were made on the CPU."}
        if not state["batched"]:
            reasons |= {
                "sample": "There is one sentence alone.",
                "batch_first": "It has no effect on one sentence alone.",
            }
        if not state["training"]:
            reasons["dropout"] = "Only training drops weights."
        if not state["need_weights"]:
            reasons["average_attn_weights"] = "need_weights=False returns none to average."
        return reasons

    def alone(self, _: Mapping[str, Any]) -> str:
        """Say which sequence of a batch is called: none, all are called together."""
        return ""

    def index(self, state: Mapping[str, Any]) -> int:
        """Return where in the batch of the call the sample that is shown stands."""
        return state["sample"] if state["batched"] else 0

    def labels(self, state: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the words of the sample that is shown, as queries and as keys."""
        n = self.index(state)
        return WORDS[n], WORDS[n] if state["key"] == "query" else OTHER_WORDS[n]

    def call(self, state: Mapping[str, Any]) -> Call:
        """Return the call of a state, ready to be made: what its program writes,
        up to the call itself.
        """
        made: dict[str, Any] = {}
        program = "\n".join(self._prepared(state)[0])
        # The same numbers; torch.manual_seed would keep
        # a note for every time that CUDA is still unused.
        exec(program.replace("torch.manual_seed", "torch.default_generator.manual_seed"), made)
        query: Tensor = made["query"]
        key: Tensor = made.get("key", query)
        return Call(
            made["module"],
            query,
            key,
            made.get("value", key),
            made.get("key_padding_mask"),
            state["need_weights"],
            made.get("attn_mask"),
            state["average_attn_weights"],
            state["is_causal"],
        )

    def program(self, state: Mapping[str, Any]) -> str:
        """Write the call of a state as a program; it makes ``module``, the inputs,
        ``output``, ``weights`` and ``per_head``.
        """
        lines, arguments = self._prepared(state)
        return "\n".join(lines + calls(self.call(state), arguments, no_grad=state["no_grad"]))

    def _prepared(self, state: Mapping[str, Any]) -> tuple[list[str], list[str]]:
        """Write what a program does before the call, and the arguments of the call."""
        check_cut(state["embed_dim"], state["num_heads"])
        E, cross, batched = state["embed_dim"], state["key"] != "query", state["batched"]
        L, S = 4, 5 if cross else 4
        build = [
            f"{name}={state[name]}"
            for name in CONSTRUCTOR
            if name not in DEFAULTS or state[name] != DEFAULTS[name]
        ]
        dtype = ""
        if state["dtype"] != "float32":
            dtype = f", dtype=torch.{state['dtype']}"
        lines = ["import torch", "from torch import nn", "torch.manual_seed(0)"]
        mode = "train" if state["training"] else "eval"
        lines.append(f"module = nn.MultiheadAttention({', '.join(build)}{dtype}).{mode}()")

        def sizes(length: int, features: int) -> str:
            if not batched:
                return f"{length}, {features}"
            return (
                f"2, {length}, {features}" if state["batch_first"] else f"{length}, 2, {features}"
            )

        inputs = ["query", "query", "query"]
        lines.append(f"query = 2 * torch.randn({sizes(L, E)}{dtype})")
        if cross or state["kdim"]:
            inputs[1] = inputs[2] = "key"
            lines.append(f"key = 2 * torch.randn({sizes(S, state['kdim'] or E)}{dtype})")
        if state["vdim"] != state["kdim"]:
            inputs[2] = "value"
            lines.append(f"value = 2 * torch.randn({sizes(S, state['vdim'] or E)}{dtype})")
        options = []
        if state["key_padding_mask"] != "None":
            padding = (PADDING if cross else PADDING[:, 1:]).tolist()
            lines.append(f"key_padding_mask = torch.tensor({padding if batched else padding[0]})")
            options.append("key_padding_mask=key_padding_mask")
            if state["key_padding_mask"] == "float":
                lines.append(_as_float("key_padding_mask", dtype))
        if state["attn_mask"] != "None":
            lines.append(f"attn_mask = torch.ones({L}, {S}, dtype=torch.bool).triu(1)")
            options.append("attn_mask=attn_mask")
            if state["attn_mask"] == "one a head":
                total = (2 if batched else 1) * state["num_heads"]
                one = f"torch.ones({L}, {S}).triu(1 + i % {state['num_heads']})"
                lines[-1] = f"attn_mask = torch.stack([{one} for i in range({total})]).bool()"
            elif state["attn_mask"] == "causal, float":
                lines.append(_as_float("attn_mask", dtype))
        return lines, inputs + options


def _as_float(name: str, dtype: str) -> str:
    return (
        f"{name} = torch.zeros({name}.shape{dtype}).masked_fill({name}, -torch.inf)  # added to the"
        " scores"
    )
