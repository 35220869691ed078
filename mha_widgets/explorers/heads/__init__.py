"""Heads: attentions side by side, each on its slice of queries, keys and values."""

from mha_widgets.explorers.heads.explorer import Heads

__all__ = ["Heads"]
