"""Worked examples of a step: valid actions, moving and clashes, loading, ends, and what is refused."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from rl_openness.envs.base import NO_OP
from rl_openness.envs.foraging import ForagingEnv, make_foraging
from rl_openness.envs.foraging.rules import COL, EAST, ID, LEVEL, LOAD, NONE, NORTH, ROW, SLOT, SOUTH, TYPE, WEST
from rl_openness.errors import UserError
from tests.envs.foraging.worlds import Idle, make

FAR = (6, 6, 1)  # a food out of everyone's way


def world(players: Sequence[tuple[int, int, int]], foods: Sequence[tuple[int, int, int]], **fields: Any) -> ForagingEnv:
    """One copy in self-play with players and foods (row, column, level)."""
    fields = {"slots": max(len(players), 2), "team_size": max(len(players), 2), "max_level": 9} | fields
    env = make_foraging(1, controlled="all", **fields)
    state = env.get_state()
    state["num_members"][0] = len(players)
    state["num_foods"][0] = len(foods)
    state["span"][0] = 100  # nobody comes or goes
    for k, player in enumerate(players):
        state["member"][0, k, [ROW, COL, LEVEL, SLOT, TYPE, ID]] = [*player, k, -1, k]
    state["food"][0, : len(foods)] = foods
    env.set_state(state)
    return env


def cells(env: ForagingEnv) -> list[tuple[int, int]]:
    return [(int(row), int(col)) for row, col in env.observe().agent_rows[:, :2]]


def after(players: Sequence[tuple[int, int]], actions: Sequence[int], **fields: Any) -> list[tuple[int, int]]:
    """Where players on these cells are after one step."""
    env = world([(*cell, 1) for cell in players], [FAR], **fields)
    env.step(np.array(actions))
    return cells(env)


def valid(env: ForagingEnv, member: int = 0) -> set[int]:
    mask = env.observe().action_mask
    assert mask is not None
    return set(np.flatnonzero(mask[member]).tolist())


def test_valid_actions() -> None:
    everything = {NONE, NORTH, SOUTH, WEST, EAST}
    assert valid(world([(3, 3, 1), (3, 4, 1)], [FAR])) == everything  # other players block nothing
    assert valid(world([(0, 0, 1), (5, 5, 1)], [FAR])) == everything - {NORTH, WEST}
    assert valid(world([(7, 7, 1), (5, 5, 1)], [FAR])) == everything - {SOUTH, EAST}
    assert valid(world([(3, 3, 1), (5, 5, 1)], [(2, 3, 1)])) == everything - {NORTH} | {LOAD}
    assert valid(world([(3, 3, 1), (5, 5, 1)], [(4, 3, 1)])) == everything - {SOUTH} | {LOAD}
    assert valid(world([(3, 3, 1), (5, 5, 1)], [(3, 2, 1)])) == everything - {WEST} | {LOAD}
    assert valid(world([(3, 3, 1), (5, 5, 1)], [(3, 4, 1)])) == everything - {EAST} | {LOAD}
    assert valid(world([(3, 3, 1), (5, 5, 1)], [(4, 4, 1)])) == everything  # a diagonal is not beside


@pytest.mark.parametrize(("action", "cell"), [(NORTH, (2, 3)), (SOUTH, (4, 3)), (WEST, (3, 2)), (EAST, (3, 4))])
def test_a_move(action: int, cell: tuple[int, int]) -> None:
    assert after([(3, 3), (0, 0)], [action, NONE]) == [cell, (0, 0)]


def test_moves_that_are_not_valid_are_played_as_none() -> None:
    assert after([(0, 0), (7, 7)], [NORTH, EAST]) == [(0, 0), (7, 7)]
    assert after([(0, 0), (5, 6)], [LOAD, SOUTH]) == [(0, 0), (5, 6)]  # (6, 6) is food; nothing beside (0, 0)
    assert after([(3, 3), (5, 5)], [NO_OP, NO_OP]) == [(3, 3), (5, 5)]


def test_a_cell_that_two_want_is_entered_by_neither() -> None:
    assert after([(3, 3), (3, 5)], [EAST, WEST]) == [(3, 3), (3, 5)]
    assert after([(3, 3), (3, 5), (2, 4)], [EAST, WEST, SOUTH]) == [(3, 3), (3, 5), (2, 4)]
    assert after([(3, 3), (3, 4)], [EAST, NONE]) == [(3, 3), (3, 4)]  # who stays wants its own cell
    assert after([(3, 3), (0, 0)], [EAST, NORTH]) == [(3, 4), (0, 0)]  # a bump at the border concerns nobody else


def test_swaps_and_following() -> None:
    assert after([(3, 3), (3, 4)], [EAST, WEST]) == [(3, 4), (3, 3)]
    assert after([(3, 3), (3, 4), (3, 5)], [EAST, EAST, EAST]) == [(3, 4), (3, 5), (3, 6)]
    ring = [(2, 2), (2, 3), (3, 3), (3, 2)]
    assert after(ring, [EAST, SOUTH, WEST, NORTH]) == [(2, 3), (3, 3), (3, 2), (2, 2)]


CHAIN = [(3, 2), (3, 3), (3, 4), (3, 6)]  # the last two want (3, 5); the others follow


def test_one_may_enter_the_cell_of_a_player_that_was_itself_blocked() -> None:
    moves = [EAST, EAST, EAST, WEST]
    assert after(CHAIN, moves) == [(3, 3), (3, 4), (3, 4), (3, 6)]
    assert after(CHAIN, moves, strict_collisions=True) == CHAIN
    assert after(ring := [(2, 2), (2, 3), (3, 3), (3, 2)], [EAST, SOUTH, WEST, NORTH], strict_collisions=True) == [
        ring[1],
        ring[2],
        ring[3],
        ring[0],
    ]


def test_two_on_a_cell_can_part() -> None:
    assert after([(3, 3), (3, 3)], [NONE, NONE]) == [(3, 3), (3, 3)]
    assert after([(3, 3), (3, 3)], [NORTH, NORTH]) == [(3, 3), (3, 3)]
    assert after([(3, 3), (3, 3)], [NORTH, NONE]) == [(2, 3), (3, 3)]
    assert after([(3, 3), (3, 3)], [NORTH, EAST]) == [(2, 3), (3, 4)]


def load(players: Sequence[tuple[int, int, int]], actions: Sequence[int], level: int) -> tuple[list[float], int]:
    """Rewards, and how many foods are left of a food at (3, 3) and another out of the way."""
    env = world(players, [(3, 3, level), FAR])
    result = env.step(np.array(actions))
    assert result.events["foods"].tolist() == [2 - len(env.observe().task_rows)]
    return result.agent_reward.tolist(), len(env.observe().task_rows)


def test_loading() -> None:
    pair = [(2, 3, 2), (3, 4, 1)]
    assert load(pair, [LOAD, LOAD], 3) == ([3.0, 3.0], 1)  # each gets the food's full level
    assert load(pair, [LOAD, LOAD], 4) == ([0.0, 0.0], 2)  # too heavy: no penalty
    assert load(pair, [LOAD, NONE], 3) == ([0.0, 0.0], 2)
    assert load(pair, [LOAD, NONE], 2) == ([2.0, 0.0], 1)
    assert load(pair, [LOAD, LOAD], 1) == ([1.0, 1.0], 1)
    assert load([(2, 3, 2), (2, 2, 5)], [LOAD, LOAD], 3) == ([0.0, 0.0], 2)  # a diagonal is not beside
    assert load([(2, 3, 2), (2, 3, 2)], [LOAD, LOAD], 4) == ([4.0, 4.0], 1)  # two on a cell both load


def test_two_foods_at_once_and_the_rest_stays_in_order() -> None:
    players = [(1, 2, 2), (5, 2, 2)]
    env = world(players, [(1, 1, 2), (3, 5, 1), (5, 1, 2)])
    result = env.step(np.array([LOAD, LOAD]))
    assert result.agent_reward.tolist() == [2.0, 2.0]
    assert result.team_reward.tolist() == [4.0]  # in self-play the sum
    assert env.observe().task_rows.tolist() == [[3.0, 5.0, 1.0]]


def test_an_episode_terminates_without_food_and_is_truncated_in_time() -> None:
    env = world([(3, 2, 2), (0, 0, 1)], [(3, 3, 2)])
    result = env.step(np.array([LOAD, NONE]))
    assert (result.terminated.tolist(), result.truncated.tolist(), result.ended.tolist()) == ([True], [False], [0])
    assert result.final_obs is not None
    assert len(result.final_obs.task_rows) == 0
    assert len(env.observe().task_rows) == 3

    env = world([(3, 2, 2), (0, 0, 1)], [(3, 3, 2)])
    env.set_state({**env.get_state(), "step": np.array([49])})
    result = env.step(np.array([NONE, NONE]))
    assert (result.terminated.tolist(), result.truncated.tolist()) == ([False], [True])
    assert env.get_state()["step"].tolist() == [0]


def test_the_teams_reward_is_the_learners() -> None:
    env = make_foraging(1, teammates=Idle(), slots=2, team_size=2)
    state = env.get_state()
    state["member"][0, :, :3] = [[3, 2, 2], [3, 4, 1]]
    state["food"][0, :2] = [[3, 3, 2], FAR]
    state["num_foods"][0] = 2
    env.set_state(state)
    result = env.step(np.array([LOAD, NO_OP]))
    assert result.agent_reward.tolist() == [2.0, 0.0]
    assert result.team_reward.tolist() == [2.0]


def test_labels_are_what_was_chosen_not_what_was_played() -> None:
    env = world([(0, 0, 1), (3, 3, 1)], [FAR])
    result = env.step(np.array([NORTH, NO_OP]))
    assert result.labels is not None
    assert result.labels.tolist() == [NORTH, NONE]


def test_illegal_choices_are_refused_and_change_nothing() -> None:
    env = make(3)
    obs = env.observe()
    before = env.get_state()
    none = np.full(len(obs.present), NO_OP)
    for row, choice, message in (
        (3, 6, r"copy 1, agent 0: choice 6 is not legal; legal: -1 \(none\) to 5"),
        (6, -2, r"copy 2, agent 0: choice -2 is not legal; legal: -1 \(none\) to 5"),
        (7, 0, r"copy 2, agent 1: choice 0 is not legal; legal: -1 only \(teammates decide for it\)"),
    ):
        choices = none.copy()
        choices[row] = choice
        with pytest.raises(ValueError, match=message):
            env.step(choices)
    with pytest.raises(ValueError, match=r"step needs 9 choices, one per member, got shape \(3,\)"):
        env.step(np.zeros(3, dtype=np.int64))
    with pytest.raises(ValueError, match="choices must be whole numbers"):
        env.step(none + 0.5)
    for name, array in env.get_state().items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        (np.full(6, 6), r"copy 0, agent 1: its teammate policy chose 6; legal: -1 \(none\) to 5"),
        (np.zeros(4, dtype=np.int64), r"teammates must give 6 actions, one per member, got \(4,\)"),
        (np.full(6, 0.5), "the teammates' actions must be whole numbers"),
    ],
)
def test_illegal_actions_of_teammates_are_named(actions: np.ndarray, message: str) -> None:
    class Wrong(Idle):
        def act(self, obs: Any, draws: Any = None) -> Any:
            return actions

    env = make_foraging(2, teammates=Wrong())
    with pytest.raises(ValueError, match=message):
        env.step(np.full(6, NO_OP))


def test_stopped_copies_need_a_reset() -> None:
    env = make_foraging(2, teammates=Idle(), at_end="stop", max_steps=1)
    env.step(np.full(6, NO_OP))
    with pytest.raises(ValueError, match="copy 0 has ended: reset it before the next step"):
        env.step(np.full(6, NO_OP))
    env.reset()
    env.step(np.full(6, NO_OP))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"slots": 1}, "foraging field 'slots': Input should be greater than or equal to 2"),
        ({"team_size": 1}, "foraging field 'team_size': Input should be greater than or equal to 2"),
        ({"team_size": 6}, r"foraging: team_size \(6\) must not exceed slots \(5\)"),
        ({"slot": 5}, "foraging has no field 'slot'; did you mean 'slots'"),
        ({"open_process": "queue"}, "foraging field 'open_process': Input should be 'reference' or 'paper'"),
        ({"size": 3}, "foraging field 'size'"),
        ({"size": 4, "slots": 9, "team_size": 4}, "size 4 is too small: 4 players may take all 4 cells off the border"),
        ({"size": 4, "max_food": 8}, "size 4 is too small: 3 players and 8 foods need as many of the 3x3 cells"),
    ],
)
def test_wrong_worlds(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_foraging(1, teammates=Idle(), **fields)


def test_teammates_are_given_where_they_are_asked() -> None:
    with pytest.raises(UserError, match="needs teammates"):
        make_foraging(1)
    with pytest.raises(UserError, match="asks no teammates"):
        make_foraging(1, teammates=Idle(), controlled="all")
    with pytest.raises(UserError, match="num_copies must be a whole number of at least 1, not 0"):
        make_foraging(0, teammates=Idle())
    with pytest.raises(UserError, match="at_end must be one of reset, stop, not 'continue'"):
        make_foraging(1, teammates=Idle(), at_end="continue")  # type: ignore[arg-type]
