"""What a network for a fixed set of actions reads: for every member its own row, the tasks, and the other agents.

Tasks and others come as sets of any size, with their offsets to the member, so nothing is bounded by a number of agents
or tasks. The actor reads columns that its agent observes; the critic reads every column.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rl_openness.envs.base import Bool, Column, EnvSpec, Float, Int, PackedObs
from rl_openness.envs.ragged import gather_segments, pointer, segment_of_row
from rl_openness.nn.segments import gather_segments as gather_rows
from rl_openness.nn.segments import segment_ids


@dataclass(frozen=True)
class Columns:
    """Columns of a row matrix that are read, the scale of each, and those that are coordinates."""

    column: Int
    scale: Float
    axis: Int
    """[K] columns of this matrix, on the axes that agents have too"""
    axis_scale: Float
    own_axis: Int
    """[K] columns of `agent_rows` on the same axes"""
    own_axis_scale: Float

    @property
    def width(self) -> int:
        """Numbers per row: the columns, then the offsets."""
        return len(self.column) + len(self.axis)

    def rows(self, rows: Float, mine: Float) -> Float:
        """[n, width] of raw rows [n, .] as the members with the raw rows `mine` [n, .] see them."""
        offset = rows[:, self.axis] * self.axis_scale - mine[:, self.own_axis] * self.own_axis_scale
        return np.concatenate([rows[:, self.column] * self.scale, offset], axis=1)


def _columns(columns: Sequence[Column], agents: Sequence[Column], *, everything: bool, own: bool = False) -> Columns:
    visible = {"all", "self"} if own else {"all"}
    read = [i for i, c in enumerate(columns) if everything or c.visible in visible]
    here = {c.axis: i for i, c in enumerate(agents) if c.axis and c.visible != "critic"}
    pairs = [] if own else [(i, here[axis]) for i in read if (axis := columns[i].axis) in here]
    axes, mine = [i for i, _ in pairs], [i for _, i in pairs]

    def scales(table: Sequence[Column], chosen: list[int]) -> Float:
        return np.array([table[i].scale for i in chosen], dtype=np.float32)

    return Columns(
        column=np.array(read, dtype=np.int64),
        scale=scales(columns, read),
        axis=np.array(axes, dtype=np.int64),
        axis_scale=scales(columns, axes),
        own_axis=np.array(mine, dtype=np.int64),
        own_axis_scale=scales(agents, mine),
    )


class MemberView:
    """Which columns a network reads. `everything`: the critic's view, which also knows who is away."""

    def __init__(self, spec: EnvSpec, *, everything: bool) -> None:
        agents = spec.agent_columns
        self.everything = everything
        self.own = _columns(agents, agents, everything=everything, own=True)
        self.others = _columns(agents, agents, everything=everything)
        self.tasks = _columns(spec.task_columns, agents, everything=everything)

    @property
    def own_width(self) -> int:
        """Numbers that a member reads of itself."""
        return len(self.own.column) + self.everything

    def inputs(self, obs: PackedObs, members: Int, dtype: torch.dtype = torch.float32) -> MemberInputs:
        """What the members [D] (rows of `agent_rows`) read."""
        mine = obs.agent_rows[members]
        own = mine[:, self.own.column] * self.own.scale
        if self.everything:
            own = np.concatenate([own, obs.present[members, None]], axis=1)
        copy = obs.agent_copy[members]
        tasks, task_ptr = gather_segments(obs.task_ptr, copy)
        others, other_ptr = other_members(obs, members, copy)
        task_rows = self.tasks.rows(obs.task_rows[tasks], mine[segment_of_row(task_ptr)])
        other_rows = self.others.rows(obs.agent_rows[others], mine[segment_of_row(other_ptr)])
        return MemberInputs(
            own=torch.from_numpy(own).to(dtype),
            task_ptr=torch.from_numpy(task_ptr),
            task_rows=torch.from_numpy(task_rows).to(dtype),
            other_ptr=torch.from_numpy(other_ptr),
            other_rows=torch.from_numpy(other_rows).to(dtype),
        )


@dataclass(frozen=True)
class MemberInputs:
    """D members, the tasks T and the other agents O that each of them sees."""

    own: Tensor
    """[D, .]"""
    task_ptr: Tensor
    """[D + 1]"""
    task_rows: Tensor
    """[T, .]"""
    other_ptr: Tensor
    """[D + 1]"""
    other_rows: Tensor
    """[O, .]"""

    def __len__(self) -> int:
        return len(self.own)

    def sets(self) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
        """Rows of tasks and of others, and the member that each belongs to."""
        return (self.task_rows, segment_ids(self.task_ptr)), (self.other_rows, segment_ids(self.other_ptr))

    def select(self, members: Tensor) -> MemberInputs:
        """Some of the members, in that order."""
        tasks, task_ptr = gather_rows(self.task_ptr, members)
        others, other_ptr = gather_rows(self.other_ptr, members)
        return MemberInputs(
            own=self.own.index_select(0, members),
            task_ptr=task_ptr,
            task_rows=self.task_rows.index_select(0, tasks),
            other_ptr=other_ptr,
            other_rows=self.other_rows.index_select(0, others),
        )


def controlled_members(obs: PackedObs) -> Int:
    """[D] rows of the members that the caller decides for, present or away."""
    controlled = np.ones(len(obs.present), dtype=np.bool_) if obs.controlled is None else obs.controlled
    return np.flatnonzero(controlled)


def deciding(obs: PackedObs) -> Bool:
    """[M] members that the caller decides for now: in the system, and with an action that does something."""
    decides = obs.present if obs.controlled is None else obs.present & obs.controlled
    return decides if obs.action_mask is None else decides & obs.action_mask.any(1)


def other_members(obs: PackedObs, members: Int, copy: Int) -> tuple[Int, Int]:
    """Rows of the other present agents that each of the members [D] sees, one after another, and offsets [D + 1]."""
    if obs.see_ptr is None or obs.see_agent is None:
        rows, ptr = gather_segments(obs.agent_ptr, copy)
    else:
        places, ptr = gather_segments(obs.see_ptr, members)
        rows = obs.see_agent[places]
    owner = segment_of_row(ptr)
    kept = obs.present[rows] & (rows != members[owner])
    return rows[kept], pointer(np.bincount(owner[kept], minlength=len(members)))
