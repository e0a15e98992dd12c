"""Wildfire as an `OpenVectorEnv`: B copies of one world, stepped together by the kernels of `rules`."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rl_openness.envs.base import Int, OpenVectorEnv, PackedObs, StepResult, whole_numbers
from rl_openness.envs.draws import Keys, child_seeds, step_keys
from rl_openness.envs.state import BIG, begin_episodes, restore
from rl_openness.envs.wildfire.config import WildfireConfig
from rl_openness.envs.wildfire.rules import (
    EVENTS,
    Draws,
    Outcome,
    Rules,
    State,
    draw_step,
    offer_limit,
    play_step,
    reset_copies,
    resolve_choices,
)
from rl_openness.envs.wildfire.view import pack, wildfire_spec
from rl_openness.errors import UserError

AtEnd = Literal["reset", "stop", "continue"]


def spread_weights(config: WildfireConfig) -> NDArray[np.float64]:
    """Ignition probability that a burning neighbour to the north, east, south, west adds (part 4, rule 8)."""
    fire = config.fire
    if not config.stochastic.fire_spread:
        return np.zeros(4)
    if not config.stochastic.realistic_fire_spread:
        return np.full(4, fire.base_spread_rate)
    k, m = fire.base_spread_rate / fire.cell_size, 1.0 - fire.base_spread_rate / fire.max_spread_rate
    directions = np.array([0.0, math.pi / 2, math.pi, 3 * math.pi / 2])
    return k / (1.0 - m * np.cos(directions - fire.wind_direction))


def compile_rules(config: WildfireConfig) -> Rules:
    """The constants of a world, with every switch resolved into an effective probability."""
    fire, agent, reward, on = config.fire, config.agent, config.reward, config.stochastic
    putout = np.array(reward.fire_rewards, dtype=np.float64).ravel()
    positions = np.array(agent.agents, dtype=np.int64)
    cells = np.argwhere(np.ones((config.grid_height, config.grid_width)))
    cumulative = np.cumsum(np.array(agent.capacity_probabilities, dtype=np.float32)).astype(np.float64)
    return Rules(
        height=config.grid_height,
        width=config.grid_width,
        size=np.array(fire.fire_types, dtype=np.int32).ravel(),
        lit=np.array(fire.lit, dtype=np.bool_).ravel(),
        ignition_temp=np.array(fire.ignition_temp, dtype=np.int32).ravel(),
        putout_reward=putout,
        burnout_reward=-putout if reward.burnout_penalty_scaled else np.full(putout.shape, reward.burnout_penalty),
        num_states=fire.num_fire_states,
        p_up=fire.intensity_increase_probability if on.fire_increase else 1.0,
        p_top=fire.burnout_probability if on.special_burnout_probability else fire.intensity_increase_probability,
        p_down=fire.intensity_decrease_probability,
        down_bonus=fire.extra_power_decrease_bonus,
        down_random=on.fire_decrease,
        spread=spread_weights(config),
        p_ignite=fire.random_ignition_probability if on.random_fire_ignition else 0.0,
        fuel_used=on.fire_fuel,
        initial_fuel=fire.initial_fuel,
        recover=fire.burnt_cells_recover,
        end_when_clear=config.env.end_when_clear,
        max_steps=config.env.max_steps or 0,
        agent_y=positions[:, 0].copy(),
        agent_x=positions[:, 1].copy(),
        cell_y=cells[:, 0].copy(),
        cell_x=cells[:, 1].copy(),
        distance=np.abs(positions[:, None] - cells).max(axis=-1),
        power=np.array(agent.fire_reduction_power, dtype=np.float64),
        reach=np.array(agent.attack_range, dtype=np.float64),
        equipment=np.array(agent.equipment_states, dtype=np.float64),
        initial_suppressant=float(agent.initial_suppressant),
        initial_capacity=float(agent.initial_capacity),
        initial_equipment=agent.initial_equipment_state,
        p_use=agent.suppressant_decrease_probability if on.suppressant_decrease else 1.0,
        p_repair=agent.repair_probability if on.repair else 1.0,
        p_critical=agent.critical_error_probability if on.critical_error else 0.0,
        p_degrade=agent.degrade_probability if on.degrade else 1.0,
        p_refill=agent.suppressant_refill_probability if on.suppressant_refill else 1.0,
        p_tank=agent.tank_switch_probability if on.tank_switch else 1.0,
        capacities=np.array(agent.possible_capacities, dtype=np.float64),
        capacity_cumulative=cumulative,
        bad_attack_penalty=reward.bad_attack_penalty,
        offer_all=config.env.show_bad_actions,
        presence_always=config.env.presence == "always",
        termination_reward=reward.termination_reward,
        termination_kappa=reward.termination_kappa,
        localize=reward.localize_putouts,
    )


def _empty_state(copies: int, cells: int, agents: int) -> State:
    return State(
        fire=np.zeros((copies, cells), dtype=np.int32),
        intensity=np.zeros((copies, cells), dtype=np.int32),
        fuel=np.zeros((copies, cells), dtype=np.int32),
        suppressant=np.zeros((copies, agents), dtype=np.float32),
        capacity=np.zeros((copies, agents), dtype=np.float32),
        equipment=np.zeros((copies, agents), dtype=np.int32),
        burnouts=np.zeros(copies, dtype=np.int64),
        step=np.zeros(copies, dtype=np.int64),
        episode=np.zeros(copies, dtype=np.int64),
        seed=np.zeros(copies, dtype=np.int64),
        cleared=np.zeros(copies, dtype=np.bool_),
        fresh=np.ones(copies, dtype=np.bool_),
    )


class WildfireEnv(OpenVectorEnv):
    """B copies of one Wildfire world.

    `at_end`: `reset` starts ended copies anew at once, `stop` makes stepping an ended copy an error, `continue` goes on
    stepping dead copies as the reference does (parity only).
    """

    def __init__(self, config: WildfireConfig, num_copies: int = 1, *, at_end: AtEnd = "reset") -> None:
        if np.ndim(num_copies) or whole_numbers(num_copies, "num_copies") < 1:
            raise UserError(f"num_copies must be a whole number of at least 1, not {num_copies!r}")
        if at_end not in get_args(AtEnd):
            raise UserError(f"at_end must be one of {', '.join(get_args(AtEnd))}, not {at_end!r}")
        self.config = config
        self.spec = wildfire_spec(config)
        self.num_copies = num_copies
        self.at_end = at_end
        self._rules = compile_rules(config)
        self._state = _empty_state(num_copies, config.grid_height * config.grid_width, config.num_agents)
        self._all = np.arange(num_copies, dtype=np.int64)
        self._target = np.empty((num_copies, config.num_agents), dtype=np.int64)
        self._limit = np.empty(self._target.shape)
        self.reset(child_seeds(0, count=num_copies))

    def reset(self, seeds: Int | Sequence[int] | None = None, copies: Int | None = None) -> None:
        """See `OpenVectorEnv.reset`. The start is the configured one; seeds only drive what happens after it."""
        rows = begin_episodes(self._state.seed, self._state.episode, seeds, copies)
        reset_copies(self._rules, self._state, rows)

    def observe(self) -> PackedObs:
        """The observation of all copies now."""
        return pack(self._rules, self._state, self._all)

    def decision_keys(self) -> Keys:
        """uint64 [B] keys of the current step."""
        return step_keys(self._state.seed, self._state.episode, self._state.step)

    def step(
        self,
        choices: Int,
        field_draws: NDArray[np.float64] | None = None,
        agent_draws: NDArray[np.float64] | None = None,
    ) -> StepResult:
        """See `OpenVectorEnv.step`. `field_draws` [B, 3, H * W] and `agent_draws` [B, 5, A] replace the own draws."""
        choices = whole_numbers(choices, "choices")
        if choices.shape != (self._target.size,):
            raise ValueError(f"step needs {self._target.size} choices, one per member, got shape {choices.shape}")
        if self.at_end == "stop" and self._ended().any():
            raise ValueError(f"copy {int(np.flatnonzero(self._ended())[0])} has ended: reset it before the next step")
        offer_limit(self._rules, self._state, self._limit)
        copy, agent, count = resolve_choices(self._rules, self._state, self._limit, choices, self._target)
        if copy >= 0:
            bad = int(choices[copy * self.config.num_agents + agent])
            legal = f"-1 (no-op) to {count - 1}" if count else "-1 (no-op) only"
            raise ValueError(f"copy {copy}, agent {agent}: choice {bad} is not legal; legal: {legal}")
        if field_draws is None or agent_draws is None:
            draws = self._own_draws()
        else:
            draws = Draws(field_draws, agent_draws)
        out = self._empty_outcome()
        play_step(self._rules, self._state, draws, self._target, out)
        return self._result(out)

    def _own_draws(self) -> Draws:
        state = self._state
        draws = Draws(
            np.empty((self.num_copies, 3, state.fire.shape[1])),
            np.empty((self.num_copies, 5, *state.suppressant.shape[1:])),
        )
        with np.errstate(over="ignore"):  # the hash wraps, which NumPy reports when the JIT is off
            draw_step(state.seed, state.episode, state.step, draws.field, draws.agent)
        return draws

    def _empty_outcome(self) -> Outcome:
        return Outcome(
            team_reward=np.zeros(self.num_copies),
            agent_reward=np.zeros(self._target.shape),
            terminated=np.zeros(self.num_copies, dtype=np.bool_),
            truncated=np.zeros(self.num_copies, dtype=np.bool_),
            events=np.zeros((len(EVENTS), self.num_copies), dtype=np.int64),
        )

    def _result(self, out: Outcome) -> StepResult:
        ended = np.flatnonzero(out.terminated | out.truncated)
        final_obs = None
        if len(ended):
            final_obs = pack(self._rules, self._state, ended)
            if self.at_end == "reset":
                self.reset(copies=ended)
        return StepResult(
            team_reward=out.team_reward,
            agent_reward=out.agent_reward.ravel(),
            terminated=out.terminated,
            truncated=out.truncated,
            ended=ended,
            final_obs=final_obs,
            events={name: out.events[i] for i, name in enumerate(EVENTS)},
        )

    def _ended(self) -> NDArray[np.bool_]:
        late = (self._state.step >= self._rules.max_steps) & (self._rules.max_steps > 0)
        return self._state.cleared | late

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Copies of all state arrays."""
        return {name: array.copy() for name, array in self._state._asdict().items()}

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Inverse of `get_state`."""
        arrays = self._state._asdict()
        restore(arrays, state, {name: self._range(name) for name in arrays})

    def _range(self, name: str) -> tuple[float, float]:
        """Smallest and largest value of a state array; kernels use some of them as indices."""
        rules = self._rules
        top = rules.num_states - 1
        limits: dict[str, tuple[float, float]] = {
            "fire": (-int(rules.size.max()), int(rules.size.max())),
            "intensity": (0, top),
            "suppressant": (0, float(np.finfo(np.float32).max)),
            "capacity": (0, float(np.finfo(np.float32).max)),
            "equipment": (0, len(rules.equipment) - 1),
            "fuel": (-(2**31), 2**31 - 1),
            "seed": (-BIG, 2**63 - 1),
        }
        return limits.get(name, (0, BIG))
