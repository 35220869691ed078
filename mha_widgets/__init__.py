"""See, vary and understand multi-head attention."""

from mha_widgets import exercises, explorers
from mha_widgets.attention import (
    Captured,
    MultiheadAttention,
    Trace,
    additive_mask,
    capture,
    causal_mask,
    fast_path,
    load,
    multi_head_attention_forward,
    padding_mask,
    scaled_dot_product_attention,
    softmax,
    trace,
    window_mask,
)
from mha_widgets.explore import explore
from mha_widgets.explorer import Explorer
from mha_widgets.view import Choice, Control, Range, Toggle, View, Word

__all__ = [
    "Captured",
    "Choice",
    "Control",
    "Explorer",
    "MultiheadAttention",
    "Range",
    "Toggle",
    "Trace",
    "View",
    "Word",
    "additive_mask",
    "capture",
    "causal_mask",
    "exercises",
    "explore",
    "explorers",
    "fast_path",
    "load",
    "multi_head_attention_forward",
    "padding_mask",
    "scaled_dot_product_attention",
    "softmax",
    "trace",
    "window_mask",
]
