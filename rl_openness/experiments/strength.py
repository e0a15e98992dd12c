"""How strong learned teammates are, beside hand-written ones in the same place: numbers for their cards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from rl_openness.envs.base import OpenVectorEnv
from rl_openness.envs.registry import make_environment
from rl_openness.evaluation.rollout import play_episodes
from rl_openness.policies.base import Policy
from rl_openness.policies.wolfpack import HEURISTICS, wolfpack_rules

FIRST_SEED, EPISODES = 500_000, 500
Say = Callable[[str], None]
"""To call with a line of text."""
COPIES = 64
"""Episodes played at once; has no influence on results."""
TEAM_SIZES = (3, 5)
"""Most predators at a time, in Wolfpack."""


def _silent(text: str) -> None:
    pass


def episodes_played() -> str:
    """What cards say about them."""
    return f"{EPISODES}, of seeds {FIRST_SEED} on"


def strength(
    env: OpenVectorEnv, players: Mapping[str, Policy], columns: Sequence[str] = ("return",), *, say: Say = _silent
) -> dict[str, dict[str, Any]]:
    """Of each column of `play_episodes`: mean and standard error by player, all on the same episodes.

    `say` is called with a line of text for each player.
    """
    seeds = np.arange(FIRST_SEED, FIRST_SEED + EPISODES)
    numbers: dict[str, dict[str, Any]] = {column: {} for column in columns}
    for name, policy in players.items():
        table = play_episodes(env, policy, seeds)
        say(f"  {name} in {env.spec.name}: return {table['return'].mean():.2f}, mean of {EPISODES} episodes")
        for column in columns:
            numbers[column][name] = mean_and_error(table[column])
    return numbers


def mean_and_error(column: pd.Series[Any]) -> dict[str, float]:
    """Mean and standard error, as cards show them."""
    values = column.to_numpy(dtype=np.float64)
    error = float(values.std(ddof=1)) / len(values) ** 0.5
    return {"mean": round(float(values.mean()), 3), "standard_error": round(error, 3)}


def among_heuristics(players: Mapping[str, Policy], say: Say) -> list[dict[str, Any]]:
    """Players and all rules of Wolfpack in the learner's place, among the seven heuristics."""
    worlds = []
    for size in TEAM_SIZES:
        say(f"among the heuristics, {size} agents:")
        env = make_environment("wolfpack", COPIES, {"team_size": size, "teammates": list(HEURISTICS)})
        where = f"wolfpack, {size} agents, the seven heuristics as teammates, the policy in the learner's place"
        numbers = strength(env, {**players, **wolfpack_rules()}, ("return", "captures"), say=say)
        worlds.append({"world": where, **numbers})
    return worlds


def in_self_play(players: Mapping[str, Policy], say: Say) -> list[dict[str, Any]]:
    """Players and all rules of Wolfpack in everybody's place; returns are the team's."""
    worlds = []
    for size in TEAM_SIZES:
        say(f"in self-play, {size} agents:")
        env = make_environment("wolfpack", COPIES, {"team_size": size, "controlled": "all"})
        where = f"wolfpack, {size} agents, the policy in everybody's place, rewards of the whole team"
        numbers = strength(env, {**players, **wolfpack_rules()}, ("return", "captures"), say=say)
        worlds.append({"world": where, **numbers})
    return worlds
