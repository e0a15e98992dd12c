"""The substitute prey against the recorded ones: actions and distances, captures; and its draws."""

import numpy as np
import pytest

from rl_openness.envs.draws import child_seeds
from rl_openness.envs.wolfpack.prey import (
    AHEAD,
    ASIDE,
    BANDS,
    LAST,
    SEEN,
    VIEWS,
    WEIGHTS,
    PreyView,
    WeightedPrey,
    action_weights,
    look,
    offset,
)
from tests.envs.wolfpack.recorded import files, load
from tests.envs.wolfpack.recorded_prey import captures, recorded_decisions, shares_by_distance

AWAY, SAME, CLOSER, TAKEN, OUTSIDE, STANDING, TURNING_LEFT, TURNING_RIGHT = range(8)
STILL, STUCK, AGAIN, BACK, TO_AND_FRO, TO_BORDER, FROM_BORDER = range(8, 15)
DISTANCES = [range(1, 2), range(2, 3), range(3, 4), range(4, 6), range(6, 19)]


def test_actions_and_distances_are_as_recorded() -> None:
    """By distance to the nearest predator, each kind of action is as frequent as recorded, to within 0.035."""
    recorded, expected, number = shares_by_distance(WEIGHTS["evader"], DISTANCES)
    assert number.sum() == len(recorded_decisions()) > 6000
    np.testing.assert_allclose(expected, recorded, atol=0.035)
    uniform = shares_by_distance(WEIGHTS["random"], DISTANCES, habits=False)[1]
    assert abs(uniform - recorded).max() > 0.1


def test_habits_are_as_recorded() -> None:
    """Where five views in a row are like their last, or like the one before, the recorded prey repeats itself."""
    sure = [decision for decision in recorded_decisions() if decision.habit >= 0]
    assert len(sure) > 500
    assert np.mean([decision.chosen == decision.habit for decision in sure]) > 0.995


def test_repetition_is_as_recorded() -> None:
    """How often the last action comes again, by the number of steps in the same cell."""
    counted, run = np.zeros((4, 3)), {0: 0, 1: 0}
    for decision in recorded_decisions():
        last, *cell = decision.memory[[0, 2, 3]]
        k = decision.prey
        run[k] = run[k] + 1 if last >= 0 and cell == decision.state["prey"][k] else 0
        if last >= 0:
            group = np.searchsorted([0, 2, 6], run[k])
            counted[group] += 1, decision.chosen == last, decision.chances(WEIGHTS["evader"])[1][last]
    number, recorded, expected = counted.T
    np.testing.assert_allclose(expected / number, recorded / number, atol=0.08)
    assert recorded[3] / number[3] > recorded[0] / number[0] + 0.3


def test_captures_are_as_recorded() -> None:
    """With the recorded predators, step by step: aimless prey would be caught half as often again."""
    recorded, expected, deviation = captures(WEIGHTS["evader"])
    assert abs(expected - recorded) < 2 * deviation
    assert captures(WEIGHTS["random"], habits=False)[1] > 1.3 * recorded


def weights(prey: list[list[int]], **memory: int) -> tuple[list[int], list[float]]:
    """Of the first prey, with predators at (5, 4) and (0, 8), from a table whose entries tell themselves apart.

    `memory` has fields by name; the last action was chosen in (5, 5).
    """
    table = np.arange(1.0, 16.0) + 100 * np.arange(len(BANDS) + 1)[:, None]
    own = np.array([memory.get(name, -1) for name in ("last", "before")] + [5, 5, -1, -1])
    own = np.append(own, [memory.get(name, 0) for name in ("since", "since_before")])
    meaning, weight = np.empty(7, dtype=np.int64), np.empty(7)
    action_weights(10, np.array([5, 0]), np.array([4, 8]), *np.array(prey).T.copy(), 0, own, table, meaning, weight)
    return meaning.tolist(), weight.tolist()


def test_what_actions_mean() -> None:
    rest = [STANDING, TURNING_LEFT, TURNING_RIGHT]
    assert weights([[5, 5], [4, 5]])[0] == [TAKEN, AWAY, AWAY, TAKEN, *rest]  # the other prey, a predator
    assert weights([[9, 4], [0, 0]])[0] == [CLOSER, AWAY, OUTSIDE, AWAY, *rest]
    assert weights([[3, 7], [0, 0]])[0] == [CLOSER, CLOSER, SAME, SAME, *rest]  # away from one is to the other
    assert weights([[5, 5], [0, 0]])[1] == [1, 1, 1, 4, 6, 7, 8]  # the first band: next to a predator
    assert weights([[5, 7], [0, 0]])[1] == [101, 101, 101, 103, 106, 107, 108]
    assert weights([[5, 8], [0, 0]])[1][3:] == [203, 206, 207, 208]


def test_repeating() -> None:
    here, moved = [[5, 5], [0, 0]], [[4, 5], [0, 0]]
    assert weights(here, last=3)[1] == [1, 1, 1, 4 * 10, 6, 7, 8]  # it led nowhere
    assert weights(here, last=3, since=1)[1] == [1, 1, 1, 4 * 9, 6, 7, 8]  # and nothing in sight changed
    assert weights(here, last=5)[1] == [1, 1, 1, 4, 6, 7 * 10, 8]
    assert weights(moved, last=0)[1] == [101 * 111, 101, 103 * 112, 103, 106, 107, 108]  # on, or back
    assert weights(here, last=3, before=4, since_before=1)[1] == [1, 1, 1, 4 * 10, 6 * 13, 7, 8]
    assert weights(here, last=3, before=4, since=2, since_before=1)[1] == [1, 1, 1, 4 * 9, 6, 7, 8]


def test_borders() -> None:
    assert weights([[5, 8], [0, 0]])[1][1] == 201 * 214  # to the right border
    assert weights([[5, 9], [0, 0]])[1][:4] == [202, 205, 201, 203 * 215]  # along it, off the grid, and away from it
    assert weights([[8, 9], [0, 0]])[1][2] == 201 * 214  # into the corner
    assert weights([[9, 9], [0, 0]])[1][0] == 203 * 215  # out of it


def test_what_a_prey_sees() -> None:
    """Its own cell and facing, and the animals up to 8 cells ahead and aside; nothing behind, no dead prey."""

    def seen(pred: list[list[int]], prey: list[list[int]], facing: int, alive: tuple[bool, bool] = (True, True)) -> int:
        memory = np.zeros(8, dtype=np.int64)
        (rows, cols), cells = np.array(pred).T.copy(), np.array(prey).T.copy()
        look(rows, cols, *cells, np.array(alive), facing, 0, memory)
        return int(memory[SEEN])

    here = [[5, 5], [5, 6]]
    assert seen([[3, 5]], here, 0) != seen([[3, 6]], here, 0)
    assert seen([[3, 5], [4, 4]], here, 0) == seen([[4, 4], [3, 5]], here, 0)  # who is who does not matter
    ahead = {0: [4, 5], 1: [5, 7], 2: [6, 5], 3: [5, 4]}
    behind = {0: [6, 5], 1: [5, 4], 2: [4, 5], 3: [5, 7]}
    for facing in range(4):
        assert seen([ahead[facing]], here, facing) != seen([[0, 0] if facing == 2 else behind[facing]], here, facing)
        two = [behind[facing][0] + (behind[facing][0] - 5), behind[facing][1] + (behind[facing][1] - 5)]
        assert seen([behind[facing]], here, facing) == seen([two], here, facing)
    assert seen([[14, 5]], here, 2) != seen([[13, 5]], here, 2)  # 9 ahead is out of sight
    assert seen([[14, 5]], here, 2) == seen([[15, 5]], here, 2)
    assert seen([[4, 5]], here, 0) != seen([[4, 5]], [[5, 5], [5, 7]], 0)
    assert seen([[4, 5]], here, 0, (True, False)) == seen([[4, 5]], [[5, 5], [5, 7]], 0, (True, False))
    assert seen([[6, 5]], here, 0) != seen([[6, 5]], here, 1)
    assert seen([[5, 4]], here, 0) != seen([[5, 5]], [[5, 4], [5, 6]], 0)  # places swapped


@pytest.mark.parametrize("name", [*files("trace"), *files("draws")])
def test_sight_is_as_recorded(name: str) -> None:
    """The recorded crops hold exactly the predators and live prey that are in sight, and where."""
    for episode in load(name)["episodes"]:
        state = episode["start"]
        for record in episode["steps"]:
            for k, crop in enumerate(record.get("prey_view", ())):
                live = [cell for cell, alive in zip(state["prey"], state["alive"], strict=True) if alive]
                drawn = []
                for sign, places in (("P", state["pred"]), ("r", live)):
                    for cell in places:
                        ahead, right = offset(*state["prey"][k], state["face"][k], *cell)
                        if 0 <= ahead <= AHEAD and abs(right) <= ASIDE:
                            assert crop[AHEAD - ahead][ASIDE + right] == sign
                            drawn.append(sign)
                assert sorted("".join(crop).replace(".", "").replace("#", "")) == sorted(drawn)
            state = record["next"]


def view(copies: int, step: int) -> PreyView:
    """A prey far from everyone, facing right, and a dead one."""
    return PreyView(
        size=10,
        step=np.full(copies, step),
        predators=np.ones(copies, dtype=np.int64),
        row=np.zeros((copies, 2), dtype=np.int64),
        col=np.zeros((copies, 2), dtype=np.int64),
        prey_row=np.tile([5, 7], (copies, 1)),
        prey_col=np.tile([5, 7], (copies, 1)),
        facing=np.ones((copies, 2), dtype=np.int64),
        alive=np.tile([True, False], (copies, 1)),
    )


def test_draws_follow_the_weights() -> None:
    copies = 20_000
    prey = WeightedPrey(copies, 2)
    keys = child_seeds(1, count=copies).astype(np.uint64)
    first = prey.act(view(copies, 0), keys)
    row = WEIGHTS["evader"][2]
    chances = row[[AWAY, AWAY, CLOSER, CLOSER, STANDING, TURNING_LEFT, TURNING_RIGHT]]  # right, down, left, up
    np.testing.assert_allclose(
        np.bincount(first[:, 0], minlength=7) / copies, chances / chances.sum(), atol=4 * 0.5 / np.sqrt(copies)
    )
    assert abs(np.corrcoef(first.T)[0, 1]) < 5 / np.sqrt(copies)
    memory = prey.get_state()
    np.testing.assert_array_equal(prey.act(view(copies, 0), keys), first)  # step 0 forgets
    again = prey.act(view(copies, 1), keys[::-1].copy())
    assert (again == first)[:, 0].mean() > 0.8  # nothing changed
    assert (again == first)[:, 1].mean() < 0.3  # what a dead prey did is no habit
    for _ in range(VIEWS):
        last, again = again, prey.act(view(copies, 1), keys)
    np.testing.assert_array_equal(last[:, 0], again[:, 0])  # now it is one
    prey.set_state(memory)
    assert (prey.act(view(copies, 1), keys[::-1].copy())[:, 0] == first[:, 0]).mean() < 1.0
    broken = {"memory": memory["memory"].copy()}
    broken["memory"][3, 1, LAST] = 7
    with pytest.raises(ValueError, match="'memory' must lie in"):
        prey.set_state(broken)


@pytest.mark.parametrize("name", WEIGHTS)
def test_tables_are_whole(name: str) -> None:
    assert WEIGHTS[name].shape == (len(BANDS) + 1, FROM_BORDER + 1)
    assert (WEIGHTS[name] > 0).all()
