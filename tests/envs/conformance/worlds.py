"""Small environments that keep every rule; tests break one rule each."""

import gymnasium as gym
import numpy as np
from pettingzoo import ParallelEnv

from rl_openness.envs.adapters.options import BridgeOptions
from rl_openness.envs.conformance import check_foreign


class Meadow(ParallelEnv):
    """Two sheep for five steps; `b` joins in step 2, is away in step 3, and leaves for good in step 4."""

    metadata = {"name": "meadow"}  # noqa: RUF012
    possible_agents = ("a", "b")
    length = 5

    def __init__(self):
        box = gym.spaces.Box(0.0, 10.0, (2,), np.float32)
        self.spaces = {name: (box, gym.spaces.Discrete(3)) for name in self.possible_agents}

    def observation_space(self, name):
        return self.spaces[name][0]

    def action_space(self, name):
        return self.spaces[name][1]

    def reset(self, seed=None, options=None):
        self.rng = np.random.default_rng(seed)
        self.step_number, self.agents = 0, ["a"]
        return self.seen(), {}

    def seen(self):
        return {name: self.look(name) for name in self.agents}

    def look(self, name):
        return np.array([self.step_number, self.rng.uniform()], dtype=np.float32)

    def refuse(self, actions):
        for name, action in actions.items():
            if not self.action_space(name).contains(action):
                raise ValueError(f"{action} is no action of {name}")

    def step(self, actions):
        if not self.agents:
            return {}, {}, {}, {}, {}
        self.refuse(actions)
        self.step_number += 1
        acted = list(self.agents)
        self.agents = ["a", "b"] if self.step_number in (2, 4) else ["a"]
        here = sorted({*acted, *self.agents})
        seen = self.seen()
        gone = {"b"} if self.step_number == 4 else set()
        self.agents = [name for name in self.agents if name not in gone]
        over = self.step_number == self.length
        flags = {name: name in gone for name in here}, dict.fromkeys(here, over)
        if over:
            self.agents = []
        return seen, dict.fromkeys(here, 1.0), *flags, {}


def rllib_meadow():
    """The same as an RLlib class: `a` always, `b` in steps 2 and 4, where it ends."""
    from ray.rllib.env.multi_agent_env import MultiAgentEnv

    class RllibMeadow(MultiAgentEnv):
        possible_agents = ("a", "b")

        def __init__(self, config=None):
            super().__init__()
            box = gym.spaces.Box(0.0, 10.0, (2,), np.float32)
            self.observation_spaces = dict.fromkeys(self.possible_agents, box)
            self.action_spaces = {name: gym.spaces.Discrete(3) for name in self.possible_agents}

        def reset(self, *, seed=None, options=None):
            self.rng = np.random.default_rng(seed)
            self.step_number = 0
            return {"a": self.look()}, {}

        def look(self):
            return np.array([self.step_number, self.rng.uniform()], dtype=np.float32)

        def step(self, actions):
            for name, action in actions.items():
                if not self.action_spaces[name].contains(action):
                    raise ValueError(f"{action} is no action of {name}")
            if self.step_number == 5:
                raise ValueError("over")
            self.step_number += 1
            names = ["a", "b"] if self.step_number in (2, 4) else ["a"]
            seen = {name: self.look() for name in names}
            terminated = {"b": self.step_number == 4} if "b" in names else {}
            end = self.step_number == 5
            return seen, dict.fromkeys(names, 1.0), {**terminated, "__all__": False}, {"__all__": end}, {}

    return RllibMeadow


def check(kind, **options):
    return check_foreign(kind, BridgeOptions(**options), episodes=2, steps=20)


def only(report):
    """The one finding."""
    (finding,) = report.findings
    return finding


def expect(report, severity, kind, agent, step, text, seed=0):
    found = {each.kind: each for each in report.findings}
    assert kind in found, report.findings
    finding = found[kind]
    assert (finding.severity, finding.agent, finding.step, finding.seed) == (severity, agent, step, seed)
    assert text in finding.text
    assert finding.remedy.endswith((".", ".)"))
    return finding
