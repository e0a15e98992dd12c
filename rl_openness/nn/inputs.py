"""What the networks read: parameter-free matrices derived from a `PackedObs`, once per rollout.

`ActorInputs` has one *decider* row per agent that thinks: without memory only present agents with a choice, with memory
every member. `CriticInputs` has the nodes of the global state. Both are ragged over team-steps and can be cut to any
selection of them, which is how minibatches are made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from rl_openness.envs.base import PackedObs
from rl_openness.nn.segments import gather_segments, segment_ids


@dataclass(frozen=True)
class TeamTensors:
    """A `PackedObs` as tensors (float rows in any floating dtype), with the copy of every row."""

    num_copies: int
    agent_rows: Tensor
    present: Tensor
    carry: Tensor
    agent_ptr: Tensor
    agent_copy: Tensor
    task_rows: Tensor
    task_ptr: Tensor
    task_copy: Tensor
    pair_agent: Tensor
    pair_task: Tensor
    pair_rows: Tensor
    pair_ptr: Tensor
    see_ptr: Tensor | None = None
    see_agent: Tensor | None = None

    @classmethod
    def from_obs(cls, obs: PackedObs, dtype: torch.dtype = torch.float32) -> TeamTensors:
        """Shares memory with the observation where the dtype allows."""

        def rows(array: np.ndarray) -> Tensor:
            return torch.from_numpy(array).to(dtype)

        agent_ptr, task_ptr = torch.from_numpy(obs.agent_ptr), torch.from_numpy(obs.task_ptr)
        return cls(
            num_copies=obs.num_copies,
            agent_rows=rows(obs.agent_rows),
            present=torch.from_numpy(obs.present),
            carry=torch.from_numpy(obs.carry),
            agent_ptr=agent_ptr,
            agent_copy=segment_ids(agent_ptr),
            task_rows=rows(obs.task_rows),
            task_ptr=task_ptr,
            task_copy=segment_ids(task_ptr),
            pair_agent=torch.from_numpy(obs.pair_agent),
            pair_task=torch.from_numpy(obs.pair_task),
            pair_rows=rows(obs.pair_rows),
            pair_ptr=torch.from_numpy(obs.pair_ptr),
            see_ptr=None if obs.see_ptr is None else torch.from_numpy(obs.see_ptr),
            see_agent=None if obs.see_agent is None else torch.from_numpy(obs.see_agent),
        )


@dataclass(frozen=True)
class RowTable:
    """Rows [n, f], stored either as they are or as distinct rows and an index into them.

    A row-wise network then runs once per distinct row, which is exact; on small grids few rows are distinct.
    """

    rows: Tensor
    """[n, f], or [distinct, f]"""
    index: Tensor | None = None
    """[n] into `rows`"""

    def __len__(self) -> int:
        return len(self.rows if self.index is None else self.index)

    def apply(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """`function` of every row [n, .]; it must treat rows alike and apart."""
        return self.expand(function(self.rows))

    def expand(self, values: Tensor) -> Tensor:
        """Values of the stored rows, for every row [n, .]."""
        return values if self.index is None else values.index_select(0, self.index)

    def select(self, chosen: Tensor) -> RowTable:
        """Some rows."""
        if self.index is None:
            return RowTable(self.rows.index_select(0, chosen))
        return RowTable(self.rows, self.index.index_select(0, chosen))

    def deduplicate(self) -> RowTable:
        """The same rows, stored once each if at least half of them are repetitions."""
        if self.index is not None or self.rows.numel() == 0:
            return self
        raw = np.ascontiguousarray(self.rows.numpy())
        width = raw.shape[1] * raw.itemsize
        numbers: dict[bytes, int] = {}
        # NumPy strips trailing zero bytes of each row here, which keeps rows of one width apart.
        index = [numbers.setdefault(row, len(numbers)) for row in raw.view(f"S{width}").ravel().tolist()]
        if 2 * len(numbers) > len(raw):
            return self
        table = np.frombuffer(b"".join(row.ljust(width, b"\0") for row in numbers), dtype=raw.dtype)
        return RowTable(torch.from_numpy(table.reshape(-1, raw.shape[1]).copy()), torch.tensor(index))


@dataclass(frozen=True)
class ActorInputs:
    """Deciders D of S team-steps, their open pairs P, and (agent pointer only) the rows V of whom each one sees."""

    step_ptr: Tensor
    """[S + 1] deciders of each team-step."""
    member: Tensor
    """[D] row of the member in the `PackedObs` this was made from."""
    decides: Tensor
    """[D] bool: present and with at least one pair."""
    query_rows: RowTable
    """[D, .]"""
    pair_ptr: Tensor
    """[D + 1]"""
    key_rows: RowTable
    """[P, .]"""
    seen_ptr: Tensor | None = None
    """[D + 1]"""
    seen_rows: RowTable | None = None
    """[V, .]"""

    @property
    def owner(self) -> Tensor:
        """[P] decider of each pair."""
        return segment_ids(self.pair_ptr)

    def select(self, steps: Tensor) -> tuple[ActorInputs, Tensor]:
        """The inputs of some team-steps, in that order, and the decider rows they were taken from."""
        deciders, step_ptr = gather_segments(self.step_ptr, steps)
        pairs, pair_ptr = gather_segments(self.pair_ptr, deciders)
        seen_ptr = seen_rows = None
        if self.seen_ptr is not None and self.seen_rows is not None:
            seen, seen_ptr = gather_segments(self.seen_ptr, deciders)
            seen_rows = self.seen_rows.select(seen)
        selected = ActorInputs(
            step_ptr=step_ptr,
            member=self.member.index_select(0, deciders),
            decides=self.decides.index_select(0, deciders),
            query_rows=self.query_rows.select(deciders),
            pair_ptr=pair_ptr,
            key_rows=self.key_rows.select(pairs),
            seen_ptr=seen_ptr,
            seen_rows=seen_rows,
        )
        return selected, deciders


@dataclass(frozen=True)
class CriticInputs:
    """Nodes of S team-steps: present agents N, all tasks X, and (`critic_edges: actions`) edges E between them."""

    agent_ptr: Tensor
    agent_rows: RowTable
    task_ptr: Tensor
    task_rows: RowTable
    edge_ptr: Tensor | None = None
    """[N + 1] edges of each agent row."""
    edge_task: Tensor | None = None
    """[E] row of `task_rows`."""

    @property
    def num_steps(self) -> int:
        """S: number of team-steps."""
        return len(self.agent_ptr) - 1

    def select(self, steps: Tensor) -> CriticInputs:
        """The nodes of some team-steps, in that order."""
        agents, agent_ptr = gather_segments(self.agent_ptr, steps)
        tasks, task_ptr = gather_segments(self.task_ptr, steps)
        edge_ptr = edge_task = None
        if self.edge_ptr is not None and self.edge_task is not None:
            edges, edge_ptr = gather_segments(self.edge_ptr, agents)
            moved = self.task_ptr.index_select(0, steps) - task_ptr[:-1]
            shift = torch.repeat_interleave(torch.repeat_interleave(moved, agent_ptr.diff()), edge_ptr.diff())
            edge_task = self.edge_task.index_select(0, edges) - shift
        return CriticInputs(
            agent_ptr=agent_ptr,
            agent_rows=self.agent_rows.select(agents),
            task_ptr=task_ptr,
            task_rows=self.task_rows.select(tasks),
            edge_ptr=edge_ptr,
            edge_task=edge_task,
        )


Inputs = TypeVar("Inputs", ActorInputs, CriticInputs)


def deduplicated(inputs: Inputs) -> Inputs:
    """The same inputs with every table of rows stored without repetitions where that pays."""
    tables = {f.name: getattr(inputs, f.name) for f in fields(inputs)}
    smaller: dict[str, Any] = {name: t.deduplicate() for name, t in tables.items() if isinstance(t, RowTable)}
    return replace(inputs, **smaller)
