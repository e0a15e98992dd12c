"""RLlib's learner for packed rollouts: minibatches come from the method, everything else from RLlib."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np
import torch
from ray.rllib.core import COMPONENT_OPTIMIZER, DEFAULT_MODULE_ID
from ray.rllib.core.learner.torch.torch_learner import TorchLearner

from rl_openness.rllib.chunk import RolloutChunk
from rl_openness.rllib.data import ModuleMinibatch, RolloutData


class PackedTorchLearner(TorchLearner):  # type: ignore[misc]
    """Turns `RolloutData` into the method's minibatches.

    Shuffling is counter-based on (seed, learner, number of the update), so resuming needs no generator state.
    """

    @abstractmethod
    def minibatches(self, chunks: Sequence[RolloutChunk], rng: np.random.Generator) -> Iterator[Sized]:
        """All minibatches of one update; the length of each is its number of team-steps."""

    @property
    def core(self) -> Any:
        """The bare module (without RLlib's wrapper for distributed training)."""
        return self.module[DEFAULT_MODULE_ID].unwrapped()

    def _create_iterator_if_necessary(self, *, training_data: RolloutData, **kwargs: Any) -> Iterator[ModuleMinibatch]:
        key = [self.config.seed or 0, self._learner_index, self._weights_seq_no]
        for batch in self.minibatches(training_data.chunks, np.random.default_rng(key)):
            yield ModuleMinibatch(batch)

    def _log_steps_trained_metrics(self, batch: ModuleMinibatch) -> None:
        """Left out: RLlib's eight counters per minibatch cost more than they tell."""

    def _compute_off_policyness(self, batch: Any) -> None:
        """Left out: batches are on-policy by construction."""

    def _set_slicing_by_batch_id(self, batch: Any, *, value: bool) -> Any:
        """Packed minibatches are never sliced by RLlib."""
        return batch

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Fused Adam with the configured epsilon."""
        parameters = self.get_parameters(self.module[module_id])
        optimizer = torch.optim.Adam(parameters, lr=config.lr, eps=config.adam_epsilon, fused=True)
        self.register_optimizer(
            module_id=module_id, optimizer=optimizer, params=parameters, lr_or_lr_schedule=config.lr
        )

    def set_state(self, state: Mapping[str, Any]) -> None:
        """As RLlib, but the configured learning rate holds from the first update on (PBT changes it)."""
        super().set_state(state)
        if COMPONENT_OPTIMIZER in state:
            for optimizer in self._optimizer_parameters:
                self._set_optimizer_lr(optimizer, self.config.lr)

    def forget_weights_version(self) -> None:
        """Accept any weights next, also older ones (in-place restore)."""
        self._weights_seq_no = 0
