"""Answers to the exercises on softmax and scaling."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from answers import Answers


def attend(axis: int) -> object:
    def attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return torch.softmax(query @ key.mT / math.sqrt(key.shape[axis]), dim=-1) @ value

    return attention


def in_place(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    query /= math.sqrt(query.shape[-1])
    return unscaled(query, key, value)


def unscaled(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    return torch.softmax(query @ key.mT, dim=-1) @ value


ANSWERS = {
    "softmax-and-scaling-1": Answers(
        right=((32, 4), torch.tensor([32.3, 4.03]), ["32", [4]]),
        wrong=(
            ((8, 1), "8 is for entries with standard deviation 1"),
            ((16, 2), "both the query and the key are twice as wide"),
            ((1024, 16), "1024 is the variance"),
            ((32, 1), "after the division it is not 1: divide the first number"),
            (32, "give two numbers"),
            ((float("nan"), 4), "before the division it is not nan"),
        ),
    ),
    "softmax-and-scaling-2": Answers(
        right=(attend(-1), F.scaled_dot_product_attention, in_place),
        wrong=(
            (
                attend(-2),
                "for S = 7 and E = 4 differs from torch .* how many products does one score add up",
            ),
            (attend(1), "for S = 7 and E = 4 differs from torch"),
            (unscaled, "for S = 4 and E = 4 differs from torch"),
            (lambda query, key, value: None, "returns nothing"),
        ),
    ),
    "softmax-and-scaling-3": Answers(
        right=(2.92, torch.tensor(2.923), [2.92], "2.92"),
        wrong=(
            (2, "at 2 there are 2.74 effective keys: go hotter"),
            (10.0, "effective keys: go colder"),
            (-1, "a temperature is a number above 0"),
            ([2.9, 3.0], "your temperature holds 2 numbers; give one"),
            ("warm", "your temperature is 'warm'; give one number"),
        ),
    ),
    "softmax-and-scaling-4": Answers(
        right=(64, torch.tensor(64), [64], "64"),
        wrong=(
            (32, "at E = 32 the median row has more than 2 keys left: are there 64 keys"),
            (128, "it has fewer than 2, but so it has before that"),
            (100, "100 is none of 2, 4, 8, 16, 32, 64, 128"),
        ),
    ),
}
