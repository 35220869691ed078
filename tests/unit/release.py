"""The release of torch that the tests run on, for what releases say or do differently."""

from __future__ import annotations

import pytest
import torch

RELEASE = tuple(map(int, torch.__version__.split(".")[:2]))
# What was seen on 2.5.1, the oldest release that we take, and not from 2.13 on.
OLDEST = RELEASE == (2, 5)
not_on_oldest = pytest.mark.skipif(OLDEST, reason="torch 2.5 can't, or draws other random numbers")
