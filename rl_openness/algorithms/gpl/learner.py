"""GPL's update inside RLlib's learner: one gradient step a window, then the target network follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME

from rl_openness.algorithms.gpl.update import Batch, gpl_loss, prepare, soft_update
from rl_openness.algorithms.schedules import value_at
from rl_openness.envs.draws import Keys
from rl_openness.rllib.chunk import RolloutChunk
from rl_openness.rllib.learner import PackedTorchLearner

TARGET_MEMORY = "target_memory"


class GplLearner(PackedTorchLearner):
    """Keeps, for each runner, the target network's memory of the observation that its next window begins with."""

    def build(self) -> None:
        """Also reads the settings and sorts the parameters once."""
        super().build()
        self._settings = self.config.settings()
        self._groups = {"network": list(self.core.network.parameters())}
        self._memory: dict[int, tuple[Keys, torch.Tensor]] = {}

    def minibatches(self, chunks: Sequence[RolloutChunk], rng: np.random.Generator) -> Iterator[Batch]:
        """The whole window as one batch, see `update.prepare`."""
        memory = [self._memory_for(chunk) for chunk in chunks]
        batch, after = prepare(chunks, self.core.target, memory)
        for chunk, kept in zip(chunks, after, strict=True):
            self._memory[chunk.source] = (chunk.goes_on, kept)
        self._without_memory = sum(each is None for each in memory)
        yield batch

    def _memory_for(self, chunk: RolloutChunk) -> torch.Tensor | None:
        """None if the runner does not go on where its last window ended: it was restarted, or a rollout got lost."""
        begins, memory = self._memory.get(chunk.source, (None, None))
        return memory if begins is not None and np.array_equal(begins, chunk.begins) else None

    def gradient_groups(self) -> dict[str, list[torch.nn.Parameter]]:
        """All weights of the online network together."""
        return self._groups

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Schedules are functions of the env steps alone, so resuming needs no state of theirs."""
        super().before_gradient_based_update(timesteps=timesteps)
        self.set_learning_rate(value_at(self._settings.lr, timesteps[NUM_ENV_STEPS_SAMPLED_LIFETIME]))

    def compute_loss_for_module(
        self, *, module_id: str, config: Any, batch: Batch, fwd_out: dict[str, Any]
    ) -> torch.Tensor:
        """See `update.gpl_loss`; keeps its parts for `after_gradient_based_update`."""
        loss, self._last_parts = gpl_loss(batch, fwd_out["outputs"], self._settings)
        return loss

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Moves the target network, and logs the parts of the loss."""
        core = self.core
        soft_update(core.target, core.network, self._settings.tau)
        self.metrics.log_dict(self._last_parts, key=DEFAULT_MODULE_ID, window=1)
        count = (DEFAULT_MODULE_ID, "windows_without_target_memory")
        self.metrics.log_value(count, self._without_memory, reduce="sum")
        super().after_gradient_based_update(timesteps=timesteps)

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """RLlib's, and the target network's memory."""
        state: dict[str, Any] = super().get_state(components, not_components=not_components, **kwargs)
        if self._check_component(TARGET_MEMORY, components, not_components):
            state[TARGET_MEMORY] = {
                str(source): {"begins": begins, "memory": memory.numpy()}
                for source, (begins, memory) in self._memory.items()
            }
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Inverse of `get_state`."""
        super().set_state(state)
        if TARGET_MEMORY in state:
            self._memory = {
                int(source): (np.array(saved["begins"]), torch.from_numpy(np.array(saved["memory"])))
                for source, saved in state[TARGET_MEMORY].items()
            }
