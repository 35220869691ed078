"""A module whose four heads look at four different things, and the program that makes it."""

import torch
from torch import nn

from mha_widgets.kit import empty

X = torch.eye(6, 8)
CODE = """\
angle = torch.arange(8) * torch.pi / 4
spot = 4 * torch.stack([angle.cos(), angle.sin()])  # column i: where position i stands on a circle
seek = [spot, spot.roll(1, 1), spot[:, :1].expand(2, 8), spot.roll(-1, 1)]  # by head
module = nn.MultiheadAttention(8, {H})
module.in_proj_weight.data = torch.cat([*seek, spot.repeat(4, 1), torch.eye(8)])  # W_q, W_k, W_v
module.out_proj.weight.data = torch.eye(8)
x = torch.eye(6, 8)  # (L, E): position i is the i-th unit vector"""


def make_module() -> nn.MultiheadAttention:
    """Return the module that the program makes, with four heads of two features:
    the plane of the circle.
    """
    angle = torch.arange(8) * torch.pi / 4
    spot = 4 * torch.stack([angle.cos(), angle.sin()])
    seek = [spot, spot.roll(1, 1), spot[:, :1].expand(2, 8), spot.roll(-1, 1)]
    module = empty(8, 4, 8, 8)
    module.in_proj_weight.data = torch.cat([*seek, spot.repeat(4, 1), torch.eye(8)])
    module.out_proj.weight.data = torch.eye(8)
    return module
