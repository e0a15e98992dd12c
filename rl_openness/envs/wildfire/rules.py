"""The rules of Wildfire as Numba kernels (specification parts 4, 5 and 7).

One function is one rule, named after it, and loops over the copies itself: a Numba call counts a reference for every
array of the tuples it passes, so a call per copy would cost more than the rule. Cells are numbered row-major. With
`NUMBA_DISABLE_JIT=1` the same code runs as the readable reference.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from rl_openness.envs.draws import AGENT, FIELD, step_key, uniform

EVENTS = ("putouts", "burnouts", "ignitions", "ran_dry", "refilled", "bad_attacks", "fights")
PUTOUTS, BURNOUTS, IGNITIONS, RAN_DRY, REFILLED, BAD_ATTACKS, FIGHTS = range(7)

_FLAGS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}


class Rules(NamedTuple):
    """A world's constants (built by `env.compile_rules`); "effective" probabilities already contain the switches."""

    height: int
    width: int
    size: NDArray[np.int32]
    lit: NDArray[np.bool_]
    ignition_temp: NDArray[np.int32]
    putout_reward: NDArray[np.float64]
    burnout_reward: NDArray[np.float64]
    num_states: int
    p_up: float
    p_top: float
    p_down: float
    down_bonus: float
    down_random: bool
    spread: NDArray[np.float64]  # weight of a burning neighbour to the north, east, south, west
    p_ignite: float
    fuel_used: bool
    initial_fuel: int
    recover: bool
    end_when_clear: bool
    max_steps: int  # 0 = never
    agent_y: NDArray[np.int64]
    agent_x: NDArray[np.int64]
    cell_y: NDArray[np.int64]
    cell_x: NDArray[np.int64]
    distance: NDArray[np.int64]  # [A, cells] Chebyshev
    power: NDArray[np.float64]
    reach: NDArray[np.float64]
    equipment: NDArray[np.float64]  # [E, 3] bonus (capacity, power, range)
    initial_suppressant: float
    initial_capacity: float
    initial_equipment: int
    p_use: float
    p_repair: float
    p_critical: float
    p_degrade: float
    p_refill: float
    p_tank: float
    capacities: NDArray[np.float64]
    capacity_cumulative: NDArray[np.float64]
    bad_attack_penalty: float
    offer_all: bool
    presence_always: bool
    termination_reward: float
    termination_kappa: float
    localize: bool


class State(NamedTuple):
    """What changes, [B, cells], [B, A] or [B]."""

    fire: NDArray[np.int32]  # signed size: > 0 burning, < 0 not burning, 0 never
    intensity: NDArray[np.int32]
    fuel: NDArray[np.int32]
    suppressant: NDArray[np.float32]
    capacity: NDArray[np.float32]
    equipment: NDArray[np.int32]
    burnouts: NDArray[np.int64]
    step: NDArray[np.int64]
    episode: NDArray[np.int64]
    seed: NDArray[np.int64]
    cleared: NDArray[np.bool_]  # terminated, and kept so
    fresh: NDArray[np.bool_]  # no step since the last reset


class Draws(NamedTuple):
    """The step's uniform numbers in [0, 1): own (`draw_step`) or given from outside (parity with recorded ones)."""

    field: NDArray[np.float64]  # [B, 3, cells]: growth or burnout, decrease, spread
    agent: NDArray[np.float64]  # [B, 5, A]: use, equipment, refill, tank size, tank switch


class Outcome(NamedTuple):
    """What a step gave."""

    team_reward: NDArray[np.float64]  # [B]; first holds the reward that all agents share
    agent_reward: NDArray[np.float64]  # [B, A]; first holds the reward of one agent alone
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    events: NDArray[np.int64]  # [len(EVENTS), B]


@njit(**_FLAGS)
def draw_step(seed, episode, step, field, agent):
    """Part 5: both blocks in full, whatever the switches say."""
    for b in range(field.shape[0]):
        key = step_key(np.uint64(seed[b]), np.uint64(episode[b]), np.uint64(step[b]))
        for row in range(3):
            for cell in range(field.shape[2]):
                field[b, row, cell] = uniform(key, FIELD + np.uint64(row), np.uint64(cell))
        for row in range(5):
            for i in range(agent.shape[2]):
                agent[b, row, i] = uniform(key, AGENT + np.uint64(row), np.uint64(i))


@njit(**_FLAGS)
def offer_limit(rules, state, limit):
    """Fill `limit` [B, A] with the largest Chebyshev distance of a fire the agent may choose now (-1 = none)."""
    reach, bonus, offer_all = rules.reach, rules.equipment, rules.offer_all
    suppressant, equipment = state.suppressant, state.equipment
    for b in range(limit.shape[0]):
        for i in range(limit.shape[1]):
            if offer_all:
                limit[b, i] = np.inf
            elif suppressant[b, i] > 0:
                limit[b, i] = reach[i] + bonus[equipment[b, i], 2]
            else:
                limit[b, i] = -1.0


@njit(**_FLAGS)
def resolve_choices(rules, state, limit, choices, target):
    """Fill `target` [B, A] with the chosen cell (-1 = no-op); return (copy, agent, legal fights) of a bad choice."""
    fire, distance = state.fire, rules.distance
    copies, agents = target.shape
    for b in range(copies):
        for i in range(agents):
            choice = choices[b * agents + i]
            target[b, i] = -1
            if choice == -1:
                continue
            count = 0
            for cell in range(fire.shape[1]):
                if fire[b, cell] > 0 and distance[i, cell] <= limit[b, i]:
                    if count == choice:
                        target[b, i] = cell
                    count += 1
            if choice < -1 or choice >= count:
                return b, i, count
    return -1, -1, 0


@njit(**_FLAGS)
def attack(rules, state, out, target, power):
    """Rule 1: attack power per cell [B, cells]; a bad attack costs, counts for nothing, and becomes target -2."""
    reach, bonus, distance, strength = rules.reach, rules.equipment, rules.distance, rules.power
    suppressant, equipment = state.suppressant, state.equipment
    own, events = out.agent_reward, out.events
    for b in range(target.shape[0]):
        for i in range(target.shape[1]):
            cell = target[b, i]
            if cell < 0:
                continue
            e = equipment[b, i]
            if suppressant[b, i] <= 0 or distance[i, cell] > reach[i] + bonus[e, 2]:
                own[b, i] += rules.bad_attack_penalty
                events[BAD_ATTACKS, b] += 1
                target[b, i] = -2
            else:
                events[FIGHTS, b] += 1
                power[b, cell] += strength[i] + bonus[e, 1]


@njit(**_FLAGS)
def use_suppressant(rules, state, draws, out, target):
    """Rule 2: whoever fought may lose one unit."""
    suppressant, draw, events = state.suppressant, draws.agent, out.events
    for b in range(target.shape[0]):
        for i in range(target.shape[1]):
            used = target[b, i] >= 0 and draw[b, 0, i] < rules.p_use
            if used:
                suppressant[b, i] -= 1
            suppressant[b, i] = max(suppressant[b, i], 0)  # also without use: a negative capacity bonus can go below
            if used and suppressant[b, i] <= 0:
                events[RAN_DRY, b] += 1


@njit(**_FLAGS)
def wear_equipment(rules, state, draws):
    """Rule 3: one draw repairs, breaks or wears the equipment, whatever the agent does."""
    equipment, draw = state.equipment, draws.agent
    pristine = rules.equipment.shape[0] - 1
    if pristine == 0:
        return
    for b in range(equipment.shape[0]):
        for i in range(equipment.shape[1]):
            now, u = equipment[b, i], draw[b, 1, i]
            if now == 0:
                if u < rules.p_repair:
                    equipment[b, i] = pristine
            elif now == pristine and u < rules.p_critical:
                equipment[b, i] = 0
            elif u < rules.p_degrade:
                equipment[b, i] = now - 1


@njit(**_FLAGS)
def refill(rules, state, draws, out, target):
    """Rules 4 and 5: a no-op is a refill attempt; a refilled agent may get a tank of another size."""
    suppressant, capacity, equipment, draw = state.suppressant, state.capacity, state.equipment, draws.agent
    bonus, sizes, cumulative, events = rules.equipment, rules.capacities, rules.capacity_cumulative, out.events
    for b in range(target.shape[0]):
        for i in range(target.shape[1]):
            if target[b, i] != -1 or draw[b, 2, i] >= rules.p_refill:
                continue
            dry = suppressant[b, i] <= 0
            suppressant[b, i] = capacity[b, i] + bonus[equipment[b, i], 0]
            if draw[b, 4, i] < rules.p_tank:
                k = 0
                while k < len(sizes) - 1 and cumulative[k] < draw[b, 3, i]:
                    k += 1
                suppressant[b, i] += sizes[k] - capacity[b, i]
                capacity[b, i] = sizes[k]
            if dry and suppressant[b, i] > 0:
                events[REFILLED, b] += 1


@njit(**_FLAGS)
def grow(rules, state, draws, out, power):
    """Rule 6: an underpowered fire grows; at the top it burns out, which costs the team."""
    fire, intensity, fuel, draw = state.fire, state.intensity, state.fuel, draws.field
    shared, events, worth, states = out.team_reward, out.events, rules.burnout_reward, rules.num_states
    for b in range(fire.shape[0]):
        for cell in range(fire.shape[1]):
            heat = intensity[b, cell]
            if fire[b, cell] <= 0 or heat <= 0 or fire[b, cell] - power[b, cell] <= 0:
                continue
            if draw[b, 0, cell] >= (rules.p_top if heat == states - 2 else rules.p_up):
                continue
            intensity[b, cell] = heat + 1
            if heat + 1 >= states - 1:
                fire[b, cell] = -fire[b, cell]
                fuel[b, cell] = max(fuel[b, cell] - 1, 0)
                if rules.recover:
                    intensity[b, cell] = 0
                shared[b] += worth[cell]
                events[BURNOUTS, b] += 1


@njit(**_FLAGS)
def shrink(rules, state, draws, out, target, power):
    """Rule 7: a fire met with enough power shrinks; at 0 it is out, which pays the team or those who hit it."""
    fire, intensity, fuel, draw = state.fire, state.intensity, state.fuel, draws.field
    shared, own, events, worth = out.team_reward, out.agent_reward, out.events, rules.putout_reward
    for b in range(fire.shape[0]):
        for cell in range(fire.shape[1]):
            surplus = power[b, cell] - fire[b, cell]
            if fire[b, cell] <= 0 or intensity[b, cell] <= 0 or surplus < 0:
                continue
            p = min(max(rules.p_down + surplus * rules.down_bonus, 0.0), 1.0)
            if rules.down_random and draw[b, 1, cell] >= p:
                continue
            intensity[b, cell] -= 1
            if intensity[b, cell] > 0:
                continue
            fire[b, cell] = -fire[b, cell]
            fuel[b, cell] -= 1
            events[PUTOUTS, b] += 1
            if not rules.localize:
                shared[b] += worth[cell]
                continue
            for i in range(target.shape[1]):
                if target[b, i] == cell:
                    own[b, i] += worth[cell]


@njit(**_FLAGS)
def ignite(rules, state, draws, out):
    """Rule 8: unlit cells catch fire from burning 4-neighbours or by themselves, judged at once on the state before."""
    fire, intensity, fuel, draw = state.fire, state.intensity, state.fuel, draws.field
    weight, column, temperature, events = rules.spread, rules.cell_x, rules.ignition_temp, out.events
    width, cells = rules.width, fire.shape[1]
    burning = np.empty(cells, dtype=np.bool_)
    for b in range(fire.shape[0]):
        for cell in range(cells):
            burning[cell] = fire[b, cell] > 0 and intensity[b, cell] > 0
        for cell in range(cells):
            if fire[b, cell] >= 0 or intensity[b, cell] != 0 or (rules.fuel_used and fuel[b, cell] <= 0):
                continue
            p = rules.p_ignite
            if cell >= width and burning[cell - width]:
                p += weight[0]
            if column[cell] < width - 1 and burning[cell + 1]:
                p += weight[1]
            if cell + width < cells and burning[cell + width]:
                p += weight[2]
            if column[cell] > 0 and burning[cell - 1]:
                p += weight[3]
            if draw[b, 2, cell] < p:
                fire[b, cell] = -fire[b, cell]
                intensity[b, cell] = temperature[cell]
                events[IGNITIONS, b] += 1


@njit(**_FLAGS)
def finish(rules, state, out):
    """Rule 9: termination once nothing burns (and, where fuel is used, none is left), its reward, and truncation."""
    fire, fuel, cleared, step, burnouts = state.fire, state.fuel, state.cleared, state.step, state.burnouts
    terminated, truncated, shared, events = out.terminated, out.truncated, out.team_reward, out.events
    for b in range(fire.shape[0]):
        step[b] += 1
        truncated[b] = rules.max_steps > 0 and step[b] >= rules.max_steps
        if rules.end_when_clear:
            left = 0
            alive = False
            for cell in range(fire.shape[1]):
                alive |= fire[b, cell] > 0
                left += fuel[b, cell]
            if not alive and not (rules.fuel_used and left > 0) and not cleared[b]:
                cleared[b] = True
                fire[b, :] = 0
                late = rules.termination_kappa * math.log(burnouts[b] + 1.0)  # burn-outs before this step
                shared[b] += max(0.0, rules.termination_reward - late)
            terminated[b] = cleared[b]
        burnouts[b] += events[BURNOUTS, b]


@njit(**_FLAGS)
def share_rewards(out):
    """Part 7: every agent gets what is shared and its own; the team counts the shared part once and the mean own."""
    shared, own = out.team_reward, out.agent_reward
    for b in range(own.shape[0]):
        total = 0.0
        for i in range(own.shape[1]):
            total += own[b, i]
            own[b, i] += shared[b]
        shared[b] += total / own.shape[1]


@njit(**_FLAGS)
def play_step(rules, state, draws, target, out):
    """One step of every copy, in the order of part 4; `target` comes from `resolve_choices`."""
    power = np.zeros(state.fire.shape)
    attack(rules, state, out, target, power)
    use_suppressant(rules, state, draws, out, target)
    wear_equipment(rules, state, draws)
    refill(rules, state, draws, out, target)
    grow(rules, state, draws, out, power)
    shrink(rules, state, draws, out, target, power)
    ignite(rules, state, draws, out)
    finish(rules, state, out)
    share_rewards(out)
    state.fresh[:] = False


@njit(**_FLAGS)
def reset_copies(rules, state, copies):
    """Part 3: the configured start, no draw; the caller sets seeds and episode numbers."""
    for b in copies:
        for cell in range(state.fire.shape[1]):
            size = rules.size[cell]
            state.fire[b, cell] = size if rules.lit[cell] else -size
            state.intensity[b, cell] = rules.ignition_temp[cell] if rules.lit[cell] else 0
            state.fuel[b, cell] = rules.initial_fuel if size != 0 else 0
        for i in range(state.suppressant.shape[1]):
            state.suppressant[b, i] = rules.initial_suppressant
            state.capacity[b, i] = rules.initial_capacity
            state.equipment[b, i] = rules.initial_equipment
        state.burnouts[b] = 0
        state.step[b] = 0
        state.cleared[b] = False
        state.fresh[b] = True
