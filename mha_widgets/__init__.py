"""See, vary and understand multi-head attention."""

from mha_widgets import explorers
from mha_widgets.attention import (
    additive_mask,
    causal_mask,
    padding_mask,
    scaled_dot_product_attention,
    softmax,
    window_mask,
)
from mha_widgets.explorer import Choice, Control, Explorer, Range, Toggle, View, Word

__all__ = [
    "Choice",
    "Control",
    "Explorer",
    "Range",
    "Toggle",
    "View",
    "Word",
    "additive_mask",
    "causal_mask",
    "explorers",
    "padding_mask",
    "scaled_dot_product_attention",
    "softmax",
    "window_mask",
]
