"""Replay of recorded foraging: moves, clashes, loading, rewards, listings, observations; ranges of what is drawn."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rl_openness.envs.base import NO_OP, Int, PackedObs
from rl_openness.envs.draws import DecisionDraws
from rl_openness.envs.foraging import ForagingConfig, ForagingEnv
from rl_openness.envs.foraging.env import compile_rules
from rl_openness.envs.foraging.rules import COL, EVENTS, FOODS, JOINS, LEAVES, ROW, SLOT, Outcome, State, play_step
from rl_openness.envs.foraging.team import join, leave
from rl_openness.envs.foraging.view import pack
from rl_openness.envs.ragged import pointer
from tests.envs.foraging.golden import (
    TYPES,
    Json,
    check_start,
    config_of,
    files,
    listed,
    load,
    put_player,
    recorded_state,
    transitions,
)

ROOT = Path(__file__).parents[3]
TRACES = [*files("lbf_trace_*.json.gz"), *files("lbf_draws_*.json.gz")]
each_trace = pytest.mark.parametrize("file", TRACES, ids=[file.name.removesuffix(".json.gz") for file in TRACES])


class Scripted:
    """Teammates that do what was recorded."""

    num_types = len(TYPES)

    def __init__(self, actions: Int) -> None:
        self.actions = actions

    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> Int:
        return self.actions

    def get_state(self) -> dict[str, np.ndarray]:
        return {}

    def set_state(self, state: object) -> None:
        pass


def chosen(records: list[tuple[Json, Json]]) -> Int:
    """Recorded actions in listing order, all steps one after another."""
    return np.array([step["raw"][slot] for state, step in records for slot in state["order"]], dtype=np.int64)


def padded(rows: np.ndarray, length: int, filler: list[int]) -> list[int]:
    return [*rows.astype(int).ravel().tolist(), *filler * (length - len(rows))]


def check_observation(config: ForagingConfig, obs: PackedObs, recorded: Json) -> None:
    """The observation of one copy against the reference's vectors."""
    assert padded(obs.task_rows, config.max_food, [-1, -1, 0]) == recorded["food_info"]
    assert padded(obs.agent_rows[:, :3], config.slots, [-1, -1, 0]) == recorded["player_info"]
    assert [len(obs.present)] == recorded["num_player"]


def outcome(state: State, members: int) -> Outcome:
    copies = len(state.step)
    return Outcome(
        team_reward=np.zeros(copies),
        agent_reward=np.zeros(members),
        terminated=np.zeros(copies, dtype=np.bool_),
        truncated=np.zeros(copies, dtype=np.bool_),
        events=np.zeros((len(EVENTS), copies), dtype=np.int64),
    )


def marked(config: ForagingConfig, records: list[tuple[Json, Json]], key: str) -> np.ndarray:
    """[steps, S] the slots that a record names."""
    mask = np.zeros((len(records), config.slots), dtype=np.bool_)
    for b, (_, step) in enumerate(records):
        mask[b, step[key]] = True
    return mask


@each_trace
def test_every_step_replays(file: Path) -> None:
    """Each recorded step is a copy of its own: set its state, play the recorded actions, force who leaves and joins."""
    data = load(file)
    config, records = config_of(data), list(transitions(data))
    rules = compile_rules(config, len(TYPES))
    state = recorded_state(config, [before for before, _ in records])
    every = np.arange(len(records))
    labels, agent_ptr = chosen(records), pointer(state.num_members)
    obs = pack(config, state, every)
    for b, (before, step) in enumerate(records):
        mask = obs.action_mask[agent_ptr[b] : agent_ptr[b + 1]]
        assert [np.flatnonzero(row).tolist() for row in mask] == [step["valid"][slot] for slot in before["order"]]

    out = outcome(state, len(labels))
    play_step(rules, state, agent_ptr, obs.action_mask, labels, out)
    for b, (before, step) in enumerate(records):
        where = state.member[b, : state.num_members[b]][:, [ROW, COL]].tolist()
        assert where == [step["moved"][slot] for slot in before["order"]]
        assert state.food[b, : state.num_foods[b]].tolist() == step["foods"]
        reward = out.agent_reward[agent_ptr[b] : agent_ptr[b + 1]].tolist()
        assert reward == [step["rew"][slot] for slot in before["order"]]
        assert out.team_reward[b] == step["learner_reward"]
        assert (out.terminated[b] or out.truncated[b]) == step["done"]
        assert out.terminated[b] == (not step["foods"])
        assert out.events[FOODS, b] == len(before["foods"]) - len(step["foods"])

    with np.errstate(over="ignore"):
        leave(rules, state, marked(config, records, "left"), out)
        join(rules, state, marked(config, records, "joined"), out)
    for b, (_, step) in enumerate(records):
        for slot in step["joined"]:
            put_player(state, b, slot, step["next"]["players"][slot])
    after = pack(config, state, every)
    for b, (before, step) in enumerate(records):
        assert state.step[b] == step["next"]["t"]
        assert listed(state, b, SLOT) == step["next"]["order"]
        assert out.events[LEAVES, b] == len(step["left"])
        assert out.events[JOINS, b] == len(step["joined"])
        one = after.select(np.array([b]))
        check_observation(config, one, step["obs"])
        stays = np.isin(np.arange(agent_ptr[b], agent_ptr[b + 1]), one.carry).astype(int)
        assert padded(stays, config.slots, [-1]) == step["obs"]["player_filter"]
        assert (
            padded(labels[agent_ptr[b] + 1 : agent_ptr[b + 1]], config.slots - 1, [-1]) == step["obs"]["prev_actions"]
        )
        kept = one.carry >= 0
        assert one.agent_id[kept].tolist() == (one.carry[kept] - agent_ptr[b]).tolist()
        assert (one.agent_id[~kept] >= len(before["order"])).all()


@each_trace
def test_the_environment_steps_so_too(file: Path) -> None:
    """The whole step with scripted teammates: labels, rewards and ends; a new episode carries nobody over."""
    data = load(file)
    config, records = config_of(data), list(transitions(data))
    labels = chosen(records)
    env = ForagingEnv(config, len(records), Scripted(labels))
    env.set_state({**env.get_state(), **recorded_state(config, [before for before, _ in records])._asdict()})
    before = env.observe()
    result = env.step(np.where(before.controlled, labels, NO_OP))
    after, final = env.observe(), result.final_obs
    np.testing.assert_array_equal(result.labels, labels)
    np.testing.assert_array_equal(result.team_reward, [step["learner_reward"] for _, step in records])
    reward = [step["rew"][slot] for state, step in records for slot in state["order"]]
    np.testing.assert_array_equal(result.agent_reward, reward)
    done = np.array([step["done"] for _, step in records])
    np.testing.assert_array_equal(result.ended, np.flatnonzero(done))
    assert final is not None
    for row, b in enumerate(result.ended):
        step = records[b][1]
        foods = padded(final.select(np.array([row])).task_rows, config.max_food, [-1, -1, 0])
        assert foods == step["obs"]["food_info"]
        assert (after.select(np.array([b])).carry == -1).all()
        assert after.agent_rows[after.agent_ptr[b], 3] == 0  # the learner
    for last, episode in zip(data["episodes"], data["episodes"][1:], strict=False):
        acted = transitions({"episodes": [last]})
        state, step = list(acted)[-1]
        listing = state["order"]
        obs = episode["obs0"]
        assert obs["player_filter"] == [0] * len(listing) + [-1] * (config.slots - len(listing))
        mates = [step["raw"][slot] for slot in listing[1:]]
        assert obs["prev_actions"] == mates + [-1] * (config.slots - 1 - len(mates))


@each_trace
def test_starts(file: Path) -> None:
    data = load(file)
    config = config_of(data)
    for episode in data["episodes"]:
        start = episode["start"]
        state = recorded_state(config, [start])
        players = state.member[0, : state.num_members[0], :3]
        check_start(config, players, state.food[0, : state.num_foods[0]])
        check_observation(config, pack(config, state, np.array([0])), episode["obs0"])
        for slot, span in enumerate(start["span"]):
            low, high = (10, 19) if start["players"][slot] else (15, 24)
            assert low <= span <= high


@each_trace
def test_who_leaves_and_joins(file: Path) -> None:
    """As many as are due and allowed, of those that are due; fresh counters, cells and levels in their ranges."""
    data = load(file)
    config = config_of(data)
    for before, step in transitions(data):
        span, here, after = before["span"], before["order"], step["next"]
        due = [slot for slot in here[1:] if span[slot] < 0]
        assert set(step["left"]) <= set(due)
        assert len(step["left"]) == min(len(due), len(here) - 2)
        room = config.team_size - len(here) + len(step["left"])
        due = [slot for slot in range(config.slots) if slot not in here and span[slot] < 0]
        assert set(step["joined"]) <= set(due)
        assert len(step["joined"]) == min(len(due), room)
        for slot in range(config.slots):
            if slot in step["left"]:
                assert 15 <= after["span"][slot] + 1 <= 24
            elif slot in step["joined"]:
                assert 10 <= after["span"][slot] + 1 <= 19
                row, col, level, _ = after["players"][slot]
                others = [player[:2] for player in after["players"] if player] + [food[:2] for food in after["foods"]]
                assert others.count([row, col]) == 1
                assert max(row, col) < config.spawn_size
                assert 1 <= level <= config.max_level
            else:
                assert after["span"][slot] == span[slot] - 1


@pytest.mark.parametrize("file", files("lbf_draws_*.json.gz"), ids=lambda file: file.name)
def test_what_the_reference_draws(file: Path) -> None:
    """Ranges: cells of players 0..6, of foods 1..6, levels 1..2, food levels below the team's, subsets of the due."""
    data = load(file)
    config = config_of(data)
    for episode in data["episodes"]:
        drawn = [args for method, args, _, _ in episode["draws"] if method == "randint"]
        team = sum(player[2] for player in episode["start"]["players"] if player)
        assert {tuple(bounds) for bounds in drawn} <= {(0, 7), (1, 3), (1, 7), (1, team)}
        assert drawn.count([1, team]) >= config.max_food
    for before, step in transitions(data):
        due = {slot for slot in before["order"][1:] if before["span"][slot] < 0}
        subsets = [(set(args[0]), args[1]) for _, args, kwargs, _ in step["draws"] if kwargs]
        if step["left"]:
            assert subsets[0] == (due, len(step["left"]))


def test_replay_without_compilation() -> None:
    """The kernels mean the same as plain Python, on the shortest records."""
    test = f"{__file__}::test_every_step_replays"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"{test}[lbf_draws_s41]",
            f"{test}[lbf_trace_noa2c_s203]",
        ],
        cwd=ROOT,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
