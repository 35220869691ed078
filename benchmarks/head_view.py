"""How large a page with every head of a model is, beside bertviz's head view of the same weights.

The weights are those of a model with 12 heads and 64 tokens: of one layer, and of twelve. bertviz
writes them twice, the second time into a comment; its last two columns are without that.
"""

from __future__ import annotations

import gzip
import re
import time

import torch
from bertviz import head_view
from torch import nn

from mha_widgets import capture, explore

HEADS, TOKENS = 12, 64


def main() -> None:
    """Print a line for one layer, and one for twelve."""
    columns = (
        f"{what} ({unit})" for what in ("page", "bertviz", "once") for unit in ("kB", "kB gzipped")
    )
    print("layers", "recorded in (s)", *columns, sep="\t")
    for layers in (1, 12):
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(d_model=8 * HEADS, nhead=HEADS, batch_first=True)
        model = nn.TransformerEncoder(layer, num_layers=layers).eval()
        with torch.no_grad(), capture(model) as captured:
            model(3 * torch.randn(1, TOKENS, 8 * HEADS))
        tokens = [f"token{number}" for number in range(TOKENS)]
        start = time.perf_counter()
        page = explore(captured, tokens=tokens).to_html().encode()
        seconds = time.perf_counter() - start
        weights = [calls[0] for calls in captured.values()]
        theirs = head_view(weights, tokens, html_action="return").data
        once = re.sub(r" // HACK: .*", "", theirs)
        sizes = [
            len(data)
            for html in (page, theirs.encode(), once.encode())
            for data in (html, gzip.compress(html))
        ]
        print(
            layers,
            f"{seconds:.0f}",
            *(f"{size / 1000:,.0f}" for size in sizes),
            sep="\t",
            flush=True,
        )


if __name__ == "__main__":
    main()
