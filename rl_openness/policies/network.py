"""A trained network as a `Policy`."""

from __future__ import annotations

from torch import Tensor

from rl_openness.envs.base import Int, PackedObs
from rl_openness.envs.draws import DecisionDraws
from rl_openness.nn.acting import Decider
from rl_openness.policies.base import Policy


class NetworkPolicy(Policy):
    """Takes the best option of each agent, or samples (`explore`).

    Memory is kept from call to call and follows `obs.carry`, so observations must come in order.
    """

    def __init__(self, name: str, network: Decider, *, explore: bool = False) -> None:
        self.name, self.network, self.explore = name, network, explore
        self._memory: Tensor | None = None

    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> Int:
        """See `Policy.act`."""
        decision = self.network.act(obs, draws, self._memory, explore=self.explore)
        self._memory = decision.memory
        return decision.choices
