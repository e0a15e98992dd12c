"""From packed chunks to what a network reads: whose memory goes on where, in an order that a recurrent cell can run.

A chunk is one window: observations 0 to T - 1 of B copies and the one that followed. The online network reads the first
T, from the memory stored with observation 0. The target network reads those from 1 on (and the last observations of
truncated episodes, where they are bootstrapped from), with a memory of its own of the members of observation 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rl_openness.algorithms.gpl.graph import TeamGraph, chains, learners_of, rows_or_zeros, team_graph
from rl_openness.algorithms.gpl.network import GplNetwork, TeamInputs
from rl_openness.envs.base import Bool, Float, Int, PackedObs
from rl_openness.envs.ragged import pointer, segment_of_row
from rl_openness.rllib.chunk import RolloutChunk


@dataclass(frozen=True)
class Rows:
    """R present agents of S consecutive team-steps, team after team."""

    features: Float
    """[R, inputs]"""
    previous: Int
    """[R] row of the same agent one step earlier, -1 = none among these"""
    enters: Int
    """[R] row of the stored memory that an agent's chain begins with, -1 = none"""
    sizes: Int
    """[S] agents of each team-step"""
    learner: Int
    """[S] row of each team-step's learner"""


@dataclass(frozen=True)
class Timeline:
    """Present agents of a chunk's observations 0 to T, then of the last observations of truncated episodes."""

    features: Float
    previous: Int
    sizes: Int
    learner: Int
    """As in `Rows`, without a split."""
    present: Bool
    """[members of observations 0 to T and the last ones]"""
    first: tuple[int, int]
    """Rows and team-steps of observation 0."""
    window: tuple[int, int]
    """Rows and team-steps of observations 0 to T - 1."""

    @classmethod
    def of(cls, chunk: RolloutChunk, inputs: TeamInputs, *, with_final: bool) -> Timeline:
        """Line up a chunk; `with_final` for bootstrapping from the last observations of truncated episodes."""
        if chunk.num_steps > chunk.window:
            raise ValueError(f"a chunk of {chunk.num_steps} steps is more than one window of {chunk.window}")
        obs, boot = chunk.obs, chunk.boot
        parts = [obs, boot]
        carries = [obs.carry, np.where(boot.carry >= 0, boot.carry + obs.agent_ptr[-1 - chunk.num_copies], -1)]
        if with_final and chunk.final is not None:
            parts.append(chunk.final)
            carries.append(_rows_of_final(chunk, chunk.final))
        present = np.concatenate([part.present for part in parts])
        sizes = np.concatenate([np.diff(part.agent_ptr) for part in parts])
        features = np.concatenate([inputs(part) for part in parts])
        previous = np.concatenate(carries)
        controlled = None
        if obs.controlled is not None:
            controlled = np.concatenate([part.controlled for part in parts if part.controlled is not None])
        counts = (int(obs.agent_ptr[chunk.num_copies]), len(obs.present))
        if not present.all():  # who is away has no row, and comes back without a memory
            place = np.where(present, np.cumsum(present) - 1, -1)
            previous = np.where(previous >= 0, place[previous], -1)[present]
            sizes = np.bincount(segment_of_row(pointer(sizes))[present], minlength=len(sizes))
            features = features[present]
            controlled = None if controlled is None else controlled[present]
            counts = (int(present[: counts[0]].sum()), int(present[: counts[1]].sum()))
        return cls(
            features=features,
            previous=previous,
            sizes=sizes,
            learner=learners_of(sizes, controlled),
            present=present,
            first=(counts[0], chunk.num_copies),
            window=(counts[1], obs.num_copies),
        )

    def online(self) -> Rows:
        """What the online network reads."""
        rows, steps = self.window
        number = np.arange(rows)
        return Rows(
            features=self.features[:rows],
            previous=self.previous[:rows],
            enters=np.where(number < self.first[0], number, -1),
            sizes=self.sizes[:steps],
            learner=self.learner[:steps],
        )

    def following(self) -> Rows:
        """What the target network reads; team-step t * B + b here followed that team-step of `online`."""
        start, step = self.first
        previous = self.previous[start:]
        return Rows(
            features=self.features[start:],
            previous=np.maximum(previous - start, -1),
            enters=np.where(previous < start, previous, -1),
            sizes=self.sizes[step:],
            learner=self.learner[step:] - start,
        )


def _rows_of_final(chunk: RolloutChunk, final: PackedObs) -> Int:
    """[members of `final`] member of the observation before it with the same identity, -1 = joined at the last step."""
    obs = chunk.obs
    span = max(int(obs.agent_id.max(initial=0)), int(final.agent_id.max(initial=0))) + 1
    known = obs.agent_copy * span + obs.agent_id
    wanted = chunk.final_step[final.agent_copy] * span + final.agent_id
    order = np.argsort(known)
    found = order[np.searchsorted(known[order], wanted).clip(max=len(order) - 1)]
    return np.where(known[found] == wanted, found, -1)


def joined(parts: Sequence[Rows], memory_rows: Sequence[int]) -> Rows:
    """Rows of several chunks one after another; `memory_rows` counts the rows of each chunk's stored memory."""
    if len(parts) == 1:
        return parts[0]
    starts = pointer(np.array([len(part.features) for part in parts]))
    memories = pointer(np.array(memory_rows))
    shifts = list(zip(parts, starts[:-1], memories[:-1], strict=True))
    return Rows(
        features=np.concatenate([part.features for part in parts]),
        previous=np.concatenate([np.where(p.previous >= 0, p.previous + start, -1) for p, start, _ in shifts]),
        enters=np.concatenate([np.where(p.enters >= 0, p.enters + row, -1) for p, _, row in shifts]),
        sizes=np.concatenate([part.sizes for part in parts]),
        learner=np.concatenate([part.learner + start for part, start, _ in shifts]),
    )


@dataclass(frozen=True)
class Passage:
    """Rows as a network reads them, in the order of `graph.chains`; the graph's nodes are numbered in that order."""

    inputs: Tensor
    """[R, inputs]"""
    memory: Tensor
    """[block_sizes[0], width] what enters each chain"""
    block_sizes: tuple[int, ...]
    graph: TeamGraph
    order: Int
    """[R] row that has come to each place"""
    place: Int
    """[R] place of each row"""

    @classmethod
    def of(cls, rows: Rows, memory: Tensor, network: GplNetwork) -> Passage:
        """`memory` [stored rows, width] is what `rows.enters` names."""
        order, block_sizes = chains(rows.previous)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        state = rows_or_zeros(memory, rows.enters[order[: block_sizes[0]]])
        complete = network.settings.graph == "complete"
        return cls(
            inputs=torch.from_numpy(rows.features[order]).to(network.dtype),
            memory=state.to(network.dtype),
            block_sizes=block_sizes,
            graph=team_graph(rows.sizes, rows.learner, complete=complete, place=place),
            order=order,
            place=place,
        )
