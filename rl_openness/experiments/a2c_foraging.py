"""The learned foraging teammate `a2c`: self-play by MAPPO, in place of the reference's unpublished actor-critic.

Its strength is told as the reference measures a learner's: mean return of the learner's own rewards over whole
episodes, here among the eight hand-written teammates, with each of these in the learner's place for comparison.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from rl_openness.algorithms.mappo.networks.actions import ActionDistribution, ActionsActor
from rl_openness.algorithms.mappo.networks.members import deciding
from rl_openness.envs.base import Int, PackedObs
from rl_openness.envs.draws import DecisionDraws
from rl_openness.envs.registry import make_environment
from rl_openness.experiments.process import use_one_thread
from rl_openness.experiments.self_play import learn_in_self_play
from rl_openness.experiments.strength import COPIES, Say, episodes_played, strength
from rl_openness.experiments.teammates import Request
from rl_openness.policies.base import Policy
from rl_openness.policies.checkpoint import load_policy
from rl_openness.policies.foraging import foraging_rules

ENVIRONMENT = {"team_size": 5, "slots": 5}
SETTINGS = {
    "rewards": "own",
    "num_envs_per_env_runner": 64,
    "train_batch_size_per_learner": 2048,
    "minibatch_size": 512,
    "num_epochs": 4,
    "lr": 5e-4,
    "gamma": 0.95,
    "entropy_coeff": 0.02,
}
TEAM_SIZE = 3


def learn(request: Request) -> Path:
    """See `teammates.Recipe`."""
    return learn_in_self_play(request, "foraging", ENVIRONMENT, "mappo", SETTINGS, rule="H1")


def measure(folder: Path, say: Say) -> dict[str, Any]:
    """Mean returns among H1 to H8, of the policy (sampling, as teammates do, and at its best) and of these."""
    use_one_thread()
    env = make_environment("foraging", COPIES, {"team_size": TEAM_SIZE, "teammates": list(foraging_rules())})
    sampled = _Watched(folder)
    players: dict[str, Policy] = {"a2c": sampled, "a2c, best action": Policy.load(folder)}
    return {
        "world": f"foraging, {TEAM_SIZE} agents, teammates H1 to H8, the policy in the learner's place",
        "episodes": episodes_played(),
        **strength(env, {**players, **foraging_rules()}, say=say),
        "entropy": round(float(np.mean(np.concatenate(sampled.entropy))), 3),
    }


class _Watched(Policy):
    """The policy as a teammate plays it, noting the entropy (nats) of each of its decisions."""

    name = "a2c"

    def __init__(self, folder: Path) -> None:
        self._policy = load_policy(folder, explore=True)
        self.entropy: list[NDArray[np.float32]] = []

    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> Int:
        """See `Policy.act`."""
        actor = cast(ActionsActor, self._policy.network)
        members = np.flatnonzero(deciding(obs))
        assert obs.action_mask is not None
        logits = torch.from_numpy(actor.logits(obs, members))
        self.entropy.append(ActionDistribution(logits, torch.from_numpy(obs.action_mask[members])).entropy().numpy())
        return self._policy.act(obs, draws)
