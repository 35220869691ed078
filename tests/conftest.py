"""How much hypothesis tries."""

from __future__ import annotations

from hypothesis import settings

# The parity of whole calls with torch: 300 in every run, 10,000 with `make parity`.
settings.register_profile("default", deadline=None, derandomize=True, max_examples=300)
settings.register_profile("parity", deadline=None, max_examples=10_000, print_blob=True)
settings.load_profile("default")
