"""Steps a batched environment with a network and collects rollouts. No Ray in here, so it is tested without."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_openness.envs.base import Bool, Int, OpenVectorEnv, PackedObs, StepResult, concatenate
from rl_openness.nn.acting import Decider
from rl_openness.rllib.chunk import RolloutChunk, join_steps

EPISODE_WINDOW = 100
"""Finished episodes that the reported means cover."""


class Sampler:
    """Owns the environment, the memory of its members, and the books on running episodes.

    `state()` and `set_state()` make sampling continue exactly: observations are derived from the environment's state,
    and all randomness is counter-based. `agent_rewards`: chunks also hold every member's own rewards.
    """

    def __init__(self, env: OpenVectorEnv, *, window: int, source: int = 0, agent_rewards: bool = False) -> None:
        self.env, self.window, self.source, self.agent_rewards = env, window, source, agent_rewards
        self.failures = 0
        """Fragments that were dropped because their copy's environment raised."""
        self.restart()

    def restart(self, seeds: NDArray[np.int64] | None = None) -> None:
        """Begin new episodes in all copies."""
        self.env.reset(seeds)
        self._obs = self.env.observe()
        self._memory: torch.Tensor | None = None
        self._returns = np.zeros(self.env.num_copies)
        self._lengths = np.zeros(self.env.num_copies, dtype=np.int64)
        self._events: dict[str, NDArray[np.int64]] = {}
        self._finished: list[tuple[int, dict[str, float]]] = []
        self._recent: list[dict[str, float]] = []

    def collect(self, network: Decider, num_steps: int, *, explore: bool = True) -> RolloutChunk:
        """`num_steps` steps of all copies; those in which the environment raised are left out (and may be all)."""
        steps: list[PackedObs] = []
        choices, log_probs, rewards, terminated, truncated, memories = [], [], [], [], [], []
        own_rewards = []
        parted: list[PackedObs | None] = []
        finals: list[PackedObs] = []
        final_steps: list[NDArray[np.int64]] = []
        copies = self.env.num_copies
        failed = np.zeros(copies, dtype=np.bool_)
        draws = self.env.draws()
        begins = draws.keys
        for t in range(num_steps):
            decision = network.act(self._obs, draws, self._memory, explore=explore)
            if decision.memory_in is not None and t % self.window == 0:
                memories.append(decision.memory_in.numpy())
            result = self.env.step(decision.choices)
            steps.append(self._obs)
            choices.append(decision.choices if result.labels is None else result.labels)
            log_probs.append(decision.log_probs)
            rewards.append(result.team_reward)
            own_rewards.append(result.agent_reward)
            terminated.append(result.terminated)
            truncated.append(result.truncated)
            if result.final_obs is not None:
                cut = np.flatnonzero((result.truncated & ~result.terminated)[result.ended])
                if len(cut):
                    finals.append(result.final_obs.select(cut))
                    final_steps.append(t * copies + result.ended[cut])
            self._keep_books(result)
            parted.append(result.parted)
            if result.failed is not None:
                failed[result.failed] = True
            self._obs, self._memory, draws = self.env.observe(), decision.memory, self.env.draws()
        chunk = RolloutChunk(
            num_steps=num_steps,
            num_copies=copies,
            obs=join_steps(steps),
            choices=np.concatenate(choices),
            log_probs=np.concatenate(log_probs),
            team_reward=np.stack(rewards),
            terminated=np.stack(terminated),
            truncated=np.stack(truncated),
            boot=self._obs,
            final=concatenate(finals) if finals else None,
            final_step=np.concatenate(final_steps) if final_steps else np.empty(0, dtype=np.int64),
            window=self.window,
            memory=np.concatenate(memories) if memories else None,
            agent_reward=np.concatenate(own_rewards) if self.agent_rewards else None,
            parted=_parted(parted, steps),
            begins=begins,
            goes_on=draws.keys,
            source=self.source,
        )
        self.failures += int(failed.sum())
        return chunk.select_copies(np.flatnonzero(~failed)) if failed.any() else chunk

    def _keep_books(self, result: StepResult) -> None:
        self._returns += result.team_reward
        self._lengths += 1
        for name, counts in result.events.items():
            self._events[name] = self._events.get(name, 0) + counts
        for copy in result.ended:
            events = {name: float(counts[copy]) for name, counts in self._events.items()}
            episode = {"return": float(self._returns[copy]), "length": float(self._lengths[copy]), **events}
            self._finished.append((int(copy), episode))
        self._forget(result.ended)
        if result.failed is not None:
            self._forget(result.failed)

    def _forget(self, copies: Int | Bool) -> None:
        """What was counted of the running episodes of some copies."""
        for total in (self._returns, self._lengths, *self._events.values()):
            total[copies] = 0

    def finished_episodes(self) -> list[tuple[int, dict[str, float]]]:
        """Episodes that ended since the last call: their copy, and return, length and the sum of every event."""
        finished, self._finished = self._finished, []
        self._recent = (self._recent + [episode for _, episode in finished])[-EPISODE_WINDOW:]
        return finished

    def recent_means(self) -> dict[str, float]:
        """Means over the last `EPISODE_WINDOW` finished episodes; empty before the first one ended."""
        names = self._recent[0] if self._recent else ()
        return {name: float(np.mean([episode[name] for episode in self._recent])) for name in names}

    def state(self) -> dict[str, Any]:
        """Plain arrays in nested dictionaries."""
        return {
            "env": self.env.get_state(),
            "memory": None if self._memory is None else self._memory.numpy().copy(),
            "returns": self._returns.copy(),
            "lengths": self._lengths.copy(),
            "events": {name: counts.copy() for name, counts in self._events.items()},
            "recent": [dict(episode) for episode in self._recent],
        }

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Inverse of `state`."""
        self.env.set_state(state["env"])
        self._obs = self.env.observe()
        memory, copies = state["memory"], (self.env.num_copies,)
        for name, array in {"returns": state["returns"], "lengths": state["lengths"], **state["events"]}.items():
            if np.shape(array) != copies:
                raise ValueError(f"{name} must have shape {copies}, found {np.shape(array)}")
        if memory is not None and (np.ndim(memory) != 2 or len(memory) <= self._obs.carry.max(initial=-1)):
            raise ValueError(f"memory of shape {np.shape(memory)} lacks rows of members that go on")
        self._memory = None if memory is None else torch.from_numpy(np.array(memory))
        self._returns = np.array(state["returns"])
        self._lengths = np.array(state["lengths"])
        self._events = {name: np.array(counts) for name, counts in state["events"].items()}
        if self.env.anew is not None:
            self._forget(self.env.anew)
        self._finished = []
        self._recent = [dict(episode) for episode in state["recent"]]


def _parted(found: Sequence[PackedObs | None], steps: Sequence[PackedObs]) -> PackedObs | None:
    """`StepResult.parted` of all team-steps, None if nobody was cut off."""
    if all(each is None for each in found):
        return None
    nowhere = np.zeros(steps[0].num_copies + 1, dtype=np.int64)
    none = replace(steps[0].select(np.empty(0, dtype=np.int64)), agent_ptr=nowhere, task_ptr=nowhere)
    return concatenate([none if each is None else each for each in found])
