"""Which border cell each TeammateAware predator goes for, and the search for a way there.

The reference means A*, but loses the priority on the way: its frontier always gives the smallest (row, col). Ways may
be detours. That is the type as published; `exact` searches as A* does.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import numpy as np
from numba import njit

from rl_openness.envs.kernels import FLAGS
from rl_openness.envs.wolfpack.rules import COL_STEP, DOWN, LEFT, RIGHT, ROW_STEP, UP

_ORDER = np.array([RIGHT, LEFT, DOWN, UP])  # in which a prey's border cells are listed
_NEVER = np.int64(1) << np.int64(40)


@njit(**FLAGS)
def list_borders(size, prey_row, prey_col, border, owner):
    """Fill `border` and `owner` with the cells next to prey (alive or not), each once, for the first prey that has it.

    Returns their number, at most 4 K.
    """
    found = 0
    for k in range(len(prey_row)):
        for way in _ORDER:
            row, col = prey_row[k] + ROW_STEP[way], prey_col[k] + COL_STEP[way]
            if row < 0 or row >= size or col < 0 or col >= size:
                continue
            cell = row * size + col
            known = False
            for x in range(found):
                known |= border[x] == cell
            if not known:
                border[found], owner[found] = cell, k
                found += 1
    return found


@njit(**FLAGS)
def assign(size, rows, cols, border, borders, goal):
    """Fill `goal` [n] with each predator's place in `border` (-1 = none left).

    Whoever is farthest from any of the cells chooses first, the nearest cell that is left; ties go by index.
    """
    n = len(rows)
    far = np.zeros(n, dtype=np.int64)
    taken = np.zeros(borders, dtype=np.bool_)
    goal[:n] = -1
    for i in range(n):
        for x in range(borders):
            far[i] = max(far[i], abs(rows[i] - border[x] // size) + abs(cols[i] - border[x] % size))
    for _ in range(min(n, borders)):
        first = 0
        for i in range(1, n):
            if far[i] > far[first]:
                first = i
        best, least = -1, 0
        for x in range(borders):
            d = abs(rows[first] - border[x] // size) + abs(cols[first] - border[x] % size)
            if not taken[x] and (best < 0 or d < least):
                best, least = x, d
        goal[first] = best
        taken[best] = True
        far[first] = -1


@njit(**FLAGS)
def first_move(size, begin, end, blocked, exact, cost, previous, frontier):
    """First move of the found way from cell to cell around `blocked` [cells]; -1 if there is none.

    The frontier gives the smallest cell (`exact`: of those with the least cost plus distance); a cell that is reached
    at less cost than before enters it again; the search is over when the end comes up. A set of cells does for the
    reference's heap: a second entry of a cell would change nothing. `cost`, `previous`, `frontier` [cells] are scratch.
    """
    cost[:] = _NEVER
    frontier[:] = False
    cost[begin], frontier[begin] = 0, True
    lowest = begin
    while not blocked[end]:
        now, least = -1, 0
        for cell in range(lowest, len(cost)):
            if frontier[cell]:
                if not exact:
                    now = cell
                    break
                total = cost[cell] + abs(cell // size - end // size) + abs(cell % size - end % size)
                if now < 0 or total < least:
                    now, least = cell, total
        if now < 0:
            break
        if now == end:
            while previous[now] != begin:
                now = previous[now]
            return _direction(size, begin, now)
        frontier[now] = False
        lowest = 0 if exact else now
        for way in range(4):
            row, col = now // size + ROW_STEP[way], now % size + COL_STEP[way]
            if row < 0 or row >= size or col < 0 or col >= size:
                continue
            cell = row * size + col
            if not blocked[cell] and cost[now] + 1 < cost[cell]:
                cost[cell], previous[cell], frontier[cell] = cost[now] + 1, now, True
                lowest = min(lowest, cell)
    return -1


@njit(**FLAGS)
def _direction(size, begin, cell):
    """The move from a cell to a neighbour."""
    for way in range(3):
        if cell == begin + ROW_STEP[way] * size + COL_STEP[way]:
            return way
    return LEFT
