"""What the recorded prey chose, in the terms of `prey.WEIGHTS`, and what a table of weights says about it."""

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import NamedTuple

import numpy as np

from rl_openness.envs.wolfpack.env import compile_rules
from rl_openness.envs.wolfpack.prey import action_weights, habit, look, remember
from rl_openness.envs.wolfpack.rules import CAPTURES, EVENTS, Outcome, catch, measure, move
from rl_openness.envs.wolfpack.state import empty_state
from tests.envs.wolfpack.recorded import Json, files, load, put, world


class Decision(NamedTuple):
    """One prey's choice among up, right, down, left, stay, turn left and right (as the grid is, not as it faces)."""

    state: Json
    prey: int
    memory: np.ndarray
    chosen: int

    @property
    def distance(self) -> int:
        """To the nearest predator."""
        return int(np.abs(np.array(self.state["pred"]) - self.state["prey"][self.prey]).sum(axis=1).min())

    @property
    def habit(self) -> int:
        """The action that is sure to come (-1 = none)."""
        return int(habit(self.memory))

    def weigh(self, table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Meaning and weight [7] of every action, without regard to habits."""
        meaning, weight = np.empty(7, dtype=np.int64), np.empty(7)
        action_weights(10, *_cells(self.state), self.prey, self.memory, table, meaning, weight)
        return meaning, weight

    def chances(self, table: np.ndarray, *, habits: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Meaning and probability [7] of every action."""
        meaning, weight = self.weigh(table)
        return meaning, np.eye(7)[self.habit] if habits and self.habit >= 0 else weight / weight.sum()


def _cells(state: Json) -> list[np.ndarray]:
    """Rows and columns of predators, then of prey."""
    return [line.copy() for key in ("pred", "prey") for line in np.array(state[key]).T]


def _turned(action: int, facing: int) -> int:
    return (facing + action) % 4 if action < 4 else action


def recorded_steps() -> Iterator[tuple[str, Json, list[Decision]]]:
    """File, record and both prey's decisions of every step in which both were alive."""
    for name in [*files("trace"), *files("draws")]:
        for episode in load(name)["episodes"]:
            state, memory = episode["start"], np.full((2, 8), -1)
            for record in episode["steps"]:
                decisions = []
                alive = np.array(state["alive"])
                for k, action in enumerate(record["prey_acts"]):
                    look(*_cells(state), alive, state["face"][k], k, memory[k])
                    chosen = _turned(action, state["face"][k])
                    decisions.append(Decision(state, k, memory[k].copy(), chosen))
                    remember(*state["prey"][k], chosen if alive[k] else -1, memory[k])
                if alive.all():
                    yield name, record, decisions
                state = record["next"]


@cache
def recorded_decisions() -> list[Decision]:
    return [decision for _, _, both in recorded_steps() for decision in both]


def shares_by_distance(
    table: np.ndarray, distances: list[range], *, habits: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Recorded and expected shares [len(distances), 8] of what an action means, and the numbers of decisions."""
    recorded, expected = np.zeros((len(distances), 8)), np.zeros((len(distances), 8))
    for decision in recorded_decisions():
        group = next(i for i, some in enumerate(distances) if decision.distance in some)
        meaning, chance = decision.chances(table, habits=habits)
        recorded[group, meaning[decision.chosen]] += 1
        np.add.at(expected[group], meaning, chance)
    number = recorded.sum(axis=1)
    return recorded / number[:, None], expected / number[:, None], number


def captures(table: np.ndarray, *, habits: bool = True) -> tuple[int, float, float]:
    """Captures in the recorded steps; their expectation and its deviation if the prey drew from the table instead.

    The predators do what they did, and every step begins in the recorded state.
    """
    pairs = list(product(range(7), range(7)))
    recorded, expected, variance = 0, 0.0, 0.0
    for name, record, both in recorded_steps():
        state = both[0].state
        config = world(load(name))
        copies = empty_state(config, len(pairs))
        put(copies, 0, state)
        for array in copies:
            array[:] = array[0]
        near, moves = np.zeros(copies.row.shape, dtype=np.int64), np.full(copies.row.shape, 4)
        moves[:, : len(record["acts"])] = record["acts"]
        actions = np.array([[_turned(x, -face) for x, face in zip(pair, state["face"], strict=True)] for pair in pairs])
        out = Outcome(np.zeros(copies.row.shape), np.zeros((len(EVENTS), len(pairs)), dtype=np.int64))
        rules = compile_rules(config)
        measure(copies, near)
        move(rules, copies, moves, actions)
        catch(rules, copies, near, out)
        chance = np.outer(*(decision.chances(table, habits=habits)[1] for decision in both)).ravel()
        caught = out.events[CAPTURES]
        recorded += 2 - sum(record["after"]["alive"])
        expected += chance @ caught
        variance += chance @ caught**2 - (chance @ caught) ** 2
    return recorded, expected, float(np.sqrt(variance))
