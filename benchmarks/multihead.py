"""How fast the MultiheadAttention written from scratch is, beside torch's own.

Both modules do the same call in turn; a row holds the medians and the median of their ratios. In
inference torch takes its native fast path where it can. The book asks for a ratio of at most 1.05
in every row and 1.00 in the median. The table goes to benchmarks/multihead.csv.
"""

from __future__ import annotations

import csv
import itertools
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from mha_widgets import MultiheadAttention

BATCHES = [(1, 8), (2, 32), (4, 64), (8, 128), (8, 512), (1, 4096)]  # (N, L)
WIDTHS = [(64, 4), (256, 8), (768, 12)]  # (embed_dim, num_heads)
SECONDS = 1.5  # for a row, beyond the first two calls
TABLE = Path(__file__).with_suffix(".csv")


def call(module: nn.Module, x: Tensor, options: dict[str, Any]) -> float:
    """Return how many milliseconds one call takes, with its gradients in training."""
    start = time.perf_counter()
    with torch.set_grad_enabled(module.training):
        output, _ = module(x, x, x, **options)
        if module.training:
            output.sum().backward()
    return 1000 * (time.perf_counter() - start)


def row(
    N: int, L: int, E: int, H: int, training: bool, need_weights: bool, masks: bool
) -> list[Any]:
    """Measure one kind of call."""
    theirs, ours = (
        kind(E, H, batch_first=True).train(training)
        for kind in (nn.MultiheadAttention, MultiheadAttention)
    )
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(N, L, E, requires_grad=training)
    options: dict[str, Any] = {"need_weights": need_weights}
    if masks:
        options["attn_mask"] = torch.ones(L, L, dtype=torch.bool).triu(1)
        options["key_padding_mask"] = (torch.arange(L) >= L - 2).expand(N, L)
    first = max(call(theirs, x, options) + call(ours, x, options) for _ in range(2))
    times = [
        (call(theirs, x, options), call(ours, x, options))
        for _ in range(max(7, min(500, int(1000 * SECONDS / first))))
    ]
    torch_ms, our_ms = (statistics.median(column) for column in zip(*times, strict=True))
    ratio = statistics.median(ours / theirs for theirs, ours in times)
    mode = "training" if training else "inference"
    return [
        mode,
        need_weights,
        masks,
        N,
        L,
        E,
        H,
        f"{torch_ms:.3f}",
        f"{our_ms:.3f}",
        f"{ratio:.2f}",
    ]


def peak(L: int) -> float:
    """Return how many MiB a call without weights holds at most beyond
    what was held before (Linux).
    """
    code = f"""
import torch, mha_widgets
def held(name):
    lines = [line for line in open("/proc/self/status") if line.startswith(name)]
    return int(lines[0].split()[1]) / 1024
module = mha_widgets.MultiheadAttention(256, 8, batch_first=True).eval()
with torch.no_grad():
    x = torch.randn(1, {L}, 256)
    few = x[:, :64]
    module(few, few, few, need_weights=False)
    open("/proc/self/clear_refs", "w").write("5")  # the peak starts anew
    before = held("VmRSS")
    module(x, x, x, need_weights=False)
    print(held("VmHWM") - before)
"""
    return float(
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout
    )


def main() -> None:
    """Print a line for each kind of call, and write the table."""
    rows = []
    for training, need_weights, masks in itertools.product(
        (False, True), (True, False), (False, True)
    ):
        for (N, L), (E, H) in itertools.product(BATCHES, WIDTHS):
            if need_weights and N * H * L * L > 2**26:
                continue  # one tensor of weights alone would take more than 256 MiB
            rows.append(row(N, L, E, H, training, need_weights, masks))
            print(*rows[-1], sep="\t", flush=True)
    with TABLE.open("w", newline="") as file:
        head = [
            "mode",
            "need_weights",
            "masks",
            "N",
            "L",
            "embed_dim",
            "num_heads",
            "torch (ms)",
            "ours (ms)",
            "ratio",
        ]
        csv.writer(file).writerows([head, *rows])
    ratios = [float(one[-1]) for one in rows]
    above = sum(ratio > 1.05 for ratio in ratios)
    print(
        f"{len(ratios)} rows: median ratio {statistics.median(ratios):.2f}, largest"
        f" {max(ratios):.2f}, {above} above 1.05"
    )
    for L in (1024, 2048, 4096, 8192, 16384):
        print(f"L = {L}: {peak(L):.0f} MiB without weights")


if __name__ == "__main__":
    main()
