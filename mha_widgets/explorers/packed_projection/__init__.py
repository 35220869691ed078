"""PackedProjection: where W_q, W_k and W_v of every head lie in a module."""

from mha_widgets.explorers.packed_projection.explorer import PackedProjection

__all__ = ["PackedProjection"]
