"""Advantages of each member by itself: its own rewards and values along its own steps.

A member's steps are a chain that `carry` links. A member that left, or whose episode terminated, has no next value; the
value after a time limit, its own or its episode's, is that of the last observation; a chain that the fragment cuts
bootstraps from what follows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from rl_openness.algorithms.mappo.loss import generalised_advantages
from rl_openness.algorithms.mappo.settings import Clock
from rl_openness.envs.base import Bool, Int, PackedObs
from rl_openness.envs.ragged import segment_of_row
from rl_openness.rllib.chunk import RolloutChunk


@dataclass(frozen=True)
class Chains:
    """For every member row M of a chunk: when it is, which chain it belongs to, and where that goes on."""

    step: Int
    """[M] 0 to T - 1"""
    chain: Int
    """[M] 0 to `count` - 1"""
    count: int
    after: Int
    """[M] row of the same member one step later in the chunk; -1 = none."""
    after_boot: Int
    """[M] its row in `chunk.boot`; -1 = none."""
    after_final: Int
    """[M] its row in `chunk.final`; -1 = none."""
    after_parted: Int
    """[M] its row in `chunk.parted`, if its chain ends here; -1 = none."""


def member_chains(chunk: RolloutChunk) -> Chains:
    """The chains of all members of a chunk."""
    obs, copies = chunk.obs, chunk.num_copies
    fresh, rows = obs.carry < 0, np.arange(len(obs.carry))
    chain = np.empty_like(rows)
    chain[fresh] = np.arange(fresh.sum())
    bounds = obs.agent_ptr[::copies]
    for start, stop in pairwise(bounds[1:]):  # of every step but the first
        goes_on = rows[start:stop][~fresh[start:stop]]
        chain[goes_on] = chain[obs.carry[goes_on]]
    after, after_boot = np.full_like(rows, -1), np.full_like(rows, -1)
    after[obs.carry[~fresh]] = rows[~fresh]
    stays = np.flatnonzero(chunk.boot.carry >= 0)
    after_boot[bounds[-2] + chunk.boot.carry[stays]] = stays
    after_parted = _rows_in_final(obs, chunk.parted, np.arange(obs.num_copies))
    after_parted[(after >= 0) | (after_boot >= 0)] = -1
    return Chains(
        step=segment_of_row(obs.agent_ptr) // copies,
        chain=chain,
        count=int(fresh.sum()),
        after=after,
        after_boot=after_boot,
        after_final=_rows_in_final(obs, chunk.final, chunk.final_step),
        after_parted=after_parted,
    )


def _rows_in_final(obs: PackedObs, final: PackedObs | None, final_step: Int) -> Int:
    """[M] row of each member in the final observation of its team-step; -1 without one, or if it left at the end."""
    after = np.full(len(obs.agent_id), -1)
    if final is None or not len(final.agent_id):
        return after
    ids = 1 + max(obs.agent_id.max(), final.agent_id.max())
    before = segment_of_row(obs.agent_ptr) * ids + obs.agent_id
    then = final_step[final.agent_copy] * ids + final.agent_id
    order = np.argsort(before)
    place = order[np.searchsorted(before, then, sorter=order).clip(max=len(order) - 1)]
    same = before[place] == then  # others joined at the very end
    after[place[same]] = np.flatnonzero(same)
    return after


class MemberValues(NamedTuple):
    """Raw values of members."""

    own: Tensor
    """[M] of the chunk,"""
    boot: Tensor
    """of `chunk.boot`,"""
    final: Tensor
    """of `chunk.final` (empty without one),"""
    parted: Tensor
    """of `chunk.parted` (empty without one)."""


def member_advantages(
    chunk: RolloutChunk,
    rewards: Tensor,
    values: MemberValues,
    *,
    gamma: float,
    lambda_: float,
    horizon_as_terminal: bool,
    clock: Clock = "environment",
) -> Tensor:
    """GAE [M] along each member's chain, from the rewards [M] of all members.

    A step that both terminates and truncates has no final observation, and so no next value. With the `agent` clock the
    steps that a member is away take no time: what it earns meanwhile counts with its last step before, and rows of away
    members have advantage 0.
    """
    chains = member_chains(chunk)
    following, has_next = torch.zeros_like(values.own), torch.zeros(len(values.own), dtype=torch.bool)
    nowhere = np.full_like(chains.after, -1)
    cut = (nowhere, nowhere) if horizon_as_terminal else (chains.after_final, chains.after_parted)
    for source, after in zip(values, (chains.after, chains.after_boot, *cut), strict=True):
        here = torch.from_numpy(after >= 0)
        following[here] = source[torch.from_numpy(after[after >= 0])]
        has_next |= here
    row, step, after = np.arange(len(chains.chain)), chains.step, chains.after
    if clock == "agent":
        row, last, step, after, rewards = _stretches(chunk.obs.present, chains, rewards)
        next_here = torch.from_numpy(after)
        following = torch.where(next_here >= 0, values.own[next_here.clamp(min=0)], following[torch.from_numpy(last)])
        has_next = has_next[torch.from_numpy(last)]
    rows = torch.from_numpy(row)
    place = torch.from_numpy(step), torch.from_numpy(chains.chain[row])

    def table(numbers: Tensor, empty: float) -> Tensor:
        return numbers.new_full((chunk.num_steps, chains.count), empty).index_put_(place, numbers)

    found = generalised_advantages(
        table(rewards, 0.0),
        table(values.own[rows], 0.0),
        table(following, 0.0),
        table(~has_next, True),
        table(torch.from_numpy(after < 0), True),
        gamma=gamma,
        lambda_=lambda_,
    )
    return torch.zeros_like(values.own).index_put_((rows,), found[place])


class Stretches(NamedTuple):
    """Each step [R] at which a member was present, with the steps that it was away after it."""

    row: Int
    """Its row,"""
    last: Int
    """the row of the last of these steps,"""
    number: Int
    """how many of its chain came before,"""
    after: Int
    """the row of the next one, -1 = none,"""
    earned: Tensor
    """and what the member earned in it."""


def _stretches(present: Bool, chains: Chains, rewards: Tensor) -> Stretches:
    """Rows of members that have been away since the chunk began belong to no stretch."""
    order = np.lexsort((chains.step, chains.chain))
    here = present[order]
    row = order[here]
    chain, count = chains.chain[row], len(row)
    stretch = np.cumsum(here) - 1
    known = stretch >= 0
    known[known] = chain[stretch[known]] == chains.chain[order[known]]
    order, stretch = order[known], stretch[known]
    last = np.zeros(count, dtype=np.int64)
    last[stretch] = order  # in order of time: the last one stays
    earned = rewards.new_zeros(count).index_add_(0, torch.from_numpy(stretch), rewards[torch.from_numpy(order)])
    after = np.full(count, -1, dtype=np.int64)
    after[:-1] = np.where(chain[1:] == chain[:-1], row[1:], -1)
    return Stretches(row, last, np.arange(count) - np.searchsorted(chain, chain), after, earned)
