"""How long `view` takes, for each explorer with its own data: the median over its states.

The book asks for at most 20 ms.
"""

from __future__ import annotations

import random
import statistics
import time
from contextlib import suppress

from mha_widgets import explorers


def main() -> None:
    """Print a line for each explorer."""
    for name, explorer_class in explorers.catalog().items():
        explorer = explorer_class()
        rng = random.Random(0)
        states = [{c: rng.choice(control.values) for c, control in explorer.controls.items()} for _ in range(300)]
        times = []
        for state in states:
            start = time.perf_counter()
            with suppress(ValueError):  # a state that makes no sense
                explorer.view(**state)
            times.append(1000 * (time.perf_counter() - start))
        print(f"{name}: median {statistics.median(times):.1f} ms, largest {max(times):.1f} ms, {len(times)} states")


if __name__ == "__main__":
    main()
