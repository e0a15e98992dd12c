"""Replay of episodes recorded from the reference: moves, clashes, captures, rewards, teams and observations."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from rl_openness.envs.base import PackedObs
from rl_openness.envs.wolfpack.rules import EVENTS, Outcome, Rules, State, catch, measure, move, revive
from rl_openness.envs.wolfpack.team import grow_older, join, leave, no_newcomers
from rl_openness.envs.wolfpack.view import pack
from tests.envs.wolfpack.recorded import Json, build, files, load, steps, traits

ROOT = Path(__file__).parents[3]
EPISODES = [*files("trace"), *files("draws")]


def within(count: int, trials: int, p: float) -> bool:
    """Whether a count is within 4 standard errors of its expectation."""
    return abs(count - trials * p) <= 4 * np.sqrt(trials * p * (1 - p))


def cells(pairs: list[list[int]], size: int) -> list[int]:
    return [row * size + col for row, col in pairs]


def check_animals(state: State, b: int, recorded: Json) -> None:
    n = state.members[b]
    assert np.stack([state.row[b, :n], state.col[b, :n]], axis=1).tolist() == recorded["pred"]
    assert np.stack([state.prey_row[b], state.prey_col[b]], axis=1).tolist() == recorded["prey"]
    assert state.facing[b].tolist() == recorded["face"]
    assert state.alive[b].tolist() == recorded["alive"]


def play(rules: Rules, state: State, records: list[Json]) -> None:
    """Rules 2 to 5 with the recorded revivals and actions."""
    copies, most = state.row.shape
    back, moves = np.full(state.alive.shape, -1), np.full((copies, most), 4)
    for b, record in enumerate(records):
        where, alive = record["revived"]
        assert alive == [True] * len(alive)
        taken = cells(np.stack([state.row[b], state.col[b]], axis=1)[: state.members[b]].tolist(), rules.size)
        taken += cells(np.stack([state.prey_row[b], state.prey_col[b]], axis=1).tolist(), rules.size)
        for k, cell in enumerate(cells(where, rules.size)):
            if state.alive[b, k]:
                assert cell == state.prey_row[b, k] * rules.size + state.prey_col[b, k]
            else:
                assert cell not in taken
                back[b, k] = cell
        assert len(set(back[b][back[b] >= 0])) == (back[b] >= 0).sum()
        moves[b, : state.members[b]] = record["acts"]
    revive(rules, state, back)
    near, out = np.zeros((copies, most), dtype=np.int64), outcome(state)
    measure(state, near)
    move(rules, state, moves, np.array([record["prey_acts"] for record in records]))
    catch(rules, state, near, out)
    for b, record in enumerate(records):
        n = state.members[b]
        assert near[b, :n].tolist() == record["dist0"]
        check_animals(state, b, record["after"])
        np.testing.assert_allclose(out.reward[b, :n], record["after"]["points"], atol=1e-6)
        np.testing.assert_allclose(out.reward[b, 0], record["reward"], atol=1e-6)
        assert out.events[EVENTS.index("captures"), b] == (~state.alive[b]).sum()


def outcome(state: State) -> Outcome:
    return Outcome(np.zeros(state.row.shape), np.zeros((len(EVENTS), len(state.members)), dtype=np.int64))


def change_teams(rules: Rules, state: State, records: list[Json], tally: Counter[str]) -> None:
    """Rule 6 with the recorded removals and newcomers, whose number, ages and cells must be possible."""
    copies, most = state.row.shape
    grow_older(state)
    leaving, newcomers = np.zeros((copies, most), dtype=np.bool_), no_newcomers(copies, most)
    for b, record in enumerate(records):
        old = (state.age[b, 1 : state.members[b]] > 25).sum()
        may_leave, left, joined = min(old, state.members[b] - 2), len(record["removed"]), len(record["added"])
        room = most - state.members[b] + left
        assert left <= min(2, may_leave)
        assert joined <= min(2, room)
        happened = {
            "may_leave": may_leave > 0,
            "left": left > 0,
            "may_leave_two": left > 0 and may_leave > 1,
            "left_two": left > 1,
            "may_join": room > 0,
            "joined": joined > 0,
            "may_join_two": joined > 0 and room > 1,
            "joined_two": joined > 1,
        }
        tally.update(name for name, so in happened.items() if so)
        leaving[b, record["removed"]] = True
        assert (state.age[b, record["removed"]] > 25).all()
        after = record["after"]
        new = cells(record["next"]["pred"][state.members[b] - left :], rules.size)
        assert len({*new, *cells(after["pred"], rules.size), *cells(after["prey"], rules.size)}) == len(
            new + after["pred"] + after["prey"]
        )
        newcomers.number[b], newcomers.cell[b, :joined] = joined, new
        for j, member in enumerate(record["added"]):
            newcomers.type[b, j], newcomers.radius[b, j], newcomers.threshold[b, j] = traits(member)
    out = outcome(state)
    leave(state, leaving, out)
    join(rules, state, newcomers, out)
    state.step[:] += 1
    for b, record in enumerate(records):
        after, n = record["next"], state.members[b]
        check_animals(state, b, after)
        assert state.age[b, 1:n].tolist() == after["alive_time"]
        ours = np.stack([state.type[b], state.radius[b], state.threshold[b]], axis=1)[1:n]
        assert ours.tolist() == [list(traits(member)) for member in after["team"]]
        assert rules.max_steps - state.step[b] == after["left"]
        assert (state.step[b] == rules.max_steps) == record["done"]
        assert out.events[EVENTS.index("leaves"), b] == len(record["removed"])
        assert out.events[EVENTS.index("joins"), b] == len(record["added"])


def padded(values: list[int], length: int) -> list[int]:
    return values + [-1] * (length - len(values))


def check_view(obs: PackedObs, seen: Json, slots: int, flags: list[int], acts: list[int]) -> None:
    """The observation of one copy holds what the reference's padded one shows."""
    n = len(obs.present)
    places = obs.agent_rows[:, :2].astype(int).ravel().tolist()
    assert padded(places, 2 * slots) == seen["teammate_location"]
    prey = obs.task_rows.astype(int)
    assert [*prey[:, :2].ravel(), *prey[:, 2:6].ravel()] == seen["opponent_info"]
    assert [n] == seen["num_agents"]
    assert padded(flags, slots) == seen["remaining_flags"]
    assert padded(acts, slots - 1) == seen["oppo_actions"]


def check_views(rules: Rules, state: State, records: list[Json], slots: int, shift: np.ndarray) -> None:
    """`carry`, which names rows of the last observation of all copies (`shift`: their first), gives the flags."""
    obs = pack(rules, state, np.arange(len(records)))
    for b, record in enumerate(records):
        alone = obs.select(np.array([b]))
        before = len(record["acts"])
        kept = alone.carry[alone.carry >= 0] - shift[b]
        flags = [int(i in kept) for i in range(before)]
        check_view(alone, record["obs"], slots, flags, record["acts"][1:])


@pytest.mark.parametrize("name", EPISODES)
def test_replay_equals_the_reference(name: str) -> None:
    case = load(name)
    slots, tally = case["config"]["slots"], Counter[str]()
    rules, state = build(case)
    obs = pack(rules, state, np.arange(len(case["episodes"])))
    for b, episode in enumerate(case["episodes"]):
        assert len({*cells(episode["start"]["pred"] + episode["start"]["prey"], rules.size)}) == 5
        assert episode["start"]["face"] == [0, 0]
        check_view(obs.select(np.array([b])), episode["obs0"], slots, [1] * 3, [])
    for records in steps(case):
        shift = np.cumsum([0, *state.members])
        play(rules, state, records)
        change_teams(rules, state, records, tally)
        check_views(rules, state, records, slots, shift)
    assert tally["may_leave"] > 0


def test_teams_change_as_often_as_recorded() -> None:
    tally = Counter[str]()
    for name in EPISODES:
        case = load(name)
        rules, state = build(case)
        for records in steps(case):
            play(rules, state, records)
            change_teams(rules, state, records, tally)
    assert within(tally["left"], tally["may_leave"], 0.05)
    assert within(tally["joined"], tally["may_join"], 0.05)
    assert within(tally["left_two"], tally["may_leave_two"], 0.3)
    assert within(tally["joined_two"], tally["may_join_two"], 0.3)


def test_replay_without_compilation() -> None:
    """The kernels mean the same as plain Python."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__, "-k", "equals and 5x5_s101"],
        cwd=ROOT,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "1 passed" in done.stdout
