"""Hand-written rules for Wolfpack: the reference's seven heuristic teammates, and one that finds shortest ways.

A rule sees a `PackedObs` only, hidden columns included: which prey are alive, the traits of the Waiting types and the
grid's size. All distances are Manhattan. All rules are kinds of one family, decided in one call (`WolfpackRule`).
Source: specification part 2, "Teammates".
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit

from rl_openness.envs.base import NO_OP, Bool, Int, PackedObs
from rl_openness.envs.draws import POLICY, DecisionDraws, uniform
from rl_openness.envs.kernels import FLAGS
from rl_openness.envs.wolfpack.rules import COL_STEP, DOWN, LEFT, NUM_ACTIONS, RIGHT, ROW_STEP, UP
from rl_openness.envs.wolfpack.view import AGENT_COLUMNS, TASK_COLUMNS
from rl_openness.errors import UserError, nearest
from rl_openness.policies.base import KindPolicy
from rl_openness.policies.wolfpack_search import assign, first_move, list_borders

KINDS = (
    "random",
    "greedy",
    "greedy_probabilistic",
    "teammate_aware",
    "greedy_waiting",
    "greedy_probabilistic_waiting",
    "teammate_aware_waiting",
    "teammate_aware_shortest",
)
"""Names of the rules; the number of a kind is its place. The first seven are the reference's."""
HEURISTICS = KINDS[:7]
_WAITS = "first steps away from a prey with too few others near it, else as"
_SUMMARIES = (
    "takes any of the five actions",
    "goes to the nearest cell beside a prey, along the larger offset, whoever stands there",
    "goes to the nearest cell beside a prey, along an axis and to a side drawn by softmax",
    "shares out cells beside prey, farthest predator first, and goes to its own around others, with detours",
    f"{_WAITS} greedy",
    f"{_WAITS} greedy_probabilistic",
    f"{_WAITS} teammate_aware",
    "as teammate_aware, but on a shortest way (ours, not one of the papers')",
)

_RANDOM, _GREEDY, _PROBABILISTIC, _AWARE = range(4)
_SHORTEST = 7
_PLANS = -2  # in place of a choice: still to be planned
_ROW, _COL, _RADIUS, _THRESHOLD, _SIZE = map(AGENT_COLUMNS.index, ("row", "col", "radius", "threshold", "size"))
_PREY_ROW, _PREY_COL, _ALIVE = map(TASK_COLUMNS.index, ("row", "col", "alive"))
_BORDERS = np.array([LEFT, RIGHT, DOWN, UP])  # in which the Greedy family looks at a prey's neighbours
_TEMPERATURE, _WALL = 2.5, 5.0  # of GreedyProbabilistic: softness, and what leaving the grid costs more
_FALLBACK, _AXIS, _SIDE, _PER_AGENT = 0, 1, 2, 4  # numbers of an agent's draws


@njit(**FLAGS)
def _inside(size, row, col):
    return 0 <= row < size and 0 <= col < size


@njit(**FLAGS)
def _draw(key, agent, number):
    return uniform(key, POLICY, np.uint64(agent * _PER_AGENT + number))


@njit(**FLAGS)
def _push(row, col, to_row, to_col):
    """Towards an adjacent cell, columns first."""
    if to_col != col:
        return LEFT if to_col < col else RIGHT
    return DOWN if to_row > row else UP


@njit(**FLAGS)
def _nearest_prey(row, col, prey_row, prey_col, alive):
    """The first of the nearest live prey; -1 = none lives."""
    best, least = -1, 0
    for k in range(len(alive)):
        d = abs(row - prey_row[k]) + abs(col - prey_col[k])
        if alive[k] and (best < 0 or d < least):
            best, least = k, d
    return best


@njit(**FLAGS)
def _by_axis(size, row, col, vertical, horizontal, dy, dx, u):
    """Of two moves the one along the larger offset, or the one that stays inside; else any of the four."""
    upright = _inside(size, row + ROW_STEP[vertical], col)
    sideways = _inside(size, row, col + COL_STEP[horizontal])
    if upright and (not sideways or abs(dy) > abs(dx)):
        return vertical
    return horizontal if sideways else int(u * 4)


@njit(**FLAGS)
def _softly(size, row, col, dy, dx, axis_u, side_u):
    """GreedyProbabilistic's move to a cell at offset -(dy, dx): an axis, then a side of it, by softmax."""
    up, across = math.exp(abs(dy) / _TEMPERATURE), math.exp(abs(dx) / _TEMPERATURE)
    if axis_u * (up + across) < up:
        towards, back = (UP, DOWN) if dy > 0 else (DOWN, UP)
    else:
        towards, back = (LEFT, RIGHT) if dx > 0 else (RIGHT, LEFT)
    gain = 2.0  # the other way is two steps longer, the grid's border costs extra
    if not _inside(size, row + ROW_STEP[towards], col + COL_STEP[towards]):
        gain -= _WALL
    if not _inside(size, row + ROW_STEP[back], col + COL_STEP[back]):
        gain += _WALL
    return towards if side_u * (1.0 + math.exp(-gain / _TEMPERATURE)) < 1.0 else back


@njit(**FLAGS)
def _greedy(size, row, col, prey_row, prey_col, alive, soft, key, agent):
    """Push an adjacent prey, else walk to the nearest cell beside one; who stands there is not looked at."""
    for k in range(len(alive)):
        if alive[k] and abs(row - prey_row[k]) + abs(col - prey_col[k]) <= 1:
            return _push(row, col, prey_row[k], prey_col[k])
    least, dy, dx = -1, 0, 0
    for k in range(len(alive)):
        for way in _BORDERS:
            y, x = prey_row[k] + ROW_STEP[way], prey_col[k] + COL_STEP[way]
            d = abs(row - y) + abs(col - x)
            if alive[k] and _inside(size, y, x) and (least < 0 or d < least):
                least, dy, dx = d, row - y, col - x
    fallback = _draw(key, agent, _FALLBACK)
    if least < 0:
        return int(fallback * NUM_ACTIONS)
    if soft:
        return _softly(size, row, col, dy, dx, _draw(key, agent, _AXIS), _draw(key, agent, _SIDE))
    return _by_axis(size, row, col, UP if dy >= 0 else DOWN, LEFT if dx > 0 else RIGHT, dy, dx, fallback)


@njit(**FLAGS)
def _wait(size, rows, cols, i, radius, threshold, prey_row, prey_col, alive, u):
    """The Waiting types' step away from a prey that too few others are near to; -1 = go on as the base type."""
    row, col = rows[i], cols[i]
    k = _nearest_prey(row, col, prey_row, prey_col, alive)
    if k < 0 or abs(row - prey_row[k]) + abs(col - prey_col[k]) > radius:
        return -1
    others = 0
    for j in range(len(rows)):
        near = abs(rows[j] - prey_row[k]) + abs(cols[j] - prey_col[k]) <= radius
        others += near and (rows[j] != row or cols[j] != col)
    if others >= threshold:
        return -1
    dy, dx = row - prey_row[k], col - prey_col[k]
    return _by_axis(size, row, col, UP if dy < 0 else DOWN, RIGHT if dx > 0 else LEFT, dy, dx, u)


class _Scene(NamedTuple):
    """An observation as the kernels read it: whole numbers, [M] of members and [X] of prey."""

    size: int
    agent_ptr: Int
    task_ptr: Int
    row: Int
    col: Int
    radius: Int
    threshold: Int
    agent_id: Int
    prey_row: Int
    prey_col: Int
    alive: Bool


def _scene(obs: PackedObs) -> _Scene:
    agents, tasks = obs.agent_rows.astype(np.int64), obs.task_rows.astype(np.int64)
    return _Scene(
        int(agents[0, _SIZE]),
        obs.agent_ptr,
        obs.task_ptr,
        agents[:, _ROW].copy(),
        agents[:, _COL].copy(),
        agents[:, _RADIUS].copy(),
        agents[:, _THRESHOLD].copy(),
        obs.agent_id,
        tasks[:, _PREY_ROW].copy(),
        tasks[:, _PREY_COL].copy(),
        tasks[:, _ALIVE] > 0,
    )


@njit(**FLAGS)
def _react(scene, kinds, keys, choices):
    """Fill `choices` [M] of the kinds that do not plan, and of the Waiting ones that step away; return who is left."""
    planners = 0
    for b in range(len(scene.agent_ptr) - 1):
        first, last = scene.agent_ptr[b], scene.agent_ptr[b + 1]
        rows, cols = scene.row[first:last], scene.col[first:last]
        prey = slice(scene.task_ptr[b], scene.task_ptr[b + 1])
        prey_row, prey_col, alive = scene.prey_row[prey], scene.prey_col[prey], scene.alive[prey]
        for m in range(first, last):
            kind, agent = kinds[m], scene.agent_id[m]
            if kind < 0:
                continue
            fallback = _draw(keys[b], agent, _FALLBACK)
            if kind == _RANDOM:
                choices[m] = int(fallback * NUM_ACTIONS)
                continue
            if _AWARE < kind < _SHORTEST:
                radius, threshold = scene.radius[m], scene.threshold[m]
                choices[m] = _wait(
                    scene.size, rows, cols, m - first, radius, threshold, prey_row, prey_col, alive, fallback
                )
                if choices[m] >= 0:
                    continue
                kind -= _AWARE
            if kind != _AWARE and kind != _SHORTEST:
                soft = kind == _PROBABILISTIC
                choices[m] = _greedy(
                    scene.size, rows[m - first], cols[m - first], prey_row, prey_col, alive, soft, keys[b], agent
                )
            else:
                choices[m] = _PLANS
                planners += 1
    return planners


@njit(**FLAGS)
def _plan(scene, kinds, keys, choices):
    """Fill the choices that `_react` left: of the TeammateAware kinds."""
    size, cells, prey_row, prey_col = scene.size, scene.size * scene.size, scene.prey_row, scene.prey_col
    border, owner = np.empty(4 * len(prey_row), dtype=np.int64), np.empty(4 * len(prey_row), dtype=np.int64)
    goal = np.empty(len(choices), dtype=np.int64)
    cost, previous = np.empty(cells, dtype=np.int64), np.empty(cells, dtype=np.int64)
    frontier, blocked = np.empty(cells, dtype=np.bool_), np.zeros(cells, dtype=np.bool_)
    for b in range(len(scene.agent_ptr) - 1):
        first, last = scene.agent_ptr[b], scene.agent_ptr[b + 1]
        if not np.any(choices[first:last] == _PLANS):
            continue
        rows, cols, begin = scene.row[first:last], scene.col[first:last], scene.task_ptr[b]
        borders = list_borders(size, prey_row[begin : scene.task_ptr[b + 1]], prey_col[begin : scene.task_ptr[b + 1]],
                               border, owner)  # fmt: skip
        assign(size, rows, cols, border, borders, goal[first:last])
        blocked[:] = False
        for i in range(len(rows)):
            blocked[rows[i] * size + cols[i]] = True
        for x in range(begin, scene.task_ptr[b + 1]):
            blocked[prey_row[x] * size + prey_col[x]] = True
        for m in range(first, last):
            if choices[m] != _PLANS:
                continue
            here = scene.row[m] * size + scene.col[m]
            move = -1
            if goal[m] >= 0 and border[goal[m]] == here:
                x = begin + owner[goal[m]]
                move = _push(scene.row[m], scene.col[m], prey_row[x], prey_col[x])
            elif goal[m] >= 0:
                exact = kinds[m] == _SHORTEST
                move = first_move(size, here, border[goal[m]], blocked, exact, cost, previous, frontier)
            choices[m] = move if move >= 0 else int(_draw(keys[b], scene.agent_id[m], _FALLBACK) * NUM_ACTIONS)


class WolfpackRule(KindPolicy):
    """The rule of that name, one of `KINDS`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kind = KINDS.index(name)
        self.summary = _SUMMARIES[self.kind]

    @staticmethod
    def decide(obs: PackedObs, kinds: Int, draws: DecisionDraws) -> Int:
        """See `KindPolicy.decide`; actions 0 to 4."""
        choices = np.full(len(kinds), NO_OP, dtype=np.int64)
        if not len(kinds):
            return choices
        scene, kinds = _scene(obs), np.ascontiguousarray(kinds)
        keys = draws.keys.copy()  # they may be read-only, for which Numba would compile everything again
        with np.errstate(over="ignore"):  # the hash wraps, which NumPy reports when the JIT is off
            if _react(scene, kinds, keys, choices):
                _plan(scene, kinds, keys, choices)
        return choices


def wolfpack_rules() -> dict[str, KindPolicy]:
    """One of each rule by name, the reference's seven first."""
    return {name: WolfpackRule(name) for name in KINDS}


def make_wolfpack_rule(name: str) -> KindPolicy:
    """The rule of that name. Raises UserError, with the nearest name, for an unknown one."""
    if name not in KINDS:
        raise UserError(f"unknown rule {name!r}{nearest(name, KINDS)}")
    return WolfpackRule(name)
