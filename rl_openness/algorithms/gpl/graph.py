"""Index arrays of packed teams: who is whose teammate, which pairs interact, and whose memory goes on where.

Nothing here is bounded by the size of a team, and nothing is padded. S team-steps have N nodes, one per agent; each
has one learner and Nm = N - S teammates ("mates") in all. Rows that belong to pairs or edges start with the Nm pairs
(learner, mate), in the order of the mates; the Pr pairs of two mates (complete graph only) follow.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rl_openness.envs.base import Int
from rl_openness.envs.ragged import segment_of_row


@dataclass(frozen=True)
class TeamGraph:
    """The interaction graphs of S team-steps; every field but `num_teams` is an index tensor (int64).

    An unordered pair is listed once. Pairwise factors C(j, k) are wanted for both orders of it; messages of the agent
    model only for edges into mates, because what it would say about the learner is never used.
    """

    num_teams: int
    learner: Tensor
    """[S] node of each team's learner."""
    learner_of_node: Tensor
    """[N] node of the learner in each node's team."""
    team: Tensor
    """[N] team of each node."""
    mate: Tensor
    """[Nm] node of each mate."""
    mate_team: Tensor
    """[Nm]"""
    first: Tensor
    """[Nm + Pr] node j of each pair, the learner in the first Nm."""
    second: Tensor
    """[Nm + Pr] node k of each pair."""
    rest_team: Tensor
    """[Pr] team of each pair of mates."""
    rest_first: Tensor
    rest_second: Tensor
    """[Pr] each: the pairs of mates as numbers of mates."""
    source: Tensor
    target: Tensor
    """[Nm + 2 Pr] each: nodes of the edges into mates, the learners' first, then both orders of the pairs of mates."""
    heard: Tensor
    """[2 Pr] number of the mate at the end of the edges between mates."""
    in_degree: Tensor
    """[Nm, 1] edges into each mate."""

    def factor_edges(self, *, learner_only: bool = False) -> tuple[Tensor, Tensor]:
        """[2 P] nodes (j, k) of both orders of every pair, all (j, k) before all (k, j); P = Nm or Nm + Pr."""
        count = len(self.mate) if learner_only else len(self.first)
        first, second = self.first[:count], self.second[:count]
        return torch.cat([first, second]), torch.cat([second, first])


def team_graph(sizes: Int, learner: Int, *, complete: bool, place: Int | None = None) -> TeamGraph:
    """Graphs of teams of the given sizes [S], whose agents are numbered one team after another.

    `learner` [S] is the number of each team's learner. `place` [N] renumbers: node of each agent, if another order.
    """
    teams, ends = len(sizes), np.cumsum(sizes)
    total = int(ends[-1]) if teams else 0
    team = np.repeat(np.arange(teams, dtype=np.int64), sizes)
    is_mate = np.ones(total, dtype=np.bool_)
    is_mate[learner] = False
    mate = np.flatnonzero(is_mate)
    mate_team = team[mate]
    node = np.arange(total, dtype=np.int64) if place is None else place
    mate_node, learner_node = node[mate], node[learner]
    hub = learner_node[mate_team]
    if complete:
        # a mate pairs with the later mates of its team
        number = np.arange(len(mate), dtype=np.int64)
        later = (ends - np.arange(1, teams + 1))[mate_team] - number - 1
        one = np.repeat(number, later)
        other = np.arange(len(one), dtype=np.int64) - np.repeat(np.cumsum(later) - later, later) + one + 1
        in_degree = (sizes - 1)[mate_team]
    else:
        one = other = np.empty(0, dtype=np.int64)
        in_degree = np.ones(len(mate), dtype=np.int64)
    j, k = mate_node[one], mate_node[other]
    team_of_node, hub_of_node = team, learner_node[team]
    if place is not None:
        team_of_node, hub_of_node = np.empty_like(team), np.empty_like(team)
        team_of_node[place], hub_of_node[place] = team, learner_node[team]
    arrays = {
        "learner": learner_node,
        "learner_of_node": hub_of_node,
        "team": team_of_node,
        "mate": mate_node,
        "mate_team": mate_team,
        "first": np.concatenate([hub, j]),
        "second": np.concatenate([mate_node, k]),
        "rest_team": mate_team[one],
        "rest_first": one,
        "rest_second": other,
        "source": np.concatenate([hub, j, k]),
        "target": np.concatenate([mate_node, k, j]),
        "heard": np.concatenate([other, one]),
        "in_degree": in_degree[:, None].astype(np.float32),
    }
    return TeamGraph(num_teams=teams, **{name: torch.from_numpy(array) for name, array in arrays.items()})


def learners_of(sizes: Int, controlled: np.ndarray | None) -> Int:
    """[S] number of each team's learner: its first controlled agent, or its first agent if all are controlled.

    Raises ValueError where a team has none.
    """
    starts = np.cumsum(sizes) - sizes
    if controlled is None:
        if (sizes == 0).any():
            raise ValueError("every team needs a present agent that is controlled")
        return starts
    rows = np.flatnonzero(controlled)
    team = segment_of_row(np.append(starts, len(controlled)))[rows]
    teams, first = np.unique(team, return_index=True)
    if len(teams) != len(sizes):
        raise ValueError("every team needs a present agent that is controlled")
    return rows[first]


def chains(previous: Int) -> tuple[Int, tuple[int, ...]]:
    """Order in which rows of several steps can be run through a recurrent cell without padding.

    `previous` [R] names the same agent's row one step earlier, -1 where it begins anew. In the order returned [R], all
    first rows of a chain come first, then all second rows, and so on (their counts are the second result); row i of one
    such block goes on from row i of the block before, because longer chains come first.
    """
    position = np.zeros(len(previous), dtype=np.int64)
    root = np.arange(len(previous), dtype=np.int64)
    before = previous
    while (goes_on := before >= 0).any():
        position += goes_on
        root = np.where(goes_on, before, root)
        before = np.where(goes_on, previous[before], -1)
    length = np.bincount(root, minlength=len(root))[root]
    order = np.lexsort((root, -length, position))
    return order, tuple(np.bincount(position).tolist())


def rows_or_zeros(rows: Tensor, index: Int) -> Tensor:
    """`rows` [n, width] at `index`, zeros where that is negative."""
    new = np.flatnonzero(index < 0)
    if len(new) == 0:
        return rows.index_select(0, torch.from_numpy(index))
    if len(rows) == 0:
        return rows.new_zeros(len(index), rows.shape[1])
    chosen = rows.index_select(0, torch.from_numpy(np.maximum(index, 0)))
    return chosen.index_fill_(0, torch.from_numpy(new), 0.0)
