"""From a Wolfpack state to a `PackedObs`: column names and the packing kernel.

Everyone sees all predators and prey. Caught prey are shown where they died, without a mark for anyone but the critic
and the hand-written rules: the reference does so.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import numpy as np
from numba import njit

from rl_openness.envs.base import Column, EnvSpec, Int, PackedObs
from rl_openness.envs.kernels import FLAGS
from rl_openness.envs.ragged import pointer
from rl_openness.envs.wolfpack.config import WolfpackConfig
from rl_openness.envs.wolfpack.rules import NUM_ACTIONS, Rules, State

AGENT_COLUMNS = ("row", "col", "type", "radius", "threshold", "size")
"""`radius` and `threshold` are traits of the Waiting types; `size` is the grid's, for rules that must know its edge."""
TASK_COLUMNS = ("row", "col", "up", "right", "down", "left", "alive")
"""`up` to `left`: one-hot, the way the prey faces."""

_AXES = {"row": "y", "col": "x"}
_HIDDEN = ("type", "radius", "threshold", "size", "alive")


def _column(name: str) -> Column:
    axis = _AXES.get(name)
    return Column(name, axis=axis, visible="critic" if name in _HIDDEN else "all")  # type: ignore[arg-type]


def wolfpack_spec(config: WolfpackConfig) -> EnvSpec:
    """Columns in raw numbers; the task vector is as long as there are prey."""
    return EnvSpec(
        name="wolfpack",
        agent_columns=tuple(map(_column, AGENT_COLUMNS)),
        task_columns=tuple(map(_column, TASK_COLUMNS)),
        num_actions=NUM_ACTIONS,
        horizon=config.max_steps,
        task_slots=config.num_prey,
        empty_task=(0.0,) * len(TASK_COLUMNS),
    )


@njit(**FLAGS)
def _fill_members(rules, state, copies, before_ptr, agent_ptr, rows, carry, agent_id):
    for x, b in enumerate(copies):
        for i in range(state.members[b]):
            m = agent_ptr[x] + i
            rows[m, 0] = state.row[b, i]
            rows[m, 1] = state.col[b, i]
            rows[m, 2] = state.type[b, i]
            rows[m, 3] = state.radius[b, i]
            rows[m, 4] = state.threshold[b, i]
            rows[m, 5] = rules.size
            carry[m] = -1 if state.carry[b, i] < 0 else before_ptr[b] + state.carry[b, i]
            agent_id[m] = state.agent_id[b, i]


@njit(**FLAGS)
def _fill_tasks(state, copies, rows):
    prey = state.alive.shape[1]
    for x, b in enumerate(copies):
        for k in range(prey):
            t = x * prey + k
            rows[t, :] = 0.0
            rows[t, 0] = state.prey_row[b, k]
            rows[t, 1] = state.prey_col[b, k]
            rows[t, 2 + state.facing[b, k]] = 1.0
            rows[t, 6] = state.alive[b, k]


def pack(rules: Rules, state: State, copies: Int) -> PackedObs:
    """The observation of the given copies, in that order."""
    agent_ptr = pointer(state.members[copies])
    members, prey = int(agent_ptr[-1]), state.alive.shape[1]
    nothing = np.empty(0, dtype=np.int64)
    controlled = None
    if not rules.all_controlled:
        controlled = np.zeros(members, dtype=np.bool_)
        controlled[agent_ptr[:-1]] = True
    obs = PackedObs(
        agent_rows=np.empty((members, len(AGENT_COLUMNS)), dtype=np.float32),
        present=np.ones(members, dtype=np.bool_),
        carry=np.empty(members, dtype=np.int64),
        agent_id=np.empty(members, dtype=np.int64),
        agent_ptr=agent_ptr,
        task_rows=np.empty((len(copies) * prey, len(TASK_COLUMNS)), dtype=np.float32),
        task_ptr=np.arange(len(copies) + 1, dtype=np.int64) * prey,
        pair_agent=nothing,
        pair_task=nothing.copy(),
        pair_rows=np.empty((0, 0), dtype=np.float32),
        controlled=controlled,
    )
    _fill_members(rules, state, copies, pointer(state.before), agent_ptr, obs.agent_rows, obs.carry, obs.agent_id)
    _fill_tasks(state, copies, obs.task_rows)
    return obs
