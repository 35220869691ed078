"""The explorers, one file or folder each. A test holds that none is missing here."""

from mha_widgets.explorer import Explorer
from mha_widgets.explorers.attention import Attention
from mha_widgets.explorers.batch_first import BatchFirst
from mha_widgets.explorers.captured_maps import CapturedMaps
from mha_widgets.explorers.dot_product import DotProduct
from mha_widgets.explorers.dropout import Dropout
from mha_widgets.explorers.fast_path import FastPath
from mha_widgets.explorers.heads import Heads
from mha_widgets.explorers.mask_arguments import MaskArguments
from mha_widgets.explorers.masks import Masks
from mha_widgets.explorers.module import Module
from mha_widgets.explorers.packed_projection import PackedProjection
from mha_widgets.explorers.projections import Projections
from mha_widgets.explorers.scaling import Scaling

__all__ = [
    "Attention",
    "BatchFirst",
    "CapturedMaps",
    "DotProduct",
    "Dropout",
    "FastPath",
    "Heads",
    "MaskArguments",
    "Masks",
    "Module",
    "PackedProjection",
    "Projections",
    "Scaling",
    "catalog",
]


def catalog() -> dict[str, type[Explorer]]:
    """Return every explorer's class by its name, in alphabetical order.

    >>> list(catalog())[:4]
    ['Attention', 'BatchFirst', 'CapturedMaps', 'DotProduct']
    """
    return {name: globals()[name] for name in __all__ if name != "catalog"}
