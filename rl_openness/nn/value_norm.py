"""Running normalisation of value targets (MAPPO's ValueNorm: debiased exponential moving averages)."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ValueNorm(nn.Module):
    """Tracks mean and mean square of the targets; `beta` is the decay per update, variances are at least 0.01."""

    mean: Tensor
    square: Tensor
    weight: Tensor

    def __init__(self, beta: float = 0.99999) -> None:
        super().__init__()
        self.beta = beta
        for name in ("mean", "square", "weight"):
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))

    @torch.no_grad()
    def update(self, targets: Tensor) -> None:
        """Take in one minibatch of raw targets [n]; with several learners the average over all of them."""
        exact = targets.to(self.mean.dtype)  # in float32 the variance around a large mean would be lost
        moments = torch.stack([exact.mean(), exact.square().mean()])
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(moments)
            moments /= torch.distributed.get_world_size()
        if not torch.isfinite(moments).all():
            return  # the step is left out too; one bad target must not poison all later ones
        self.mean.lerp_(moments[0], 1.0 - self.beta)
        self.square.lerp_(moments[1], 1.0 - self.beta)
        self.weight.lerp_(torch.ones_like(self.weight), 1.0 - self.beta)

    def _location_scale(self) -> tuple[float, float]:
        weight = float(self.weight)
        if weight == 0.0:
            return 0.0, 1.0
        mean = float(self.mean) / weight
        return mean, max(float(self.square) / weight - mean * mean, 1e-2) ** 0.5

    def normalise(self, values: Tensor) -> Tensor:
        """Raw -> normalised; the identity before the first update."""
        mean, scale = self._location_scale()
        return (values - mean) / scale

    def denormalise(self, values: Tensor) -> Tensor:
        """Normalised -> raw."""
        mean, scale = self._location_scale()
        return values * scale + mean
