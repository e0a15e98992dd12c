"""Small perceptrons with the initialisation of MAPPO (orthogonal, gain sqrt 2, biases 0)."""

from __future__ import annotations

import math

from torch import nn

SQRT2 = math.sqrt(2.0)


def linear(inputs: int, outputs: int, gain: float = SQRT2, *, bias: bool = True) -> nn.Linear:
    """Linear layer with orthogonal weights and zero bias."""
    layer = nn.Linear(inputs, outputs, bias=bias)
    nn.init.orthogonal_(layer.weight, gain)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


def mlp(inputs: int, hidden: int, outputs: int, *, last_gain: float = SQRT2) -> nn.Sequential:
    """One hidden layer with ReLU, no activation on the output."""
    return nn.Sequential(linear(inputs, hidden), nn.ReLU(), linear(hidden, outputs, last_gain))
