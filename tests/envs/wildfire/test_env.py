"""What holds for every world and every play: independence of the batch, exact continuation, packed observations."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_openness.envs.base import PackedObs, StepResult, concatenate
from rl_openness.envs.draws import DecisionDraws
from rl_openness.envs.wildfire import WildfireEnv, make_wildfire
from rl_openness.policies.generic import Random
from tests.envs.alike import assert_a_copy_is_its_own, assert_same

few = settings(max_examples=25, deadline=None)
seed_lists = st.lists(st.integers(0, 2**62), min_size=1, max_size=6)

# A world in which everything happens: equipment wears, tanks change, fuel runs out, agents differ, episodes are short.
BUSY = {
    "agent.equipment_states": [[-1.0, 0.0, 0.0], [0.0, 0.5, 0.0], [0.5, 0.0, 1.0]],
    "agent.degrade_probability": 0.3,
    "agent.critical_error_probability": 0.1,
    "agent.repair_probability": 0.5,
    "agent.possible_capacities": [1.0, 2.0, 3.0],
    "agent.capacity_probabilities": [0.25, 0.25, 0.5],
    "stochastic.tank_switch": True,
    "stochastic.degrade": True,
    "stochastic.critical_error": True,
    "stochastic.repair": True,
    "stochastic.fire_fuel": True,
    "fire.initial_fuel": 3,
    "env.max_steps": 12,
}
worlds = st.sampled_from(
    [
        {"setup": "3x3/S3", "overrides": {"env.max_steps": 8}},
        {"setup": "upstream/4x4/S3", "overrides": {"env.max_steps": 15}},
        {"setup": "5x5/S1", "overrides": BUSY, "team_size": 5},
        {"setup": "upstream/2x3/S2", "overrides": BUSY},
        {"setup": "3x3/S2", "overrides": {**BUSY, "env.show_bad_actions": True, "env.presence": "always"}},
    ]
)


def play(env: WildfireEnv, count: int) -> Iterator[tuple[PackedObs, StepResult]]:
    """Steps with random legal choices that depend on the seeds alone."""
    for _ in range(count):
        obs = env.observe()
        yield obs, env.step(Random().act(obs, env.draws()))


@few
@given(worlds, seed_lists, st.randoms())
def test_a_copy_does_not_depend_on_its_batch(world: dict[str, Any], seeds: list[int], random: Any) -> None:
    assert_a_copy_is_its_own(lambda copies: make_wildfire(copies, **world), play, seeds, random, 30)


@few
@given(worlds, seed_lists, st.integers(0, 25))
def test_set_state_goes_on_exactly(world: dict[str, Any], seeds: list[int], before: int) -> None:
    env = make_wildfire(len(seeds), **world)
    env.reset(seeds)
    for _ in play(env, before):
        pass
    other = make_wildfire(len(seeds), **world)
    other.set_state(env.get_state())
    for (obs, result), (other_obs, other_result) in zip(play(env, 20), play(other, 20), strict=True):
        assert_same(obs, other_obs)
        np.testing.assert_array_equal(result.team_reward, other_result.team_reward)
        np.testing.assert_array_equal(result.ended, other_result.ended)


def test_get_state_is_a_copy_and_set_state_checks_it() -> None:
    env = make_wildfire(2)
    state = env.get_state()
    env.step(np.full(6, -1))
    assert state["step"].tolist() == [0, 0]
    with pytest.raises(ValueError, match="'fire' must have shape"):
        env.set_state({**state, "fire": state["fire"][:1]})
    with pytest.raises(ValueError, match=r"'seed' must have shape .* found nothing"):
        env.set_state({name: array for name, array in state.items() if name != "seed"})
    assert env.get_state()["step"].tolist() == [1, 1]


def test_reset_goes_on_to_the_next_episode_unless_seeded() -> None:
    env = make_wildfire(3)
    env.reset([7, 8, 9])
    keys = env.decision_keys()
    env.step(np.full(9, -1))
    env.reset(copies=np.array([1]))
    assert env.get_state()["episode"].tolist() == [0, 1, 0]
    assert env.get_state()["step"].tolist() == [1, 0, 1]
    env.reset([7, 8, 9])
    np.testing.assert_array_equal(env.decision_keys(), keys)
    with pytest.raises(ValueError, match="one seed per copy: 3 copies"):
        env.reset([1, 2])


@few
@given(worlds, seed_lists)
def test_ended_copies_start_anew(world: dict[str, Any], seeds: list[int]) -> None:
    env = make_wildfire(len(seeds), **world)
    env.reset(seeds)
    agents = env.config.num_agents
    fresh = np.ones(len(seeds), dtype=bool)
    for obs, result in play(env, 25):
        carry = np.arange(len(obs.present))
        np.testing.assert_array_equal(obs.carry, np.where(np.repeat(fresh, agents), -1, carry))
        fresh = result.terminated | result.truncated
        assert result.ended.tolist() == np.flatnonzero(fresh).tolist()
        assert (result.final_obs is None) == (not fresh.any())


def test_the_next_episode_of_a_seed_is_another_one() -> None:
    env = make_wildfire(1, overrides={"env.max_steps": 6})
    env.reset([3])
    fires = [obs.task_rows.tobytes() for obs, _ in play(env, 12)]
    assert fires[0] == fires[6]  # the same start
    assert fires[:6] != fires[6:]


@few
@given(worlds, seed_lists)
def test_final_obs_is_the_last_observation(world: dict[str, Any], seeds: list[int]) -> None:
    env, dead = make_wildfire(len(seeds), **world), make_wildfire(len(seeds), **world, at_end="continue")
    env.reset(seeds)
    dead.reset(seeds)
    running = np.ones(len(seeds), dtype=bool)
    for obs, result in play(env, 15):
        members = np.repeat(running, env.config.num_agents)
        choices = np.where(members, Random().act(obs, DecisionDraws(dead.decision_keys())), -1)
        dead.step(choices)
        last = [b for b in result.ended if running[b]]
        if last and result.final_obs is not None:
            rows = np.searchsorted(result.ended, last)
            assert_same(result.final_obs.select(rows), dead.observe().select(np.array(last)))
            running[last] = False


@few
@given(worlds, seed_lists)
def test_events_add_up(world: dict[str, Any], seeds: list[int]) -> None:
    env = make_wildfire(len(seeds), **world, at_end="continue")
    env.reset(seeds)
    fires, dry = (env.get_state()["fire"] > 0).sum(axis=1), np.zeros(len(seeds), dtype=int)
    for _ in range(12):
        obs = env.observe()
        choices = Random().act(obs, env.draws())
        events = env.step(choices).events
        fights = (choices.reshape(len(seeds), -1) >= 0).sum(axis=1)
        np.testing.assert_array_equal(events["fights"] + events["bad_attacks"], fights)
        fires = fires + events["ignitions"] - events["putouts"] - events["burnouts"]
        np.testing.assert_array_equal(fires, (env.get_state()["fire"] > 0).sum(axis=1))
        np.testing.assert_array_equal(fires, np.diff(env.observe().task_ptr))
        dry = dry + events["ran_dry"] - events["refilled"]
        if "agent.equipment_states" not in world["overrides"]:  # a negative bonus can fill a tank with nothing
            np.testing.assert_array_equal(dry, (env.get_state()["suppressant"] <= 0).sum(axis=1))


def check_packing(env: WildfireEnv, obs: PackedObs) -> None:
    members, tasks, pairs = len(obs.present), len(obs.task_rows), len(obs.pair_agent)
    for ptr, total in ((obs.agent_ptr, members), (obs.task_ptr, tasks), (obs.pair_ptr, pairs)):
        assert ptr[0] == 0
        assert ptr[-1] == total
        assert (np.diff(ptr) >= 0).all()
    assert obs.num_copies == env.num_copies
    assert members == env.num_copies * env.config.num_agents
    order = obs.pair_agent * (tasks + 1) + obs.pair_task
    assert (np.diff(order) > 0).all()  # by agent, then by task, none twice
    assert obs.present[obs.pair_agent].all()
    np.testing.assert_array_equal(
        obs.agent_copy[obs.pair_agent], np.repeat(np.arange(obs.num_copies), np.diff(obs.task_ptr))[obs.pair_task]
    )
    offset = obs.task_rows[obs.pair_task, :2] - obs.agent_rows[obs.pair_agent, :2]
    np.testing.assert_array_equal(obs.pair_rows[:, :2], offset)
    np.testing.assert_array_equal(
        obs.pair_rows[:, 2], obs.task_rows[obs.pair_task, 2] - obs.agent_rows[obs.pair_agent, 2]
    )
    for rows, columns in (
        (obs.agent_rows, env.spec.agent_columns),
        (obs.task_rows, env.spec.task_columns),
        (obs.pair_rows, env.spec.pair_columns),
    ):
        assert rows.dtype == np.float32
        assert rows.shape[1] == len(columns)
        assert np.isfinite(rows).all()


@few
@given(worlds, seed_lists)
def test_packing(world: dict[str, Any], seeds: list[int]) -> None:
    env = make_wildfire(len(seeds), **world)
    env.reset(seeds)
    for obs, _ in play(env, 12):
        check_packing(env, obs)


@few
@given(worlds, seed_lists, st.integers(0, 12), st.data())
def test_select_and_concatenate(world: dict[str, Any], seeds: list[int], before: int, data: st.DataObject) -> None:
    env = make_wildfire(len(seeds), **world)
    env.reset(seeds)
    for _ in play(env, before):
        pass
    obs = env.observe()
    one_by_one = [obs.select(np.array([b])) for b in range(len(seeds))]
    assert_same(concatenate(one_by_one), obs)
    copies = np.array(data.draw(st.lists(st.integers(0, len(seeds) - 1), min_size=1, max_size=8)))
    assert_same(obs.select(copies), concatenate([one_by_one[b] for b in copies]))


def test_select_and_concatenate_keep_who_sees_whom_and_action_masks() -> None:
    obs = make_wildfire(2, setup="3x3/S3").observe()
    extra = {
        "see_ptr": np.array([0, 1, 3, 3, 4, 4, 6]),
        "see_agent": np.array([0, 0, 1, 3, 4, 5]),
        "action_mask": np.eye(6, 4) > 0,
    }
    obs = PackedObs(**{**vars(obs), **extra})
    swapped = obs.select(np.array([1, 0]))
    assert swapped.see_ptr is not None
    assert swapped.see_agent is not None
    assert swapped.see_ptr.tolist() == [0, 1, 1, 3, 4, 6, 6]
    assert swapped.see_agent.tolist() == [0, 1, 2, 3, 3, 4]
    assert_same(swapped.select(np.array([1, 0])), obs)
    assert_same(concatenate([obs.select(np.array([0])), obs.select(np.array([1]))]), obs)


@pytest.mark.parametrize("team_size", range(1, 7))
def test_any_team_size(team_size: int) -> None:
    env = make_wildfire(3, setup="4x4/S3", team_size=team_size)
    for obs, result in play(env, 110):
        check_packing(env, obs)
        assert result.agent_reward.shape == (3 * team_size,)


def one_cell() -> dict[str, Any]:
    data: dict[str, Any] = make_wildfire(setup="3x3/S3").config.model_dump()
    data.update(grid_height=1, grid_width=1)
    data["fire"].update(fire_types=[[1]], lit=[[True]], ignition_temp=[[2]])
    data["agent"].update(agents=[(0, 0)], fire_reduction_power=[1], attack_range=[0])
    data["reward"].update(fire_rewards=[[2.0]])
    return data


def large_grid() -> dict[str, Any]:
    height, width = 12, 9
    data: dict[str, Any] = make_wildfire(setup="3x3/S3").config.model_dump()
    sizes = (np.arange(height * width).reshape(height, width) % 4).tolist()
    data.update(grid_height=height, grid_width=width)
    lit = (np.arange(height * width).reshape(height, width) % 5 == 0).tolist()
    data["fire"].update(fire_types=sizes, lit=lit, ignition_temp=np.full((height, width), 2).tolist())
    agents = [(y, x) for y in range(1, height, 4) for x in range(1, width, 3)]
    data["agent"].update(agents=agents, fire_reduction_power=[1.5] * len(agents), attack_range=[2] * len(agents))
    data["reward"].update(fire_rewards=np.exp2(sizes).tolist())
    return data


@pytest.mark.parametrize("make", [one_cell, large_grid])
def test_grids_of_any_size(make: Any) -> None:
    env = make_wildfire(4, config=make())
    putouts = ignitions = 0
    for obs, result in play(env, 120):
        check_packing(env, obs)
        putouts += result.events["putouts"].sum()
        ignitions += result.events["ignitions"].sum()
    assert putouts > 0
    assert ignitions > 0


def test_an_environment_needs_a_copy() -> None:
    with pytest.raises(ValueError, match="num_copies must be a whole number of at least 1, not 0"):
        make_wildfire(0)


@pytest.mark.parametrize(
    "wrong", [[0.7] * 6, [True] * 6, [float("nan")] * 6, ["0"] * 6, [None] * 6, np.full(6, 2**63, dtype=np.uint64)]
)
def test_choices_that_are_no_whole_numbers_are_refused(wrong: object) -> None:
    env = make_wildfire(2)
    before = env.get_state()
    with pytest.raises(ValueError, match="choices must be whole numbers"):
        env.step(wrong)
    assert all(np.array_equal(array, before[name]) for name, array in env.get_state().items())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"copies": [True, False]}, "copies must be whole numbers"),
        ({"copies": [0.5]}, "copies must be whole numbers"),
        ({"copies": [5]}, "copies must lie in 0 to 1"),
        ({"seeds": [1.5, 2.5]}, "seeds must be whole numbers"),
        ({"seeds": [1]}, "one seed per copy"),
    ],
)
def test_resets_of_nonsense_are_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_wildfire(2).reset(**arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"setup": 3}, "setup must be a name"),
        ({"team_size": "3"}, "team_size must be a whole number"),
        ({"team_size": True}, "team_size must be a whole number"),
        ({"overrides": [1]}, "overrides must be fields and values"),
        ({"config": 3}, "config must be the fields of a world"),
        ({"at_end": "foo"}, "at_end must be one of reset, stop, continue"),
        ({"num_copies": "3"}, "num_copies must be"),
        ({"num_copies": 1.5}, "num_copies must be"),
        ({"num_copies": True}, "num_copies must be"),
    ],
)
def test_options_of_another_kind_are_refused(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make_wildfire(**arguments)


def test_overrides_may_be_nested() -> None:
    nested = make_wildfire(overrides={"fire": {"burnout_probability": 0.3}})
    assert nested.config == make_wildfire(overrides={"fire.burnout_probability": 0.3}).config
