"""MaskArguments: what nn.MultiheadAttention makes of its masks."""

from mha_widgets.explorers.mask_arguments.explorer import MaskArguments

__all__ = ["MaskArguments"]
