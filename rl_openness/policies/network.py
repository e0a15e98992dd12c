"""A trained network as a `Policy`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_openness.envs.base import Int, PackedObs
from rl_openness.envs.draws import DecisionDraws
from rl_openness.nn.acting import Decider
from rl_openness.policies.base import Policy


@runtime_checkable
class Freezable(Protocol):
    """A network that acts faster once its weights are final."""

    def freeze(self) -> None:
        """Prepare for acting with the present weights."""


class NetworkPolicy(Policy):
    """Takes the best option of each agent, or samples (`explore`).

    Memory is kept from call to call and follows `obs.carry`, so observations must come in order. The network's weights
    must not change any more: one that has a method `freeze` is told so.
    """

    def __init__(self, name: str, network: Decider, *, explore: bool = False) -> None:
        self.name, self.network, self.explore = name, network, explore
        self.memoryless = getattr(network, "memoryless", False)
        if isinstance(network, Freezable):
            network.freeze()
        self._memory: Tensor | None = None

    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> Int:
        """See `Policy.act`."""
        decision = self.network.act(obs, draws, self._memory, explore=self.explore)
        self._memory = decision.memory
        return decision.choices

    def get_state(self) -> dict[str, NDArray[Any]]:
        """The memory of the members of the last observation."""
        return {} if self._memory is None else {"memory": self._memory.numpy().copy()}

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Inverse of `get_state`."""
        self._memory = torch.from_numpy(np.array(state["memory"])) if "memory" in state else None
