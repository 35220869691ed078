"""Figures from arrays: plotly and numpy only, no torch; an author of an explorer imports from here.

Panels, which ``panels.draw`` puts side by side as one figure:

- ``Map``: a matrix as a heatmap, with a ``Frame`` around what matters;
- ``HeadMap``: a square map with a border in a head's colour; ``JoinedHeads``: cells in the colours
  of their heads; ``PALETTE``: how many heads have a colour of their own;
- ``bars``, ``lines``, ``arrows``: bars, curves and vectors;
- ``Plot``: any traces of plotly's, with a table of their numbers;
- ``Table``: words in cells, each ``GOOD``, ``BAD`` or ``PLAIN``.

What they are made of:

- ``reduced``: a large map by the largest number of each block; ``block``: how large that is;
- ``colour``: the value of a colour's role;
- ``literal``: a token as plotly shows it, without HTML and LaTeX;
- ``labelled``, ``titled``, ``label_width``: an axis with labels, its title, how wide labels are.
"""

from mha_widgets.figures.head_maps import PALETTE, HeadMap, JoinedHeads
from mha_widgets.figures.maps import Frame, Map
from mha_widgets.figures.panels import label_width, labelled, literal, titled
from mha_widgets.figures.plots import Plot, arrows, bars, lines
from mha_widgets.figures.reduced import block, reduced
from mha_widgets.figures.table import BAD, GOOD, PLAIN, Table
from mha_widgets.figures.theme import colour

__all__ = [
    "BAD",
    "GOOD",
    "PALETTE",
    "PLAIN",
    "Frame",
    "HeadMap",
    "JoinedHeads",
    "Map",
    "Plot",
    "Table",
    "arrows",
    "bars",
    "block",
    "colour",
    "label_width",
    "labelled",
    "lines",
    "literal",
    "reduced",
    "titled",
]
