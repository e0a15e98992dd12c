"""Who comes and goes: the start, and both open-team processes (specification part 2, "Open-team process").

`draw_*` functions decide, `leave` and `join` carry it out on the lists of members. The learner, member 0, never leaves,
and neither does its last teammate.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from rl_openness.envs.draws import uniform
from rl_openness.envs.kernels import FLAGS
from rl_openness.envs.wolfpack.rules import (
    ABSENCE,
    JOIN,
    JOINS,
    LEAVE,
    LEAVES,
    START,
    START_TRAITS,
    TRAITS,
    Ints,
    mark_cells,
    take_free_cell,
)


class Newcomers(NamedTuple):
    """Those who join, in order: `number` [B]; [B, N] their cell, type, traits and (paper) the end of their stay."""

    number: Ints
    cell: Ints
    type: Ints
    radius: Ints
    threshold: Ints
    due: Ints


def no_newcomers(copies: int, most: int) -> Newcomers:
    """Room for up to `most` newcomers in each copy."""
    return Newcomers(np.zeros(copies, dtype=np.int64), *(np.zeros((copies, most), dtype=np.int64) for _ in range(5)))


@njit(**FLAGS)
def _between(u, low, high):
    """Uniform integer of low..high."""
    return low + int(u * (high - low + 1))


@njit(**FLAGS)
def _draw_traits(rules, newcomers, b, j, key, stream, time):
    """Type, radius, threshold and (paper) the end of the stay of newcomer j."""
    first = 4 * j
    newcomers.type[b, j] = int(uniform(key, stream, np.uint64(first)) * rules.num_types) if rules.num_types > 0 else -1
    u = uniform(key, stream, np.uint64(first + 1))
    newcomers.radius[b, j] = 2 if u < 0.4 else (3 if u < 0.8 else 4)
    newcomers.threshold[b, j] = 1 if uniform(key, stream, np.uint64(first + 2)) < 0.7 else 2
    u = uniform(key, stream, np.uint64(first + 3))
    newcomers.due[b, j] = time + _between(u, rules.stay_low, rules.stay_high)


@njit(**FLAGS)
def _event_size(rules, key, stream, probability, most):
    """`reference`: how many agents an event concerns now, 0 to 2 and at most `most`."""
    if uniform(key, stream, np.uint64(0)) >= probability:
        return 0
    return max(min(2 if uniform(key, stream, np.uint64(1)) < rules.p_pair else 1, most), 0)


@njit(**FLAGS)
def grow_older(state):
    """Everyone has been there for one more step; to be called before anyone leaves."""
    for b in range(state.age.shape[0]):
        for i in range(state.members[b]):
            state.age[b, i] += 1


@njit(**FLAGS)
def draw_leavers(rules, state, keys, leaving):
    """Fill `leaving` [B, N]. Paper: those whose stay is over, the longest overdue first, start an absence."""
    count, age, due, back, absent = state.members, state.age, state.due, state.back, state.absent
    for b in range(leaving.shape[0]):
        leaving[b, :] = False
        time = state.step[b] + 1
        if not rules.paper:
            old = 0
            for i in range(1, count[b]):
                old += age[b, i] > rules.min_age
            for j in range(_event_size(rules, keys[b], LEAVE, rules.p_leave, min(count[b] - 2, old))):
                rank = int(uniform(keys[b], LEAVE, np.uint64(2 + j)) * (old - j))
                for i in range(1, count[b]):
                    if age[b, i] > rules.min_age and not leaving[b, i]:
                        if rank == 0:
                            leaving[b, i] = True
                            break
                        rank -= 1
            continue
        for _ in range(count[b] - 2):
            first = -1
            for i in range(1, count[b]):
                if not leaving[b, i] and due[b, i] <= time and (first < 0 or due[b, i] < due[b, first]):
                    first = i
            if first < 0:
                break
            leaving[b, first] = True
            u = uniform(keys[b], ABSENCE, np.uint64(first))
            back[b, absent[b]] = time + _between(u, rules.absence_low, rules.absence_high)
            absent[b] += 1


@njit(**FLAGS)
def leave(state, leaving, out):
    """Rule 6, first half: who is `leaving` [B, N] goes, the others close up; `carry` says where they were."""
    per_member = (state.row, state.col, state.agent_id, state.type, state.radius, state.threshold, state.age, state.due)
    for b in range(leaving.shape[0]):
        kept = 0
        state.before[b] = state.members[b]
        for i in range(state.members[b]):
            if leaving[b, i]:
                continue
            state.carry[b, kept] = i
            if kept < i:
                for column in per_member:
                    column[b, kept] = column[b, i]
            kept += 1
        out.events[LEAVES, b] += state.members[b] - kept
        state.members[b] = kept


@njit(**FLAGS)
def _call_back(back, absent, b, time, most):
    """`paper`: number of absent teammates whose turn it is, at most `most`; they are absent no longer."""
    called = 0
    while called < most and absent[b] > 0:
        first = 0
        for j in range(1, absent[b]):
            if back[b, j] < back[b, first]:
                first = j
        if back[b, first] > time:
            break
        absent[b] -= 1
        back[b, first] = back[b, absent[b]]
        called += 1
    return called


@njit(**FLAGS)
def draw_joiners(rules, state, keys, newcomers):
    """Fill `newcomers`: as many as there is room for, on free cells, of uniform types."""
    taken = np.empty(rules.size * rules.size, dtype=np.bool_)
    for b in range(len(keys)):
        time = state.step[b] + 1
        room = state.row.shape[1] - state.members[b]
        if rules.paper:
            joining = _call_back(state.back, state.absent, b, time, room)
        else:
            joining = _event_size(rules, keys[b], JOIN, rules.p_join, room)
        newcomers.number[b] = joining
        if joining > 0:
            mark_cells(state, b, rules.size, taken)
        for j in range(joining):
            newcomers.cell[b, j] = take_free_cell(taken, uniform(keys[b], JOIN, np.uint64(2 + j)))
            _draw_traits(rules, newcomers, b, j, keys[b], TRAITS, time)


@njit(**FLAGS)
def join(rules, state, newcomers, out):
    """Rule 6, second half: newcomers are appended to the list."""
    for b in range(len(newcomers.number)):
        for j in range(newcomers.number[b]):
            _append(rules, state, newcomers, b, j)
        out.events[JOINS, b] += newcomers.number[b]


@njit(**FLAGS)
def _append(rules, state, newcomers, b, j):
    i = state.members[b]
    state.row[b, i] = newcomers.cell[b, j] // rules.size
    state.col[b, i] = newcomers.cell[b, j] % rules.size
    state.type[b, i] = newcomers.type[b, j]
    state.radius[b, i] = newcomers.radius[b, j]
    state.threshold[b, i] = newcomers.threshold[b, j]
    state.due[b, i] = newcomers.due[b, j]
    state.age[b, i] = 0
    state.carry[b, i] = -1
    state.agent_id[b, i] = state.next_id[b]
    state.next_id[b] += 1
    state.members[b] = i + 1


@njit(**FLAGS)
def start(rules, state, keys, copies, newcomers):
    """Start the named copies anew (`keys` [len(copies)] of their step 0): all face up, on distinct uniform cells.

    `newcomers` is scratch. Paper: the teammates that are not in the team at first are absent like any other.
    """
    taken = np.empty(rules.size * rules.size, dtype=np.bool_)
    prey = state.alive.shape[1]
    for x, b in enumerate(copies):
        key = keys[x]
        taken[:] = False
        state.step[b] = state.members[b] = state.next_id[b] = 0
        for i in range(rules.start_size):
            newcomers.cell[b, i] = take_free_cell(taken, uniform(key, START, np.uint64(i)))
            _draw_traits(rules, newcomers, b, i, key, START_TRAITS, 0)
            if i == 0:
                newcomers.type[b, i] = -1
            _append(rules, state, newcomers, b, i)
        for k in range(prey):
            cell = take_free_cell(taken, uniform(key, START, np.uint64(rules.start_size + k)))
            state.prey_row[b, k], state.prey_col[b, k] = cell // rules.size, cell % rules.size
            state.facing[b, k] = 0
            state.alive[b, k] = True
        state.absent[b] = state.back.shape[1] - (rules.start_size - 1)
        for j in range(state.absent[b]):
            u = uniform(key, ABSENCE, np.uint64(state.row.shape[1] + j))
            state.back[b, j] = _between(u, rules.absence_low, rules.absence_high)
