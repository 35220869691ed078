"""Projections: how one sentence becomes queries, keys and values."""

from mha_widgets.explorers.projections.explorer import Projections

__all__ = ["Projections"]
