"""CapturedMaps: the weights of every head of a model, module by module, call by call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from torch import Tensor, nn

from mha_widgets.attention import Captured, capture
from mha_widgets.attention.fresh import fresh_torch
from mha_widgets.explorer import Explorer
from mha_widgets.figures import Map, block, panels, reduced
from mha_widgets.kit import copy_to_cpu, habits, labels, sentence, strongest
from mha_widgets.view import Choice, Fact, Range, Word

MOST_TOGETHER = 8  # heads that are drawn together
SETTING = """import torch
from torch import nn
layer = nn.TransformerEncoderLayer(24, 4, 1, batch_first=True, norm_first=True, bias=False, activation=torch.zeros_like)
reads = [2, 0, 0, 1] + [1, 3, 0, 1] + [0, 0, 0, 0]  # W_q, W_k, W_v, by head: 0 word, 1 place, 2 place before, 3 word before
layer.self_attn.in_proj_weight.data = torch.eye(4)[reads].kron(torch.eye(6))
layer.self_attn.out_proj.weight.data = torch.ones(1).diag(-3).kron(0.3 * torch.eye(6))  # head 0 writes the word before
model = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False).eval().requires_grad_(False)
words, place, none = torch.eye(6)[[0, 1, 2, 3, 0, 4]], torch.eye(6), torch.zeros(6, 6)
batches = [torch.cat([words, *where, none], 1)[None] for where in ([place, place.roll(-1, 1)], [none, none])]  # (N, L, E)"""  # noqa: E501
HOOKS = """attention, kept = model.{path}, []
asked = dict(need_weights=True, average_attn_weights=False)  # which the layer itself does not ask for
attention.register_forward_pre_hook(lambda module, args, options: (args, options | asked), with_kwargs=True)
attention.register_forward_hook(lambda module, args, output: kept.append(output[1]))
model(batches[{call}])
weights = kept[0]  # (N, H, L, S)"""  # noqa: E501
MADE = (
    "Made by hand, not trained: both layers have the same weights. Head 0 writes into each word the"
    " one before (into the first the last), and head 1 looks for that; in call 1 no word knows its"
    " place."
)


@dataclass(frozen=True)
class Record:
    """The weights of one call.

    Attributes:
        path: of the module in the model.
        weights: (N, H, L, S).
        rows, columns: the labels of queries and keys.
        maps: head to (L, S), those that are shown, of the sample that is shown.
        row: the query to look at.
        of_itself: whether the queries and the keys are one sequence.
        made: what there is to know about the model, if it is the example.
    """

    path: str
    weights: np.ndarray
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    maps: Mapping[int, np.ndarray]
    row: int
    of_itself: bool
    made: str


class CapturedMaps(Explorer):
    """Shows what ``capture`` collected from a model.

    Args:
        captured: what ``capture(model)`` gave, after the model has run; of a small encoder if not
            given.
        tokens: labels for the positions. Maps of another size get numbers, and so do those of a
            sequence that looks at another one of its length, since there is no telling whose labels
            these are.

    Raises:
        TypeError: something else than what ``capture`` gives, or tokens that are no list.
        ValueError: no call was captured, one without positions, or tokens that fit no map.

    Source: Vig 2019, https://arxiv.org/abs/1906.05714, on looking at heads of whole models.

    >>> import torch
    >>> model = nn.TransformerEncoderLayer(8, 2, batch_first=True).eval()
    >>> with capture(model) as captured:
    ...     output = model(torch.randn(3, 5, 8))
    >>> CapturedMaps(captured).view(sample=2).figure.data[0].z.shape
    (5, 5)
    """

    title = "The heads of a whole model"
    prompt = (
        "Try: go from the first layer to the second. Which head has a habit only there, and whose"
        " work does it build on?"
    )

    @fresh_torch()
    def __init__(
        self, captured: Captured | None = None, *, tokens: Iterable[Any] | None = None
    ) -> None:
        self._own = captured is not None
        if captured is None:
            if tokens is not None:
                raise ValueError(
                    "CapturedMaps got tokens but nothing captured; pass both, or neither."
                )
            captured, tokens = _example(), sentence.TOKENS
        if not isinstance(captured, Captured):
            got = type(captured).__name__
            raise TypeError(
                f"Got a {got}; pass what `with capture(model) as captured:` gives, after the run."
            )
        self._of_itself = {path: list(calls) for path, calls in captured.of_itself.items()}
        self._captured = {
            path: [_checked(path, weights).detach().to("cpu", copy=True) for weights in calls]
            for path, calls in captured.items()
            if calls
        }
        if not self._captured:
            raise ValueError(
                "No call was captured; run the model within the block: with capture(model) as"
                " captured: model(x)."
            )
        every = [weights for calls in self._captured.values() for weights in calls]
        self._tokens = (
            None
            if tokens is None
            else _fitting(tokens, {size for weights in every for size in weights.shape[2:]})
        )
        N, H, L = (max(weights.shape[axis] for weights in every) for axis in range(3))
        paths = tuple(self._captured)
        if self._own:
            self.prompt = _prompt(len(paths), H)
        self.controls = {
            "module": Choice(
                "Module", paths, paths[0], "The path of the attention module in the model."
            ),
            "call": _range(
                "Call", max(map(len, self._captured.values())), "Which call of the module."
            ),
            "sample": _range("Sample", N, "Which sequence of the batch."),
            "head": (
                Choice("Head", ("all", *range(H)), "all", "Which heads are drawn.")
                if H <= MOST_TOGETHER
                else _range("Head", H, "Which head is drawn.")
            ),
            "row": _range("Query row", L, "The query to look at."),
        }

    def disabled(self, **state: Any) -> Mapping[str, str]:
        """Return the controls that do nothing, each with the reason."""
        reasons = {
            "call": "Every module was called once.",
            "sample": "There is one sequence.",
            "module": "There is one module.",
        }
        return {
            name: reason for name, reason in reasons.items() if len(self.controls[name].values) == 1
        }

    @fresh_torch()
    def compute(self, **state: Any) -> Record:
        """Return the weights of a complete state.

        Raises:
            ValueError: this module has no such call, sample, head or query.
        """
        calls = self._captured[state["module"]]
        sizes = {"call": len(calls)}
        if state["call"] < len(calls):
            sizes |= dict(
                zip(("sample", "head", "row"), calls[state["call"]].shape[:3], strict=True)
            )
        for name, size in sizes.items():
            if state[name] != "all" and state[name] >= size:
                wanted = f"{name} {state[name]} is not in {state['module']!r}"
                raise ValueError(f"{wanted}, which has {size}; choose one below {size}.")
        weights = calls[state["call"]]
        _, H, L, S = weights.shape
        of_itself = self._of_itself[state["module"]][state["call"]]
        chosen = range(H) if state["head"] == "all" else [state["head"]]
        return Record(
            path=state["module"],
            weights=copy_to_cpu(weights).numpy(),
            rows=self._labels(L, told=of_itself or L != S),
            columns=self._labels(S, told=of_itself or L != S),
            maps={head: copy_to_cpu(weights[state["sample"], head]).numpy() for head in chosen},
            row=state["row"],
            of_itself=of_itself,
            made="" if self._own else MADE,
        )

    def _labels(self, length: int, told: bool) -> tuple[str, ...]:
        if told and self._tokens is not None and len(self._tokens) == length:
            return self._tokens
        return tuple(map(str, range(length)))

    def draw(self, record: Record) -> go.Figure:
        """Draw the map of each head that is shown."""
        drawn = []
        for head, weights in record.maps.items():
            values, rows, columns = reduced(weights, record.rows, record.columns)
            nan = np.isnan(values) if np.isnan(values).any() else None
            more: dict[str, Any] = {
                "colours": "weight",
                "nan": nan,
                "selected_row": record.row // block(weights)[0],
                "role": f"head-{head % 8}",
            }
            drawn.append(
                Map(f"head {head}", f"(L, S) = {weights.shape}", values, rows, columns, **more)
            )
        return panels.draw(drawn, per_row=4)

    def facts(self, record: Record) -> tuple[Fact, ...]:
        """Return the shape, what the heads look at, and the look of one query."""
        facts: list[Fact] = [
            (
                (
                    f"{record.path or 'the model'}: weights (N, H, L, S) = {record.weights.shape},"
                    " before dropout."
                ),
            )
        ]
        if any(np.isnan(weights).any() for weights in record.maps.values()):
            facts.append(
                (
                    Word("NaN", "warn"),
                    " stands in rows that have no key left, or meet a number that is not finite.",
                )
            )
            return tuple(facts)
        if record.of_itself and len(record.rows) == len(record.columns):
            facts.append(habits(record.maps, record.columns, averaged=False))
        head = max(record.maps, key=lambda head: record.maps[head][record.row].max())
        if record.maps[head][record.row].max() > 0:
            look = strongest(record.rows[record.row], record.columns, record.maps[head][record.row])
            sharpest = ", the sharpest here" if len(record.maps) > 1 else ""
            facts.append((f"In head {head}{sharpest}, ", *look))
        high, wide = block(next(iter(record.maps.values())))
        if (high, wide) != (1, 1):
            facts.append(
                (
                    (
                        f"Each cell shows the largest weight of {high} × {wide}; captured[path]"
                        " holds all of them."
                    ),
                )
            )
        if record.made:
            facts.append((record.made,))
        return tuple(facts)

    @fresh_torch()
    def code(self, **state: Any) -> str:
        """Return a program that makes ``weights`` of a complete state."""
        if self._own:
            weights = f"captured[{state['module']!r}][{state['call']}]"
            return f"# captured is your own\nweights = {weights}  # (N, H, L, S)"
        path = state["module"].replace(".0.", "[0].").replace(".1.", "[1].")
        return f"{SETTING}\n{HOOKS.format(path=path, call=state['call'])}"


def _example() -> Captured:
    made: dict[str, Any] = {}
    exec(SETTING, made)
    model: nn.Module = made["model"]
    with capture(model) as captured:
        for x in made["batches"]:
            model(x)
    return captured


def _prompt(modules: int, heads: int) -> str:
    """Return what to try with maps of the reader's own: only what they have."""
    if modules > 1:
        return (
            "Try: go from the first module to the last. Do the heads go on looking at the same"
            " places?"
        )
    if heads > 1:
        return "Try: move the query row. Is it always the same head that looks most sharply?"
    return "Try: move the query row. Which key does each query look at most?"


def _range(label: str, size: int, what: str) -> Range:
    return Range(label, tuple(range(size)), 0, what)


def _checked(path: str, weights: Tensor) -> Tensor:
    if 0 in weights.shape:
        raise ValueError(
            f"A call of {path!r} has weights (N, H, L, S) = {tuple(weights.shape)}, nothing to look"
            " at; run the model on at least one sequence, with at least one position."
        )
    return weights


def _fitting(tokens: Any, sizes: set[int]) -> tuple[str, ...]:
    """Return labels for maps of one of these sizes, or say that they fit none."""
    if isinstance(tokens, str) or not isinstance(tokens, Iterable):
        return labels("tokens", tokens, max(sizes), "positions")  # says what is wrong
    tokens = list(tokens)
    if len(tokens) not in sizes:
        raise ValueError(
            f"tokens has {len(tokens)} entries, but the maps have {_or(sizes)} positions; pass one"
            " for each."
        )
    return labels("tokens", tokens, len(tokens), "positions")


def _or(sizes: set[int]) -> str:
    *most, last = map(str, sorted(sizes))
    return f"{', '.join(most)} or {last}" if most else last
