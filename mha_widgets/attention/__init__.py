"""Attention in plain torch: no plotly, no widgets."""

from mha_widgets.attention.functional import scaled_dot_product_attention, softmax
from mha_widgets.attention.masks import additive_mask, causal_mask, padding_mask, window_mask

__all__ = [
    "additive_mask",
    "causal_mask",
    "padding_mask",
    "scaled_dot_product_attention",
    "softmax",
    "window_mask",
]
