"""Observations and actions of foreign agents as numbers, worked out by hand."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Sequence
from pettingzoo import ParallelEnv

from rl_openness.envs.adapters.bridge import BridgedEnv, bridge
from rl_openness.envs.adapters.copy import EnvironmentFailedError
from rl_openness.envs.adapters.mapping import Kind, ObservationMapping, Reader
from rl_openness.envs.base import NO_OP
from rl_openness.errors import UserError
from tests.envs.adapters.errands import MAPPING, Errands

DEFAULT = ObservationMapping()


def kind(space: gym.Space[Any], acts: gym.Space[Any] | None = None, mapping: ObservationMapping = DEFAULT) -> Kind:
    return Kind(space, acts or Discrete(3), mapping)


# Rows


def test_a_box_is_a_row() -> None:
    each = kind(Box(-4.0, 4.0, (2, 2)))
    assert [(column.name, column.scale, column.visible) for column in each.agent_columns("")] == [
        (f"observation[{i}]", 0.25, "self") for i in range(4)
    ]
    reading = each.read(np.array([[1, 2], [3, 4]]))
    assert reading.row.tolist() == [1, 2, 3, 4]
    assert reading.mask is None


def test_bounds_give_scales_where_they_mean_something() -> None:
    space = Box(np.array([0.0, -0.5, -np.inf, 0.0]), np.array([255.0, 0.5, 1.0, 1e30]), dtype=np.float64)
    assert [column.scale for column in kind(space).agent_columns("")] == [1 / 255, 1.0, 1.0, 1.0]


def test_nested_entries_are_joined_in_their_order() -> None:
    space = Dict({"body": Dict({"place": Box(0, 1, (2,)), "kind": Discrete(3)}), "flags": MultiBinary(2)})
    each = kind(space)
    names = [column.name for column in each.agent_columns("")]
    kinds, places = [f"body.kind[{i}]" for i in range(3)], [f"body.place[{i}]" for i in range(2)]
    assert names == [*kinds, *places, "flags[0]", "flags[1]"]
    observation = {"body": {"place": np.array([0.5, 0.25]), "kind": 2}, "flags": np.array([1, 0])}
    assert each.read(observation).row.tolist() == [0, 0, 1, 0.5, 0.25, 1, 0]


def test_what_others_may_see() -> None:
    space = Dict({"hand": Box(0, 1, (1,)), "place": Box(0, 1, (1,)), "unused": Box(0, 1, (1,))})
    each = kind(space, mapping=ObservationMapping(own=("hand",), shared=("place",)))
    assert [(c.name, c.visible) for c in each.agent_columns("")] == [("hand[0]", "self"), ("place[0]", "all")]
    observation = {"hand": np.array([0.5]), "place": np.array([0.25]), "unused": np.array([np.nan])}
    assert each.read(observation).row.tolist() == [0.5, 0.25]


def test_numbers_that_are_not_finite_are_told() -> None:
    with pytest.raises(ValueError, match="entry 'a' holds numbers that are not finite"):
        kind(Dict({"a": Box(0, 1, (1,))})).read({"a": np.array([np.nan])})
    with pytest.raises(ValueError, match="entry 'observation' has 3 numbers, not 2"):
        kind(Box(0, 1, (2,))).read(np.zeros(3))


@pytest.mark.parametrize(
    ("space", "acts", "mapping", "message"),
    [
        (Sequence(Discrete(2)), None, DEFAULT, "is a Sequence, which is no fixed list of numbers"),
        (Box(0, 1, (1,)), Box(0, 1, (2,)), DEFAULT, "actions must be Discrete"),
        (Box(0, 1, (1,)), MultiDiscrete([100, 100]), DEFAULT, "10,000 combinations, too many"),
        (
            Dict({"fires": Box(0, 1, (2, 2))}),
            None,
            ObservationMapping(tasks="fire"),
            "no entry 'fire'; did you mean 'fires'",
        ),
        (Dict({"a": Box(0, 1, (2,))}), None, ObservationMapping(tasks="a"), "must be a Box of shape"),
        (
            Dict({"a": Box(0, 1, (9, 2))}),
            None,
            ObservationMapping(tasks="a"),
            "9 tasks need actions up to 9, but there are 3",
        ),
        (Dict({"action_mask": MultiBinary(4)}), None, DEFAULT, "has 4 numbers for 3 actions"),
    ],
)
def test_what_is_refused(space: Any, acts: Any, mapping: ObservationMapping, message: str) -> None:
    with pytest.raises(UserError, match=message):
        kind(space, acts, mapping)


# Actions


def test_actions_begin_where_the_space_begins() -> None:
    assert [kind(Box(0, 1, (1,)), Discrete(3, start=5)).action(choice) for choice in range(3)] == [5, 6, 7]


def test_several_parts_of_an_action_are_one_set() -> None:
    each = kind(Box(0, 1, (1,)), MultiDiscrete([2, 3]))
    assert each.num_actions == 6
    assert [each.action(choice).tolist() for choice in (0, 2, 3, 5)] == [[0, 0], [0, 2], [1, 0], [1, 2]]


def test_parts_begin_where_their_space_begins() -> None:
    each = kind(Box(0, 1, (1,)), MultiDiscrete([2, 3], start=[1, 5]))
    assert [each.action(choice).tolist() for choice in (0, 5)] == [[1, 5], [2, 7]]


def test_a_mask_of_another_length_is_told() -> None:
    each = kind(Dict({"a": Box(0, 1, (1,)), "action_mask": MultiBinary(3)}))
    with pytest.raises(ValueError, match="entry 'action_mask' has 2 numbers for 3 actions"):
        each.read({"a": np.zeros(1), "action_mask": np.ones(2)})


@pytest.mark.parametrize("value", [2, np.nan, -1])
def test_a_mask_is_zero_or_one(value: float) -> None:
    each = kind(Dict({"a": Box(0, 1, (1,)), "action_mask": Box(-1, 2, (3,))}))
    with pytest.raises(ValueError, match="entry 'action_mask' must be 0 or 1 for each action"):
        each.read({"a": np.zeros(1), "action_mask": np.array([1, value, 0])})


def test_the_noop_is_no_task() -> None:
    space = Dict({"tasks": Box(0, 9, (3, 2))})
    with pytest.raises(UserError, match="is the action of a task"):
        kind(space, Discrete(4), ObservationMapping(tasks="tasks", first_task_action=0))


class Masked(ParallelEnv):
    """Two agents of different kinds; what they may do is written down."""

    metadata: dict[str, Any] = {"name": "masked"}  # noqa: RUF012
    possible_agents = ["big", "small"]  # noqa: RUF012

    def __init__(self, masks: dict[str, list[int]]) -> None:
        self.masks = masks
        self.taken: list[dict[str, int]] = []

    def observation_space(self, agent: str) -> gym.Space[Any]:
        size = 2 if agent == "big" else 1
        return Dict({"observation": Box(0, 1, (size,)), "action_mask": MultiBinary(size + 1)})

    def action_space(self, agent: str) -> gym.Space[Any]:
        return Discrete(3 if agent == "big" else 2)

    def _observations(self) -> dict[str, Any]:
        return {
            name: {"observation": np.full(len(mask) - 1, 0.5), "action_mask": np.array(mask, dtype=np.int8)}
            for name, mask in self.masks.items()
        }

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents = list(self.possible_agents)
        return self._observations(), {}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        self.taken.append(actions)
        false = dict.fromkeys(self.agents, False)
        return self._observations(), dict.fromkeys(self.agents, 0.0), false, false, {}


def masked(big: list[int], small: list[int], **options: Any) -> tuple[BridgedEnv, Masked]:
    inner = Masked({"big": big, "small": small})
    env = bridge(lambda: inner, mapping=ObservationMapping(**options))
    env.reset(np.array([0]))
    return env, inner


def test_kinds_of_agents_stand_side_by_side() -> None:
    env, inner = masked([1, 0, 1], [0, 1])
    assert [column.name for column in env.spec.agent_columns] == [
        "kind 0",
        "kind 1",
        "0:observation[0]",
        "0:observation[1]",
        "1:observation[0]",
    ]
    obs = env.observe()
    np.testing.assert_array_equal(obs.agent_rows, [[1, 0, 0.5, 0.5, 0], [0, 1, 0, 0, 0.5]])
    np.testing.assert_array_equal(obs.action_mask, [[True, False, True], [False, True, False]])
    env.step(np.array([2, 1]))
    assert inner.taken == [{"big": 2, "small": 1}]


def test_a_mask_of_nothing_but_zeros_falls_to_the_noop_and_is_counted() -> None:
    env, inner = masked([0, 0, 0], [1, 1], noop=1)
    result = env.step(np.array([NO_OP, 0]))
    assert result.events["without_action"].tolist() == [1]
    assert inner.taken == [{"big": 1, "small": 0}]
    env.step(np.array([2, 0]))  # an action that does nothing is played as the no-op, too
    assert inner.taken[1] == {"big": 1, "small": 0}


# Tasks


def errands(**options: Any) -> BridgedEnv:
    env = bridge(lambda: Errands(**options), mapping=MAPPING)
    env.reset(np.array([3]))
    return env


def test_tasks_are_shared_and_pairs_are_an_agents_own() -> None:
    env = errands(filler=np.nan)
    inner = env._copies[0]._foreign.env
    obs = env.observe()
    waiting = np.flatnonzero(inner.parcel >= 0)
    assert env.spec.num_actions is None
    np.testing.assert_array_equal(obs.task_rows, np.stack([inner.parcel, inner.age], axis=1)[waiting])
    assert obs.pair_task.tolist() == list(range(len(waiting))) * len(inner.agents)
    places = np.array([inner.place[inner.agents[row]] for row in obs.pair_agent])
    np.testing.assert_array_equal(obs.pair_rows[:, 0], inner.parcel[waiting][obs.pair_task] - places)


def test_a_choice_is_the_action_of_its_task() -> None:
    env = errands()
    inner = env._copies[0]._foreign.env
    inner.parcel[:] = [-1, 4, -1, 2]  # two tasks, in places 1 and 3
    env._copies[0]._update(
        type("Moment", (), {"terminated": set(), "truncated": set(), "observations": inner._observations()})
    )
    env._obs = None
    assert env.observe().task_rows[:, 0].tolist() == [4.0, 2.0]
    copy = env._copies[0]
    reading = copy.members[0].reading
    assert [copy._reader.action(copy.members[0].name, reading, choice) for choice in (NO_OP, 0, 1)] == [0, 2, 4]
    with pytest.raises(ValueError, match="choice 2 must lie in -1 to 1"):
        env.step(np.full(len(copy.members), 2))


def test_a_task_that_exists_must_be_finite() -> None:
    env = errands()
    env._copies[0]._foreign.env.age[:] = np.nan
    with pytest.raises(
        EnvironmentFailedError, match="entry 'parcels' holds numbers that are not finite in the row of a task"
    ):
        env.step(np.full(len(env.observe().present), NO_OP))


def test_rows_of_zeros_are_no_tasks_where_nothing_says_which_exist() -> None:
    space = Dict({"tasks": Box(0, 9, (3, 2))})
    each = kind(space, Discrete(4), ObservationMapping(tasks="tasks"))
    reading = each.read({"tasks": np.array([[0, 0], [0, 1], [2, 0]])})
    assert reading.slot.tolist() == [1, 2]
    assert reading.legal.tolist() == [True, True]


def test_an_environment_without_names_needs_some() -> None:
    with pytest.raises(UserError, match="declares no agents"):
        Reader(DEFAULT, {})
