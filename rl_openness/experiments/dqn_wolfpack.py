"""The learned Wolfpack teammate `dqn`: a graph Q-network with memory on the team's reward, in place of the reference's.

It is our GPL learner in self-play. Every member acts by the same network, seeing itself as the learner; the Q-value of
the joint action is learnt from the first member's view, the only one that is always there, and everybody's actions are
the agent model's labels. The reward is the sum over the team.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_openness.experiments.process import use_one_thread
from rl_openness.experiments.self_play import learn_in_self_play
from rl_openness.experiments.strength import Say, among_heuristics, episodes_played, in_self_play
from rl_openness.experiments.teammates import Request
from rl_openness.policies.base import Policy

ENVIRONMENT = {"team_size": 5, "slots": 5}
SETTINGS: dict[str, Any] = {  # smaller layers than GPL's, for the weights' file, and a faster target for a shorter run
    "num_envs_per_env_runner": 32,
    "horizon_as_terminal": False,
    "encoder_hidden": 64,
    "recurrent_hidden": 64,
    "type_width": 48,
    "utility_hidden": 48,
    "lr": 5e-4,
    "tau": 5e-3,
    "updates_per_iteration": 16,
}
EXPLORED, EPSILON = 0.6, 0.05
"""Random actions decline from all to this share, over so much of the run."""


def learn(request: Request) -> Path:
    """See `teammates.Recipe`."""
    settings = {**SETTINGS, "epsilon": [[0, 1.0], [EXPLORED * request.env_steps, EPSILON]]}
    return learn_in_self_play(request, "wolfpack", ENVIRONMENT, "gpl", settings, rule="random")


def measure(folder: Path, say: Say) -> dict[str, Any]:
    """Returns and captures beside those of all rules: by its best action, as teammates play it, and as in training.

    The second is stronger among its like: where nobody ever acts at random, two can block each other for long.
    """
    use_one_thread()
    players: dict[str, Policy] = {
        "dqn": Policy.load(folder),
        f"dqn, {EPSILON:.0%} random actions": Policy.load(folder, explore=True),
    }
    strength = [*among_heuristics(players, say), *in_self_play(players, say)]
    return {"episodes": episodes_played(), "strength": strength}
