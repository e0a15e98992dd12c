"""Policies of users while they act: whatever goes wrong in one is told in one line, with its place."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_openness.envs.base import NO_OP, Bool, EnvSpec, Int, PackedObs, whole_numbers
from rl_openness.envs.draws import DecisionDraws
from rl_openness.errors import RunFailedError
from rl_openness.policies.base import Policy


class PolicyFailedError(RunFailedError):
    """A user's policy raised, or gave something else than choices: which one, where, and at which call."""


class UsersPolicy(Policy):
    """A user's policy behind the protocol of ours; everything that it does not do right is a `PolicyFailedError`.

    It may choose for all rows: the choices of members that others decide for, or that are away, are dropped.
    """

    spec: EnvSpec | None = None
    """Of the environment, where known (see `fit`): choices beyond its actions are told as the policy's mistake."""

    def __init__(self, policy: Policy, name: str, environment: str) -> None:
        self.name, self.memoryless = name, policy.memoryless
        self.summary = policy.summary or (inspect.getdoc(type(policy)) or "").partition("\n")[0]
        self.policy, self._environment, self._calls = policy, environment, 0

    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> Int:
        """See `Policy.act`. Raises PolicyFailedError."""
        self._calls += 1
        try:
            given = self.policy.act(obs, draws)
        except (Exception, SystemExit) as error:
            raise self._failed(f"raised {type(error).__name__}: {error}", obs, error) from error
        try:
            choices = whole_numbers(given, "its choices")
        except ValueError as error:
            raise self._failed(f"broke a rule: {error}", obs) from error
        if choices.shape != obs.present.shape:
            wrong = f"broke a rule: it must give one choice per member, [{len(obs.present)}], not {choices.shape}"
            raise self._failed(wrong, obs)
        deciding = obs.present if obs.controlled is None else obs.present & obs.controlled
        choices = np.where(deciding, choices, NO_OP)
        self._check_limits(choices, deciding, obs)
        return choices

    def _check_limits(self, choices: Int, deciding: Bool, obs: PackedObs) -> None:
        if self.spec is None:
            return
        actions = self.spec.num_actions
        limit = np.diff(obs.pair_ptr) if actions is None else np.full(len(choices), actions)
        illegal = np.flatnonzero((choices < NO_OP) | deciding & (choices >= limit))
        if len(illegal):
            row = int(illegal[0])
            chose = f"it chose {choices[row]} for row {row}, of copy {int(obs.agent_copy[row])}"
            raise self._failed(f"broke a rule: {chose}; legal: {NO_OP} (nothing) to {limit[row] - 1}", obs)

    def _failed(self, what: str, obs: PackedObs, error: BaseException | None = None) -> PolicyFailedError:
        place = f"call {self._calls}, {obs.num_copies} copies, {len(obs.present)} members"
        if error is not None:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{Path(last.filename).name} line {last.lineno}, {place}"
        return PolicyFailedError(
            f"policy {self.name!r} in {self._environment} {' '.join(what.split())} ({place}); mend its act(obs, "
            "draws), which decides for all copies at once, or leave it out"
        )

    def get_state(self) -> dict[str, NDArray[Any]]:
        """See `Policy.get_state`."""
        return self.policy.get_state()

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """See `Policy.set_state`."""
        self.policy.set_state(state)


def guarded(policy: Policy, name: str, environment: str) -> Policy:
    """The policy under that name; one of a class of ours is not wrapped: its mistakes are ours."""
    if type(policy).__module__.partition(".")[0] == __name__.partition(".")[0]:
        policy.name = name
        return policy
    return UsersPolicy(policy, name, environment)


def fit(policy: Policy, spec: EnvSpec) -> Policy:
    """The policy, which knows what it may choose in an environment of that `spec` if it is a user's."""
    if isinstance(policy, UsersPolicy):
        policy.spec = spec
    return policy
