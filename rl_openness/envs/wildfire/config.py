"""Every number of a Wildfire world, with the reference's field names (specification part 2), checked.

The checks are the reference's, and those it lacks where it would crash or be undefined (specification part 13).
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Whole = Annotated[int, Field(ge=-(2**31), lt=2**31)]
Grid = list[list[Whole]]


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class FireConfig(_Group):
    """Cells, fires, and how they grow, spread and go out."""

    fire_types: Grid
    """H x W sizes: the attack power a cell needs; 0 = cannot burn."""
    lit: list[list[bool]]
    """H x W: burning at reset."""
    num_fire_states: int = Field(default=5, ge=4)
    """N; intensity N - 1 = burnt out, N - 2 = about to burn out."""
    intensity_increase_probability: Probability
    intensity_decrease_probability: Probability
    extra_power_decrease_bonus: float
    """Added to the decrease probability per unit of surplus power."""
    burnout_probability: Probability
    base_spread_rate: float = Field(ge=0.0)
    """Plain spread: probability per burning 4-neighbour. Directional: speed, with the three fields below."""
    max_spread_rate: float = 1.0
    cell_size: float = 1.0
    wind_direction: float = Field(default=0.0, ge=0.0, le=2 * math.pi)
    random_ignition_probability: Probability
    ignition_temp: Grid
    """H x W: intensity given on ignition and at reset, in 1..N-2."""
    initial_fuel: Whole = 0
    burnt_cells_recover: bool = False
    """Ours: a burnt-out cell gets intensity 0 and may burn again (part 13)."""


class AgentConfig(_Group):
    """The firefighters."""

    agents: list[tuple[int, int]] = Field(min_length=1)
    """A positions (y, x)."""
    fire_reduction_power: list[float]
    attack_range: list[float]
    """Chebyshev."""
    suppressant_states: int = Field(ge=2, lt=2**31)
    """Bound of the observation only."""
    initial_suppressant: int = Field(ge=0)
    initial_capacity: int = Field(ge=1)
    initial_equipment_state: int = Field(ge=0)
    suppressant_decrease_probability: Probability
    suppressant_refill_probability: Probability
    equipment_states: list[tuple[float, float, float]] = Field(min_length=1)
    """E rows (capacity, power, range) of bonuses; the last is pristine, row 0 is damaged."""
    repair_probability: Probability = 1.0
    degrade_probability: Probability = 1.0
    critical_error_probability: Probability = 0.0
    tank_switch_probability: Probability = 1.0
    possible_capacities: list[float] = Field(min_length=1)
    capacity_probabilities: list[Probability] = Field(min_length=1)


class RewardConfig(_Group):
    """What a step is worth."""

    fire_rewards: list[list[float]]
    """H x W: for putting that cell out."""
    bad_attack_penalty: float = 0.0
    burnout_penalty: float = 0.0
    """Added per burnt-out cell, so normally negative."""
    burnout_penalty_scaled: bool = False
    """Use minus the cell's fire_rewards instead; needs burnout_penalty = 0."""
    termination_reward: float = 0.0
    termination_kappa: float = 0.0
    localize_putouts: bool = False


class StochasticConfig(_Group):
    """Switches. Off means "always happens" for refill, decrease, increase, degrade, repair, tank switch (part 4)."""

    special_burnout_probability: bool
    suppressant_refill: bool
    suppressant_decrease: bool
    tank_switch: bool
    critical_error: bool
    degrade: bool
    repair: bool
    fire_increase: bool
    fire_decrease: bool
    fire_spread: bool
    realistic_fire_spread: bool
    random_fire_ignition: bool
    fire_fuel: bool


class ViewConfig(_Group):
    """What agents are shown, when they count as present, and when an episode ends."""

    observe_other_power: bool = False
    observe_other_suppressant: bool = False
    show_bad_actions: bool = False
    """Offer every fire, in range or not; a bad attack is penalised."""
    presence: Literal["suppressant", "always"] = "suppressant"
    """Ours: an agent with no suppressant is away (the environment plays its no-op, a refill attempt)."""
    end_when_clear: bool = True
    """Ours: false = an episode never terminates, it always runs to `max_steps` (part 13)."""
    max_steps: int | None = Field(default=100, ge=1)


class WildfireConfig(_Group):
    """A whole Wildfire world."""

    grid_height: int = Field(ge=1)
    grid_width: int = Field(ge=1)
    fire: FireConfig
    agent: AgentConfig
    reward: RewardConfig
    stochastic: StochasticConfig
    env: ViewConfig = ViewConfig()

    @property
    def num_agents(self) -> int:
        """A, the number of agents."""
        return len(self.agent.agents)

    @model_validator(mode="after")
    def _shapes(self) -> Self:
        shape = (self.grid_height, self.grid_width)
        for group, name in (
            ("fire", "fire_types"),
            ("fire", "lit"),
            ("fire", "ignition_temp"),
            ("reward", "fire_rewards"),
        ):
            rows = getattr(getattr(self, group), name)
            found = (len(rows), *sorted({len(row) for row in rows}))
            if found != shape:
                raise ValueError(f"{group}.{name} must have {shape[0]} rows of {shape[1]} cells, found {found}")
        for name in ("fire_reduction_power", "attack_range"):
            if len(getattr(self.agent, name)) != self.num_agents:
                raise ValueError(f"agent.{name} must have one number for each of the {self.num_agents} agents")
        return self

    @model_validator(mode="after")
    def _cells(self) -> Self:
        if min(map(min, self.fire.fire_types)) < 0:
            raise ValueError("fire.fire_types must not be negative")
        temps = [temp for row in self.fire.ignition_temp for temp in row]
        if min(temps) < 1 or max(temps) > self.fire.num_fire_states - 2:
            raise ValueError(f"fire.ignition_temp must lie in 1..{self.fire.num_fire_states - 2} (num_fire_states - 2)")
        for y, x in self.agent.agents:
            if not (0 <= y < self.grid_height and 0 <= x < self.grid_width):
                raise ValueError(f"agent.agents: ({y}, {x}) lies outside the {self.grid_height}x{self.grid_width} grid")
        return self

    @model_validator(mode="after")
    def _agents(self) -> Self:
        agent = self.agent
        if agent.initial_suppressant > agent.suppressant_states:
            raise ValueError("agent.initial_suppressant must not exceed agent.suppressant_states")
        if agent.initial_equipment_state >= len(agent.equipment_states):
            raise ValueError("agent.initial_equipment_state must be below the number of equipment_states")
        if agent.degrade_probability + agent.critical_error_probability > 1 and self.stochastic.critical_error:
            raise ValueError("agent.degrade_probability + agent.critical_error_probability must not exceed 1")
        if len(agent.possible_capacities) != len(agent.capacity_probabilities):
            raise ValueError("agent.possible_capacities and agent.capacity_probabilities must have equal length")
        if min(agent.possible_capacities) < 1:
            raise ValueError("agent.possible_capacities must be at least 1")
        total = float(np.array(agent.capacity_probabilities, dtype=np.float32).sum(dtype=np.float32))
        if abs(total - 1.0) > 1e-6:
            raise ValueError(f"agent.capacity_probabilities must add up to 1, not {total:g}")
        return self

    @model_validator(mode="after")
    def _switches(self) -> Self:
        if self.stochastic.critical_error and not self.stochastic.degrade:
            raise ValueError("stochastic.critical_error needs stochastic.degrade")
        if self.stochastic.realistic_fire_spread and not self.stochastic.fire_spread:
            raise ValueError("stochastic.realistic_fire_spread needs stochastic.fire_spread")
        if self.reward.burnout_penalty_scaled and self.reward.burnout_penalty != 0:
            raise ValueError("reward.burnout_penalty_scaled needs reward.burnout_penalty = 0")
        if self.env.show_bad_actions and self.env.presence != "always":
            raise ValueError("env.show_bad_actions needs env.presence = always (an empty agent must be able to err)")
        if not self.env.end_when_clear and self.env.max_steps is None:
            raise ValueError("env.end_when_clear = false needs env.max_steps: nothing else would end an episode")
        if self.stochastic.realistic_fire_spread and (self.fire.max_spread_rate <= 0 or self.fire.cell_size <= 0):
            raise ValueError("directional spread needs fire.max_spread_rate > 0 and fire.cell_size > 0")
        return self
