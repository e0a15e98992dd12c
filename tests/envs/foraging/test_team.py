"""The open-team process and the start of an episode in numbers: durations, team sizes, and that draws are fair."""

from typing import Any

import numpy as np
import pytest

from rl_openness.envs.base import NO_OP
from rl_openness.envs.foraging import make_foraging
from rl_openness.envs.foraging.rules import COL, ID, ROW, SLOT
from tests.envs.foraging.worlds import Idle

COPIES = 3000


def presence(copies: int = COPIES, **fields: Any) -> np.ndarray:
    """[copies, S, steps + 1] who is in the team before each step and after the last, when nobody ever acts."""
    env = make_foraging(copies, teammates=Idle(), **fields)
    steps = env.config.max_steps
    here = np.zeros((copies, env.config.slots, steps + 1), dtype=np.bool_)
    final = None
    for t in range(steps):
        obs = env.observe()
        here[obs.agent_copy, obs.agent_rows[:, 3].astype(int), t] = True
        final = env.step(np.full(len(obs.present), NO_OP)).final_obs
    assert final is not None
    here[final.agent_copy, final.agent_rows[:, 3].astype(int), steps] = True
    return here


def durations(here: np.ndarray, *, present: bool, first: bool) -> np.ndarray:
    """[longest + 1] how many of the teammates' stays or absences that ended lasted so long; only (not) the first."""
    slots = here[:, 1:].reshape(-1, here.shape[2])
    counts = np.zeros(here.shape[2] + 1, dtype=np.int64)
    for row in slots:
        changes = np.flatnonzero(np.diff(row.astype(np.int8))) + 1
        starts, ends = np.r_[0, changes[:-1]], changes
        lasted = ends - starts
        kind = row[starts] == present
        which = (starts == 0) == first
        np.add.at(counts, lasted[kind & which], 1)
    return counts


def support(counts: np.ndarray) -> tuple[int, int]:
    found = np.flatnonzero(counts)
    return int(found[0]), int(found[-1])


# (process, first stay, later stay, first absence, later absence); stays may be held back, for one
# teammate always stays, so of those only the shortest is sure; absences too where slots exceed the team.
BOUNDS = [("reference", 12, 11, 17, (16, 25)), ("paper", 15, 15, 10, (10, 20))]


@pytest.mark.parametrize(("process", "first_stay", "stay", "first_absence", "absence"), BOUNDS)
def test_how_long_agents_stay_and_are_away(
    process: str, first_stay: int, stay: int, first_absence: int, absence: tuple[int, int]
) -> None:
    full = presence(600, slots=9, team_size=9, max_steps=90, open_process=process)
    assert support(durations(full, present=True, first=True))[0] == first_stay
    assert support(durations(full, present=True, first=False))[0] == stay
    assert support(durations(full, present=False, first=False)) == absence
    spare = presence(600, slots=5, team_size=3, open_process=process)
    # The team starts full: before the first may leave there is no room.
    assert support(durations(spare, present=False, first=True))[0] == max(first_absence, first_stay)
    assert support(durations(spare, present=False, first=False))[0] == absence[0]


@pytest.mark.parametrize(
    ("process", "first_stay", "absence"), [("reference", (12, 10), (16, 10)), ("paper", (15, 11), (10, 11))]
)
def test_durations_are_uniform(process: str, first_stay: tuple[int, int], absence: tuple[int, int]) -> None:
    """With a slot for everyone nobody waits to join; the first half of the leavers is not held back either."""
    here = presence(600, slots=9, team_size=9, open_process=process, max_steps=90)
    total = here.shape[0] * 8
    stays = durations(here, present=True, first=True)
    low, number = first_stay
    np.testing.assert_allclose(stays[low : low + 5] / total, 1 / number, atol=0.02)
    away = durations(here[:, :, :51], present=False, first=False)  # of those who left at the first opportunity
    low, number = absence
    shares = away[low : low + number] / away.sum()
    assert shares[0] == pytest.approx(1 / number, abs=0.02)
    assert away[:low].sum() == away[low + number :].sum() == 0


SIZES = [
    (5, 3, {11: 3.0, 16: 2.3, 21: 2.3, 26: 3.0}, 0.05),
    (5, 5, {11: 5.0, 20: 2.0, 25: 2.0, 29: 2.0, 42: 3.9, 50: 2.9}, 0.05),
    (9, 9, {11: 9.0, 16: 4.8, 21: 2.0, 27: 2.0, 36: 4.3, 43: 7.5, 45: 7.5, 50: 5.6}, 0.11),
]


@pytest.mark.parametrize(("slots", "team_size", "sizes", "growing"), SIZES)
def test_the_team_breathes_as_measured(slots: int, team_size: int, sizes: dict[int, float], growing: float) -> None:
    """The specification's measured mean sizes (of some 100 episodes) and share of steps in which the team grows."""
    here = presence(slots=slots, team_size=team_size)
    size = here.sum(axis=1)
    for t, mean in sizes.items():
        assert size[:, t].mean() == pytest.approx(mean, abs=0.3)
    assert size[:, 16].mean() == pytest.approx(1 + (team_size - 1) / 2, abs=0.3)  # half of the first stays are over
    assert (np.diff(size, axis=1) > 0).mean() == pytest.approx(growing, abs=0.01)
    assert size.min() == 2
    assert here[:, 0].all()


def crafted(members: list[int], due: list[int], copies: int = COPIES, **fields: Any) -> list[tuple[int, ...]]:
    """Listings after a step from a team of these slots in which the counters of some slots have run out."""
    env = make_foraging(copies, teammates=Idle(), **fields)
    state = env.get_state()
    state["num_members"][:] = len(members)
    state["member"][:, : len(members), SLOT] = members
    state["member"][:, : len(members), ID] = np.arange(len(members))
    state["next_id"][:] = len(members)
    state["span"][:] = 5
    state["span"][:, due] = -1
    env.set_state(state)
    env.step(np.full(copies * len(members), NO_OP))
    obs = env.observe()
    slots = obs.agent_rows[:, 3].astype(int).tolist()
    return [tuple(slots[obs.agent_ptr[b] : obs.agent_ptr[b + 1]]) for b in range(copies)]


def check_fair(found: list[tuple[int, ...]], expected: list[tuple[int, ...]]) -> None:
    """Nothing but the expected outcomes, all about equally often (5 standard errors)."""
    share = 1 / len(expected)
    error = 5 * np.sqrt(share * (1 - share) / len(found))
    assert set(found) == set(expected)
    for outcome in expected:
        assert found.count(outcome) / len(found) == pytest.approx(share, abs=error)


def test_who_leaves() -> None:
    five = {"slots": 6, "team_size": 5}
    check_fair(crafted([0, 4, 2, 1, 3], [0, 2, 3], **five), [(0, 4, 1)])  # the rest keep their order
    check_fair(crafted([0, 4, 2, 1], [4, 2, 1], **five), [(0, 4), (0, 2), (0, 1)])  # one stays, whoever
    check_fair(crafted([0, 3], [3], **five), [(0, 3)])
    check_fair(crafted([0, 3, 1], [3], **five), [(0, 1)])


def test_who_joins() -> None:
    six = {"slots": 6, "team_size": 4}
    check_fair(crafted([0, 5], [1, 3], **six), [(0, 5, 1, 3)])  # by slot, to the end of the listing
    check_fair(crafted([0, 5, 2], [1, 3, 4], **six), [(0, 5, 2, 1), (0, 5, 2, 3), (0, 5, 2, 4)])
    pairs = [(1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)]
    check_fair(crafted([0, 5], [1, 2, 3, 4], **six), [(0, 5, *pair) for pair in pairs])
    check_fair(crafted([0, 5, 2, 3], [1], **six), [(0, 5, 2, 3)])  # no room
    # A leaver makes room in the same step, and has a fresh counter itself.
    check_fair(crafted([0, 5, 2, 3], [2, 4], **six), [(0, 5, 3, 4)])


def test_the_first_team_is_any_team_in_any_order() -> None:
    obs = make_foraging(COPIES, teammates=Idle(), slots=4, team_size=3).observe()
    found = [tuple(row) for row in obs.agent_rows[:, 3].astype(int).reshape(-1, 3).tolist()]
    check_fair(found, [(0, a, b) for a in (1, 2, 3) for b in (1, 2, 3) if a != b])


@pytest.mark.parametrize(("everywhere", "side"), [(False, 7), (True, 8)])
def test_players_start_uniformly(everywhere: bool, side: int) -> None:
    env = make_foraging(COPIES, teammates=Idle(), spawn_everywhere=everywhere)
    rows = env.observe().agent_rows
    cells = rows[:, 0].astype(int) * side + rows[:, 1].astype(int)
    counts = np.bincount(cells, minlength=side * side)
    assert len(counts) == side * side
    expected = len(cells) / side**2
    assert ((counts - expected) ** 2 / expected).sum() < 110  # chi-square with 48 or 63 degrees
    assert rows[:, 2].mean() == pytest.approx(1.5, abs=0.03)


def test_joiners_come_uniformly_to_free_cells() -> None:
    env = make_foraging(COPIES, teammates=Idle(), slots=3)
    state = env.get_state()
    state["num_members"][:] = 2
    state["member"][:, :2, [ROW, COL, SLOT]] = [[0, 0, 0], [2, 3, 1]]
    state["food"][:, :3] = [[1, 1, 1], [4, 4, 1], [6, 6, 1]]
    state["num_foods"][:] = 3
    state["span"][:] = [5, 5, -1]
    env.set_state(state)
    env.step(np.full(2 * COPIES, NO_OP))
    joiner = env.observe().agent_rows.reshape(COPIES, 3, -1)[:, 2].astype(int)
    cells = [tuple(cell) for cell in joiner[:, :2].tolist()]
    taken = {(0, 0), (2, 3), (1, 1), (4, 4), (6, 6)}
    check_fair(cells, [(row, col) for row in range(7) for col in range(7) if (row, col) not in taken])
    assert joiner[:, 2].mean() == pytest.approx(1.5, abs=0.05)


def test_food_levels_are_uniform_below_the_teams() -> None:
    obs = make_foraging(COPIES, teammates=Idle(), max_level=1, slots=5, team_size=5).observe()
    levels = [(int(level),) for level in obs.task_rows[:, 2]]
    assert len(levels) == 3 * COPIES
    check_fair(levels, [(1,), (2,), (3,), (4,)])
    first = obs.task_rows[obs.task_ptr[:-1], :2]
    assert len(np.unique(first, axis=0)) > 15
    everywhere = np.unique(obs.task_rows[:, :2], axis=0)
    assert len(everywhere) == 36
