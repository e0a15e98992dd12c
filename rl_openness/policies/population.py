"""Populations of teammates: a policy per type, each member following the type that the environment drew for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_openness.envs.base import NO_OP, EnvSpec, Int, PackedObs
from rl_openness.envs.draws import DecisionDraws
from rl_openness.errors import UserError
from rl_openness.policies.base import KindPolicy, Policy

TYPE = "type"
"""Column of `agent_rows` with each member's type, -1 for members that the learner controls."""


class Population:
    """Decides for every member that has a type (protocol `envs.base.Teammates`).

    Kinds of one family (`KindPolicy`) are decided in one call. Any other policy decides for the members of its type.
    One with memory is asked at every step, also where none has the type now, for it may remember all members.
    """

    def __init__(self, policies: Sequence[Policy], spec: EnvSpec) -> None:
        if not policies:
            raise UserError("a population needs at least one type of teammate")
        self.policies = tuple(policies)
        self.num_types = len(self.policies)
        self._column = [column.name for column in spec.agent_columns].index(TYPE)
        self._families: dict[type[KindPolicy], Int] = {}
        self._singles: dict[int, Policy] = {}
        for index, policy in enumerate(self.policies):
            if isinstance(policy, KindPolicy):
                none = np.full(self.num_types + 1, -1, dtype=np.int64)  # the last entry is for type -1
                self._families.setdefault(type(policy), none)[index] = policy.kind
            else:
                self._singles[index] = policy

    @property
    def names(self) -> list[str]:
        """Names of the types, by number."""
        return [policy.name for policy in self.policies]

    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> Int:
        """See `envs.base.Teammates`."""
        draws = draws or DecisionDraws.fresh(obs.num_copies)
        types = obs.agent_rows[:, self._column].astype(np.int64)
        choices = np.full(len(types), NO_OP, dtype=np.int64)
        for family, kinds_of_types in self._families.items():
            kinds = kinds_of_types[types]
            choices = np.where(kinds >= 0, family.decide(obs, kinds, draws), choices)
        for index, policy in self._singles.items():
            mine = types == index
            if policy.memoryless and not mine.any():
                continue
            choices = np.where(mine, policy.act(replace(obs, controlled=mine), draws), choices)
        return choices

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Memory of all types."""
        return {
            f"{index}.{name}": array
            for index, policy in self._singles.items()
            for name, array in policy.get_state().items()
        }

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Inverse of `get_state`."""
        for index, policy in self._singles.items():
            prefix = f"{index}."
            policy.set_state({name.removeprefix(prefix): state[name] for name in state if name.startswith(prefix)})
