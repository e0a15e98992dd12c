"""Who moves the prey: the protocol, and a substitute for the reference's unlicensed networks.

The networks are fixed functions of the last five views: as long as nothing in sight changes, or changes to and fro, the
prey goes on as it does. The substitute has that habit. Otherwise it draws its action from a table of weights fitted to
recorded behaviour, by the distance to the nearest predator (docs/decisions/0006). It is no strong runner, as they are
not.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numba import njit
from numpy.typing import NDArray

from rl_openness.envs.draws import Keys, mix, uniform
from rl_openness.envs.kernels import FLAGS
from rl_openness.envs.state import BIG, restore
from rl_openness.envs.wolfpack.rules import (
    COL_STEP,
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
STILL, STUCK, AGAIN, BACK, TO_AND_FRO, TO_BORDER, FROM_BORDER = range(8, 15)
"""Factors on top: for the last action again if it changed nothing in sight, led nowhere, or led on; for the way back;
for the action before the last if what is in sight now was so then; for a move that ends at more of the grid's borders
than it begins, or at fewer."""

VIEWS = 5
"""So many equal views in a row (or in every second step) make a prey do again what it did then."""
BANDS = (1, 3)
"""Largest distance to the nearest predator that each row of weights but the last is for."""
_FITTED = [  # in the order of the two lists above
    [1.00, 0.48, 1.00, 1.15, 0.54, 0.07, 0.05, 0.016, 43.6, 4.6, 1.19, 0.97, 14.6, 0.53, 1.48],  # none can be closer
    [1.00, 0.83, 0.70, 0.51, 0.67, 0.23, 0.44, 0.25, 28.8, 3.7, 2.43, 1.04, 10.6, 1.16, 0.67],
    [1.00, 1.13, 0.85, 0.74, 0.61, 0.63, 0.59, 0.26, 28.6, 5.1, 4.04, 1.20, 5.1, 0.74, 0.91],
]
WEIGHTS: dict[str, NDArray[np.float64]] = {"evader": np.array(_FITTED), "random": np.ones((len(BANDS) + 1, 15))}

# What a prey remembers: its last action and the one before, turned as the grid is; where it chose the last; its last
# view and the one before; how many views in a row were like their last, and like the one before that.
LAST, BEFORE, ROW, COL, SEEN, SEEN_BEFORE, SINCE, SINCE_BEFORE = range(8)

_LOW = [-1] * 6 + [0, 0]
_HIGH = [NUM_PREY_ACTIONS - 1] * 2 + [BIG] * 2 + [2**63 - 1] * 2 + [BIG] * 2

AHEAD, ASIDE = 8, 8
"""Cells that a prey sees before its own row, and to both sides of it."""


@njit(**FLAGS)
def offset(row, col, facing, to_row, to_col):
    """How far a cell is ahead and to the right of an animal that faces up (0), right, down or left."""
    dy, dx = to_row - row, to_col - col
    for _ in range(facing):
        dy, dx = -dx, dy  # turn the world to the left until the animal faces up
    return -dy, dx


@njit(**FLAGS)
def _code(row, col, facing, to_row, to_col, kind):
    """Number of an animal in a prey's sight; 0 = out of sight."""
    ahead, right = offset(row, col, facing, to_row, to_col)
    if ahead < 0 or ahead > AHEAD or abs(right) > ASIDE:
        return np.uint64(0)
    return mix(np.uint64((to_row * 4096 + to_col) * 8 + kind))


@njit(**FLAGS)
def look(rows, cols, prey_row, prey_col, alive, facing, k, memory):
    """Note in `memory` [8] what prey k sees: where it is, how it faces, predators and other live prey in sight."""
    row, col = prey_row[k], prey_col[k]
    view = _code(row, col, 0, row, col, 4 + facing)
    for i in range(len(rows)):
        view += _code(row, col, facing, rows[i], cols[i], 0)
    for j in range(len(alive)):
        if alive[j] and j != k:
            view += _code(row, col, facing, prey_row[j], prey_col[j], 1)
    seen = np.int64(mix(view) >> np.uint64(1))
    memory[SINCE] = memory[SINCE] + 1 if seen == memory[SEEN] else 0
    memory[SINCE_BEFORE] = memory[SINCE_BEFORE] + 1 if seen == memory[SEEN_BEFORE] else 0
    memory[SEEN_BEFORE] = memory[SEEN]
    memory[SEEN] = seen


@njit(**FLAGS)
def remember(row, col, action, memory):
    """Note in `memory` [8] that the action was chosen in this cell; a negative one forgets everything."""
    if action < 0:
        memory[:] = -1
        memory[SINCE] = memory[SINCE_BEFORE] = 0
    else:
        memory[BEFORE] = memory[LAST]
        memory[LAST], memory[ROW], memory[COL] = action, row, col


@njit(**FLAGS)
def _nearest(row, col, rows, cols):
    """Manhattan distance to the nearest of the cells."""
    best = abs(row - rows[0]) + abs(col - cols[0])
    for i in range(1, len(rows)):
        best = min(best, abs(row - rows[i]) + abs(col - cols[i]))
    return best


@njit(**FLAGS)
def _borders(size, row, col):
    """Borders of the grid that a cell lies at, in each direction one at most."""
    return int(row in (0, size - 1)) + int(col in (0, size - 1))  # without the JIT, two truths would add up to one


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
def action_weights(size, rows, cols, prey_row, prey_col, k, memory, table, meaning, weight):
    """Fill `meaning` and `weight` [7] of prey k: moving up, right, down, left, staying, turning left, turning right.

    `memory` [8] must know what it sees now (`look`).
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
    here = _borders(size, row, col)
    for way in range(4):
        if meaning[way] != OUTSIDE:
            there = _borders(size, row + ROW_STEP[way], col + COL_STEP[way])
            weight[way] *= table[band, TO_BORDER] if there > here else 1.0
            weight[way] *= table[band, FROM_BORDER] if there < here else 1.0
    last, before = memory[LAST], memory[BEFORE]
    if last < 0:
        return
    moved = row != memory[ROW] or col != memory[COL]
    weight[last] *= table[band, STILL if memory[SINCE] > 0 else (AGAIN if moved else STUCK)]
    if moved:
        weight[(last + 2) % 4] *= table[band, BACK]  # only a move moves
    if before >= 0 and memory[SINCE_BEFORE] > 0 and memory[SINCE] == 0:
        weight[before] *= table[band, TO_AND_FRO]


@njit(**FLAGS)
def habit(memory):
    """The action that a prey is sure to repeat; -1 if there is none."""
    if memory[SINCE] >= VIEWS:
        return memory[LAST]
    return memory[BEFORE] if memory[SINCE_BEFORE] >= VIEWS else -1


@njit(**FLAGS)
def _draw_actions(view, keys, table, habits, memory, actions):
    """Fill `actions` [B, K]; `memory` is [B, K, 8]."""
    meaning, weight = np.empty(NUM_PREY_ACTIONS, dtype=np.int64), np.empty(NUM_PREY_ACTIONS)
    for b in range(actions.shape[0]):
        rows, cols = view.row[b, : view.predators[b]], view.col[b, : view.predators[b]]
        prey_row, prey_col, alive = view.prey_row[b], view.prey_col[b], view.alive[b]
        for k in range(actions.shape[1]):
            own = memory[b, k]
            if view.step[b] == 0:
                remember(0, 0, -1, own)
            look(rows, cols, prey_row, prey_col, alive, view.facing[b, k], k, own)
            x = habit(own) if habits else -1
            if x < 0:
                action_weights(view.size, rows, cols, prey_row, prey_col, k, own, table, meaning, weight)
                left = uniform(keys[b], PREY, np.uint64(k)) * weight.sum()
                x = 0
                while x < NUM_PREY_ACTIONS - 1 and left >= weight[x]:
                    left -= weight[x]
                    x += 1
            remember(prey_row[k], prey_col[k], x if alive[k] else -1, own)  # a dead prey plays it elsewhere
            actions[b, k] = (x - view.facing[b, k]) % 4 if x < STAY else x


class WeightedPrey:
    """Prey that draw from a table of `WEIGHTS`, but for their habits; they remember what they saw and did."""

    def __init__(self, num_copies: int, num_prey: int, table: str = "evader") -> None:
        self._table = WEIGHTS[table]
        self._habits = table != "random"
        self._memory = np.tile(np.array(_LOW, dtype=np.int64), (num_copies, num_prey, 1))

    def act(self, view: PreyView, keys: Keys) -> Ints:
        """See `PreyPolicy.act`."""
        actions = np.empty(self._memory.shape[:2], dtype=np.int64)
        with np.errstate(over="ignore"):  # the hash wraps, which NumPy reports when the JIT is off
            _draw_actions(view, keys, self._table, self._habits, self._memory, actions)
        return actions

    def get_state(self) -> dict[str, NDArray[Any]]:
        """A copy of the memory."""
        return {"memory": self._memory.copy()}

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Inverse of `get_state`."""
        restore({"memory": self._memory}, state, {"memory": (_LOW, _HIGH)})
