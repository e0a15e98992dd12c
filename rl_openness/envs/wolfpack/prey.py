"""Who moves the prey: the protocol, and a substitute for the reference's unlicensed networks.

The substitute draws each prey's action from a table of weights that was fitted to recorded behaviour, by the distance
to the nearest predator (docs/decisions/0006). Like the networks it is no strong runner, it tends to repeat itself, and
it decides on what it saw before a revival.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from rl_openness.envs.draws import Keys, uniform
from rl_openness.envs.wolfpack.rules import (
    COL_STEP,
    FLAGS,
    NUM_PREY_ACTIONS,
    PREY,
    ROW_STEP,
    STAY,
    TURN_LEFT,
    TURN_RIGHT,
    Ints,
)


class PreyView(NamedTuple):
    """What a prey policy sees of B copies: arrays of the environment, to be read only."""

    size: int
    step: Ints
    """[B] 0 = an episode begins: whatever is remembered of the last one must go."""
    predators: Ints
    """[B] their number."""
    row: Ints
    """[B, N] of the predators; only the first `predators` are meant."""
    col: Ints
    prey_row: Ints
    """[B, K]"""
    prey_col: Ints
    facing: Ints
    """[B, K] 0 up, 1 right, 2 down, 3 left."""
    alive: NDArray[np.bool_]
    """[B, K] a dead prey comes back before the action is played."""


class PreyPolicy(Protocol):
    """Decides for all prey of all copies, once per step."""

    def act(self, view: PreyView, keys: Keys) -> Ints:
        """Actions int64 [B, K], 0 to 6: forward, right, back, left (as it faces), stay, turn left, turn right.

        `keys` [B] are the step's keys for own draws (`envs.draws`, stream `rules.PREY`).
        """

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Memory, as plain arrays."""

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Inverse of `get_state`."""


AWAY, SAME, CLOSER, TAKEN, OUTSIDE, STANDING, TURNING_LEFT, TURNING_RIGHT = range(8)
"""What an action means: a move by how it changes the distance to the nearest predator, into another animal, or off the
grid; standing still; turning."""
STUCK, AGAIN, BACK = range(8, 11)
"""Factors on top: the last action again where it led nowhere, the last action again where it led on, and the way
back."""

BANDS = (1, 3)
"""Largest distance to the nearest predator that each row of weights but the last is for."""
_FITTED = [
    # away, same, closer, taken, outside, standing, turning left and right; stuck, again, back
    [1.00, 0.56, 1.00, 1.32, 0.34, 0.19, 0.04, 0.014, 17.4, 1.24, 1.30],  # a predator is adjacent: none can be closer
    [1.00, 0.76, 0.64, 0.88, 0.72, 0.28, 0.39, 0.23, 7.25, 2.48, 1.24],
    [1.00, 1.29, 0.95, 0.72, 0.74, 0.83, 0.57, 0.25, 10.5, 4.01, 1.39],
]
WEIGHTS: dict[str, NDArray[np.float64]] = {"evader": np.array(_FITTED), "random": np.ones((len(BANDS) + 1, 11))}


@njit(**FLAGS)
def _nearest(row, col, rows, cols):
    """Manhattan distance to the nearest of the cells."""
    best = abs(row - rows[0]) + abs(col - cols[0])
    for i in range(1, len(rows)):
        best = min(best, abs(row - rows[i]) + abs(col - cols[i]))
    return best


@njit(**FLAGS)
def _meaning(size, row, col, rows, cols, prey_row, prey_col, now):
    """What a prey's move to a cell means; `now` is its distance to the nearest predator."""
    if row < 0 or row >= size or col < 0 or col >= size:
        return OUTSIDE
    for k in range(len(prey_row)):
        if prey_row[k] == row and prey_col[k] == col:
            return TAKEN
    then = _nearest(row, col, rows, cols)
    if then == 0:
        return TAKEN
    return AWAY if then > now else (SAME if then == now else CLOSER)


@njit(**FLAGS)
def action_weights(size, rows, cols, prey_row, prey_col, k, last, moved, table, meaning, weight):
    """Fill `meaning` and `weight` [7] of prey k: moving up, right, down, left, staying, turning left, turning right.

    `last` is its last action in the same order (-1 = none), `moved` whether that led to another cell.
    """
    row, col = prey_row[k], prey_col[k]
    now = _nearest(row, col, rows, cols)
    band = 0
    while band < len(BANDS) and now > BANDS[band]:
        band += 1
    for way in range(4):
        to_row, to_col = row + ROW_STEP[way], col + COL_STEP[way]
        meaning[way] = _meaning(size, to_row, to_col, rows, cols, prey_row, prey_col, now)
    meaning[STAY], meaning[TURN_LEFT], meaning[TURN_RIGHT] = STANDING, TURNING_LEFT, TURNING_RIGHT
    for x in range(NUM_PREY_ACTIONS):
        weight[x] = table[band, meaning[x]]
    if last >= 0:
        weight[last] *= table[band, AGAIN if moved else STUCK]
        if moved:
            weight[(last + 2) % 4] *= table[band, BACK]  # only a move moves


@njit(**FLAGS)
def _draw_actions(view, keys, table, last, last_row, last_col, actions):
    """Fill `actions` [B, K] and the memory: last actions (turned as the grid is) and the cells they were chosen in."""
    meaning, weight = np.empty(NUM_PREY_ACTIONS, dtype=np.int64), np.empty(NUM_PREY_ACTIONS)
    prey_row, prey_col = view.prey_row, view.prey_col
    for b in range(actions.shape[0]):
        for k in range(actions.shape[1]):
            before = last[b, k] if view.step[b] > 0 else -1
            moved = prey_row[b, k] != last_row[b, k] or prey_col[b, k] != last_col[b, k]
            rows, cols = view.row[b, : view.predators[b]], view.col[b, : view.predators[b]]
            action_weights(view.size, rows, cols, prey_row[b], prey_col[b], k, before, moved, table, meaning, weight)
            left = uniform(keys[b], PREY, np.uint64(k)) * weight.sum()
            x = 0
            while x < NUM_PREY_ACTIONS - 1 and left >= weight[x]:
                left -= weight[x]
                x += 1
            last[b, k] = x if view.alive[b, k] else -1  # a dead prey plays it elsewhere
            last_row[b, k], last_col[b, k] = prey_row[b, k], prey_col[b, k]
            actions[b, k] = (x - view.facing[b, k]) % 4 if x < STAY else x


class WeightedPrey:
    """Prey that draw from a table of `WEIGHTS`; they remember their last action."""

    def __init__(self, num_copies: int, num_prey: int, table: str = "evader") -> None:
        self._table = WEIGHTS[table]
        self._memory = {name: np.full((num_copies, num_prey), -1, dtype=np.int64) for name in ("last", "row", "col")}

    def act(self, view: PreyView, keys: Keys) -> Ints:
        """See `PreyPolicy.act`."""
        memory = self._memory
        actions = np.empty_like(memory["last"])
        _draw_actions(view, keys, self._table, memory["last"], memory["row"], memory["col"], actions)
        return actions

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Copies of the memory."""
        return {name: array.copy() for name, array in self._memory.items()}

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Inverse of `get_state`."""
        restore(self._memory, state)


def restore(arrays: Mapping[str, NDArray[Any]], state: Mapping[str, NDArray[Any]]) -> None:
    """Overwrite the arrays with those of the same name in `state`. Raises ValueError, first, if they do not fit."""
    for name, mine in arrays.items():
        if name not in state or np.shape(state[name]) != mine.shape:
            found = np.shape(state[name]) if name in state else "nothing"
            raise ValueError(f"state array {name!r} must have shape {mine.shape}, found {found}")
    for name, mine in arrays.items():
        mine[...] = state[name]
