"""One call of a multi-head attention module, and the ways that it can go."""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from torch import Tensor, nn

from mha_widgets.attention.fast_path import fast_path
from mha_widgets.attention.steps import in_projection


class Path(Enum):
    """The ways through ``nn.MultiheadAttention``."""

    EXPLICIT = "explicit weights"
    SDPA = "F.scaled_dot_product_attention"
    NATIVE = "native fast path"


class Call(NamedTuple):
    """A module and the arguments of its ``forward``, in their order."""

    module: nn.MultiheadAttention
    query: Tensor
    key: Tensor
    value: Tensor
    key_padding_mask: Tensor | None = None
    need_weights: bool = True
    attn_mask: Tensor | None = None
    average_attn_weights: bool = True
    is_causal: bool = False

    def options(self) -> dict[str, Any]:
        """Return the arguments after query, key and value, by name."""
        return dict(zip(self._fields[4:], self[4:], strict=True))

    def projections(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries (N, H, L, D), keys and values (N, H, S, D); no input may be nested."""
        module, weight = self.module, self.module.in_proj_weight
        if weight is None:
            weight = (module.q_proj_weight, module.k_proj_weight, module.v_proj_weight)
        return in_projection(
            *(self.query, self.key, self.value, weight, module.in_proj_bias, module.num_heads),
            batch_first=module.batch_first or self.query.dim() == 2,
        )

    def path(self) -> Path:
        """Return the way that this call goes if it is made now."""
        if not fast_path(*self):
            return Path.NATIVE
        return Path.EXPLICIT if self.need_weights else Path.SDPA
