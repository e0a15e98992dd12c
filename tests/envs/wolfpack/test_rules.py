"""Moves, clashes, captures and rewards, worked by hand; and what holds for any of them."""

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_openness.envs.wolfpack import WolfpackConfig
from rl_openness.envs.wolfpack.env import compile_rules
from rl_openness.envs.wolfpack.rules import (
    CAPTURES,
    CLOSE_PENALTIES,
    EVENTS,
    Outcome,
    Rules,
    State,
    catch,
    draw_revivals,
    measure,
    move,
    revive,
)
from rl_openness.envs.wolfpack.state import empty_state

UP, RIGHT, DOWN, LEFT, STAY, TURN_LEFT, TURN_RIGHT = range(7)
FORWARD, BACK = 0, 2
Cell = tuple[int, int]


class Played(NamedTuple):
    pred: list[Cell]
    prey: list[Cell]
    facing: list[int]
    alive: list[bool]
    reward: list[float]
    events: list[int]


def arena(pred: list[Cell], prey: list[Cell], facing: list[int] | None = None) -> tuple[Rules, State]:
    config = WolfpackConfig(team_size=max(len(pred), 2), slots=9, num_prey=len(prey), start_size=1)
    state = empty_state(config, 1)
    state.members[0] = len(pred)
    state.row[0, : len(pred)], state.col[0, : len(pred)] = np.transpose(pred)
    state.prey_row[0], state.prey_col[0] = np.transpose(prey)
    state.facing[0] = facing or [UP] * len(prey)
    state.alive[0] = True
    return compile_rules(config), state


def play(
    pred: list[Cell],
    moves: list[int],
    prey: list[Cell],
    prey_moves: list[int] | None = None,
    facing: list[int] | None = None,
) -> Played:
    """One step; prey stay unless told otherwise."""
    rules, state = arena(pred, prey, facing)
    near = np.zeros(state.row.shape, dtype=np.int64)
    out = Outcome(np.zeros(state.row.shape), np.zeros((len(EVENTS), 1), dtype=np.int64))
    measure(state, near)
    move(rules, state, np.array([moves]), np.array([prey_moves or [STAY] * len(prey)]))
    catch(rules, state, near, out)
    return Played(
        list(zip(state.row[0].tolist(), state.col[0].tolist(), strict=True))[: len(pred)],
        list(zip(state.prey_row[0].tolist(), state.prey_col[0].tolist(), strict=True)),
        state.facing[0].tolist(),
        state.alive[0].tolist(),
        out.reward[0, : len(pred)].tolist(),
        out.events[:, 0].tolist(),
    )


FAR = [(9, 9)]


@pytest.mark.parametrize(
    ("pred", "moves", "after"),
    [
        ([(0, 0), (5, 5)], [UP, RIGHT], [(0, 0), (5, 6)]),  # off the grid is staying
        ([(5, 5), (5, 6)], [RIGHT, LEFT], [(5, 6), (5, 5)]),  # swaps go through each other
        ([(5, 5), (5, 6), (5, 7)], [RIGHT, RIGHT, RIGHT], [(5, 6), (5, 7), (5, 8)]),  # following
        ([(5, 5), (5, 7)], [RIGHT, LEFT], [(5, 5), (5, 7)]),  # one cell, two who want it
        ([(5, 5), (5, 6)], [RIGHT, STAY], [(5, 5), (5, 6)]),  # someone stands there
        ([(4, 4), (4, 5), (5, 5), (5, 4)], [RIGHT, DOWN, LEFT, UP], [(4, 5), (5, 5), (5, 4), (4, 4)]),  # a roundabout
        # a clash sends (5, 7) and (5, 9) back, so (5, 6) finds its cell taken, and so does (5, 5) behind it
        ([(5, 5), (5, 6), (5, 7), (5, 9)], [RIGHT, RIGHT, RIGHT, LEFT], [(5, 5), (5, 6), (5, 7), (5, 9)]),
        # the last of a row pushes against the edge
        ([(5, 7), (5, 8), (5, 9)], [RIGHT, RIGHT, RIGHT], [(5, 7), (5, 8), (5, 9)]),
        # three want one cell; the one behind the first stays, too
        ([(4, 5), (6, 5), (5, 4), (5, 3)], [DOWN, UP, RIGHT, RIGHT], [(4, 5), (6, 5), (5, 4), (5, 3)]),
    ],
)
def test_clashes(pred: list[Cell], moves: list[int], after: list[Cell]) -> None:
    assert play(pred, moves, FAR).pred == after


@pytest.mark.parametrize(
    ("facing", "action", "after", "turned"),
    [
        (UP, FORWARD, (4, 5), UP),
        (UP, 1, (5, 6), UP),
        (RIGHT, FORWARD, (5, 6), RIGHT),
        (RIGHT, 1, (6, 5), RIGHT),  # to its right
        (DOWN, 3, (5, 6), DOWN),  # to its left
        (LEFT, BACK, (5, 6), LEFT),
        (LEFT, STAY, (5, 5), LEFT),
        (UP, TURN_LEFT, (5, 5), LEFT),
        (LEFT, TURN_RIGHT, (5, 5), UP),
    ],
)
def test_prey_move_as_they_face(facing: int, action: int, after: Cell, turned: int) -> None:
    played = play([(0, 0)], [STAY], [(5, 5)], [action], [facing])
    assert (played.prey, played.facing) == ([after], [turned])


def test_animals_bump_into_each_other() -> None:
    assert play([(5, 4)], [RIGHT], [(5, 5)]).pred == [(5, 4)]  # into a prey that stays
    assert play([(5, 4)], [RIGHT], [(5, 5)], [1]).pred == [(5, 5)]  # after a prey that runs
    assert play([(5, 4)], [STAY], [(5, 5)], [3]).prey == [(5, 5)]  # a prey into a predator
    played = play([(5, 4)], [RIGHT], [(5, 6), (0, 0)], [3, STAY])  # both want (5, 5)
    assert (played.pred[0], played.prey[0]) == ((5, 4), (5, 6))
    swapped = play([(5, 4)], [RIGHT], [(5, 5)], [3])
    assert (swapped.pred, swapped.prey) == ([(5, 5)], [(5, 4)])
    assert play([(0, 0)], [STAY], [(0, 5)], [FORWARD]).prey == [(0, 5)]  # off the grid is staying


def test_getting_closer_pays() -> None:
    assert play([(0, 0), (5, 5)], [RIGHT, UP], [(5, 9)]).reward == pytest.approx([0.01, -0.01])
    assert play([(0, 0), (5, 5)], [STAY, LEFT], [(5, 9), (5, 2)]).reward == pytest.approx([0.0, 0.01])  # the nearest
    assert play([(0, 0)], [STAY], [(0, 5)], [3]).reward == pytest.approx([0.01])  # the prey came


def test_alone_beside_a_prey_costs() -> None:
    played = play([(5, 4), (0, 0)], [STAY, STAY], [(5, 5)])
    assert played.reward == pytest.approx([-0.5, 0.0])
    assert played.alive == [True]
    assert played.events[CLOSE_PENALTIES] == 1
    assert play([(5, 5)], [STAY], [(5, 4), (5, 6)]).reward == pytest.approx([-1.0])  # once for each prey
    assert play([(5, 4)], [STAY], [(6, 5)]).reward == pytest.approx([0.0])  # diagonal is not beside


def test_captors_get_twice_their_number_each() -> None:
    two = play([(5, 4), (6, 5), (0, 0)], [STAY] * 3, [(5, 5)])
    assert two.reward == pytest.approx([4.0, 4.0, 0.0])
    assert two.alive == [False]
    assert two.events[CAPTURES] == 1
    three = play([(5, 4), (6, 5), (4, 5)], [STAY] * 3, [(5, 5)])
    assert three.reward == pytest.approx([6.0] * 3)


def test_several_prey_pay() -> None:
    both = play([(5, 5), (4, 4), (6, 6)], [STAY] * 3, [(5, 4), (5, 6)])
    assert both.reward == pytest.approx([8.0, 4.0, 4.0])
    assert both.alive == [False, False]
    mixed = play([(5, 5), (4, 4)], [STAY] * 2, [(5, 4), (5, 6)])  # a caught prey does not take the penalty away
    assert mixed.reward == pytest.approx([4.0 - 0.5, 4.0])
    assert (mixed.events[CAPTURES], mixed.events[CLOSE_PENALTIES]) == (1, 1)


def test_rewards_are_the_configs() -> None:
    rules, state = arena([(5, 4), (0, 0)], [(5, 5)])
    rules = rules._replace(close_penalty=0.1, approach_reward=0.5)
    near = np.array([[2, 10]])
    out = Outcome(np.zeros((1, 2)), np.zeros((len(EVENTS), 1), dtype=np.int64))
    catch(rules, state, near, out)
    assert out.reward[0].tolist() == pytest.approx([0.5 - 0.1, 0.0])


cells = st.tuples(st.integers(0, 9), st.integers(0, 9))


@settings(max_examples=150, deadline=None)
@given(st.lists(cells, min_size=4, max_size=9, unique=True), st.data())
def test_no_two_animals_share_a_cell(places: list[Cell], data: st.DataObject) -> None:
    """Everyone ends at home or where it wanted to go, alone, and is only kept from there by someone else."""
    moves = data.draw(st.lists(st.integers(0, 4), min_size=len(places) - 2, max_size=len(places) - 2))
    prey_moves = data.draw(st.lists(st.integers(0, 4), min_size=2, max_size=2))
    played = play(places[:-2], moves, places[-2:], prey_moves)
    after, wanted = played.pred + played.prey, []
    for (row, col), way in zip(places, moves + prey_moves, strict=True):
        there = (row + (-1, 0, 1, 0, 0)[way], col + (0, 1, 0, -1, 0)[way])
        wanted.append(there if min(there) >= 0 and max(there) < 10 else (row, col))
    assert len(set(after)) == len(after)
    for i, (home, goal, end) in enumerate(zip(places, wanted, after, strict=True)):
        assert end in (home, goal)
        if end != goal:
            assert goal in after[:i] + after[i + 1 :] + wanted[:i] + wanted[i + 1 :]


def test_caught_prey_come_back_elsewhere() -> None:
    """Distinct free cells, each as likely as any other; the place of death is not free."""
    rules, state = arena([(0, 0), (0, 1)], [(1, 0), (1, 1), (2, 2)])
    rules = rules._replace(size=3)
    state.alive[0] = [False, True, False]
    counts = np.zeros(9, dtype=int)
    for key in range(4000):
        back = np.empty((1, 3), dtype=np.int64)
        draw_revivals(rules, state, np.array([key * 0x9E3779B97F4A7C15 % 2**64], dtype=np.uint64), back)
        assert back[0, 1] == -1
        assert back[0, 0] != back[0, 2]
        counts[back[0, [0, 2]]] += 1
    assert counts[[0, 1, 3, 4, 8]].tolist() == [0] * 5
    np.testing.assert_allclose(counts[[2, 5, 6, 7]] / 4000, 0.5, atol=4 * np.sqrt(0.25 / 4000))
    revive(rules, state, np.array([[2, -1, 7]]))
    assert state.alive[0].tolist() == [True] * 3
    assert state.prey_row[0].tolist() == [0, 1, 2]
    assert state.prey_col[0].tolist() == [2, 1, 1]
