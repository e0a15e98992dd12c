"""The forward pass of `actions.SetNetwork` as a Numba kernel, for acting.

A step asks for a few dozen rows, where torch would spend a hundred times the arithmetic on calls. Every member is
computed by itself in a fixed order, so a copy's decisions never depend, not even in the last bit, on other copies. With
`NUMBA_DISABLE_JIT=1` the same code runs as plain Python.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit

from rl_openness.envs.base import NO_OP, Bool, Float, Int, PackedObs

FLAGS: dict[str, Any] = {"cache": True, "nogil": True, "error_model": "numpy"}


class Layers(NamedTuple):
    """Two layers: weights [inputs, outputs] and biases."""

    weight_1: Float
    bias_1: Float
    weight_2: Float
    bias_2: Float


class Table(NamedTuple):
    """Columns that are read, see `members.Columns`."""

    column: Int
    scale: Float
    axis: Int
    axis_scale: Float
    own_axis: Int
    own_axis_scale: Float


class Team(NamedTuple):
    """What is read of a `PackedObs`; `see_ptr` is empty where everybody sees everybody."""

    agent_rows: Float
    present: Bool
    agent_ptr: Int
    task_rows: Float
    task_ptr: Int
    see_ptr: Int
    see_agent: Int


_NOBODY = np.empty(0, dtype=np.int64)


def team_of(obs: PackedObs) -> Team:
    """The arrays of an observation; nothing is copied."""
    if obs.see_ptr is None or obs.see_agent is None:
        seen = (_NOBODY, _NOBODY)
    else:
        seen = (obs.see_ptr, obs.see_agent)
    return Team(obs.agent_rows, obs.present, obs.agent_ptr, obs.task_rows, obs.task_ptr, *seen)


@njit(**FLAGS)
def add_product(row, weight, first, out):
    """`out` += row @ weight[first : first + len(row)]; behind a ReLU many numbers are 0."""
    for i in range(len(row)):
        if row[i] != 0.0:
            add_scaled(row[i], weight[first + i], out)


@njit(**FLAGS)
def add_scaled(factor, row, out):
    """`out` += factor * row, which the CPU does for several outputs at once."""
    for o in range(len(out)):
        out[o] += factor * row[o]


@njit(**FLAGS)
def encode(row, table, mine, own, base, layers, first, second):
    """Fill `second` [h]: the encoding of a task or agent (raw `row`) as a member (raw row `mine`) sees it.

    `base` [h] is what the member's own row adds to the first layer.
    """
    for o in range(len(first)):
        first[o] = base[o]
    place = len(own)
    for i in range(len(table.column)):
        add_scaled(row[table.column[i]] * table.scale[i], layers.weight_1[place], first)
        place += 1
    for i in range(len(table.axis)):
        offset = row[table.axis[i]] * table.axis_scale[i] - mine[table.own_axis[i]] * table.own_axis_scale[i]
        add_scaled(offset, layers.weight_1[place], first)
        place += 1
    for o in range(len(first)):
        first[o] = max(first[o], np.float32(0.0))
        second[o] = layers.bias_2[o]
    add_product(first, layers.weight_2, 0, second)
    for o in range(len(second)):
        second[o] = max(second[o], np.float32(0.0))


@njit(**FLAGS)
def own_part(own, layers, base):
    """Fill `base` [h], see `encode`."""
    for o in range(len(base)):
        base[o] = layers.bias_1[o]
    add_product(own, layers.weight_1, 0, base)


@njit(**FLAGS)
def pool(encoded, place, pooled):
    """Take a row into the sum at `place` and the maximum after it."""
    width = len(encoded)
    for o in range(width):
        pooled[place + o] += encoded[o]
        pooled[place + width + o] = max(pooled[place + width + o], encoded[o])


@njit(**FLAGS)
def divide(pooled, place, width, count):
    """From sum to mean; an empty set keeps its zeros."""
    for o in range(width):
        pooled[place + o] /= np.float32(max(count, 1))


@njit(**FLAGS)
def forward(team, members, copies, own_table, task_table, other_table, tasks, others, head, out):
    """Fill `out` [D, outputs] for the members (rows, and their copies)."""
    width, num_own = len(tasks.bias_2), len(own_table.column)
    own = np.empty(num_own, dtype=np.float32)
    base, first, second = (np.empty(width, np.float32), np.empty(width, np.float32), np.empty(width, np.float32))
    pooled, hidden = np.empty(num_own + 4 * width, dtype=np.float32), np.empty(len(head.bias_1), dtype=np.float32)
    for d in range(len(members)):
        m, b = members[d], copies[d]
        mine = team.agent_rows[m]
        for i in range(len(pooled)):
            pooled[i] = 0.0
        for i in range(num_own):
            own[i] = mine[own_table.column[i]] * own_table.scale[i]
            pooled[i] = own[i]
        own_part(own, tasks, base)
        for x in range(team.task_ptr[b], team.task_ptr[b + 1]):
            encode(team.task_rows[x], task_table, mine, own, base, tasks, first, second)
            pool(second, num_own, pooled)
        divide(pooled, num_own, width, team.task_ptr[b + 1] - team.task_ptr[b])
        own_part(own, others, base)
        partial, count = len(team.see_ptr) > 0, 0
        ptr, group = (team.see_ptr, m) if partial else (team.agent_ptr, b)
        for k in range(ptr[group], ptr[group + 1]):
            row = team.see_agent[k] if partial else k
            if row != m and team.present[row]:
                encode(team.agent_rows[row], other_table, mine, own, base, others, first, second)
                pool(second, num_own + 2 * width, pooled)
                count += 1
        divide(pooled, num_own + 2 * width, width, count)
        for o in range(len(hidden)):
            hidden[o] = head.bias_1[o]
        add_product(pooled, head.weight_1, 0, hidden)
        for o in range(len(hidden)):
            hidden[o] = max(hidden[o], np.float32(0.0))
        for o in range(out.shape[1]):
            out[d, o] = head.bias_2[o]
        add_product(hidden, head.weight_2, 0, out[d])


@njit(**FLAGS)
def choose(logits, mask, members, random, explore, tolerance, choices, log_probs):
    """Fill `choices` and `log_probs` (of all members) at the rows `members` [D], from logits [D, A] and `mask` [M, A].

    `explore` samples by `random` [D] in [0, 1); else the first action within `tolerance` of the best is taken.
    """
    weight = np.empty(logits.shape[1])
    for d in range(len(members)):
        m = members[d]
        peak = -np.inf
        for a in range(len(weight)):
            if mask[m, a]:
                peak = max(peak, float(logits[d, a]))
        total = 0.0
        for a in range(len(weight)):
            weight[a] = np.exp(float(logits[d, a]) - peak) if mask[m, a] else 0.0
            total += weight[a]
        chosen, left = NO_OP, random[d] * total if explore else 0.0
        for a in range(len(weight)):
            if not mask[m, a]:
                continue
            if explore:
                chosen = a  # the last legal one, should rounding leave something over
                left -= weight[a]
                if left < 0.0:
                    break
            elif logits[d, a] >= peak - tolerance:
                chosen = a
                break
        choices[m] = chosen
        log_probs[m] = logits[d, chosen] - peak - np.log(total)
