"""The attention weights of a whole model, collected while it runs."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from mha_widgets.attention.call import Call, Path
from mha_widgets.attention.masks import additive_mask, causal_mask
from mha_widgets.attention.multihead import MultiheadAttention
from mha_widgets.attention.nested import pad_nested
from mha_widgets.attention.steps import (
    append_positions,
    attention_weights,
    merge_masks,
)
from mha_widgets.attention.trace import steps_of

Method = Callable[..., Any]

FORWARDS = (nn.MultiheadAttention.forward, MultiheadAttention.forward)


class Captured(Mapping[str, list[Tensor]]):
    """Hold the weights that :func:`capture` collects:
    for the path of each attention module a list, one tensor a call.

    Attributes:
        of_itself: for each path, call by call, whether the queries and the keys were one tensor.
    """

    def __init__(self, paths: Iterable[str], max_bytes: int) -> None:
        self._calls: dict[str, list[Tensor]] = {path: [] for path in paths}
        self.of_itself: dict[str, list[bool]] = {path: [] for path in self._calls}
        self._max_bytes = max_bytes

    def __getitem__(self, path: str) -> list[Tensor]:
        """Return the weights of a module, each (N, H, L, S), in the order of its calls."""
        if path not in self._calls:
            raise KeyError(
                f"There is no attention module at {path!r}; there is"
                f" {', '.join(map(repr, self._calls))}."
            )
        return self._calls[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._calls)

    def __len__(self) -> int:
        return len(self._calls)

    def __repr__(self) -> str:
        rows = [("path", "calls", "shapes (N, H, L, S)")]
        for path, calls in self.items():
            shapes = list(dict.fromkeys(str(tuple(weights.shape)) for weights in calls))
            rows.append(
                (
                    repr(path),
                    str(len(calls)),
                    ", ".join(shapes if len(shapes) < 4 else [shapes[0], "…", shapes[-1]]),
                )
            )
        width = max(len(path) for path, *_ in rows)
        return "\n".join(
            f"{path:{width}}  {calls:>5}  {shapes}".rstrip() for path, calls, shapes in rows
        )

    def _add(self, name: str, call: Call, path: Path) -> None:
        of_itself = _same(call.query, call.key)
        with _beside(call.module):
            query, padding = call.query, None
            if query.is_nested:
                query, padding = pad_nested(query)
                call = call._replace(query=query, key=query, value=query, key_padding_mask=padding)
            q, k, mask = _operands(call, path)
            shape = (*q.shape[:3], k.shape[2])
            held = sum(weights.nbytes for calls in self.values() for weights in calls)
            needed = math.prod(shape) * q.element_size()
            if held + needed > self._max_bytes:
                raise MemoryError(
                    f"The weights of call {len(self[name]) + 1} of {name!r}, {shape}, would take"
                    f" {needed:,} bytes on top of {held:,}, and max_bytes is {self._max_bytes:,};"
                    " raise max_bytes, or run the model on shorter or fewer sequences."
                )
            weights = attention_weights(q, k, mask)
            if mask is not None and path is Path.SDPA:
                weights.masked_fill_((mask == -math.inf).all(dim=-1, keepdim=True), 0.0)
            if padding is not None:
                weights.masked_fill_(padding[:, None, :, None], 0.0)
        self[name].append(weights)
        self.of_itself[name].append(of_itself)


def _same(query: Tensor, key: Tensor) -> bool:
    try:
        return query is key or query.is_set_to(key)  # or two views that are the same
    except RuntimeError:  # there are tensors that can't tell
        return False


def _operands(call: Call, path: Path) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return what the softmax of a call is made of: q (N, H, L, D), k (N, H, S,
    D) and what is added to the scores.
    """
    module, query = call[:2]
    H, dtype = module.num_heads, query.dtype
    q, k, _ = call.projections()
    mask = merge_masks(call.attn_mask, call.key_padding_mask, H, dtype)
    if (
        path is Path.NATIVE
    ):  # it appends nothing, and takes every number in a mask but 0 for blocked
        return q, k, None if mask is None else additive_mask(mask == 0, dtype)
    S, k = k.shape[2], append_positions(k, module.bias_k, module.add_zero_attn)
    if call.is_causal and path is Path.SDPA and call.key_padding_mask is None:
        mask = additive_mask(causal_mask(q.shape[2], k.shape[2], device=q.device), dtype)
    elif mask is not None:
        mask = F.pad(mask, (0, k.shape[2] - S))
    return q, k, mask


@contextmanager
def capture(model: nn.Module, max_bytes: int = 2**30) -> Iterator[Captured]:
    """Collect the attention weights of a model, every head of every call, while the block runs.

    The model computes what it would compute without this, bit for bit: its calls go the way that
    they go, native operations included, and the weights are computed once more beside them, without
    gradient. ``nn.TransformerEncoderLayer``, which in evaluation leaves its attention module out,
    is seen too; what it does then shows: any number but 0 in a float mask blocks.

    The weights are those before dropout: a row sums to 1. A query whose keys are all blocked has a
    row as in the call itself: NaN or, where that goes through ``F.scaled_dot_product_attention``,
    zeros. Sequences in a NestedTensor, which ``nn.TransformerEncoder`` makes of a padded batch in
    evaluation, are padded to the longest one; rows of padding are zeros.

    Not seen are attention that is neither ``nn.MultiheadAttention`` nor ours, as in Hugging Face's
    models; code that was scripted or exported before; and a layer around ``model``, so give all of
    it. A subclass must hand the arguments of its ``forward`` on as they are; one that, in
    evaluation, returns something else than ``nn.MultiheadAttention`` would is warned of. A call
    made again, as checkpointing does in the backward pass, counts again. ``torch.compile`` would
    compile anew at every call, and inside ``torch.func.vmap`` and ``grad`` the weights are of no
    use outside: capture the model as it is. Within the block, don't run it in several threads, as
    ``nn.DataParallel`` does.

    Args:
        model: any model with ``nn.MultiheadAttention``, subclasses of it, or ours in it; or one of
            these.
        max_bytes: how many bytes of weights may be held: N * H * L * S numbers a call.

    Yields:
        A mapping from the path of each attention module, as in ``model.named_modules()``, to a list
        with its weights (N, H, L, S) call by call; N is 1 for a sequence alone, and S counts the
        positions that a module appends. A module without calls has an empty list. It can be used
        after the block.

    Raises:
        ValueError: a model without such a module.
        MemoryError: from a call within the block whose weights would exceed ``max_bytes``.
        TypeError: a ``max_bytes`` that is no whole number; from a call, a subclass that takes other
            arguments.

    Source: https://docs.pytorch.org/docs/stable/generated/torch.nn.TransformerEncoderLayer.html,
    "Fast path".

    >>> layer = nn.TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True)
    >>> model = nn.TransformerEncoder(layer, num_layers=2).eval()
    >>> with capture(model) as captured, torch.no_grad():
    ...     output = model(torch.randn(3, 5, 8))
    >>> captured
    path                  calls  shapes (N, H, L, S)
    'layers.0.self_attn'      1  (3, 2, 5, 5)
    'layers.1.self_attn'      1  (3, 2, 5, 5)
    >>> captured["layers.1.self_attn"][0].shape
    torch.Size([3, 2, 5, 5])
    """
    if not isinstance(max_bytes, int):
        raise TypeError(f"Got max_bytes={max_bytes!r}; give a number of bytes, as in 2**30.")
    modules = dict(model.named_modules()) if isinstance(model, nn.Module) else {}
    paths = {
        module: path
        for path, module in modules.items()
        if isinstance(module, nn.MultiheadAttention)
    }
    if not paths:
        raise ValueError(
            "capture looks for nn.MultiheadAttention and mha_widgets.MultiheadAttention, and"
            f" {type(model).__name__} holds none; give a module that holds one, from before it was"
            " scripted or exported."
        )
    captured = Captured(paths.values(), max_bytes)
    layers = {
        module for module in modules.values() if isinstance(module, nn.TransformerEncoderLayer)
    } - paths.keys()
    watch = _Watch(captured, paths, layers)
    with ExitStack() as stack:
        for module in paths.keys() | layers:
            stack.callback(_wrap(module, "forward", watch.forward))
        for module in paths:
            stack.callback(_wrap(module, "merge_masks", watch.merge_masks))
        yield captured


class _Watch:
    def __init__(
        self,
        captured: Captured,
        paths: Mapping[nn.MultiheadAttention, str],
        layers: set[nn.TransformerEncoderLayer],
    ) -> None:
        self.captured, self.paths, self.layers = captured, paths, layers
        self.running: list[
            tuple[nn.Module, list[Call]]
        ] = []  # each with the calls that it left to a native operation

    def forward(self, module: nn.Module, real: Method, *args: Any, **kwargs: Any) -> Any:
        copied = module not in self.paths and module not in self.layers
        if copied or any(
            module is other for other, _ in self.running
        ):  # ours calls itself for a NestedTensor
            return real(*args, **kwargs)
        calls: list[Call] = []
        self.running.append((module, calls))
        try:
            output = real(*args, **kwargs)
        finally:
            self.running.pop()
        for call in calls:
            self.captured._add(self.paths[call.module], call, Path.NATIVE)
        if isinstance(module, nn.MultiheadAttention) and not calls:
            try:
                call = Call(module, *args, **kwargs)
            except TypeError as error:
                raise TypeError(
                    f"{self.paths[module]!r} is a {type(module).__name__}, which takes other"
                    " arguments than nn.MultiheadAttention, so its weights can't be told; capture"
                    " parts of the model without it."
                ) from error
            path = Path.EXPLICIT if call.need_weights else Path.SDPA
            if type(module).forward not in FORWARDS:
                _check_output(self.paths[module], call, path, output)
            self.captured._add(self.paths[module], call, path)
        return output

    def merge_masks(
        self,
        module: nn.MultiheadAttention,
        real: Method,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        query: Tensor,
    ) -> Any:
        # torch asks for this right before a native operation: in nn.MultiheadAttention,
        # or in a layer that goes without it.
        if (
            self.running and module.in_proj_bias is not None
        ):  # without a bias it goes on without the operation
            (caller, calls), x = self.running[-1], query
            if isinstance(caller, nn.TransformerEncoderLayer) and caller.norm_first:
                norm = caller.norm1
                x = F.layer_norm(x, norm.weight.shape, norm.weight, norm.bias, norm.eps)
            calls.append(Call(module, x, x, x, key_padding_mask, attn_mask=attn_mask))
        return real(attn_mask, key_padding_mask, query)


def _wrap(module: nn.Module, name: str, run: Method) -> Callable[[], object]:
    """Have ``run`` called with the module and its real method; return what undoes it."""
    own = vars(module).get(name)

    def method(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        real = partial(getattr(type(self), name), self) if own is None else own
        return run(self, real, *args, **kwargs)

    method.__name__ = name  # by which a copy that was saved is loaded again
    vars(module)[name] = MethodType(method, module)  # so that a deep copy has it bound to the copy
    return (
        partial(vars(module).pop, name, None)
        if own is None
        else partial(vars(module).update, {name: own})
    )


def _check_output(name: str, call: Call, path: Path, output: Any) -> None:
    if call.module.training:  # dropout would make it another one anyway
        return
    with torch.no_grad():
        expected = steps_of(call, path)[-1].tensor
    if not isinstance(output, tuple) or not torch.allclose(
        expected, output[0], rtol=1e-2, atol=1e-2, equal_nan=True
    ):
        warnings.warn(
            f"{name!r} is a {type(call.module).__name__}, which returns something else than"
            " nn.MultiheadAttention makes of its arguments: if it changes them, the weights that"
            " are captured are not those of the call.",
            stacklevel=4,
        )


@contextmanager
def _beside(module: nn.Module) -> Iterator[None]:
    # In training, parametrizations such as spectral_norm change with every reading of their weight.
    parts = [part for part in module.modules() if part.training]
    for part in parts:
        part.training = False
    try:
        with torch.inference_mode(False), torch.no_grad():
            yield
    finally:
        for part in parts:
            part.training = True
