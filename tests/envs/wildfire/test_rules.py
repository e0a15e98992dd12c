"""Hand-worked steps for what the recorded trajectories do not cover."""

import math
from typing import Any

import numpy as np
import pytest

from rl_openness.envs.base import NO_OP, StepResult
from rl_openness.envs.wildfire import WildfireEnv, wildfire_config

NEVER, ALWAYS = 0.999, 0.0  # draws at or above, and below, every probability used here that is not 0 or 1

# Two cells that can burn, west (size 1, worth 2, lit) and east (size 2, worth 4), and two agents in the middle.
WORLD: dict[str, Any] = {
    "grid_height": 1,
    "grid_width": 3,
    "fire": {
        "fire_types": [[1, 0, 2]],
        "lit": [[True, False, False]],
        "intensity_increase_probability": 0.5,
        "intensity_decrease_probability": 0.5,
        "extra_power_decrease_bonus": 0.25,
        "burnout_probability": 0.5,
        "base_spread_rate": 0.0,
        "random_ignition_probability": 0.5,
        "ignition_temp": [[1, 1, 1]],
    },
    "agent": {
        "agents": [[0, 1], [0, 1]],
        "fire_reduction_power": [1, 1],
        "attack_range": [1, 1],
        "suppressant_states": 3,
        "initial_suppressant": 2,
        "initial_capacity": 2,
        "initial_equipment_state": 0,
        "suppressant_decrease_probability": 0.5,
        "suppressant_refill_probability": 0.5,
        "equipment_states": [[0, 0, 0]],
        "possible_capacities": [1, 2, 3],
        "capacity_probabilities": [0.0, 1.0, 0.0],
    },
    "reward": {"fire_rewards": [[2, 0, 4]], "burnout_penalty_scaled": True},
    "stochastic": {
        "special_burnout_probability": True,
        "suppressant_refill": True,
        "suppressant_decrease": True,
        "tank_switch": True,
        "critical_error": False,
        "degrade": False,
        "repair": False,
        "fire_increase": True,
        "fire_decrease": True,
        "fire_spread": False,
        "realistic_fire_spread": False,
        "random_fire_ignition": True,
        "fire_fuel": False,
    },
    "env": {"max_steps": 100},
}
FIELD = ("up", "down", "spread")
AGENT = ("use", "wear", "refill", "size", "tank")


def world(copies: int = 1, at_end: Any = "continue", **overrides: Any) -> WildfireEnv:
    """`WORLD` with fields replaced; `fire__lit=...` sets `fire.lit`."""
    dotted = {name.replace("__", "."): value for name, value in overrides.items()}
    return WildfireEnv(wildfire_config(config=WORLD, overrides=dotted), copies, at_end=at_end)


def step(env: WildfireEnv, *choices: int, **draws: Any) -> StepResult:
    """Play the choices; a random event fails unless its draw (a number, or one per cell or agent) is given."""
    cells = env.config.grid_height * env.config.grid_width
    field = np.full((env.num_copies, 3, cells), NEVER)
    agent = np.full((env.num_copies, 5, env.config.num_agents), NEVER)
    for name, value in draws.items():
        block, row = (field, FIELD.index(name)) if name in FIELD else (agent, AGENT.index(name))
        block[:, row] = value
    return env.step(np.array(choices), field, agent)


def state(env: WildfireEnv, name: str) -> list[Any]:
    """A state array of copy 0."""
    values: list[Any] = env.get_state()[name][0].tolist()
    return values


def test_terminated_and_truncated_at_once() -> None:
    env = world(env__max_steps=1, reward__termination_reward=10.0, reward__termination_kappa=1.0)
    result = step(env, 0, NO_OP, down=ALWAYS)
    assert result.terminated[0]
    assert result.truncated[0]
    assert result.ended.tolist() == [0]
    assert result.agent_reward.tolist() == [12.0, 12.0]
    assert result.team_reward.tolist() == [12.0]
    assert state(env, "fire") == [0, 0, 0]


def test_termination_reward_counts_the_burnouts_before_the_last_step() -> None:
    lit = {"fire__lit": [[True, False, True]], "fire__ignition_temp": [[3, 1, 1]], "fire__fire_types": [[1, 0, 1]]}
    env = world(reward__termination_reward=10.0, reward__termination_kappa=4.0, **lit)
    first = step(env, NO_OP, NO_OP, up=[ALWAYS, NEVER, NEVER])
    assert (first.team_reward[0], bool(first.terminated[0])) == (-2.0, False)
    last = step(env, 0, NO_OP, down=ALWAYS)
    assert last.terminated[0]
    assert last.team_reward[0] == pytest.approx(4.0 + 10.0 - 4.0 * math.log(2))

    burnt_last = world(reward__termination_reward=10.0, reward__termination_kappa=4.0, fire__ignition_temp=[[3, 1, 1]])
    assert step(burnt_last, NO_OP, NO_OP, up=ALWAYS).team_reward[0] == -2.0 + 10.0
    assert step(burnt_last, NO_OP, NO_OP).team_reward[0] == 0.0  # paid once, the flag stays
    assert step(burnt_last, NO_OP, NO_OP).terminated[0]


def test_termination_reward_is_never_negative() -> None:
    env = world(reward__termination_reward=-3.0)
    assert step(env, 0, NO_OP, down=ALWAYS).team_reward[0] == 2.0


def test_fractional_suppressant_lasts_one_more_fight() -> None:
    env = world(agent__equipment_states=[[0.5, 0, 0]], agent__tank_switch_probability=0.5)
    step(env, NO_OP, NO_OP, refill=[ALWAYS, NEVER])
    assert state(env, "suppressant") == [2.5, 2.0]
    dry = [step(env, 0, NO_OP, use=ALWAYS).events["ran_dry"][0] for _ in range(2)]
    assert state(env, "suppressant") == [0.5, 2.0]
    assert env.observe().present.tolist() == [True, True]
    dry.append(step(env, 0, NO_OP, use=ALWAYS).events["ran_dry"][0])
    assert dry == [0, 0, 1]
    assert state(env, "suppressant") == [0.0, 2.0]
    assert env.observe().present.tolist() == [False, True]


def test_negative_capacity_bonus_shows_for_one_step() -> None:
    env = world(agent__equipment_states=[[-3.0, 0, 0]], agent__tank_switch_probability=0.5)
    assert step(env, NO_OP, NO_OP, refill=[ALWAYS, NEVER]).events["refilled"][0] == 0
    assert state(env, "suppressant") == [-1.0, 2.0]
    assert env.observe().present.tolist() == [False, True]
    step(env, NO_OP, NO_OP)
    assert state(env, "suppressant") == [0.0, 2.0]


def test_a_lit_cell_of_size_0_is_no_fire() -> None:
    env = world(
        fire__lit=[[False, True, False]],
        fire__ignition_temp=[[1, 3, 1]],
        fire__base_spread_rate=1.0,
        stochastic__fire_spread=True,
        stochastic__random_fire_ignition=False,
    )
    assert (state(env, "fire"), state(env, "intensity")) == ([-1, 0, -2], [0, 3, 0])
    assert len(env.observe().task_rows) == 0
    result = step(env, NO_OP, NO_OP, up=ALWAYS, down=ALWAYS, spread=ALWAYS)
    assert {name: int(count[0]) for name, count in result.events.items() if count[0]} == {}
    assert result.terminated[0]  # it keeps no episode alive either


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ([0, NO_OP, 0, 1], "copy 1, agent 1: choice 1 is not legal; legal: -1 (no-op) to 0"),
        ([0, NO_OP, 99, NO_OP], "copy 1, agent 0: choice 99 is not legal; legal: -1 (no-op) to 0"),
        ([-2, NO_OP, NO_OP, NO_OP], "copy 0, agent 0: choice -2 is not legal; legal: -1 (no-op) to 0"),
        ([0, 0, NO_OP, NO_OP], "copy 0, agent 1: choice 0 is not legal; legal: -1 (no-op) only"),
    ],
)
def test_illegal_choices_change_nothing(choices: list[int], message: str) -> None:
    env = world(2)
    started = env.get_state()
    started["suppressant"][0, 1] = 0.0  # away
    env.set_state(started)
    with pytest.raises(ValueError, match="is not legal") as error:
        env.step(np.array(choices))
    assert str(error.value) == message
    for name, array in env.get_state().items():
        np.testing.assert_array_equal(array, started[name], err_msg=name)


@pytest.mark.parametrize("shape", [(3,), (5,), (2, 2)])
def test_choices_must_be_one_per_member(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="needs 4 choices, one per member"):
        world(2).step(np.full(shape, NO_OP))


def test_a_bad_attack_costs_its_agent_alone_and_uses_nothing() -> None:
    env = world(
        env__show_bad_actions=True,
        env__presence="always",
        agent__attack_range=[1, 0],
        reward__bad_attack_penalty=-100.0,
    )
    result = step(env, 0, 0, down=ALWAYS, use=ALWAYS, refill=ALWAYS)
    assert result.agent_reward.tolist() == [2.0, -98.0]
    assert result.team_reward.tolist() == [2.0 - 50.0]
    assert (result.events["fights"][0], result.events["bad_attacks"][0]) == (1, 1)
    assert state(env, "suppressant") == [1.0, 2.0]


def test_a_burnt_cell_stays_dead_unless_it_recovers() -> None:
    env = world(fire__ignition_temp=[[3, 1, 1]])
    result = step(env, NO_OP, NO_OP, up=ALWAYS, spread=[ALWAYS, NEVER, NEVER])
    assert (result.events["burnouts"][0], result.events["ignitions"][0]) == (1, 0)
    assert (state(env, "fire"), state(env, "intensity")) == ([0, 0, 0], [4, 0, 0])  # over: nothing burns


def test_a_recovering_cell_may_burn_again_in_the_same_step() -> None:
    env = world(fire__ignition_temp=[[3, 1, 1]], fire__burnt_cells_recover=True)
    result = step(env, NO_OP, NO_OP, up=ALWAYS, spread=[ALWAYS, NEVER, NEVER])
    assert (result.events["burnouts"][0], result.events["ignitions"][0]) == (1, 1)
    assert (state(env, "fire"), state(env, "intensity")) == ([1, 0, -2], [3, 0, 0])
    assert result.team_reward[0] == -2.0
    assert not result.terminated[0]


def test_a_recovered_cell_without_fuel_stays_dead() -> None:
    env = world(
        fire__ignition_temp=[[3, 1, 1]],
        fire__burnt_cells_recover=True,
        fire__initial_fuel=1,
        stochastic__fire_fuel=True,
    )
    for _ in range(2):
        result = step(env, NO_OP, NO_OP, up=ALWAYS, spread=[ALWAYS, NEVER, NEVER])
        assert result.events["ignitions"][0] == 0
        assert not result.terminated[0]  # the other cell has fuel left
    assert (state(env, "fire"), state(env, "intensity"), state(env, "fuel")) == ([-1, 0, -2], [0, 0, 0], [0, 0, 1])


def test_without_end_when_clear_only_the_horizon_ends_an_episode() -> None:
    env = world(env__end_when_clear=False, env__max_steps=3, reward__termination_reward=10.0)
    results = [step(env, 0, NO_OP, down=ALWAYS)]
    assert state(env, "fire") == [-1, 0, -2]  # out, and not zeroed
    results.append(step(env, NO_OP, NO_OP, spread=[NEVER, NEVER, ALWAYS]))
    assert state(env, "fire") == [-1, 0, 2]
    results.append(step(env, NO_OP, NO_OP))
    assert [result.team_reward[0] for result in results] == [2.0, 0.0, 0.0]
    assert [bool(result.terminated[0]) for result in results] == [False] * 3
    assert [bool(result.truncated[0]) for result in results] == [False, False, True]


def test_stepping_an_ended_copy_names_it() -> None:
    env = world(2, at_end="stop")
    env.step(np.array([NO_OP] * 4), np.full((2, 3, 3), NEVER), np.full((2, 5, 2), NEVER))
    field = np.full((2, 3, 3), NEVER)
    field[1, 1] = ALWAYS
    result = env.step(np.array([NO_OP, NO_OP, 0, NO_OP]), field, np.full((2, 5, 2), NEVER))
    assert result.ended.tolist() == [1]
    with pytest.raises(ValueError, match="copy 1 has ended"):
        env.step(np.full(4, NO_OP))
    env.reset(copies=np.array([1]))
    env.step(np.full(4, NO_OP))


def test_a_truncated_copy_must_not_be_stepped_either() -> None:
    env = world(at_end="stop", env__max_steps=1)
    assert step(env, NO_OP, NO_OP).truncated[0]
    with pytest.raises(ValueError, match="copy 0 has ended"):
        step(env, NO_OP, NO_OP)


@pytest.mark.parametrize("wear", [ALWAYS, NEVER])
def test_a_single_equipment_state_never_changes(wear: float) -> None:
    env = world(agent__equipment_states=[[0, 0, 0]])
    for _ in range(3):
        step(env, NO_OP, NO_OP, wear=wear)
        assert state(env, "equipment") == [0, 0]


def test_localised_putouts_pay_the_hitters_and_the_team_their_mean() -> None:
    env = world(reward__localize_putouts=True, fire__lit=[[True, False, True]], fire__ignition_temp=[[1, 1, 3]])
    result = step(env, 0, NO_OP, down=ALWAYS, up=ALWAYS)
    assert result.agent_reward.tolist() == [2.0 - 4.0, -4.0]  # the burnt-out east cell is everyone's loss
    assert result.team_reward.tolist() == [1.0 - 4.0]


@pytest.mark.parametrize(("size", "tank"), [(0.0, 1.0), (1e-9, 2.0), (0.9999999, 2.0)])
def test_the_zero_draw_picks_the_first_tank_even_at_probability_0(size: float, tank: float) -> None:
    env = world()
    step(env, NO_OP, NO_OP, refill=[ALWAYS, NEVER], tank=ALWAYS, size=size)
    assert state(env, "capacity") == [tank, 2.0]
    assert state(env, "suppressant") == [tank, 2.0]


def test_surplus_power_adds_to_the_chance_of_a_decrease() -> None:
    for surplus_draw, puts_out in ((0.74, 1), (0.75, 0)):  # 0.5 + 1 x 0.25, compared strictly
        assert step(world(), 0, 0, down=surplus_draw).events["putouts"][0] == puts_out
