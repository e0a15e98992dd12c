"""Populations of teammates: a policy per type, each member following the type that the environment drew for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_openness.envs.base import NO_OP, Bool, EnvSpec, Int, PackedObs
from rl_openness.envs.draws import DecisionDraws
from rl_openness.errors import UserError
from rl_openness.policies.base import KindPolicy, Policy
from rl_openness.policies.users import fit

TYPE = "type"
"""Column of `agent_rows` with each member's type, -1 for members that the learner controls."""

SEEN = "rows_seen"
"""Name of an array of a population's state, beside those of its policies."""


class Population:
    """Decides for every member that has a type (protocol `envs.base.Teammates`).

    Kinds of one family (`KindPolicy`) are decided in one call. Any other policy decides for the members of its type.
    One with memory sees the copies that have such a member: it remembers nothing of the time before the first one came.
    """

    def __init__(self, policies: Sequence[Policy], spec: EnvSpec) -> None:
        if not policies:
            raise UserError("a population needs at least one type of teammate")
        self.policies = tuple(fit(policy, spec) for policy in policies)
        self.num_types = len(self.policies)
        self._column = [column.name for column in spec.agent_columns].index(TYPE)
        self._families: dict[type[KindPolicy], Int] = {}
        self._singles: dict[int, Policy] = {}
        self._seen: dict[int, Int] = {}  # of policies with memory: see `_remembering`
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
            asked = replace(obs, controlled=mine)
            if not policy.memoryless:
                choices = np.where(mine, self._remembering(index, policy, asked, mine, draws), choices)
            elif mine.any():
                choices = np.where(mine, policy.act(asked, draws), choices)
        return choices

    def _remembering(self, index: int, policy: Policy, obs: PackedObs, mine: Bool, draws: DecisionDraws) -> Int:
        """Choices [M] of a policy with memory, which sees only the copies with a member of its own (`mine`).

        `_seen[index]` [M] is each member's row in what the policy saw last, -1 where it saw none: `carry` names rows of
        the whole observation.
        """
        copy = obs.agent_copy
        here = np.bincount(copy[mine], minlength=obs.num_copies) > 0
        rows, copies = here[copy], np.flatnonzero(here)
        before = self._seen.get(index)
        self._seen[index] = np.where(rows, np.cumsum(rows) - 1, -1)
        choices = np.full(len(mine), NO_OP, dtype=np.int64)
        if not len(copies):
            return choices
        part = obs.select(copies)
        nobody = np.full_like(part.carry, -1)
        carry = nobody if before is None else np.where(part.carry >= 0, before[part.carry], nobody)
        choices[rows] = policy.act(replace(part, carry=carry), DecisionDraws(draws.keys[copies]))
        return choices

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Memory of all types, and what they saw last."""
        memories = {
            f"{index}.{name}": array
            for index, policy in self._singles.items()
            for name, array in policy.get_state().items()
        }
        return memories | {f"{index}.{SEEN}": rows.copy() for index, rows in self._seen.items()}

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Inverse of `get_state`."""
        self._seen = {
            index: np.array(state[f"{index}.{SEEN}"]) for index in self._singles if f"{index}.{SEEN}" in state
        }
        for index, policy in self._singles.items():
            own = {name.removeprefix(f"{index}."): state[name] for name in state if name.startswith(f"{index}.")}
            own.pop(SEEN, None)
            policy.set_state(own)
