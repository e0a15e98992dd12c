"""MAPPO's numbers in plain torch: advantages on environment time, and the clipped losses (plato.md section 5)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import huber_loss


def generalised_advantages(
    rewards: Tensor,
    values: Tensor,
    next_values: Tensor,
    terminated: Tensor,
    ended: Tensor,
    *,
    gamma: float,
    lambda_: float,
) -> Tensor:
    """GAE [T, B] on the team's time axis: an agent that is away is a step without a decision.

    `next_values` [T, B] is the value of the state that followed each step: the next step's, the final observation's
    where an episode was truncated. `terminated` stops the bootstrap; `ended` (terminated or truncated) stops the sum.
    """
    alive = 1.0 - terminated.to(values.dtype)
    same = 1.0 - ended.to(values.dtype)
    delta = rewards + gamma * alive * next_values - values
    advantage = torch.empty_like(delta)
    running = torch.zeros_like(delta[0])
    for t in range(len(delta) - 1, -1, -1):
        running = delta[t] + gamma * lambda_ * same[t] * running
        advantage[t] = running
    return advantage


def policy_loss(log_prob: Tensor, old_log_prob: Tensor, advantage: Tensor, clip: float) -> Tensor:
    """Mean clipped surrogate (negated) over agent decisions [D]; 0 without any."""
    if len(log_prob) == 0:
        return log_prob.sum()
    ratio = (log_prob - old_log_prob).exp()
    return -torch.minimum(ratio * advantage, ratio.clamp(1.0 - clip, 1.0 + clip) * advantage).mean()


def value_loss(value: Tensor, old_value: Tensor, target: Tensor, clip: float, delta: float) -> Tensor:
    """Mean over team-steps [S] of the worse of the plain and the clipped Huber loss, all in normalised units."""
    clipped = old_value + (value - old_value).clamp(-clip, clip)
    losses = [huber_loss(v, target, reduction="none", delta=delta) for v in (value, clipped)]
    return torch.maximum(*losses).mean()
