"""The hand-written foraging teammates H1 to H8 (specification of open foraging, part 1, "Teammates").

Each picks a food and walks to it; they differ in the food they pick. All eight are decided in one kernel, from a
`PackedObs` alone. A member uses one random number: what is left of it after a tie serves the next draw.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

import numpy as np
from numba import njit

from rl_openness.envs.base import NO_OP, Int, PackedObs
from rl_openness.envs.draws import DecisionDraws
from rl_openness.envs.foraging.rules import EAST, LOAD, NORTH, SOUTH, WEST
from rl_openness.envs.foraging.view import AGENT_COLUMNS, TASK_COLUMNS
from rl_openness.envs.kernels import FLAGS
from rl_openness.policies.base import KindPolicy

H1, H2, H3, H4, H5, H6, H7, H8 = range(8)
_SUMMARIES = (
    "goes to the food nearest to itself",
    "goes to the food nearest to the centre of all players",
    "goes to the nearest food that it can lift alone",
    "goes to the food nearest to the centre of all players that they can lift together",
    "goes to the food farthest from itself",
    "goes to the food of the highest level that it can lift alone",
    "goes to the food farthest from the player that is farthest from itself",
    "goes to the food of the highest level that its leader, a stronger player, can lift alone",
)

_ROW, _COL, _LEVEL, _SLOT = (AGENT_COLUMNS.index(name) for name in ("row", "col", "level", "slot"))
_FOOD_ROW, _FOOD_COL, _FOOD_LEVEL = (TASK_COLUMNS.index(name) for name in ("row", "col", "level"))


class ForagingRule(KindPolicy):
    """One of the eight, by its kind 0 to 7."""

    def __init__(self, kind: int) -> None:
        self.kind = kind
        self.name = f"H{kind + 1}"
        self.summary = _SUMMARIES[kind]

    @staticmethod
    def decide(obs: PackedObs, kinds: Int, draws: DecisionDraws) -> Int:
        """See `KindPolicy.decide`; actions 0 to 5, always valid ones."""
        choices = np.empty(len(kinds), dtype=np.int64)
        random = draws.uniform(obs.agent_copy, obs.agent_id)
        _decide(obs.agent_rows, obs.agent_ptr, obs.task_rows, obs.task_ptr, obs.action_mask, kinds, random, choices)
        return choices


@njit(**FLAGS)
def _decide(agents, agent_ptr, foods, task_ptr, mask, kinds, random, choices):
    """Fill `choices` [M]."""
    for b in range(len(agent_ptr) - 1):
        players = agents[agent_ptr[b] : agent_ptr[b + 1]]
        food = foods[task_ptr[b] : task_ptr[b + 1]]
        for k in range(len(players)):
            m = agent_ptr[b] + k
            if kinds[m] < 0:
                choices[m] = NO_OP
                continue
            target, draw = _target(kinds[m], players, food, k, random[m])
            choices[m] = _go(players[k], food, target, mask[m], draw)


@njit(**FLAGS)
def _target(kind, players, food, k, draw):
    """The food that player k heads for (-1 = none qualifies), and what is left of its random number."""
    row, col, level = players[k, _ROW], players[k, _COL], players[k, _LEVEL]
    if kind == H1:
        return _nearest(food, row, col, np.inf), draw
    if kind == H2:
        return _nearest(food, _centre(players, _ROW), _centre(players, _COL), np.inf), draw
    if kind == H3:
        return _nearest(food, row, col, level), draw
    if kind == H4:
        return _nearest(food, _centre(players, _ROW), _centre(players, _COL), _strength(players)), draw
    if kind == H5:
        return _farthest(food, row, col), draw
    if kind == H6:
        return _highest(food, level), draw
    if kind == H7:
        other, draw = _farthest_player(players, k, draw)
        return _farthest(food, players[other, _ROW], players[other, _COL]), draw
    leader = _stronger(players, k)
    if leader < 0:
        leader, draw = _farthest_player(players, k, draw)
    return _highest(food, _level_at(players, k, leader)), draw


@njit(**FLAGS)
def _nearest(food, row, col, limit):
    """Food of at most that level nearest (squared Euclid) to a cell, the first in row-major order; -1 if none."""
    best, shortest = -1, np.inf
    for f in range(len(food)):
        distance = (food[f, _FOOD_ROW] - row) ** 2 + (food[f, _FOOD_COL] - col) ** 2
        if food[f, _FOOD_LEVEL] <= limit and distance < shortest:
            best, shortest = f, distance
    return best


@njit(**FLAGS)
def _farthest(food, row, col):
    best, longest = -1, -1.0
    for f in range(len(food)):
        distance = (food[f, _FOOD_ROW] - row) ** 2 + (food[f, _FOOD_COL] - col) ** 2
        if distance > longest:
            best, longest = f, distance
    return best


@njit(**FLAGS)
def _highest(food, limit):
    """Food of the highest level up to `limit`, else of the highest of all; the first in row-major order."""
    best, best_of_all = -1, -1
    for f in range(len(food)):
        level = food[f, _FOOD_LEVEL]
        if best_of_all < 0 or level > food[best_of_all, _FOOD_LEVEL]:
            best_of_all = f
        if level <= limit and (best < 0 or level > food[best, _FOOD_LEVEL]):
            best = f
    return best if best >= 0 else best_of_all


@njit(**FLAGS)
def _centre(players, column):
    """Mean coordinate, rounded half to even."""
    total, count = 0, len(players)
    for k in range(count):
        total += int(players[k, column])
    whole, rest = total // count, total % count
    up = 2 * rest > count or (2 * rest == count and whole % 2 == 1)
    return float(whole + up)


@njit(**FLAGS)
def _strength(players):
    total = 0.0
    for k in range(len(players)):
        total += players[k, _LEVEL]
    return total


@njit(**FLAGS)
def _farthest_player(players, k, draw):
    """Player farthest (squared Euclid) from player k, ties at random; itself if all share its cell."""
    longest, ties = -1.0, 0
    for j in range(len(players)):
        distance = (players[j, _ROW] - players[k, _ROW]) ** 2 + (players[j, _COL] - players[k, _COL]) ** 2
        if distance > longest:
            longest, ties = distance, 0
        ties += distance == longest
    rank = int(draw * ties)
    draw = draw * ties - rank
    for j in range(len(players)):
        distance = (players[j, _ROW] - players[k, _ROW]) ** 2 + (players[j, _COL] - players[k, _COL]) ** 2
        if distance == longest:
            if rank == 0:
                return j, draw
            rank -= 1
    return k, draw


@njit(**FLAGS)
def _stronger(players, k):
    """The player of the highest level, if that is above player k's (the first by slot); else -1."""
    best = -1
    for j in range(len(players)):
        level = players[j, _LEVEL]
        if level <= players[k, _LEVEL]:
            continue
        if best >= 0:
            lead = level - players[best, _LEVEL]
            if lead < 0 or (lead == 0 and players[j, _SLOT] > players[best, _SLOT]):
                continue
        best = j
    return best


@njit(**FLAGS)
def _level_at(players, k, leader):
    """Level that player k reads on the leader's cell: of the last one there in its list (itself, then others by slot).

    A quirk of the reference, which differs from the leader's level only on a shared cell.
    """
    last = -1
    for j in range(len(players)):
        same = players[j, _ROW] == players[leader, _ROW] and players[j, _COL] == players[leader, _COL]
        if same and j != k and (last < 0 or players[j, _SLOT] > players[last, _SLOT]):
            last = j
    return players[last if last >= 0 else k, _LEVEL]


@njit(**FLAGS)
def _go(player, food, target, valid, draw):
    """Load beside the target, else the first valid step (north, south, east, west) to it, else any valid action."""
    if target >= 0:
        dy, dx = food[target, _FOOD_ROW] - player[_ROW], food[target, _FOOD_COL] - player[_COL]
        if abs(dy) + abs(dx) == 1:
            return LOAD
        if dy < 0 and valid[NORTH]:
            return NORTH
        if dy > 0 and valid[SOUTH]:
            return SOUTH
        if dx > 0 and valid[EAST]:
            return EAST
        if dx < 0 and valid[WEST]:
            return WEST
    options = 0
    for action in range(len(valid)):
        options += valid[action]
    rank = int(draw * options)
    for action in range(len(valid)):
        if valid[action]:
            if rank == 0:
                return action
            rank -= 1
    return NO_OP


def foraging_rules() -> dict[str, ForagingRule]:
    """One of each rule by name, H1 to H8."""
    rules = [ForagingRule(kind) for kind in range(len(_SUMMARIES))]
    return {rule.name: rule for rule in rules}
