"""From a foraging state to a `PackedObs`: column names and the packing kernel."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from rl_openness.envs.base import Column, EnvSpec, Int, PackedObs
from rl_openness.envs.foraging.config import ForagingConfig
from rl_openness.envs.foraging.rules import (
    COL,
    EAST,
    ID,
    LEVEL,
    LOAD,
    NONE,
    NORTH,
    NUM_ACTIONS,
    PREVIOUS,
    ROW,
    SOUTH,
    WEST,
)
from rl_openness.envs.kernels import FLAGS
from rl_openness.envs.ragged import pointer

AGENT_COLUMNS = ("row", "col", "level", "slot", "type")
"""In the order of `rules.State.member`."""
TASK_COLUMNS = ("row", "col", "level")


def foraging_spec(config: ForagingConfig) -> EnvSpec:
    """Raw numbers, as the reference's networks read them; slot and type are for teammates and critics only."""
    return EnvSpec(
        name="foraging",
        agent_columns=(
            Column("row", axis="y"),
            Column("col", axis="x"),
            Column("level"),
            Column("slot", visible="critic"),
            Column("type", visible="critic"),
        ),
        task_columns=(Column("row", axis="y"), Column("col", axis="x"), Column("level")),
        num_actions=NUM_ACTIONS,
        horizon=config.max_steps,
        task_slots=config.max_food,
        empty_task=(-1.0, -1.0, 0.0),
    )


@njit(**FLAGS)
def _fill_members(state, copies, all_controlled, agent_ptr, rows, carry, agent_id, controlled):
    member = state.member
    for row, b in enumerate(copies):
        for k in range(state.num_members[b]):
            m = agent_ptr[row] + k
            for column in range(rows.shape[1]):
                rows[m, column] = member[b, k, column]
            before = member[b, k, PREVIOUS]
            carry[m] = -1 if before < 0 else state.previous_start[b] + before
            agent_id[m] = member[b, k, ID]
            controlled[m] = all_controlled or k == 0


@njit(**FLAGS)
def _fill_mask(size, state, copies, agent_ptr, mask):
    """Valid actions: none; a move inside the grid to a cell without food (whoever stands there); load beside a food."""
    member, food = state.member, state.food
    for row, b in enumerate(copies):
        for k in range(state.num_members[b]):
            m = agent_ptr[row] + k
            y, x = member[b, k, ROW], member[b, k, COL]
            mask[m, NONE] = True
            mask[m, NORTH], mask[m, SOUTH] = y > 0, y < size - 1
            mask[m, WEST], mask[m, EAST] = x > 0, x < size - 1
            mask[m, LOAD] = False
            for f in range(state.num_foods[b]):
                dy, dx = food[b, f, ROW] - y, food[b, f, COL] - x
                if abs(dy) + abs(dx) == 1:
                    mask[m, LOAD] = True
                    if dx == 0:
                        mask[m, NORTH if dy < 0 else SOUTH] = False
                    else:
                        mask[m, WEST if dx < 0 else EAST] = False


@njit(**FLAGS)
def _fill_tasks(state, copies, task_ptr, rows):
    for row, b in enumerate(copies):
        for f in range(state.num_foods[b]):
            x = task_ptr[row] + f
            rows[x, 0], rows[x, 1] = state.food[b, f, ROW], state.food[b, f, COL]
            rows[x, 2] = state.food[b, f, LEVEL]


def pack(config: ForagingConfig, state: Any, copies: Int) -> PackedObs:
    """The observation of the given copies, in that order."""
    agent_ptr, task_ptr = pointer(state.num_members[copies]), pointer(state.num_foods[copies])
    members, all_controlled = int(agent_ptr[-1]), config.controlled == "all"
    rows = np.empty((members, len(AGENT_COLUMNS)), dtype=np.float32)
    carry, agent_id = np.empty(members, dtype=np.int64), np.empty(members, dtype=np.int64)
    controlled, mask = np.empty(members, dtype=np.bool_), np.empty((members, NUM_ACTIONS), dtype=np.bool_)
    task_rows = np.empty((int(task_ptr[-1]), len(TASK_COLUMNS)), dtype=np.float32)
    _fill_members(state, copies, all_controlled, agent_ptr, rows, carry, agent_id, controlled)
    _fill_mask(config.size, state, copies, agent_ptr, mask)
    _fill_tasks(state, copies, task_ptr, task_rows)
    return PackedObs(
        agent_rows=rows,
        present=np.ones(members, dtype=np.bool_),
        carry=carry,
        agent_id=agent_id,
        agent_ptr=agent_ptr,
        task_rows=task_rows,
        task_ptr=task_ptr,
        pair_agent=np.empty(0, dtype=np.int64),
        pair_task=np.empty(0, dtype=np.int64),
        pair_rows=np.empty((0, 0), dtype=np.float32),
        action_mask=mask,
        controlled=None if all_controlled else controlled,
    )
