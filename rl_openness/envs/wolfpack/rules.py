"""The rules of Wolfpack as Numba kernels: revival, moves, captures (specification part 2, "One step").

One function is one rule and loops over the copies itself. What is random is drawn by functions of their own (`draw_*`)
into arrays, which the rules take: recorded outcomes can stand in their place. Cells are numbered row-major. With
`NUMBA_DISABLE_JIT=1` the same code runs as the readable reference.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from rl_openness.envs.draws import uniform
from rl_openness.envs.kernels import FLAGS

EVENTS = ("captures", "close_penalties", "joins", "leaves")
CAPTURES, CLOSE_PENALTIES, JOINS, LEAVES = range(4)

UP, RIGHT, DOWN, LEFT, STAY = range(5)
TURN_LEFT, TURN_RIGHT = 5, 6  # of prey, whose 0 to 3 are relative to the way they face
NUM_ACTIONS, NUM_PREY_ACTIONS = 5, 7
ROW_STEP = np.array([-1, 0, 1, 0, 0])
COL_STEP = np.array([0, 1, 0, -1, 0])

# Streams of the environment's random numbers (see `envs.draws`).
START, START_TRAITS, REVIVE, PREY, LEAVE, JOIN, TRAITS, ABSENCE = (np.uint64(stream) for stream in range(1, 9))


Ints = NDArray[np.int64]


class Rules(NamedTuple):
    """A world's constants (built by `env.compile_rules`)."""

    size: int
    max_steps: int
    start_size: int
    capture_reward: float
    close_penalty: float
    approach_reward: float
    paper: bool  # which open-team process
    p_leave: float
    p_join: float
    p_pair: float
    min_age: int
    stay_low: int
    stay_high: int
    absence_low: int
    absence_high: int
    num_types: int  # of teammates; 0 = all members are controlled
    all_controlled: bool


class State(NamedTuple):
    """What changes: [B]; [B, N] (in list order, learner first; the first `members` are meant); [B, K] (prey)."""

    members: Ints  # [B] their number
    row: Ints
    col: Ints
    agent_id: Ints  # within the episode, in order of arrival
    type: Ints  # -1 = controlled
    radius: Ints  # of the Waiting types
    threshold: Ints
    age: Ints  # steps since arrival
    due: Ints  # paper: the time at which the stay ends
    carry: Ints  # place in the list at the last step, -1 = new
    before: Ints  # [B] members at the last step
    next_id: Ints  # [B]
    back: Ints  # [B, slots - 1] paper: times at which the absent teammates may be back, first `absent` in use
    absent: Ints  # [B]
    prey_row: Ints
    prey_col: Ints
    facing: Ints  # 0 up, 1 right, 2 down, 3 left
    alive: NDArray[np.bool_]
    step: Ints  # [B]
    episode: Ints  # [B]
    seed: Ints  # [B]


class Outcome(NamedTuple):
    """What a step gave."""

    reward: NDArray[np.float64]  # [B, N], by place in the list before anyone left
    events: Ints  # [len(EVENTS), B]


@njit(**FLAGS)
def distance_to_prey(row, col, prey_row, prey_col, alive):
    """Manhattan distance of one cell to the nearest live prey of one copy [K] (0 if there is none)."""
    best = -1
    for k in range(len(alive)):
        if alive[k]:
            d = abs(row - prey_row[k]) + abs(col - prey_col[k])
            if best < 0 or d < best:
                best = d
    return max(best, 0)


@njit(**FLAGS)
def mark_cells(state, b, size, taken):
    """Set `taken` [cells] to where copy b has predators or prey, alive or dead."""
    taken[:] = False
    for i in range(state.members[b]):
        taken[state.row[b, i] * size + state.col[b, i]] = True
    for k in range(state.alive.shape[1]):
        taken[state.prey_row[b, k] * size + state.prey_col[b, k]] = True


@njit(**FLAGS)
def take_free_cell(taken, u):
    """A uniform cell (by u in [0, 1)) among those not `taken` [cells]; it is taken from then on."""
    free = 0
    for cell in range(len(taken)):
        free += not taken[cell]
    rank = int(u * free)
    for cell in range(len(taken)):
        if not taken[cell]:
            if rank == 0:
                taken[cell] = True
                return cell
            rank -= 1
    return -1


@njit(**FLAGS)
def draw_revivals(rules, state, keys, cells):
    """Fill `cells` [B, K] with where dead prey come back: distinct cells without predator or prey; -1 = is alive."""
    taken = np.empty(rules.size * rules.size, dtype=np.bool_)
    alive = state.alive
    for b in range(alive.shape[0]):
        marked = False
        for k in range(alive.shape[1]):
            cells[b, k] = -1
            if alive[b, k]:
                continue
            if not marked:
                mark_cells(state, b, rules.size, taken)
                marked = True
            cells[b, k] = take_free_cell(taken, uniform(keys[b], REVIVE, np.uint64(k)))


@njit(**FLAGS)
def revive(rules, state, cells):
    """Rule 2: prey caught in the last step come back; they keep their facing."""
    row, col, alive = state.prey_row, state.prey_col, state.alive
    for b in range(alive.shape[0]):
        for k in range(alive.shape[1]):
            if cells[b, k] >= 0:
                row[b, k] = cells[b, k] // rules.size
                col[b, k] = cells[b, k] % rules.size
                alive[b, k] = True


@njit(**FLAGS)
def measure(state, near):
    """Rule 3: each predator's distance to its nearest prey, before the moves; `near` is [B, N]."""
    row, col, count = state.row, state.col, state.members
    for b in range(near.shape[0]):
        for i in range(count[b]):
            near[b, i] = distance_to_prey(row[b, i], col[b, i], state.prey_row[b], state.prey_col[b], state.alive[b])


@njit(**FLAGS)
def _wanted(size, row, col, direction):
    """The cell that a move leads to; off the grid is staying."""
    to_row, to_col = row + ROW_STEP[direction], col + COL_STEP[direction]
    if to_row < 0 or to_row >= size or to_col < 0 or to_col >= size:
        return row * size + col
    return to_row * size + to_col


@njit(**FLAGS)
def _settle(home, target, entities, crowd):
    """Send everyone in a cell wanted by two or more back home, round by round, until no cell is.

    This ends, for each round sends at least one home for good: homes differ. `crowd` [cells] is 0 before and after.
    """
    for e in range(entities):
        crowd[target[e]] += 1
    clash = True
    while clash:
        clash = False
        for e in range(entities):
            if crowd[target[e]] > 1 and target[e] != home[e]:
                target[e] = -1 - target[e]  # marked: it still counts there until the round is judged
                clash = True
        for e in range(entities):
            if target[e] < 0:
                crowd[-1 - target[e]] -= 1
                target[e] = home[e]
                crowd[target[e]] += 1
    for e in range(entities):
        crowd[target[e]] -= 1


@njit(**FLAGS)
def move(rules, state, choices, prey_actions):
    """Rule 4: all move at once, then clashes are undone.

    `choices` [B, N] are 0 to 4, `prey_actions` [B, K] 0 to 6; the latter turn with the prey's facing.
    """
    row, col, count, size = state.row, state.col, state.members, rules.size
    prey_row, prey_col, facing, alive = state.prey_row, state.prey_col, state.facing, state.alive
    most = row.shape[1] + alive.shape[1]
    home, target = np.empty(most, dtype=np.int64), np.empty(most, dtype=np.int64)
    crowd = np.zeros(size * size, dtype=np.int64)
    for b in range(row.shape[0]):
        n = count[b]
        for i in range(n):
            home[i] = row[b, i] * size + col[b, i]
            target[i] = _wanted(size, row[b, i], col[b, i], choices[b, i])
        e = n
        for k in range(alive.shape[1]):
            if not alive[b, k]:
                continue
            action, way = prey_actions[b, k], STAY
            if action < STAY:
                way = (facing[b, k] + action) % 4
            elif action == TURN_LEFT:
                facing[b, k] = (facing[b, k] + 3) % 4
            elif action == TURN_RIGHT:
                facing[b, k] = (facing[b, k] + 1) % 4
            home[e] = prey_row[b, k] * size + prey_col[b, k]
            target[e] = _wanted(size, prey_row[b, k], prey_col[b, k], way)
            e += 1
        _settle(home, target, e, crowd)
        for i in range(n):
            row[b, i], col[b, i] = target[i] // size, target[i] % size
        e = n
        for k in range(alive.shape[1]):
            if alive[b, k]:
                prey_row[b, k], prey_col[b, k] = target[e] // size, target[e] % size
                e += 1


@njit(**FLAGS)
def catch(rules, state, near, out):
    """Rule 5: what each predator gets, and which prey die.

    A prey caught in this step still pays everyone next to it, and several prey may pay one predator.
    """
    row, col, count, alive = state.row, state.col, state.members, state.alive
    prey_row, prey_col, reward, events = state.prey_row, state.prey_col, out.reward, out.events
    for b in range(row.shape[0]):
        for i in range(count[b]):
            now = distance_to_prey(row[b, i], col[b, i], prey_row[b], prey_col[b], alive[b])
            reward[b, i] = rules.approach_reward * (near[b, i] - now)
        for k in range(alive.shape[1]):
            if not alive[b, k]:
                continue
            captors = 0
            for i in range(count[b]):
                captors += abs(row[b, i] - prey_row[b, k]) + abs(col[b, i] - prey_col[b, k]) <= 1
            if captors == 0:
                continue
            for i in range(count[b]):
                if abs(row[b, i] - prey_row[b, k]) + abs(col[b, i] - prey_col[b, k]) <= 1:
                    reward[b, i] += rules.capture_reward * captors if captors > 1 else -rules.close_penalty
            if captors > 1:
                alive[b, k] = False
                events[CAPTURES, b] += 1
            else:
                events[CLOSE_PENALTIES, b] += 1
