"""Module: a whole call of nn.MultiheadAttention, every argument a control."""

from mha_widgets.explorers.module.explorer import Module

__all__ = ["Module"]
