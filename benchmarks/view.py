"""How long `view` takes, for each explorer with its own data: the median over its states.

The book asks for at most 10 ms.
"""

from __future__ import annotations

import random
import statistics
import time

from mha_widgets import explorers


def main() -> None:
    """Print a line for each explorer."""
    for name, explorer_class in explorers.catalog().items():
        explorer = explorer_class()
        states = list({tuple(explorer.state(**state).items()) for state in explorer.states()})
        times = []
        for state in random.Random(0).sample(states, min(300, len(states))):
            start = time.perf_counter()
            explorer.view(**dict(state))
            times.append(1000 * (time.perf_counter() - start))
        print(f"{name}: median {statistics.median(times):.1f} ms, largest {max(times):.1f} ms, {len(times)} states")


if __name__ == "__main__":
    main()
