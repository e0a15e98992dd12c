"""MAPPO's update inside RLlib's learner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from rl_openness.algorithms.mappo.update import Minibatch, mappo_loss, minibatches, prepare_rollout
from rl_openness.rllib.chunk import RolloutChunk
from rl_openness.rllib.learner import PackedTorchLearner


class MappoLearner(PackedTorchLearner):
    """Clipped policy and value losses; gradients of actor and critic are clipped apart."""

    def build(self) -> None:
        """Also reads the settings once."""
        super().build()
        self._settings = self.config.settings()

    def minibatches(self, chunks: Sequence[RolloutChunk], rng: np.random.Generator) -> Iterator[Minibatch]:
        """See `update.minibatches`."""
        return minibatches(prepare_rollout(chunks, self.core.network, self._settings), self._settings, rng)

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Minibatch, fwd_out: dict[str, Any]
    ) -> torch.Tensor:
        """See `update.mappo_loss`; logs its parts."""
        loss, parts = mappo_loss(self.core.network, batch, fwd_out["outputs"], self._settings)
        self.metrics.log_dict(parts, key=module_id, window=1)
        return loss

    def postprocess_gradients_for_module(
        self, *, module_id: str, config: Any = None, module_gradients_dict: dict[Any, torch.Tensor]
    ) -> dict[Any, torch.Tensor]:
        """Clip by norm, and log the norms."""
        network = self.core.network
        limit = self._settings.grad_clip or float("inf")
        for name in ("actor", "critic"):
            norm = torch.nn.utils.clip_grad_norm_(getattr(network, name).parameters(), limit)
            self.metrics.log_value((module_id, f"{name}_grad_norm"), norm, window=1)
        return module_gradients_dict
