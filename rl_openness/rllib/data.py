"""How rollouts travel to RLlib's learners: `TrainingData` with chunks or references, and minibatches by duck type."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import ray
from ray.rllib.core import DEFAULT_MODULE_ID
from ray.rllib.core.learner.training_data import TrainingData

from rl_openness.rllib.chunk import RolloutChunk


@dataclass
class RolloutData(TrainingData):  # type: ignore[misc]
    """Chunks (or references to them) of one update.

    With several learners each takes an equal share of the *copies* of every chunk, so that all have the same number of
    team-steps whatever the number of chunks.
    """

    chunks: list[Any] = field(default_factory=list)
    share: tuple[int, int] = (0, 1)
    """(index, number of learners)"""

    def validate(self) -> None:
        """RLlib asks every training data for this."""
        if not self.chunks:
            raise ValueError("an update needs at least one rollout chunk")

    def shard(
        self, num_shards: int, len_lookback_buffer: int | None = None, **kwargs: Any
    ) -> list[tuple[RolloutData, dict[str, Any]]]:
        """One share for each learner."""
        return [(RolloutData(chunks=self.chunks, share=(i, num_shards)), {}) for i in range(num_shards)]

    def solve_refs(self) -> None:
        """Fetch referenced chunks and keep this learner's copies of them."""
        chunks: Sequence[RolloutChunk] = [
            ray.get(chunk) if isinstance(chunk, ray.ObjectRef) else chunk for chunk in self.chunks
        ]
        index, shares = self.share
        if shares > 1:
            chunks = [c.select_copies(np.array_split(np.arange(c.num_copies), shares)[index]) for c in chunks]
        self.chunks, self.share = list(chunks), (0, 1)


class ModuleMinibatch:
    """What `Learner.update` reads of a minibatch: module batches by name, and sizes."""

    def __init__(self, batch: Sized) -> None:
        self.policy_batches = {DEFAULT_MODULE_ID: batch}

    def env_steps(self) -> int:
        """Team-steps."""
        return len(self)

    def __len__(self) -> int:
        return len(self.policy_batches[DEFAULT_MODULE_ID])
