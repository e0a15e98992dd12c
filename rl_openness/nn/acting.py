"""How a network decides for a whole `PackedObs`; shared by runners and by loaded policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from rl_openness.envs.base import Float, Int, PackedObs
from rl_openness.envs.draws import DecisionDraws


@dataclass(frozen=True)
class Decision:
    """Choices and their log-probabilities for every member [M], and the memory that goes on (None without)."""

    choices: Int
    log_probs: Float
    memory: Tensor | None = None
    """[M, width] after this step."""
    memory_in: Tensor | None = None
    """[M, width] that entered this step, after `carry`."""


class Decider(Protocol):
    """A network that can act."""

    def act(
        self, obs: PackedObs, draws: DecisionDraws | None, memory: Tensor | None = None, *, explore: bool
    ) -> Decision:
        """Sample (`explore`) or take the best option; `memory` is the previous decision's."""


def carried(memory: Tensor | None, carry: Tensor, width: int, like: Tensor) -> Tensor:
    """[M, width] memory of each member of the new step: its own from before, zeros where `carry` is -1."""
    state = like.new_zeros((len(carry), width))
    if memory is None or len(memory) == 0:
        return state
    old = carry >= 0
    state[old] = memory.index_select(0, carry[old])
    return state


def option_noise(draws: DecisionDraws, obs: PackedObs, member: Int, pair_ptr: Int) -> tuple[np.ndarray, np.ndarray]:
    """Gumbel noise for every pair [P] and no-op [D] of the deciders; depends on episode, agent and option only."""
    copy, agent = obs.agent_copy[member], obs.agent_id[member]
    sizes = np.diff(pair_ptr)
    option = np.arange(pair_ptr[-1], dtype=np.int64) - np.repeat(pair_ptr[:-1], sizes) + 1
    pairs = draws.gumbel(np.repeat(copy, sizes), np.repeat(agent, sizes), option)
    return pairs, draws.gumbel(copy, agent)
