"""Policies that can act in any environment, to compare trained ones with where nobody has written rules."""

from __future__ import annotations

import numpy as np

from rl_openness.envs.base import NO_OP, EnvSpec, Int, PackedObs
from rl_openness.envs.choices import random_choices
from rl_openness.envs.draws import DecisionDraws
from rl_openness.policies.base import Policy


class Noop(Policy):
    """Nobody does anything."""

    name = "noop"
    memoryless = True

    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> Int:
        """See `Policy.act`."""
        return np.full(len(obs.present), NO_OP, dtype=np.int64)


class Random(Policy):
    """Uniform among the tasks in reach and doing nothing, or among the actions that do something.

    `num_actions`: as in `EnvSpec`, None where agents choose among tasks.
    """

    name = "random"

    memoryless = True

    def __init__(self, num_actions: int | None = None) -> None:
        self._num_actions = num_actions

    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> Int:
        """See `Policy.act`."""
        return random_choices(obs, self._num_actions, draws or DecisionDraws.fresh(obs.num_copies))


GENERIC: dict[str, type[Policy]] = {"noop": Noop, "random": Random}
"""Names that every environment knows unless it has a rule of that name itself."""


def generic_policy(name: str, spec: EnvSpec) -> Policy:
    """One of `GENERIC` for an environment of that `spec`."""
    return Random(spec.num_actions) if name == "random" else Noop()
