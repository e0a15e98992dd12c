"""Foreign environments whose every moment is written down, in both conventions, and a crowd that comes and goes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv
from ray.rllib.env.multi_agent_env import MultiAgentEnv

from rl_openness.envs.base import NO_OP, OpenVectorEnv, StepResult

SPACE = gym.spaces.Box(-10.0, 1000.0, (2,), dtype=np.float32)
ACTIONS = gym.spaces.Discrete(3)


@dataclass
class Line:
    """One moment of a script: who has an observation now, and what became of the others."""

    here: str = ""
    """A letter for each agent that acts next."""
    pay: dict[str, float] = field(default_factory=dict)
    ends: str = ""
    """Agents that terminated,"""
    cut: str = ""
    """or were truncated;"""
    silent: str = ""
    """of both, those without a last observation."""
    over: bool = False
    """RLlib's `__all__`, terminated"""
    limit: bool = False
    """or truncated."""


def observation(time: int, name: str) -> np.ndarray:
    return np.array([time, ord(name) - ord("a")], dtype=np.float32)


class Script:
    """What both conventions share: the lines, the time, and the actions that were taken."""

    def __init__(self, lines: list[Line], names: str = "abc") -> None:
        self.lines, self.names = lines, list(names)
        self.time = 0
        self.taken: list[dict[str, Any]] = []

    def begin(self) -> Line:
        self.time = 0
        return self.lines[0]

    def advance(self, actions: dict[str, Any]) -> Line:
        self.taken.append(actions)
        self.time += 1
        return self.lines[self.time]

    def observations(self, line: Line) -> dict[str, np.ndarray]:
        done = [name for name in line.ends + line.cut if name not in line.silent]
        return {name: observation(self.time, name) for name in [*line.here, *done]}


class ScriptedParallel(ParallelEnv):
    """As PettingZoo has it: an episode is over when nobody is listed."""

    metadata: dict[str, Any] = {"name": "scripted"}  # noqa: RUF012

    def __init__(self, lines: list[Line], names: str = "abc") -> None:
        self.script = Script(lines, names)
        self.possible_agents = list(names)
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> gym.Space[Any]:
        return SPACE

    def action_space(self, agent: str) -> gym.Space[Any]:
        return ACTIONS

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        line = self.script.begin()
        self.agents = list(line.here)
        return self.script.observations(line), {}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        before = self.agents
        line = self.script.advance(actions)
        self.agents = list(line.here)
        known = dict.fromkeys([*before, *line.here, *line.ends, *line.cut])
        return (
            self.script.observations(line),
            dict.fromkeys(before, 0.0) | line.pay,
            {name: name in line.ends for name in known},
            {name: name in line.cut for name in known},
            {name: {} for name in known},
        )


class ScriptedMulti(MultiAgentEnv):
    """As RLlib has it: `__all__` says when an episode is over."""

    def __init__(self, lines: list[Line], names: str = "abc") -> None:
        super().__init__()
        self.script = Script(lines, names)
        self.possible_agents = list(names)
        self.observation_spaces = dict.fromkeys(names, SPACE)
        self.action_spaces = dict.fromkeys(names, ACTIONS)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.script.observations(self.script.begin()), {}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        line = self.script.advance(actions)
        return (
            self.script.observations(line),
            line.pay,
            {**dict.fromkeys(line.ends, True), "__all__": line.over},
            {**dict.fromkeys(line.cut, True), "__all__": line.limit},
            {},
        )


@dataclass
class Weather:
    """Chances of a step, shared by all copies of a crowd."""

    join: float = 0.3
    leave: float = 0.1
    vanish: float = 0.2
    back: float = 0.4
    end: float = 0.01
    paid: float = 0.0
    """All rewards that were ever paid."""


class Crowd(MultiAgentEnv):
    """Up to eight agents that join, leave, vanish without a flag and come back, and rewards that are whole numbers."""

    def __init__(self, weather: Weather) -> None:
        super().__init__()
        self.weather = weather
        self.possible_agents = [f"agent {number}" for number in range(8)]
        self.observation_spaces = dict.fromkeys(self.possible_agents, SPACE)
        self.action_spaces = dict.fromkeys(self.possible_agents, ACTIONS)

    def _here(self) -> dict[str, np.ndarray]:
        return {name: np.array([self.time, self.rng.random()], dtype=np.float32) for name in sorted(self.there)}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.rng, self.time = np.random.default_rng(seed), 0
        self.there, self.away = set(self.possible_agents[:2]), set()
        return self._here(), {}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        assert actions.keys() == self.there
        weather, rng = self.weather, self.rng
        self.time += 1
        pay = {name: float(rng.integers(0, 4)) for name in sorted(self.there | self.away)}
        weather.paid += sum(pay.values())
        ended = {name for name in sorted(self.there | self.away) if rng.random() < weather.leave}
        self.there -= ended
        self.away -= ended
        back = {name for name in sorted(self.away) if rng.random() < weather.back}
        gone = {name for name in sorted(self.there) if rng.random() < weather.vanish}
        self.there, self.away = (self.there - gone) | back, (self.away - back) | gone
        new = set(self.possible_agents) - self.there - self.away - ended
        self.there |= {name for name in sorted(new) if rng.random() < weather.join}
        over = bool(rng.random() < weather.end)
        kinds = {name: bool(rng.random() < 0.5) for name in sorted(ended)}
        last = {name: np.array([self.time, -1], dtype=np.float32) for name in ended if rng.random() < 0.7}
        return (
            {**self._here(), **last},
            pay,
            {**kinds, "__all__": over},
            {**{name: not kind for name, kind in kinds.items()}, "__all__": False},
            {},
        )


def play(env: OpenVectorEnv, action: int = 1) -> StepResult:
    return env.step(np.where(env.observe().present, action, NO_OP))
