"""One protocol for everything that decides: hand-written rules, trained checkpoints, teammates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_openness.envs.base import Int, PackedObs
from rl_openness.envs.draws import DecisionDraws


class Policy(ABC):
    """Decides for every member of every copy at once."""

    name: str
    summary = ""
    """What it does, in a line; empty = the first line of its class's docstring."""
    memoryless = False
    """Whether a member's decision depends on the observation alone, so that it need not be asked at every step."""

    @staticmethod
    def load(path: str | Path, *, explore: bool = False) -> Policy:
        """The trained policy saved at a path: a run, a checkpoint, or its `policy/` folder. Needs no Ray.

        `explore` samples instead of taking the best option. Raises UserError if there is no readable policy.
        """
        from rl_openness.policies.checkpoint import load_policy

        return load_policy(path, explore=explore)

    @abstractmethod
    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> Int:
        """Choices int64 [M], one per member row: j >= 0 its j-th pair, `NO_OP` for no-op and for away members.

        `draws` are the step's random numbers (`env.draws()`); without them a policy that needs any takes fresh,
        unrepeatable ones. Recurrent policies keep their state between calls and follow `obs.carry`.
        """

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Memory of recurrent policies, as plain arrays; nothing for others."""
        return {}

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Inverse of `get_state`."""
        if state:
            raise ValueError(f"policy {self.name!r} has no memory to restore")


class KindPolicy(Policy):
    """One of several related rules that are decided together in one call, each member following its own kind."""

    kind: int

    @staticmethod
    @abstractmethod
    def decide(obs: PackedObs, kinds: Int, draws: DecisionDraws) -> Int:
        """Choices int64 [M]: of kind `kinds[m]` for each member with one (>= 0), `NO_OP` for the rest."""

    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> Int:
        """All present members that the caller controls follow this kind."""
        deciding = obs.present if obs.controlled is None else obs.present & obs.controlled
        kinds = np.where(deciding, self.kind, -1)
        return self.decide(obs, kinds, draws or DecisionDraws.fresh(obs.num_copies))
