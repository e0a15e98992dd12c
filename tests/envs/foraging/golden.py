"""Reading the foraging records: files, states as kernels know them, and what must hold for every state."""

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rl_openness.envs.foraging import ForagingConfig
from rl_openness.envs.foraging.rules import COL, ID, LEVEL, PREVIOUS, ROW, SLOT, TYPE, State
from rl_openness.envs.foraging.state import empty_state
from tests.conftest import golden_dir

Json = dict[str, Any]

TYPES = ["H1", "H2", "H3", "H4", "H5", "H6", "H7", "H8", "A2C0"]
"""The reference's types, numbered as the rules are."""


def files(pattern: str) -> list[Path]:
    found = sorted(golden_dir("oaht").glob(pattern))
    assert found, pattern
    return found


def load(file: Path) -> Json:
    data: Json = json.loads(gzip.decompress(file.read_bytes()))
    assert data["env"] == "lbf"
    return data


def config_of(data: Json) -> ForagingConfig:
    """The world of a file (`max_level` is exclusive there)."""
    recorded = data["config"]
    assert recorded.get("max_level", 3) == 3
    assert recorded.get("max_steps", 50) == 50
    return ForagingConfig(slots=recorded["slots"], team_size=recorded["max_active"])


def transitions(data: Json) -> Iterator[tuple[Json, Json]]:
    """Every recorded step with the state before it."""
    for episode in data["episodes"]:
        state = episode["start"]
        for step in episode["steps"]:
            yield state, step
            state = step["next"]


def put_foods(state: State, b: int, foods: Sequence[Sequence[int]]) -> None:
    state.food[b] = 0
    state.num_foods[b] = len(foods)
    state.food[b, : len(foods)] = np.reshape(foods, (-1, 3))


def put_player(state: State, b: int, slot: int, player: Sequence[Any]) -> None:
    """Row, column, level and type of the member in that slot."""
    k = [int(member[SLOT]) for member in state.member[b, : state.num_members[b]]].index(slot)
    kind = -1 if player[3] is None else TYPES.index(player[3])
    state.member[b, k, [ROW, COL, LEVEL, TYPE]] = [*player[:3], kind]


def recorded_state(config: ForagingConfig, records: Sequence[Json]) -> State:
    """One copy per recorded STATE."""
    state = empty_state(len(records), config.slots, config.max_food)
    for b, record in enumerate(records):
        state.step[b] = record["t"]
        state.span[b] = record["span"]
        state.num_members[b] = state.next_id[b] = len(record["order"])
        put_foods(state, b, record["foods"])
        for k, slot in enumerate(record["order"]):
            state.member[b, k, [SLOT, ID, PREVIOUS]] = [slot, k, -1]
            put_player(state, b, slot, record["players"][slot])
    return state


def listed(state: State, b: int, column: int) -> list[int]:
    """A column of the copy's members, in listing order."""
    values: list[int] = state.member[b, : state.num_members[b], column].tolist()
    return values


def check_start(config: ForagingConfig, players: np.ndarray, foods: np.ndarray) -> None:
    """A start as the reference makes them: `players` and `foods` are rows (row, column, level)."""
    assert len(players) == config.team_size
    assert len(foods) <= config.max_food
    cells = [tuple(cell) for cell in [*players[:, :2].tolist(), *foods[:, :2].tolist()]]
    assert len(set(cells)) == len(cells)
    assert players[:, :2].min() >= 0
    assert players[:, :2].max() < config.spawn_size
    assert 1 <= players[:, 2].min() <= players[:, 2].max() <= config.max_level
    assert foods[:, :2].min() >= 1
    assert foods[:, :2].max() <= config.size - 2
    assert 1 <= foods[:, 2].min() <= foods[:, 2].max() < players[:, 2].sum()
    order = foods[:, 0] * config.size + foods[:, 1]
    assert (np.diff(order) > 0).all()
    apart = np.abs(foods[:, None, :2] - foods[None, :, :2]).sum(axis=-1)  # two foods never touch the same cell
    assert (apart[~np.eye(len(foods), dtype=bool)] > 2).all()
