"""The running example: six words whose queries, keys and values can be followed by hand."""

import torch

TOKENS = ("the", "cat", "sat", "on", "the", "mat")
FEATURES = ("thing", "action", "place", "grammar")
QUERY = torch.tensor([[2.0, 0, -1, 0], [0, 3, 0, 0], [3, 0, 0, 0], [1, 0, 3, 0], [1, 0, 2, -1], [0, 1, 0, 2]])
KEY = torch.tensor([[0.0, 0, 0, 1], [2, 0, -1, 0], [0, 2, 0, 0], [0, 0, 1, 2], [0, 0, 1, 1], [1, 0, 2, 0]])
VALUE = torch.tensor([[0.0, 0, 1], [3, 1, 0], [1, 3, 0], [0, 1, 2], [0, 0, 1], [2, 0, 3]])
