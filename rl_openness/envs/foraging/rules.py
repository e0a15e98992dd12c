"""The rules of a foraging step as Numba kernels: moving, loading, ending (specification part 1, "One step").

One function is one rule and loops over the copies itself, as in Wildfire. Whoever is in the team is a row of
`State.member`, in listing order: the learner first, then by joining. Who leaves and joins is in `team`. With
`NUMBA_DISABLE_JIT=1` the same code runs as the readable reference.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from rl_openness.envs.kernels import FLAGS

NONE, NORTH, SOUTH, WEST, EAST, LOAD = range(6)
NUM_ACTIONS = 6

ROW, COL, LEVEL, SLOT, TYPE, ID, PREVIOUS = range(7)
"""Columns of `State.member`; the first three are those of `State.food` too."""

EVENTS = ("foods", "leaves", "joins")
FOODS, LEAVES, JOINS = range(3)


class Rules(NamedTuple):
    """A world's constants (built by `env.compile_rules`)."""

    size: int
    spawn_size: int
    max_level: int
    max_steps: int
    team_size: int
    num_types: int  # 0 = nobody has a type
    strict: bool
    learner_only: bool  # the team's reward is the learner's
    stay_low: int  # fresh counter of whoever joins: stay_low .. stay_low + stay_range - 1
    stay_range: int
    away_low: int
    away_range: int
    first_less: int  # taken off the counters drawn at reset
    later_less: int  # taken off the counters drawn later


class State(NamedTuple):
    """What changes: B copies, S slots, F foods."""

    member: NDArray[np.int64]  # [B, S, 7] agents in the team, in listing order; rows from `num_members` on mean nothing
    num_members: NDArray[np.int64]  # [B]
    span: NDArray[np.int64]  # [B, S] counter of each slot: below 0 = due to leave or to join
    food: NDArray[np.int64]  # [B, F, 3] remaining foods in row-major order; rows from `num_foods` on mean nothing
    num_foods: NDArray[np.int64]  # [B]
    next_id: NDArray[np.int64]  # [B] `agent_id` of the next one to join
    previous_start: NDArray[np.int64]  # [B] first row of the copy in the last observation that was acted on
    step: NDArray[np.int64]  # [B]
    episode: NDArray[np.int64]
    seed: NDArray[np.int64]


class Outcome(NamedTuple):
    """What a step gave; M members had acted."""

    team_reward: NDArray[np.float64]  # [B]
    agent_reward: NDArray[np.float64]  # [M]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    events: NDArray[np.int64]  # [len(EVENTS), B]


@njit(**FLAGS)
def copy_row(table, b, source, target):
    """Row `source` of table b over row `target` (as a loop: an assignment of slices takes Numba seconds to compile)."""
    for column in range(table.shape[2]):
        table[b, target, column] = table[b, source, column]


@njit(**FLAGS)
def resolve(labels, mask, played):
    """Fill `played` [M]: an action that is not valid is played as `NONE`."""
    for m in range(len(labels)):
        played[m] = labels[m] if mask[m, labels[m]] else NONE


@njit(**FLAGS)
def move(rules, state, agent_ptr, played):
    """Rule 2: all at once; a cell that two or more want (those who stay want theirs) is entered by none of them.

    Swaps and following are allowed. A player may enter the cell of one that was itself blocked, unless `strict`.
    """
    member, size = state.member, rules.size
    offset = np.array([0, -size, size, -1, 1, 0])  # by action
    here = np.empty(member.shape[1], dtype=np.int64)
    wanted = np.empty(member.shape[1], dtype=np.int64)
    goes = np.empty(member.shape[1], dtype=np.bool_)
    for b in range(member.shape[0]):
        first, count = agent_ptr[b], state.num_members[b]
        for k in range(count):
            here[k] = member[b, k, ROW] * size + member[b, k, COL]
            wanted[k] = here[k] + offset[played[first + k]]
        for k in range(count):
            goes[k] = wanted[k] != here[k]
            for j in range(count):
                if j != k and wanted[j] == wanted[k]:
                    goes[k] = False
        if rules.strict:
            hold_back(count, here, wanted, goes)
        for k in range(count):
            if goes[k]:
                member[b, k, ROW], member[b, k, COL] = wanted[k] // size, wanted[k] % size


@njit(**FLAGS)
def hold_back(count, here, wanted, goes):
    """Strict collisions: nobody goes to the cell of one that does not go, until that holds for all."""
    changed = True
    while changed:
        changed = False
        for k in range(count):
            if not goes[k]:
                continue
            for j in range(count):
                if not goes[j] and here[j] == wanted[k]:
                    goes[k] = False
                    changed = True


@njit(**FLAGS)
def load(rules, state, agent_ptr, played, out):
    """Rule 3: loaders beside a food lift it if their levels reach its level; each gets its full level."""
    member, food, reward, events = state.member, state.food, out.agent_reward, out.events
    beside = np.empty(member.shape[1], dtype=np.bool_)
    for b in range(member.shape[0]):
        first, count = agent_ptr[b], state.num_members[b]
        kept = 0
        for f in range(state.num_foods[b]):
            power = 0
            for k in range(count):
                away = abs(member[b, k, ROW] - food[b, f, ROW]) + abs(member[b, k, COL] - food[b, f, COL])
                beside[k] = away == 1 and played[first + k] == LOAD
                power += member[b, k, LEVEL] if beside[k] else 0
            if power < food[b, f, LEVEL]:
                copy_row(food, b, f, kept)
                kept += 1
                continue
            events[FOODS, b] += 1
            for k in range(count):
                if beside[k]:
                    reward[first + k] += food[b, f, LEVEL]
        state.num_foods[b] = kept


@njit(**FLAGS)
def finish(rules, state, agent_ptr, out):
    """Rules 1 and 4: time, ends, and the team's reward."""
    for b in range(len(state.step)):
        state.step[b] += 1
        out.terminated[b] = state.num_foods[b] == 0
        out.truncated[b] = state.step[b] >= rules.max_steps
        last = agent_ptr[b] + 1 if rules.learner_only else agent_ptr[b + 1]
        for m in range(agent_ptr[b], last):
            out.team_reward[b] += out.agent_reward[m]


@njit(**FLAGS)
def remember_rows(state, agent_ptr):
    """Every member notes its row in the observation that was just acted on."""
    for b in range(len(state.num_members)):
        state.previous_start[b] = agent_ptr[b]
        for k in range(state.num_members[b]):
            state.member[b, k, PREVIOUS] = k


@njit(**FLAGS)
def play_step(rules, state, agent_ptr, mask, labels, out):
    """A step of every copy up to the team's changes; `mask` [M, 6] are the valid actions before it."""
    played = np.empty(len(labels), dtype=np.int64)
    resolve(labels, mask, played)
    move(rules, state, agent_ptr, played)
    load(rules, state, agent_ptr, played, out)
    finish(rules, state, agent_ptr, out)
    remember_rows(state, agent_ptr)
