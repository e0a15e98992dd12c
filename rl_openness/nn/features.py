"""Feature frames and team statistics: from raw rows to `ActorInputs` and `CriticInputs` (PLATO sections 1 and 2).

An actor reads only columns its agent observes; the critic reads every column. All numbers are multiplied by the fixed
scale of their column. Relative coordinates are those of the agent that decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from rl_openness.envs.base import Column, EnvSpec
from rl_openness.nn.inputs import ActorInputs, CriticInputs, RowTable, TeamTensors
from rl_openness.nn.segments import gather_segments, segment_ids, segment_max, segment_sum

Frame = Literal["absolute", "relative", "both"]
Statistic = Literal["mean", "std", "min", "max", "sum", "median", "count"]


def _pick(rows: Tensor, columns: Sequence[Column], wanted: Sequence[int]) -> Tensor:
    """Chosen columns of raw rows, scaled."""
    scale = rows.new_tensor([columns[i].scale for i in wanted])
    return rows[:, list(wanted)] * scale


def segment_median(values: Tensor, segment: Tensor, count: int) -> Tensor:
    """[count, f] medians of rows [n, f] (mean of the middle two for even sizes); 0 for empty segments."""
    sizes = torch.bincount(segment, minlength=count)
    start = sizes.cumsum(0) - sizes
    columns = []
    for column in values.unbind(1):
        order = torch.argsort(column, stable=True)
        order = order[torch.argsort(segment[order], stable=True)]
        ranked = torch.cat([column[order], column.new_zeros(1)])
        low, high = start + (sizes - 1).clamp(min=0) // 2, start + sizes // 2
        columns.append(torch.where(sizes > 0, (ranked[low] + ranked[high.clamp(max=len(ranked) - 1)]) / 2, 0))
    return torch.stack(columns, 1) if columns else values.new_zeros((count, 0))


def team_statistics(rows: Tensor, segment: Tensor, count: int, wanted: Sequence[Statistic]) -> list[Tensor]:
    """Per-column statistics [count, f] of each segment's rows [n, f], in the order asked for; 0 for empty segments.

    `std` is the population standard deviation. `count` is the same number in every column.
    """
    size = torch.bincount(segment, minlength=count).to(rows.dtype).unsqueeze(1)
    total = segment_sum(rows, segment, count)
    mean = total / size.clamp(min=1)
    limit = rows.new_full((count, rows.shape[1]), torch.finfo(rows.dtype).min)
    results = []
    for name in wanted:
        if name == "mean":
            value = mean
        elif name == "std":
            square = (rows - mean.index_select(0, segment)).square()
            value = (segment_sum(square, segment, count) / size.clamp(min=1)).sqrt()
        elif name in ("min", "max"):
            sign = 1.0 if name == "max" else -1.0
            value = sign * segment_max(sign * rows, segment, limit)
            value = torch.where(size > 0, value, torch.zeros_like(value))
        elif name == "sum":
            value = total
        elif name == "median":
            value = segment_median(rows, segment, count)
        else:
            value = size.expand_as(total)
        results.append(value)
    return results


class ActorFeatures:
    """Builds `ActorInputs` for one environment and one choice of frame and statistics.

    `memory`: every member thinks at every step (recurrent state), not only agents with a choice. `away_rows`: an away
    member thinks from its own row; otherwise that row is never read (zeros stand in, whatever it holds).
    `pointer`: rows of the seen agents for the agent pointer, instead of statistics.
    """

    def __init__(
        self,
        spec: EnvSpec,
        *,
        frame: Frame = "both",
        stats: Sequence[Statistic] = ("mean", "std", "min", "max"),
        include_self: bool = True,
        task_extras: bool = True,
        pointer: bool = False,
        memory: bool = False,
        away_rows: bool = True,
    ) -> None:
        self.spec, self.stats, self.include_self = spec, tuple(stats), include_self
        self.pointer, self.memory, self.away_rows = pointer, memory, away_rows
        self.absolute, self.relative = frame != "relative", frame != "absolute"
        agents, tasks, pairs = spec.agent_columns, spec.task_columns, spec.pair_columns
        self.axes = [i for i, c in enumerate(agents) if c.axis and c.visible == "all"]
        self.team = [i for i, c in enumerate(agents) if c.visible == "all"]
        self.own = [i for i, c in enumerate(agents) if c.visible != "critic" and (self.absolute or not c.axis)]
        self.private = [i for i in self.own if agents[i].visible == "self"]
        self.task = [i for i, c in enumerate(tasks) if c.visible == "all" and (self.absolute or not c.axis)]
        self.pair = [
            i for i, c in enumerate(pairs) if c.visible != "critic" and (self.relative if c.axis else task_extras)
        ]

    @property
    def team_width(self) -> int:
        """Width of one seen agent's row (f_N)."""
        plain = len(self.team) - (0 if self.absolute else len(self.axes))
        return plain + (len(self.axes) if self.relative else 0)

    @property
    def seen_width(self) -> int:
        """Width of a row that the agent pointer reads: also what an agent knows of itself alone (0 for others)."""
        return self.team_width + len(self.private)

    @property
    def query_width(self) -> int:
        """Width of `query_rows`."""
        if self.pointer:
            return self.seen_width
        return len(self.stats) * self.team_width + (len(self.own) if self.include_self else 0)

    @property
    def key_width(self) -> int:
        """Width of `key_rows` (f_X)."""
        return len(self.task) + len(self.pair)

    def __call__(self, team: TeamTensors) -> ActorInputs:
        """Inputs for every team-step of the observation."""
        if self.memory and not self.away_rows:
            team = replace(team, agent_rows=team.agent_rows.where(team.present.unsqueeze(1), 0.0))
        has_pair = team.pair_ptr.diff() > 0
        thinks = torch.ones_like(has_pair) if self.memory else has_pair
        member = thinks.nonzero().squeeze(1)
        copy = team.agent_copy.index_select(0, member)
        counts = torch.bincount(copy, minlength=team.num_copies)
        step_ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        pairs, pair_ptr = gather_segments(team.pair_ptr, member)
        keys = torch.cat(
            [
                _pick(team.task_rows, self.spec.task_columns, self.task).index_select(
                    0, team.pair_task.index_select(0, pairs)
                ),
                _pick(team.pair_rows.index_select(0, pairs), self.spec.pair_columns, self.pair),
            ],
            dim=1,
        )
        seen_ptr = seen_rows = None
        if self.pointer:
            query, seen_ptr, seen_rows = self._pointer_rows(team, member)
        else:
            query = self._statistics_rows(team, member, copy)
        return ActorInputs(
            step_ptr=step_ptr,
            member=member,
            decides=has_pair.index_select(0, member),
            query_rows=RowTable(query),
            pair_ptr=pair_ptr,
            key_rows=RowTable(keys),
            seen_ptr=seen_ptr,
            seen_rows=None if seen_rows is None else RowTable(seen_rows),
        )

    def _team_view(self, team: TeamTensors, member: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Present agents as seen: rows of `agent_rows`, their group, and the group of each decider.

        Where everybody sees everybody a group is a copy; otherwise each decider has its own.
        """
        if team.see_ptr is None or team.see_agent is None:
            seen = team.present.nonzero().squeeze(1)
            return seen, team.agent_copy.index_select(0, seen), team.agent_copy.index_select(0, member)
        rows, ptr = gather_segments(team.see_ptr, member)
        seen, group = team.see_agent.index_select(0, rows), segment_ids(ptr)
        kept = team.present.index_select(0, seen)
        return seen[kept], group[kept], torch.arange(len(member), device=member.device)

    def _statistics_rows(self, team: TeamTensors, member: Tensor, copy: Tensor) -> Tensor:
        seen, group, group_of = self._team_view(team, member)
        count = team.num_copies if team.see_ptr is None else len(member)
        columns = self.spec.agent_columns
        rows = _pick(team.agent_rows.index_select(0, seen), columns, self.team)
        mine = team.agent_rows.index_select(0, member)
        here = _pick(mine, columns, self.axes)
        axes = [self.team.index(i) for i in self.axes]
        plain = [i for i in range(len(self.team)) if self.absolute or i not in axes]
        size = torch.bincount(group, minlength=count).to(rows.dtype).index_select(0, group_of).unsqueeze(1)
        parts = []
        for name, table in zip(self.stats, team_statistics(rows, group, count, self.stats), strict=True):
            value = table.index_select(0, group_of)
            parts.append(value[:, plain])
            if self.relative:
                parts.append(_relative(name, value[:, axes], here, size))
        if self.include_self:
            parts.append(_pick(mine, columns, self.own))
        return torch.cat(parts, dim=1)

    def _pointer_rows(self, team: TeamTensors, member: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Own rows, and for each decider the rows of all present agents it sees (itself among them), in its frame."""
        seen, group, group_of = self._team_view(team, member)
        count = team.num_copies if team.see_ptr is None else len(member)
        sizes = torch.bincount(group, minlength=count)
        ptr = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
        rows, seen_ptr = gather_segments(ptr, group_of)
        other = seen.index_select(0, rows)
        ego = torch.repeat_interleave(member, seen_ptr.diff())
        return self._framed(team, member, member), seen_ptr, self._framed(team, other, ego)

    def _framed(self, team: TeamTensors, agent: Tensor, ego: Tensor) -> Tensor:
        """Team columns of `agent` rows [n] as the agents `ego` [n] see them."""
        columns = self.spec.agent_columns
        theirs, mine = team.agent_rows.index_select(0, agent), team.agent_rows.index_select(0, ego)
        plain = [i for i in self.team if self.absolute or i not in self.axes]
        parts = [_pick(theirs, columns, plain)]
        if self.relative:
            parts.append(_pick(theirs, columns, self.axes) - _pick(mine, columns, self.axes))
        own = _pick(mine, columns, self.private)
        parts.append(torch.where((agent == ego).unsqueeze(1), own, torch.zeros_like(own)))
        return torch.cat(parts, dim=1)


def _relative(name: Statistic, value: Tensor, here: Tensor, size: Tensor) -> Tensor:
    """A statistic of coordinates, moved into the frame of an agent at `here`: all but std and count shift with it."""
    if name in ("std", "count"):
        return value
    if name == "sum":
        return value - size * here
    return torch.where(size > 0, value - here, value)


def critic_inputs(team: TeamTensors, spec: EnvSpec, *, edges: bool) -> CriticInputs:
    """Nodes of the global state in the absolute frame; away members have no node."""
    rows = team.present.nonzero().squeeze(1)
    counts = torch.bincount(team.agent_copy.index_select(0, rows), minlength=team.num_copies)
    agents = team.agent_rows.index_select(0, rows)
    edge_ptr = edge_task = None
    if edges:
        pairs, edge_ptr = gather_segments(team.pair_ptr, rows)
        edge_task = team.pair_task.index_select(0, pairs)
    return CriticInputs(
        agent_ptr=torch.cat([counts.new_zeros(1), counts.cumsum(0)]),
        agent_rows=RowTable(_pick(agents, spec.agent_columns, range(len(spec.agent_columns)))),
        task_ptr=team.task_ptr,
        task_rows=RowTable(_pick(team.task_rows, spec.task_columns, range(len(spec.task_columns)))),
        edge_ptr=edge_ptr,
        edge_task=edge_task,
    )
