"""From a Wildfire state to a `PackedObs` (specification part 6): column names and the packing kernels."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from rl_openness.envs.base import Column, EnvSpec, Int, PackedObs
from rl_openness.envs.ragged import pointer
from rl_openness.envs.wildfire.config import WildfireConfig
from rl_openness.envs.wildfire.rules import _FLAGS, offer_limit

AGENT_COLUMNS = ("y", "x", "power", "suppressant", "capacity", "equipment")
TASK_COLUMNS = ("y", "x", "size", "intensity", "fuel")
PAIR_COLUMNS = ("dy", "dx", "power_deficit")
_CELL, _SIZE = 0.25, 0.25  # fixed, so that a cell means the same on every grid


def wildfire_spec(config: WildfireConfig) -> EnvSpec:
    """Columns as the reference shows them: tank, equipment and fuel are known to nobody but the critic."""
    tank = 1.0 / max(config.agent.suppressant_states - 1, 1)
    view = config.env
    equipment = 1.0 / max(len(config.agent.equipment_states) - 1, 1)
    return EnvSpec(
        name="wildfire",
        agent_columns=(
            Column("y", _CELL, axis="y"),
            Column("x", _CELL, axis="x"),
            Column("power", visible="all" if view.observe_other_power else "self"),
            Column("suppressant", tank, visible="all" if view.observe_other_suppressant else "self"),
            Column("capacity", tank, visible="critic"),
            Column("equipment", equipment, visible="critic"),
        ),
        task_columns=(
            Column("y", _CELL, axis="y"),
            Column("x", _CELL, axis="x"),
            Column("size", _SIZE),
            Column("intensity", 1.0 / config.fire.num_fire_states),
            Column("fuel", 1.0 / max(config.fire.initial_fuel, 1), visible="critic"),
        ),
        pair_columns=(
            Column("dy", _CELL, axis="y"),
            Column("dx", _CELL, axis="x"),
            Column("power_deficit", _SIZE),
        ),
        horizon=view.max_steps,
    )


@njit(**_FLAGS)
def _count(rules, state, limit, copies, tasks):
    """Fill `tasks` [len(copies)]; return the number of pairs."""
    fire, distance = state.fire, rules.distance
    pairs = 0
    for row, b in enumerate(copies):
        tasks[row] = 0
        for cell in range(fire.shape[1]):
            if fire[b, cell] <= 0:
                continue
            tasks[row] += 1
            for i in range(limit.shape[1]):
                pairs += distance[i, cell] <= limit[b, i]
    return pairs


@njit(**_FLAGS)
def _fill_members(rules, state, copies, rows, present, carry, agent_id):
    agents = state.suppressant.shape[1]
    for row, b in enumerate(copies):
        for i in range(agents):
            m = row * agents + i
            rows[m, 0] = rules.agent_y[i]
            rows[m, 1] = rules.agent_x[i]
            rows[m, 2] = rules.power[i]
            rows[m, 3] = state.suppressant[b, i]
            rows[m, 4] = state.capacity[b, i]
            rows[m, 5] = state.equipment[b, i]
            present[m] = rules.presence_always or state.suppressant[b, i] > 0
            carry[m] = -1 if state.fresh[b] else b * agents + i
            agent_id[m] = i


@njit(**_FLAGS)
def _fill_tasks(rules, state, copies, task_ptr, rows):
    for row, b in enumerate(copies):
        x = task_ptr[row]
        for cell in range(state.fire.shape[1]):
            if state.fire[b, cell] <= 0:
                continue
            rows[x, 0] = rules.cell_y[cell]
            rows[x, 1] = rules.cell_x[cell]
            rows[x, 2] = state.fire[b, cell]
            rows[x, 3] = state.intensity[b, cell]
            rows[x, 4] = state.fuel[b, cell]
            x += 1


@njit(**_FLAGS)
def _fill_pairs(rules, state, limit, copies, task_ptr, pair_agent, pair_task, rows):
    fire, distance, power = state.fire, rules.distance, rules.power
    cell_y, cell_x, agent_y, agent_x = rules.cell_y, rules.cell_x, rules.agent_y, rules.agent_x
    agents = limit.shape[1]
    p = 0
    for row, b in enumerate(copies):
        for i in range(agents):
            x = task_ptr[row]
            for cell in range(fire.shape[1]):
                size = fire[b, cell]
                if size <= 0:
                    continue
                if distance[i, cell] <= limit[b, i]:
                    pair_agent[p] = row * agents + i
                    pair_task[p] = x
                    rows[p, 0] = cell_y[cell] - agent_y[i]
                    rows[p, 1] = cell_x[cell] - agent_x[i]
                    rows[p, 2] = size - power[i]
                    p += 1
                x += 1


def pack(rules: Any, state: Any, copies: Int) -> PackedObs:
    """The observation of the given copies, in that order."""
    agents = state.suppressant.shape[1]
    members = len(copies) * agents
    tasks = np.empty(len(copies), dtype=np.int64)
    limit = np.empty(state.suppressant.shape)
    offer_limit(rules, state, limit)
    num_pairs = _count(rules, state, limit, copies, tasks)
    task_ptr = pointer(tasks)
    obs = PackedObs(
        agent_rows=np.empty((members, len(AGENT_COLUMNS)), dtype=np.float32),
        present=np.empty(members, dtype=np.bool_),
        carry=np.empty(members, dtype=np.int64),
        agent_id=np.empty(members, dtype=np.int64),
        agent_ptr=np.arange(len(copies) + 1, dtype=np.int64) * agents,
        task_rows=np.empty((int(task_ptr[-1]), len(TASK_COLUMNS)), dtype=np.float32),
        task_ptr=task_ptr,
        pair_agent=np.empty(num_pairs, dtype=np.int64),
        pair_task=np.empty(num_pairs, dtype=np.int64),
        pair_rows=np.empty((num_pairs, len(PAIR_COLUMNS)), dtype=np.float32),
    )
    _fill_members(rules, state, copies, obs.agent_rows, obs.present, obs.carry, obs.agent_id)
    _fill_tasks(rules, state, copies, task_ptr, obs.task_rows)
    _fill_pairs(rules, state, limit, copies, task_ptr, obs.pair_agent, obs.pair_task, obs.pair_rows)
    return obs
