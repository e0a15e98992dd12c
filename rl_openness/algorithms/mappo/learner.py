"""MAPPO's update inside RLlib's learner."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME

from rl_openness.algorithms.mappo.actions_update import (
    MemberBatch,
    member_loss,
    member_minibatches,
    prepare_members,
)
from rl_openness.algorithms.mappo.update import Minibatch, mappo_loss, minibatches, prepare_rollout
from rl_openness.algorithms.schedules import value_at
from rl_openness.rllib.chunk import RolloutChunk
from rl_openness.rllib.learner import PackedTorchLearner


class ClippedLearner(PackedTorchLearner):
    """Clipped policy and value losses; gradients of actor and critic are clipped apart."""

    def build(self) -> None:
        """Also reads the settings and sorts the parameters once."""
        super().build()
        self._settings = self.config.settings()
        network = self.core.network
        self._groups = {name: list(getattr(network, name).parameters()) for name in ("actor", "critic")}

    def gradient_groups(self) -> dict[str, list[torch.nn.Parameter]]:
        """Actor and critic, which share nothing."""
        return self._groups

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Schedules are functions of the env steps alone, so resuming needs no state of theirs."""
        super().before_gradient_based_update(timesteps=timesteps)
        self._env_steps = timesteps[NUM_ENV_STEPS_SAMPLED_LIFETIME]
        self.set_learning_rate(value_at(self._settings.lr, self._env_steps))

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Logs the parts of the last minibatch's loss."""
        self.metrics.log_dict(self._last_parts, key=DEFAULT_MODULE_ID, window=1)
        super().after_gradient_based_update(timesteps=timesteps)


class MappoLearner(ClippedLearner):
    """PLATO: agents choose tasks, the team has one value."""

    def minibatches(self, chunks: Sequence[RolloutChunk], rng: np.random.Generator) -> Iterator[Minibatch]:
        """See `update.minibatches`."""
        return minibatches(prepare_rollout(chunks, self.core.network, self._settings), self._settings, rng)

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Minibatch, fwd_out: dict[str, Any]
    ) -> torch.Tensor:
        """See `update.mappo_loss`; keeps its parts for `after_gradient_based_update`."""
        loss, self._last_parts = mappo_loss(
            self.core.network, batch, fwd_out["outputs"], self._settings, self._env_steps
        )
        return loss


class ActionsLearner(ClippedLearner):
    """Agents have a fixed set of actions, and each a value of its own."""

    def minibatches(self, chunks: Sequence[RolloutChunk], rng: np.random.Generator) -> Iterator[MemberBatch]:
        """See `actions_update.member_minibatches`."""
        whole = prepare_members(chunks, self.core.network, self._settings)
        return member_minibatches(whole, self._settings, rng)

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: MemberBatch, fwd_out: dict[str, Any]
    ) -> torch.Tensor:
        """See `actions_update.member_loss`; keeps its parts for `after_gradient_based_update`."""
        loss, self._last_parts = member_loss(
            self.core.network, batch, fwd_out["outputs"], self._settings, self._env_steps
        )
        return loss
