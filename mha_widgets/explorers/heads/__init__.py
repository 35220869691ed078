"""Heads: the same features, cut into slices that look at different things."""

from mha_widgets.explorers.heads.explorer import Heads

__all__ = ["Heads"]
