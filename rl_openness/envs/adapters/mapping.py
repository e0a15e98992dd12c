"""How observations and actions of a foreign environment become rows, tasks, pairs and choices.

Without an `ObservationMapping` everything that an agent observes is its own row, and its `Discrete` (or small
`MultiDiscrete`) actions are a fixed set; an entry `action_mask` says which of them do something.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.spaces.utils import flatdim, flatten
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field

from rl_openness.envs.base import Bool, Column, Float
from rl_openness.errors import UserError, nearest

MASK = "action_mask"
MAX_ACTIONS = 4096
"""Largest fixed set that a MultiDiscrete space is turned into,"""
MAX_DISCRETE = 65_536
"""and the largest Discrete space: a policy has an output for each."""


class ObservationMapping(BaseModel):
    """Which entries of a `Dict` observation mean what; nested entries are named with dots.

    With `tasks`, agents choose among tasks (PLATO); without, they have a fixed set of actions (MAPPO).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    own: tuple[str, ...] | None = None
    """Entries of an agent's own row that only it sees; None = all that are named nowhere else here."""
    shared: tuple[str, ...] = ()
    """Entries of its row that the other agents see too."""
    mask: str | None = None
    """Which actions do something, 0 or 1 each; None = `action_mask` if there is one."""
    tasks: str | None = None
    """Task rows [T, f], the same list for every agent of a step."""
    task_exists: str | None = None
    """[T] which of these rows are tasks; None = those that are not all 0."""
    pairs: str | None = None
    """[T, g] what an agent sees of each task that others do not, e.g. offsets."""
    first_task_action: int = Field(1, ge=0)
    """The action for the first task; the j-th task has the action `first_task_action` + j."""
    noop: int = Field(0, ge=0)
    """The action of who does nothing (or, of a fixed set, has no action that does something)."""

    def named(self) -> set[str]:
        """Entries that are named."""
        rest = (self.mask, self.tasks, self.task_exists, self.pairs)
        return {*(self.own or ()), *self.shared, *(entry for entry in rest if entry is not None)}


@dataclass(frozen=True)
class Reading:
    """What one agent observes, as numbers."""

    row: Float
    """[f_N]"""
    mask: Bool | None
    """[A] of a fixed set."""
    tasks: Float | None = None
    """[X, f_X] tasks that exist,"""
    slot: NDArray[np.int64] | None = None
    """[X] their places in the environment's list,"""
    legal: Bool | None = None
    """[X] which of them the agent may choose,"""
    pairs: Float | None = None
    """[X, g] and what it alone sees of them."""


def entries(space: gym.Space[Any], prefix: str = "") -> dict[str, gym.Space[Any]]:
    """The leaves of nested `Dict` spaces by their dotted names; a space that is no `Dict` is one leaf ''."""
    if not isinstance(space, gym.spaces.Dict):
        return {prefix: space}
    found: dict[str, gym.Space[Any]] = {}
    for name, each in space.spaces.items():
        inner = entries(each, f"{prefix}.{name}" if prefix else str(name))
        for twice in found.keys() & inner.keys():
            raise UserError(f"two entries of the observations are {twice!r}, nested ones written with dots: rename one")
        found |= inner
    return found


def entry(observation: Any, name: str) -> Any:
    """The value of a leaf of `entries`."""
    if not name:
        return observation
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):  # a key may itself have dots
        key = ".".join(parts[:cut])
        if key in observation:
            return entry(observation[key], ".".join(parts[cut:]))
    raise KeyError(name)


def width(space: gym.Space[Any], name: str) -> int:
    """Numbers of a leaf. Raises UserError for a space that has no fixed number of them."""
    try:
        return int(flatdim(space))
    except (NotImplementedError, ValueError):
        kind = type(space).__name__
        raise UserError(f"entry {name!r} of the observations is a {kind}, which is no fixed list of numbers") from None


def scales(space: gym.Space[Any], count: int) -> NDArray[np.float64]:
    """[count] factors that bring a leaf's numbers near 1: one over the bound of a bounded box that is larger."""
    if not isinstance(space, gym.spaces.Box):
        return np.ones(count)
    bound = np.maximum(np.abs(space.low.astype(np.float64)), np.abs(space.high.astype(np.float64))).ravel()
    usual = np.isfinite(bound) & (bound > 1.0) & (bound < 1e6)
    return np.where(usual, 1.0 / np.where(usual, bound, 1.0), 1.0)


def count_actions(space: gym.Space[Any]) -> int | None:
    """Actions of a Discrete space, or all combinations of a MultiDiscrete one; None for any other."""
    if isinstance(space, gym.spaces.Discrete):
        return int(space.n)
    if isinstance(space, gym.spaces.MultiDiscrete):
        return int(np.prod(space.nvec.astype(np.int64)))
    return None


def numbered_action(space: gym.Space[Any], number: int) -> Any:
    """The action of a Discrete or MultiDiscrete space with a number from 0 on, the last part counting fastest."""
    if isinstance(space, gym.spaces.Discrete):
        return int(space.start) + number
    assert isinstance(space, gym.spaces.MultiDiscrete)
    parts = np.array(np.unravel_index(number, space.nvec.ravel()), dtype=space.dtype)
    return parts.reshape(space.nvec.shape) + space.start


class Kind:
    """Agents with the same spaces: how one of them is read, and what its choices mean."""

    def __init__(self, observed: gym.Space[Any], acts: gym.Space[Any], mapping: ObservationMapping) -> None:
        self.mapping, self.acts = mapping, acts
        self.leaves = entries(observed)
        for name in sorted(mapping.named() - self.leaves.keys()):
            raise UserError(f"mapping: the observations have no entry {name!r}{nearest(name, self.leaves)}")
        mask = mapping.mask or next((name for name in self.leaves if name.rpartition(".")[2] == MASK), None)
        self.mask = mask
        taken = mapping.named() | ({mask} if mask else set())
        own = mapping.own if mapping.own is not None else [name for name in self.leaves if name not in taken]
        self.own, self.shared = tuple(own), mapping.shared
        self.sizes = {name: width(self.leaves[name], name) for name in (*self.own, *self.shared)}
        self.num_actions = self._count_actions()
        if mask and width(self.leaves[mask], mask) != self.num_actions:
            raise UserError(
                f"entry {mask!r} has {width(self.leaves[mask], mask)} numbers for {self.num_actions} actions"
            )
        if mapping.noop >= self.num_actions:
            raise UserError(f"mapping.noop is {mapping.noop}, but the actions are 0 to {self.num_actions - 1}")
        self.task_columns = self._columns_of(mapping.tasks)
        self.pair_columns = self._columns_of(mapping.pairs)
        if mapping.tasks is not None:
            self.slots = self._rows_of(mapping.tasks)
            last = mapping.first_task_action + self.slots
            if last > self.num_actions:
                raise UserError(f"{self.slots} tasks need actions up to {last - 1}, but there are {self.num_actions}")
            if mapping.first_task_action <= mapping.noop < last:
                raise UserError(f"mapping.noop ({mapping.noop}) is the action of a task: set it or first_task_action")

    def _count_actions(self) -> int:
        count = count_actions(self.acts)
        if count is None:
            raise UserError(f"actions must be Discrete (or a small MultiDiscrete), not {self.acts}")
        if count > MAX_ACTIONS and isinstance(self.acts, gym.spaces.MultiDiscrete):
            raise UserError(f"actions MultiDiscrete({self.acts.nvec.tolist()}) are {count:,} combinations, too many")
        if count > MAX_DISCRETE:
            raise UserError(f"actions {self.acts} are too many: a fixed set has at most {MAX_DISCRETE:,}")
        return count

    def _rows_of(self, name: str) -> int:
        space = self.leaves[name]
        if not isinstance(space, gym.spaces.Box) or len(space.shape) != 2:
            raise UserError(f"entry {name!r} must be a Box of shape [tasks, numbers], not {space}")
        return int(space.shape[0])

    def _columns_of(self, name: str | None) -> tuple[Column, ...]:
        if name is None:
            return ()
        rows, space = self._rows_of(name), self.leaves[name]
        count = width(space, name) // max(rows, 1)
        scale = scales(space, rows * count).reshape(rows, count)
        return tuple(Column(f"{name}[{i}]", float(scale[:, i].min(initial=1.0))) for i in range(count))

    def agent_columns(self, prefix: str) -> list[Column]:
        """Columns of this kind's rows."""
        columns = []
        for name in (*self.own, *self.shared):
            visible = "all" if name in self.shared else "self"
            for i, scale in enumerate(scales(self.leaves[name], self.sizes[name])):
                columns.append(Column(f"{prefix}{name or 'observation'}[{i}]", float(scale), visible=visible))  # type: ignore[arg-type]
        return columns

    def read(self, observation: Any) -> Reading:
        """An observation as numbers. Raises ValueError, naming the entry, for numbers that are not finite."""
        parts = [self._flat(observation, name) for name in (*self.own, *self.shared)]
        row = np.concatenate(parts) if parts else np.empty(0, dtype=np.float32)
        mask = None
        if self.mask is not None:
            given = np.asarray(entry(observation, self.mask)).ravel()
            mask = given == 1
            if len(mask) != self.num_actions:
                raise ValueError(f"entry {self.mask!r} has {len(mask)} numbers for {self.num_actions} actions")
            if not (mask | (given == 0)).all():
                raise ValueError(f"entry {self.mask!r} must be 0 or 1 for each action, not {given.tolist()}")
        if self.mapping.tasks is None:
            return Reading(row, mask)
        return self._with_tasks(observation, row, mask)

    def _flat(self, observation: Any, name: str) -> Float:
        value = entry(observation, name)
        space = self.leaves[name]
        flat = np.asarray(value) if isinstance(space, gym.spaces.Box) else np.asarray(flatten(space, value))
        if np.iscomplexobj(flat):
            raise ValueError(f"entry {name or 'observation'!r} holds complex numbers: give real and imaginary parts")
        flat = flat.astype(np.float32, copy=False).ravel()
        if len(flat) != self.sizes[name]:
            raise ValueError(f"entry {name or 'observation'!r} has {len(flat)} numbers, not {self.sizes[name]}")
        if not np.isfinite(flat).all():
            raise ValueError(f"entry {name or 'observation'!r} holds numbers that are not finite")
        return flat

    def _with_tasks(self, observation: Any, row: Float, mask: Bool | None) -> Reading:
        mapping = self.mapping
        assert mapping.tasks is not None
        tasks = self._task_rows(observation, mapping.tasks)
        if mapping.task_exists is None:
            exists = (tasks != 0).any(axis=1)
        else:
            exists = np.asarray(entry(observation, mapping.task_exists)).ravel() != 0
            if len(exists) != len(tasks):
                raise ValueError(f"entry {mapping.task_exists!r} has {len(exists)} numbers for {len(tasks)} tasks")
        slot = np.flatnonzero(exists)
        legal = np.ones(len(slot), dtype=np.bool_) if mask is None else mask[mapping.first_task_action + slot]
        pairs = np.empty((len(slot), 0), dtype=np.float32)
        if mapping.pairs is not None:
            pairs = self._task_rows(observation, mapping.pairs)[slot]
        for name, rows in ((mapping.tasks, tasks[slot]), (mapping.pairs, pairs[legal])):
            if not np.isfinite(rows).all():
                raise ValueError(f"entry {name!r} holds numbers that are not finite in the row of a task that exists")
        return Reading(row, None, tasks[slot], slot, legal, pairs)

    def _task_rows(self, observation: Any, name: str) -> Float:
        rows = np.asarray(entry(observation, name), dtype=np.float32)
        if rows.shape != self.leaves[name].shape:
            raise ValueError(f"entry {name!r} has shape {rows.shape}, but its space {self.leaves[name].shape}")
        return rows

    def action(self, choice: int) -> Any:
        """The environment's action for a number 0 to `num_actions` - 1."""
        return numbered_action(self.acts, choice)


class Reader:
    """All kinds of agents of an environment; rows of several kinds stand side by side, with a column for the kind."""

    def __init__(self, mapping: ObservationMapping, spaces: Mapping[Hashable, tuple[gym.Space[Any], gym.Space[Any]]]):
        self.mapping = mapping
        self.kinds: list[Kind] = []
        self._known: list[tuple[gym.Space[Any], gym.Space[Any]]] = []
        self.kind_of = {name: self._kind(pair) for name, pair in spaces.items()}
        if not self.kinds:
            raise UserError("the environment declares no agents: pass `agents`, names of those it may have")
        self.task_columns, self.pair_columns = self.kinds[0].task_columns, self.kinds[0].pair_columns
        for kind in self.kinds[1:]:
            if (kind.task_columns, kind.pair_columns) != (self.task_columns, self.pair_columns):
                raise UserError("mapping: tasks must have the same numbers for all agents")
        sizes = [sum(kind.sizes.values()) for kind in self.kinds]
        several = len(self.kinds) > 1
        self._start = np.cumsum([len(self.kinds) if several else 0, *sizes])
        self.agent_columns: tuple[Column, ...] = ()
        if several:
            self.agent_columns = tuple(Column(f"kind {k}") for k in range(len(self.kinds)))
        for k, kind in enumerate(self.kinds):
            self.agent_columns += tuple(kind.agent_columns(f"{k}:" if several else ""))
        self.num_actions = None if mapping.tasks is not None else max(kind.num_actions for kind in self.kinds)

    def _kind(self, pair: tuple[gym.Space[Any], gym.Space[Any]]) -> int:
        for number, known in enumerate(self._known):
            if known == pair:
                return number
        self._known.append(pair)
        self.kinds.append(Kind(*pair, self.mapping))
        return len(self.kinds) - 1

    def add(self, name: Hashable, pair: tuple[gym.Space[Any], gym.Space[Any]]) -> None:
        """A further agent. Raises ValueError unless it has the spaces of one that is known."""
        if pair not in self._known:
            raise ValueError(f"agent {name!r} has spaces that no declared agent has: {pair[0]}, {pair[1]}")
        self.kind_of[name] = self._known.index(pair)

    def read(self, name: Hashable, observation: Any) -> Reading:
        """An agent's observation; see `Kind.read`."""
        number = self.kind_of[name]
        reading = self.kinds[number].read(observation)
        if len(self.kinds) == 1:
            return reading
        row = np.zeros(len(self.agent_columns), dtype=np.float32)
        row[number] = 1.0
        row[self._start[number] : self._start[number + 1]] = reading.row
        mask = reading.mask
        if self.num_actions is not None:  # those of the largest set that this kind lacks do nothing
            mask = np.zeros(self.num_actions, dtype=np.bool_)
            mask[: self.kinds[number].num_actions] = True if reading.mask is None else reading.mask
        return replace(reading, row=row, mask=mask)

    def action(self, name: Hashable, reading: Reading, choice: int) -> Any:
        """The environment's action for a choice: a pair of the agent, or an action of the fixed set; -1 = no-op."""
        kind = self.kinds[self.kind_of[name]]
        if choice < 0:
            return kind.action(self.mapping.noop)
        if reading.slot is None or reading.legal is None:
            return kind.action(choice)
        return kind.action(self.mapping.first_task_action + int(reading.slot[reading.legal][choice]))
