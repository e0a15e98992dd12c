"""Hand-written rules for Wildfire: NOOP, Random, Weakest, Strongest, Solo and Coalition (specification part 13).

A rule sees a `PackedObs` only. A member's options are its pairs: burning cells in range while it has suppressant. Ties
are broken uniformly at random with one draw per agent, so an episode's decisions depend on its seed alone.
"""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numba import njit
from numpy.typing import NDArray

from rl_openness.envs.base import NO_OP, Bool, Float, Int, PackedObs
from rl_openness.envs.draws import DecisionDraws
from rl_openness.envs.ragged import pointer
from rl_openness.envs.wildfire.view import AGENT_COLUMNS, TASK_COLUMNS
from rl_openness.errors import UserError, nearest
from rl_openness.policies.base import Policy
from rl_openness.policies.generic import Noop, Random

_POWER = AGENT_COLUMNS.index("power")
_SIZE = TASK_COLUMNS.index("size")
_INTENSITY = TASK_COLUMNS.index("intensity")
_COALITIONS = 3
"""Rounds of Coalition, as the specification words it; three agents never form more."""


def _one_draw_per_member(obs: PackedObs, draws: DecisionDraws | None) -> NDArray[np.float64]:
    """[M] numbers in [0, 1), independent over the agents."""
    draws = DecisionDraws.fresh(obs.num_copies) if draws is None else draws
    return draws.uniform(obs.agent_copy, obs.agent_id)


def _uniform_among(obs: PackedObs, wanted: Bool, draws: DecisionDraws | None) -> Int:
    """Choices [M]: one of each member's `wanted` pairs [P], uniformly at random; no-op for members without one."""
    pairs = np.flatnonzero(wanted)
    count = np.bincount(obs.pair_agent[pairs], minlength=len(obs.present))
    members = np.flatnonzero(count)
    rank = (_one_draw_per_member(obs, draws)[members] * count[members]).astype(np.int64)
    choices = np.full(len(count), NO_OP, dtype=np.int64)
    choices[members] = pairs[pointer(count)[members] + rank] - obs.pair_ptr[members]
    return choices


class _Extreme(Policy):
    """An option of the lowest rank (by `rank`), never no-op by choice; each agent breaks its ties for itself."""

    @abstractmethod
    def rank(self, intensity: Float) -> Float:
        """What the rule minimises, from the intensity of a pair's fire [P]."""

    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> Int:
        """See `Policy.act`."""
        rank = self.rank(obs.task_rows[obs.pair_task, _INTENSITY])
        best = np.full(len(obs.present), np.inf, dtype=np.float32)
        ptr = obs.pair_ptr
        members = np.flatnonzero(np.diff(ptr))
        if len(members):
            best[members] = np.minimum.reduceat(rank, ptr[members])
        return _uniform_among(obs, rank == best[obs.pair_agent], draws)


class Weakest(_Extreme):
    """A fire of the lowest intensity in range."""

    name = "weakest"

    def rank(self, intensity: Float) -> Float:
        """The intensity."""
        return intensity


class Strongest(_Extreme):
    """A fire of the highest intensity in range."""

    name = "strongest"

    def rank(self, intensity: Float) -> Float:
        """Minus the intensity."""
        return -intensity


class Solo(Policy):
    """Uniform among the fires of size 1 in range, else no-op."""

    name = "solo"

    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> Int:
        """See `Policy.act`."""
        return _uniform_among(obs, obs.task_rows[obs.pair_task, _SIZE] == 1, draws)


class Coalition(Policy):
    """Three times: the weakest fire that agents still free can match gets just enough of them; the rest does nothing.

    Agents are taken in index order until their summed base power reaches the fire's size; ties between fires go to the
    first in row-major order. Nothing is random.
    """

    name = "coalition"

    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> Int:
        """See `Policy.act`."""
        choices = np.full(len(obs.present), NO_OP, dtype=np.int64)
        _form_coalitions(
            obs.agent_ptr,
            obs.task_ptr,
            obs.pair_ptr,
            obs.pair_agent,
            obs.pair_task,
            np.ascontiguousarray(obs.agent_rows[:, _POWER]),
            np.ascontiguousarray(obs.task_rows[:, _SIZE]),
            np.ascontiguousarray(obs.task_rows[:, _INTENSITY]),
            choices,
        )
        return choices


@njit(cache=True, nogil=True)
def _form_coalitions(  # type: ignore[no-untyped-def]
    agent_ptr, task_ptr, pair_ptr, pair_agent, pair_task, power, size, intensity, choices
):
    """Replace the no-ops of `choices` [M] by the coalitions of every copy."""
    available = np.zeros(len(size))  # power of the free agents that have this option
    staffed = np.zeros(len(size), dtype=np.bool_)
    for b in range(len(agent_ptr) - 1):
        first, last = pair_ptr[agent_ptr[b]], pair_ptr[agent_ptr[b + 1]]
        for _ in range(_COALITIONS):
            available[task_ptr[b] : task_ptr[b + 1]] = 0.0
            for p in range(first, last):
                if choices[pair_agent[p]] == NO_OP:
                    available[pair_task[p]] += power[pair_agent[p]]
            best = -1
            for x in range(task_ptr[b], task_ptr[b + 1]):
                if staffed[x] or available[x] < size[x]:
                    continue
                if best < 0 or intensity[x] < intensity[best]:
                    best = x
            if best < 0:
                break
            staffed[best] = True
            missing = size[best]
            for p in range(first, last):
                agent = pair_agent[p]
                if pair_task[p] == best and choices[agent] == NO_OP and missing > 0:
                    choices[agent] = p - pair_ptr[agent]
                    missing -= power[agent]


def wildfire_rules() -> dict[str, Policy]:
    """One of each rule by name, in the order of the specification's table."""
    rules: tuple[Policy, ...] = (Noop(), Random(), Weakest(), Strongest(), Solo(), Coalition())
    return {rule.name: rule for rule in rules}


def make_rule(name: str) -> Policy:
    """The rule of that name. Raises UserError, with the nearest name, for an unknown one."""
    rules = wildfire_rules()
    if name not in rules:
        raise UserError(f"unknown rule {name!r}{nearest(name, rules)}")
    return rules[name]
