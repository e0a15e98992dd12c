"""The recorded Wolfpack files, read into the arrays that the kernels take."""

import gzip
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from rl_openness.envs.wolfpack.config import WolfpackConfig
from rl_openness.envs.wolfpack.env import compile_rules
from rl_openness.envs.wolfpack.rules import Rules, State
from rl_openness.envs.wolfpack.state import empty_state
from tests.conftest import golden_dir

Json = dict[str, Any]

TYPES = {
    "RandomAgent": "random",
    "GreedyPredatorAgent": "greedy",
    "GreedyProbabilisticAgent": "greedy_probabilistic",
    "TeammateAwarePredator": "teammate_aware",
    "GreedyWaitingAgent": "greedy_waiting",
    "GreedyProbabilisticWaitingAgent": "greedy_probabilistic_waiting",
    "TeammateAwareWaitingAgent": "teammate_aware_waiting",
    "DistilledCoopAStarAgent": "",
    "GraphDQNAgent": "",
}
"""The reference's names of the nine types -> ours; the two networks have no rule."""
NUMBER = {name: number for number, name in enumerate(TYPES)}


def files(kind: str) -> list[str]:
    """Names of the recorded files of a kind: trace, draws or teammates."""
    found = sorted(file.name for file in golden_dir("oaht").glob(f"wolf_{kind}_*.json.gz"))
    assert found, f"no recorded wolf_{kind}_* files"
    return found


@cache
def load(name: str) -> Json:
    data: Json = json.loads(gzip.decompress((golden_dir("oaht") / name).read_bytes()))
    return data


def world(case: Json) -> WolfpackConfig:
    """The configuration that a file was recorded with."""
    config = case["config"]
    return WolfpackConfig(
        size=config["rows"],
        num_prey=config["prey"],
        max_steps=config["max_steps"],
        slots=config["slots"],
        team_size=config["max_active"],
        start_size=config["start"],
        close_penalty=config["close_penalty"],
    )


def build(case: Json) -> tuple[Rules, State]:
    """All episodes of a file as copies, at their start."""
    config = world(case)
    state = empty_state(config, len(case["episodes"]))
    for b, episode in enumerate(case["episodes"]):
        put(state, b, episode["start"])
    return compile_rules(config, len(TYPES)), state


def put(state: State, b: int, recorded: Json) -> None:
    """Make copy b the recorded state; its members are new."""
    n = len(recorded["pred"])
    state.members[b], state.next_id[b] = n, n
    state.row[b, :n], state.col[b, :n] = np.transpose(recorded["pred"])
    state.prey_row[b], state.prey_col[b] = np.transpose(recorded["prey"])
    state.facing[b], state.alive[b] = recorded["face"], recorded["alive"]
    state.agent_id[b, :n] = np.arange(n)
    state.age[b, 1:n] = recorded["alive_time"]
    state.carry[b, :n] = state.type[b, 0] = -1
    for i, member in enumerate(recorded["team"]):
        state.type[b, i + 1], state.radius[b, i + 1], state.threshold[b, i + 1] = traits(member)


def traits(member: list[Any]) -> tuple[int, int, int]:
    """Type, radius and threshold of a recorded teammate; zeros where it has none."""
    radius, threshold = member[1:] or (0, 0)
    return NUMBER[member[0]], radius, threshold


def steps(case: Json) -> Iterator[list[Json]]:
    """Per time step, what was recorded in each copy."""
    yield from map(list, zip(*(episode["steps"] for episode in case["episodes"]), strict=True))
