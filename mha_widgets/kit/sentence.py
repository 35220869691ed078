"""The running example: six words whose queries, keys and values can be followed by hand."""

import torch

TOKENS = ("the", "cat", "sat", "on", "the", "mat")
FEATURES = ("thing", "action", "place", "grammar")
QUERY = torch.tensor(
    [[2.0, 0, -1, 0], [0, 3, 0, 0], [3, 0, 0, 0], [1, 0, 3, 0], [1, 0, 2, -1], [0, 1, 0, 2]]
)
KEY = torch.tensor(
    [[0.0, 0, 0, 1], [2, 0, -1, 0], [0, 2, 0, 0], [0, 0, 1, 2], [0, 0, 1, 1], [1, 0, 2, 0]]
)
VALUE = torch.tensor([[0.0, 0, 1], [3, 1, 0], [1, 3, 0], [0, 1, 2], [0, 0, 1], [2, 0, 3]])

# The same sentence as word vectors, another one, and projections that can be multiplied by hand.
X = torch.tensor(
    [[0.0, 0, 0, 2], [2, 0, 0, 0], [0, 2, 0, 0], [0, 0, 2, 1], [0, 0, 0, 2], [3, 0, 1, 0]]
)
OTHER = torch.tensor([[0.0, 0, 0, 2], [3, 0, 0, 0], [0, 1, 0, 1], [0, 0, 3, 0]])
OTHER_TOKENS = ("le", "chat", "est", "là")
# actions and grammar ask for things
W_Q = torch.tensor([[0.0, 1, 0, 1], [1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
# actions stand out, grammar hides
W_K = torch.tensor([[1.0, 0, 0, 0], [0, 2, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0]])
# places count twice and as things
W_V = torch.tensor([[1.0, 0, 1, 0], [0, 1, 0, 0], [0, 0, 2, 0], [0, 0, 0, -1]])
