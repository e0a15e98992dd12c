"""What a prey of Wolfpack sees, as numbers of a network's rows, and the same network's decision: Numba kernels.

A view is the crop of 9 x 17 cells that the reference's prey see: 9 rows ahead, the own one included, 17 columns, turned
so that the prey faces up. It holds few animals, so only what is not empty is noted: a number for every predator (by its
cell), for every live prey (the prey itself included) and for the grid's border ahead, to the left and to the right.
A layer over the crop's planes is then a sum of a few rows of its weights.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import numpy as np
from numba import njit

from rl_openness.envs.kernels import FLAGS
from rl_openness.envs.wolfpack.prey import AHEAD, ASIDE, VIEWS, offset

BORDERS = 3
"""Ahead, left and right: the border behind is out of sight."""
_WIDTH = 2 * ASIDE + 1
_CELLS = (AHEAD + 1) * _WIDTH
_REACH = max(AHEAD, ASIDE)
CODES = 2 * _CELLS + BORDERS * _REACH
"""Different things that a view may hold: a predator or a prey in each cell, a border at each distance."""
NOTHING = -1


@njit(**FLAGS)
def _cell(row, col, facing, to_row, to_col):
    """Number of a cell in the crop of an animal at (row, col); `NOTHING` = out of sight."""
    ahead, right = offset(row, col, facing, to_row, to_col)
    if ahead < 0 or ahead > AHEAD or abs(right) > ASIDE:
        return NOTHING
    return ahead * _WIDTH + right + ASIDE


@njit(**FLAGS)
def _border(size, row, col, way, nearest):
    """Free cells from (row, col) to the grid's border, up, right, down or left; `NOTHING` = out of sight."""
    free = (row, size - 1 - col, size - 1 - row, col)[way % 4]
    return free if free < nearest else NOTHING


@njit(**FLAGS)
def see(view, memory):
    """Put what every prey sees now before its last views in `memory` [B, K, VIEWS, BORDERS + predators + prey].

    The views of an earlier episode go. All numbers are below `CODES` or `NOTHING`.
    """
    for b in range(memory.shape[0]):
        if view.step[b] == 0:
            memory[b] = NOTHING
        for k in range(memory.shape[1]):
            own = memory[b, k]
            for age in range(VIEWS - 1, 0, -1):
                own[age] = own[age - 1]
            now = own[0]
            now[:] = NOTHING
            row, col, facing = view.prey_row[b, k], view.prey_col[b, k], view.facing[b, k]
            for i in range(BORDERS):  # ahead, right, left
                way = facing + (3 if i == 2 else i)
                free = _border(view.size, row, col, way, AHEAD if i == 0 else ASIDE)
                if free >= 0:
                    now[i] = 2 * _CELLS + i * _REACH + free
            for i in range(view.predators[b]):
                now[BORDERS + i] = _cell(row, col, facing, view.row[b, i], view.col[b, i])
            first = BORDERS + view.row.shape[1]
            for j in range(memory.shape[1]):
                cell = _cell(row, col, facing, view.prey_row[b, j], view.prey_col[b, j])
                if view.alive[b, j] and cell >= 0:
                    now[first + j] = _CELLS + cell


@njit(**FLAGS)
def _feed(inputs, weights, total):
    """Add to `total` what a layer's inputs above 0 give."""
    for x in range(len(inputs)):
        if inputs[x] > 0:
            for y in range(len(total)):
                total[y] += inputs[x] * weights[x, y]


@njit(**FLAGS)
def decide(memory, cells, cell_bias, hidden, hidden_bias, output, output_bias, actions):
    """Fill `actions` [B, K] with the best one of every prey: `PreyNetwork.forward`, one prey after the other.

    `cells` [VIEWS, CODES, H], `hidden` [H, H] and `output` [H, actions] are weights by input, float32. Sums run in the
    same order whatever the number of copies, so the result does not depend on it.
    """
    width = len(cell_bias)
    first, second, value = np.empty(width, np.float32), np.empty(width, np.float32), np.empty_like(output_bias)
    for b in range(actions.shape[0]):
        for k in range(actions.shape[1]):
            first[:] = cell_bias
            for age in range(memory.shape[2]):
                for i in range(memory.shape[3]):
                    code = memory[b, k, age, i]
                    if code >= 0:
                        for x in range(width):
                            first[x] += cells[age, code, x]
            second[:] = hidden_bias
            _feed(first, hidden, second)
            value[:] = output_bias
            _feed(second, output, value)
            actions[b, k] = np.argmax(value)
