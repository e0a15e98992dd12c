"""A small foreign world with tasks: couriers on a line who come and go, and parcels that appear and are picked up."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv

from rl_openness.envs.adapters.mapping import ObservationMapping

PARCELS, LENGTH = 4, 9
MAPPING = ObservationMapping(own=("me",), tasks="parcels", task_exists="waiting", pairs="distance")


class Errands(ParallelEnv):
    """Whoever chooses a parcel walks one step towards it and gets 1 on arrival; waiting costs the team 0.05 a parcel.

    `team` couriers take part; each may be away for a while. `filler` is what stands in rows that mean nothing.
    """

    metadata: dict[str, Any] = {"name": "errands"}  # noqa: RUF012

    def __init__(self, team: int = 3, steps: int = 20, filler: float = 0.0) -> None:
        self.team, self.steps, self.filler = team, steps, filler
        self.possible_agents = [f"courier {number}" for number in range(team)]
        box = gym.spaces.Box
        self.space = gym.spaces.Dict(
            {
                "me": box(0, LENGTH, (2,), np.float32),
                "parcels": box(-LENGTH, LENGTH, (PARCELS, 2), np.float32),
                "waiting": gym.spaces.MultiBinary(PARCELS),
                "distance": box(-2.0, 2.0, (PARCELS, 1), np.float32),
                "action_mask": gym.spaces.MultiBinary(PARCELS + 1),
            }
        )

    def observation_space(self, agent: str) -> gym.Space[Any]:
        return self.space

    def action_space(self, agent: str) -> gym.Space[Any]:
        return gym.spaces.Discrete(PARCELS + 1)

    def _observations(self) -> dict[str, Any]:
        waiting = self.parcel >= 0
        parcels = np.full((PARCELS, 2), self.filler, dtype=np.float32)
        parcels[waiting] = np.stack([self.parcel, self.age], axis=1)[waiting]
        found = {}
        for name in self.agents:
            distance = np.full((PARCELS, 1), self.filler, dtype=np.float32)
            distance[waiting, 0] = self.parcel[waiting] - self.place[name]
            found[name] = {
                "me": np.array([self.place[name], self.time / self.steps], dtype=np.float32),
                "parcels": parcels.copy(),
                "waiting": waiting.astype(np.int8),
                "distance": distance,
                "action_mask": np.append(1, waiting).astype(np.int8),
            }
        return found

    def _who_is_here(self) -> list[str]:
        here = [name for name in self.possible_agents if self.rng.random() < 0.8]
        return here or self.possible_agents[:1]

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.rng, self.time = np.random.default_rng(seed), 0
        self.place = {name: int(self.rng.integers(LENGTH)) for name in self.possible_agents}
        self.parcel, self.age = np.full(PARCELS, -1), np.zeros(PARCELS)
        self.parcel[:2] = self.rng.integers(0, LENGTH, 2)
        self.agents = self._who_is_here()
        return self._observations(), {}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        before, self.time = self.agents, self.time + 1
        rewards = dict.fromkeys(before, -0.05 * float((self.parcel >= 0).sum()) / len(before))
        for name, action in actions.items():
            slot = action - 1
            if action > 0 and self.parcel[slot] >= 0:
                self.place[name] += int(np.sign(self.parcel[slot] - self.place[name]))
                if self.place[name] == self.parcel[slot]:
                    rewards[name] += 1.0
                    self.parcel[slot] = -1
        self.age = np.where(self.parcel >= 0, self.age + 1, 0)
        free = np.flatnonzero(self.parcel < 0)
        if len(free) and self.rng.random() < 0.9:
            self.parcel[free[0]] = self.rng.integers(LENGTH)
        over = self.time == self.steps
        if not over:
            self.agents = self._who_is_here()
        observations = self._observations()
        if over:
            self.agents = []
        return observations, rewards, dict.fromkeys(before, False), dict.fromkeys(before, over), {}
