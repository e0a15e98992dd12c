"""The learned prey of Wolfpack, `dqn`: trained to get away from the hand-written predators.

Who hunts in training: all seven heuristics, one of them in the learner's place too, one to five at a time. How strong
it is, is told as captures per episode, beside the built-in prey in the same episodes: fewer are better for a prey.
"""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rl_openness.envs.base import Int, OpenVectorEnv
from rl_openness.envs.draws import child_seeds
from rl_openness.envs.registry import make_environment
from rl_openness.envs.wolfpack import WolfpackConfig
from rl_openness.envs.wolfpack.view import wolfpack_spec
from rl_openness.errors import StoppedError
from rl_openness.evaluation.rollout import play_episodes
from rl_openness.experiments.prey_dqn import DoubleDQN, ExploringPrey, Replay
from rl_openness.experiments.process import stop_on_signal, use_one_thread
from rl_openness.experiments.strength import FIRST_SEED, Say, mean_and_error
from rl_openness.experiments.teammates import Request
from rl_openness.experiments.train import Progress
from rl_openness.policies.card import PREY, PolicyCard
from rl_openness.policies.checkpoint import save_policy
from rl_openness.policies.prey_network import HIDDEN, PreyNetwork
from rl_openness.policies.wolfpack import HEURISTICS, WolfpackRule, make_wolfpack_rule

ENVIRONMENT: dict[str, Any] = {"team_size": 5, "slots": 5, "teammates": list(HEURISTICS)}
COPIES = 64
SETTINGS: dict[str, Any] = {
    "hidden": HIDDEN,
    "gamma": 0.985,
    "lr": [1e-3, 1e-4],
    "tau": 0.005,
    "max_grad_norm": 10.0,
    "batch_size": 256,
    "updates_per_step": 1,
    "replay_steps": 200_000,
    "learning_starts": 10_000,
    "epsilon": [1.0, 0.02],
    "epsilon_share": 0.3,
}
"""`lr` falls linearly over the whole training, `epsilon` over its first `epsilon_share`; `replay_steps` and
`learning_starts` count environment steps, an update comes with every step of all `COPIES`."""
REPORT_EVERY = 64
EPISODES = 400
TEAM_SIZES, LEARNERS = (3, 5), ("greedy", "random")


def learn(request: Request) -> Path:
    """See `teammates.Recipe`."""
    use_one_thread()
    torch.manual_seed(request.seed)
    training = _Training(request)
    with stop_on_signal() as stop:
        while training.env_steps < request.env_steps:
            training.step()
            if stop.requested:
                raise StoppedError("stopped before the training was done; nothing was kept")
    config = WolfpackConfig(team_size=ENVIRONMENT["team_size"], slots=ENVIRONMENT["slots"])
    card = PolicyCard(
        method=PREY,
        settings=SETTINGS,
        env_spec=wolfpack_spec(config),
        environment="wolfpack",
        env_config=ENVIRONMENT,
        env_steps=training.env_steps,
        seed=request.seed,
    )
    save_policy(request.folder / "prey", card, training.network)
    return request.folder / "prey"


class _Training:
    """One training from its first step on."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._generator = np.random.default_rng(request.seed)
        self.network = PreyNetwork(SETTINGS["hidden"])
        names = ("gamma", "tau", "max_grad_norm")
        self._dqn = DoubleDQN(self.network, lr=SETTINGS["lr"][0], **{name: SETTINGS[name] for name in names})
        num_prey = WolfpackConfig().num_prey
        self._prey = ExploringPrey(self.network, COPIES, num_prey, ENVIRONMENT["team_size"], self._generator)
        self._env = make_environment("wolfpack", COPIES, {**ENVIRONMENT, "prey_policy": self._prey})
        self._env.reset(child_seeds(request.seed, count=COPIES))
        self._replay = Replay(SETTINGS["replay_steps"] // COPIES, self._prey.memory.shape)
        self._prey.replay = self._replay
        self._captures = np.zeros(COPIES, dtype=np.int64)
        self._last_captures: deque[int] = deque(maxlen=100)
        self._start: tuple[float, int] | None = None
        self._episodes = 0
        self.env_steps = 0

    def step(self) -> None:
        """One step of all copies, and what is learnt in it."""
        done = self.env_steps / self._request.env_steps
        (start, end), share = SETTINGS["epsilon"], SETTINGS["epsilon_share"]
        self._prey.epsilon = start + (end - start) * min(done / share, 1.0)
        result = self._env.step(learner_rules(self._env, self._episodes))
        self._captures += result.events["captures"]
        if len(result.ended):
            self._last_captures.extend(self._captures[result.ended].tolist())
            self._captures[result.ended] = 0
            self._episodes += 1
        self.env_steps += COPIES
        if self.env_steps >= SETTINGS["learning_starts"]:
            first, last = SETTINGS["lr"]
            self._dqn.set_lr(first + (last - first) * done)
            for _ in range(SETTINGS["updates_per_step"]):
                self._dqn.update(self._replay.sample(SETTINGS["batch_size"], self._generator))
            self._prey.refresh()
        if self.env_steps // COPIES % REPORT_EVERY == 0 or self.env_steps >= self._request.env_steps:
            self._report()

    def _report(self) -> None:
        """The return is a prey's: minus the captures of both."""
        now = time.perf_counter()
        speed = (self.env_steps - self._start[1]) / (now - self._start[0]) if self._start else None
        self._start = self._start or (now, self.env_steps)
        won = -float(np.mean(self._last_captures)) if self._last_captures else None
        iteration = self.env_steps // COPIES
        self._request.report(Progress(iteration, self.env_steps, self._request.env_steps, speed, won))


def learner_rules(env: OpenVectorEnv, episode: int) -> Int:
    """Choices [M] that put a heuristic in the learner's place of every copy, another one in every episode."""
    obs = env.observe()
    assert obs.controlled is not None
    kinds = np.where(obs.controlled, (obs.agent_copy + episode) % len(HEURISTICS), -1)
    return WolfpackRule.decide(obs, kinds, env.draws())


def measure(folder: Path, say: Say) -> dict[str, Any]:
    """Captures per episode with this prey and the built-in ones, by greatest number of agents and learner."""
    use_one_thread()
    seeds = np.arange(FIRST_SEED, FIRST_SEED + EPISODES)
    captures: dict[str, dict[str, dict[str, float]]] = {}
    for team_size in TEAM_SIZES:
        for learner in LEARNERS:
            row = captures.setdefault(f"{team_size} agents, {learner} learner", {})
            for name, prey in {"dqn": str(folder), "evader": "evader", "random": "random"}.items():
                options = {"team_size": team_size, "slots": 5, "teammates": list(HEURISTICS), "prey": prey}
                table = play_episodes(make_environment("wolfpack", COPIES, options), make_wolfpack_rule(learner), seeds)
                row[name] = mean_and_error(table["captures"])
                say(f"  {name}, {team_size} agents, {learner} learner: {row[name]['mean']:.2f} captures an episode")
    return {
        "reward": "-1 when caught, else 0; a life is an episode",
        "world": "wolfpack, 10 x 10, 2 prey, 200 steps, the seven heuristics as teammates",
        "episodes": f"{EPISODES} a number, of seeds {FIRST_SEED} on",
        "captures": captures,
    }
