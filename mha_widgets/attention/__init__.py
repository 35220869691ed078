"""Attention in plain torch: no plotly, no widgets."""

from mha_widgets.attention import load
from mha_widgets.attention.capture import Captured, capture
from mha_widgets.attention.fast_path import fast_path
from mha_widgets.attention.functional import (
    multi_head_attention_forward,
    scaled_dot_product_attention,
    softmax,
)
from mha_widgets.attention.masks import additive_mask, causal_mask, padding_mask, window_mask
from mha_widgets.attention.multihead import MultiheadAttention
from mha_widgets.attention.trace import Trace, trace

__all__ = [
    "Captured",
    "MultiheadAttention",
    "Trace",
    "additive_mask",
    "capture",
    "causal_mask",
    "fast_path",
    "load",
    "multi_head_attention_forward",
    "padding_mask",
    "scaled_dot_product_attention",
    "softmax",
    "trace",
    "window_mask",
]
