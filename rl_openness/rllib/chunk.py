"""What a runner hands over: one packed rollout of T steps of B copies. No Ray in here."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from rl_openness.envs.base import Float, Int, PackedObs, concatenate
from rl_openness.envs.draws import Keys
from rl_openness.envs.ragged import gather_segments, pointer


@dataclass(frozen=True, eq=False)
class RolloutChunk:
    """T x B team-steps, time-major: team-step s = t * B + b. Members M are summed over all team-steps.

    A plain class, not a dict or tuple: RLlib flattens those.
    """

    num_steps: int
    """T"""
    num_copies: int
    """B"""
    obs: PackedObs
    """T * B team-steps; `carry` names rows of this matrix, -1 = new or first step of the chunk."""
    choices: Int
    """[M] of all members: the network's, and those of teammates that it does not control."""
    log_probs: Float
    """[M] of the choices when they were made; 0 where there was nothing to choose."""
    team_reward: NDArray[np.float64]
    """[T, B]"""
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    """[T, B] each"""
    boot: PackedObs
    """[B] what followed the last step (a new episode's start where one ended); `carry` names rows of the last step."""
    final: PackedObs | None
    """Last observations of truncated episodes, to bootstrap from; their `carry` names no rows of this chunk."""
    final_step: Int
    """Team-step of each."""
    window: int
    """Steps of a training window; memory is stored at each window's first step."""
    memory: Float | None
    """[sum of members at window starts, width] state that entered those steps, in order of steps and members."""
    begins: Keys
    """[B] key of (seed, episode, step) at the first step of each copy,"""
    goes_on: Keys
    """[B] and at the step after the last: a chunk that begins with these keys goes on where this one ends."""
    agent_reward: NDArray[np.float64] | None = None
    """[M] what each member earned itself, where the method asks for it."""
    parted: PackedObs | None = None
    """T * B team-steps: last observations of agents that were cut off after a step, see `StepResult.parted`."""
    source: int = 0
    """Index of the worker that made it."""

    def __len__(self) -> int:
        return self.env_steps()

    def select_copies(self, copies: Int) -> RolloutChunk:
        """The rollout of some copies, in ascending order."""
        steps = (np.arange(self.num_steps)[:, None] * self.num_copies + copies).ravel()
        members, _ = gather_segments(self.obs.agent_ptr, steps)
        place = np.full(len(self.choices), -1, dtype=np.int64)
        place[members] = np.arange(len(members))
        obs = self.obs.select(steps)
        obs = replace(obs, carry=np.where(obs.carry >= 0, place[obs.carry], -1))
        last, new_last = self.obs.agent_ptr[(self.num_steps - 1) * self.num_copies], obs.agent_ptr[-1 - len(copies)]
        boot = self.boot.select(copies)
        boot = replace(boot, carry=np.where(boot.carry >= 0, place[last + boot.carry] - new_last, -1))
        kept = np.isin(self.final_step % self.num_copies, copies)
        final_t, final_b = np.divmod(self.final_step[kept], self.num_copies)
        return RolloutChunk(
            num_steps=self.num_steps,
            num_copies=len(copies),
            obs=obs,
            choices=self.choices[members],
            log_probs=self.log_probs[members],
            team_reward=self.team_reward[:, copies],
            terminated=self.terminated[:, copies],
            truncated=self.truncated[:, copies],
            boot=boot,
            final=None if self.final is None else self.final.select(np.flatnonzero(kept)),
            final_step=final_t * len(copies) + np.searchsorted(copies, final_b),
            window=self.window,
            memory=None if self.memory is None else self.memory[self._memory_rows(copies)],
            agent_reward=None if self.agent_reward is None else self.agent_reward[members],
            parted=None if self.parted is None else self.parted.select(steps),
            begins=self.begins[copies],
            goes_on=self.goes_on[copies],
            source=self.source,
        )

    def _memory_rows(self, copies: Int) -> Int:
        """Rows of `memory` that belong to the chosen copies."""
        starts = np.arange(0, self.num_steps, self.window)
        steps = (starts[:, None] * self.num_copies + np.arange(self.num_copies)).ravel()
        ptr = pointer(np.diff(self.obs.agent_ptr)[steps])
        chosen = (np.arange(len(starts))[:, None] * self.num_copies + copies).ravel()
        return gather_segments(ptr, chosen)[0]

    def env_steps(self) -> int:
        """T * B."""
        return self.num_steps * self.num_copies

    def agent_steps(self) -> int:
        """Steps of present agents."""
        return int(self.obs.present.sum())


def join_steps(steps: list[PackedObs]) -> PackedObs:
    """T observations of B copies as one of T * B team-steps, with `carry` naming its rows (-1 in the first step)."""
    joined = concatenate(steps)
    carry = joined.carry.copy()
    row = 0
    before = -1
    for obs in steps:
        members = slice(row, row + len(obs.present))
        carry[members] = np.where((obs.carry >= 0) & (before >= 0), obs.carry + before, -1)
        before, row = row, members.stop
    return replace(joined, carry=carry)
