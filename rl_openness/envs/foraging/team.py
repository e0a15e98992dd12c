"""Who is in the team: the start of an episode, leaving and joining, as Numba kernels (specification part 1).

Choosing who leaves or joins and carrying it out are separate, so that recorded changes can be replayed. The draws that
make the state of step t use the key of step t. A cell is drawn among the free ones, which is what the reference's
redrawing until a free one is found amounts to.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import numpy as np
from numba import njit

from rl_openness.envs.draws import step_key, uniform
from rl_openness.envs.foraging.rules import (
    COL,
    ID,
    JOINS,
    LEAVES,
    LEVEL,
    PREVIOUS,
    ROW,
    SLOT,
    TYPE,
    copy_row,
)
from rl_openness.envs.kernels import FLAGS

# Streams of random numbers (see `envs.draws`); the index is a slot, or a food for the last two.
_WHO, _TYPE, _CELL, _LEVEL, _SPAN = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4), np.uint64(5)
_LEAVE, _JOIN, _FOOD_CELL, _FOOD_LEVEL = np.uint64(6), np.uint64(7), np.uint64(8), np.uint64(9)


@njit(**FLAGS)
def copy_key(state, b):
    """Key of the copy's current step."""
    return step_key(np.uint64(state.seed[b]), np.uint64(state.episode[b]), np.uint64(state.step[b]))


@njit(**FLAGS)
def decision_keys(state, keys):
    """Fill `keys` [B]."""
    for b in range(len(keys)):
        keys[b] = copy_key(state, b)


@njit(**FLAGS)
def below(bound, key, stream, index):
    """Uniform integer in 0 .. bound - 1."""
    return int(bound * uniform(key, stream, np.uint64(index)))


@njit(**FLAGS)
def free_cell(taken, size, low, high, draw):
    """The cell that `draw` in [0, 1) picks of those not taken in rows and columns low .. high - 1; -1 if none."""
    free = 0
    for row in range(low, high):
        for col in range(low, high):
            free += not taken[row * size + col]
    rank = int(draw * free)
    for row in range(low, high):
        for col in range(low, high):
            if not taken[row * size + col]:
                if rank == 0:
                    return row * size + col
                rank -= 1
    return -1


@njit(**FLAGS)
def take_cells(rules, state, b, taken):
    """Fill `taken` [cells]: where players and foods are."""
    taken[:] = False
    for k in range(state.num_members[b]):
        taken[state.member[b, k, ROW] * rules.size + state.member[b, k, COL]] = True
    for f in range(state.num_foods[b]):
        taken[state.food[b, f, ROW] * rules.size + state.food[b, f, COL]] = True


@njit(**FLAGS)
def add_member(rules, state, b, slot, key, taken):
    """The agent of a slot comes into the team, last in the listing, with a new level, cell and (teammates) type."""
    row = state.member[b, state.num_members[b]]
    cell = free_cell(taken, rules.size, 0, rules.spawn_size, uniform(key, _CELL, np.uint64(slot)))
    taken[cell] = True
    row[ROW], row[COL] = cell // rules.size, cell % rules.size
    row[LEVEL] = 1 + below(rules.max_level, key, _LEVEL, slot)
    row[SLOT] = slot
    row[TYPE] = below(rules.num_types, key, _TYPE, slot) if slot > 0 and rules.num_types > 0 else -1
    row[ID] = state.next_id[b]
    row[PREVIOUS] = -1
    state.next_id[b] += 1
    state.num_members[b] += 1


@njit(**FLAGS)
def start_teams(rules, state, copies):
    """A full team at the start of an episode: the learner, then a random choice of the other slots in random order."""
    slots = state.span.shape[1]
    taken = np.empty(rules.size * rules.size, dtype=np.bool_)
    order = np.empty(slots, dtype=np.int64)
    for b in copies:
        state.step[b] = 0
        state.num_members[b] = 0
        state.num_foods[b] = 0
        state.next_id[b] = 0
        key = copy_key(state, b)
        taken[:] = False
        for slot in range(slots):
            order[slot] = slot
            state.span[b, slot] = rules.away_low + below(rules.away_range, key, _SPAN, slot) - rules.first_less
        for k in range(rules.team_size):
            if k > 0:
                other = k + below(slots - k, key, _WHO, k)
                order[k], order[other] = order[other], order[k]
            slot = order[k]
            add_member(rules, state, b, slot, key, taken)
            state.span[b, slot] = rules.stay_low + below(rules.stay_range, key, _SPAN, slot) - rules.first_less
        grow_food(rules, state, b, key, taken)


@njit(**FLAGS)
def grow_food(rules, state, b, key, taken):
    """Foods at the start: off the border, none in the 3x3 block around another or two cells away in its row or column.

    Levels are uniform up to one less than the team's levels together. Uses up `taken`.
    """
    size, food = rules.size, state.food
    strength = 0
    for k in range(state.num_members[b]):
        strength += state.member[b, k, LEVEL]
    for f in range(food.shape[1]):
        cell = free_cell(taken, size, 1, size - 1, uniform(key, _FOOD_CELL, np.uint64(f)))
        if cell < 0:
            return
        row, col = cell // size, cell % size
        for y in range(max(row - 2, 0), min(row + 3, size)):
            for x in range(max(col - 2, 0), min(col + 3, size)):
                if abs(y - row) + abs(x - col) <= 2:  # the block and the cells two away, in one
                    taken[y * size + x] = True
        place = f
        while place > 0 and food[b, place - 1, ROW] * size + food[b, place - 1, COL] > cell:
            copy_row(food, b, place - 1, place)
            place -= 1
        food[b, place, ROW], food[b, place, COL] = row, col
        food[b, place, LEVEL] = 1 + below(strength - 1, key, _FOOD_LEVEL, f)
        state.num_foods[b] += 1


@njit(**FLAGS)
def draw_leavers(state, leaving):
    """Mark in `leaving` [B, S] who leaves: those due, at random if too many are, for one teammate always stays."""
    for b in range(len(state.num_members)):
        due = 0
        for k in range(1, state.num_members[b]):
            due += state.span[b, state.member[b, k, SLOT]] < 0
        wanted = min(due, state.num_members[b] - 2)
        if wanted <= 0:
            continue
        key = copy_key(state, b)
        for k in range(1, state.num_members[b]):
            slot = state.member[b, k, SLOT]
            if state.span[b, slot] < 0:
                if due * uniform(key, _LEAVE, np.uint64(slot)) < wanted:  # each subset of that size is as likely
                    leaving[b, slot] = True
                    wanted -= 1
                due -= 1


@njit(**FLAGS)
def leave(rules, state, leaving, out):
    """Rule 5, first half: leavers vanish from the listing and get a fresh counter."""
    for b in range(len(state.num_members)):
        kept = 0
        for k in range(state.num_members[b]):
            slot = state.member[b, k, SLOT]
            if leaving[b, slot]:
                span = rules.away_low + below(rules.away_range, copy_key(state, b), _SPAN, slot)
                state.span[b, slot] = span - rules.later_less
                out.events[LEAVES, b] += 1
            else:
                if kept < k:
                    copy_row(state.member, b, k, kept)
                kept += 1
        state.num_members[b] = kept


@njit(**FLAGS)
def draw_joiners(rules, state, joining):
    """Mark in `joining` [B, S] who joins: those away and due, at random if there is not room for all."""
    slots = state.span.shape[1]
    due = np.empty(slots, dtype=np.bool_)
    for b in range(len(state.num_members)):
        wanted = rules.team_size - state.num_members[b]
        if wanted <= 0:
            continue
        for slot in range(slots):
            due[slot] = state.span[b, slot] < 0
        for k in range(state.num_members[b]):
            due[state.member[b, k, SLOT]] = False
        left = 0
        for slot in range(slots):
            left += due[slot]
        if left == 0:
            continue
        key = copy_key(state, b)
        for slot in range(slots):
            if due[slot]:
                if left * uniform(key, _JOIN, np.uint64(slot)) < wanted:
                    joining[b, slot] = True
                    wanted -= 1
                left -= 1


@njit(**FLAGS)
def join(rules, state, joining, out):
    """Rule 5, second half: joiners, by slot, go to the end of the listing with a fresh counter."""
    taken = np.empty(rules.size * rules.size, dtype=np.bool_)
    for b in range(len(state.num_members)):
        looked = False
        for slot in range(state.span.shape[1]):
            if not joining[b, slot]:
                continue
            if not looked:
                take_cells(rules, state, b, taken)
                looked = True
            key = copy_key(state, b)
            add_member(rules, state, b, slot, key, taken)
            state.span[b, slot] = rules.stay_low + below(rules.stay_range, key, _SPAN, slot) - rules.later_less
            out.events[JOINS, b] += 1


@njit(**FLAGS)
def change_teams(rules, state, out):
    """Rules 5 and 6: leaving, joining, and every counter goes down by one."""
    leaving = np.zeros(state.span.shape, dtype=np.bool_)
    joining = np.zeros(state.span.shape, dtype=np.bool_)
    draw_leavers(state, leaving)
    leave(rules, state, leaving, out)
    draw_joiners(rules, state, joining)
    join(rules, state, joining, out)
    for b in range(state.span.shape[0]):
        for slot in range(state.span.shape[1]):
            state.span[b, slot] -= 1
