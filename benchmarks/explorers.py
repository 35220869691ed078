"""How long `view` takes for each explorer with its own data, and how large its page is.

The book asks for a median view of at most 10 ms, and for a payload of at most 150 kB, 40 kB
gzipped.
"""

from __future__ import annotations

import gzip
import math
import random
import statistics
import time
from contextlib import suppress

from mha_widgets import explorers
from mha_widgets.explorer import Explorer


def views(explorer: Explorer) -> list[float]:
    """Return how many milliseconds the views of random states take."""
    rng, times = random.Random(0), []
    for _ in range(300):
        state = {name: rng.choice(control.values) for name, control in explorer.controls.items()}
        start = time.perf_counter()
        with suppress(ValueError):  # a state that makes no sense
            explorer.view(**state)
        times.append(1000 * (time.perf_counter() - start))
    return times


def main() -> None:
    """Print a line for each explorer."""
    print(
        "explorer",
        "view (ms)",
        "slowest (ms)",
        "states",
        "payload (kB)",
        "gzipped (kB)",
        "recorded in (s)",
        sep="\t",
    )
    for name, explorer_class in explorers.catalog().items():
        explorer = explorer_class()
        times = views(explorer)
        states = math.prod(
            len(explorer.controls[control].values)
            for control in explorer.page_controls or explorer.controls
        )
        start = time.perf_counter()
        page = explorer.to_html()
        seconds = time.perf_counter() - start
        payload = page.split('class="mha-data">')[1].split("</script>")[0].encode()
        sizes = (f"{len(data) / 1000:.1f}" for data in (payload, gzip.compress(payload)))
        view = f"{statistics.median(times):.1f}", f"{max(times):.1f}"
        print(name, *view, states, *sizes, f"{seconds:.1f}", sep="\t", flush=True)


if __name__ == "__main__":
    main()
