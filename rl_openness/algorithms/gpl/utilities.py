"""Joint action values as sums over a team's graph, in plain functions of tensors (specification, section (a)).

I_j(a) is an agent's individual utility and U_jk(a, b) the pairwise utility of two agents; each unordered pair counts
once. Rows of pairs are ordered as in `graph.TeamGraph`: the learner's with each mate first, the learner being agent j.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rl_openness.algorithms.gpl.graph import TeamGraph
from rl_openness.algorithms.gpl.settings import Composition, Range


def ranged(utility: Tensor, kind: Range) -> Tensor:
    """The finished numbers, brought into their range; `zero` has no gradient."""
    if kind == "free":
        return utility
    if kind == "zero":
        return torch.zeros_like(utility)
    return utility.abs() if kind == "pos" else -utility.abs()


def pairwise_tables(forward: Tensor, backward: Tensor, comp: Composition) -> Tensor:
    """[P, A, A] tables U_jk, before their range, of factors C(j, k) and C(k, j), [P, A, .] each."""
    if comp == "bmm":
        return torch.bmm(forward, backward.transpose(1, 2))
    return (forward + backward.transpose(1, 2)) / 2


def pairwise_entries(forward: Tensor, backward: Tensor, a_j: Tensor, a_k: Tensor, comp: Composition) -> Tensor:
    """[P] the entries U_jk(a_j, a_k) of `pairwise_tables`, without the rest of the tables."""
    actions = forward.shape[1]
    pair = torch.arange(len(a_j), device=a_j.device) * actions
    row, column = pair + a_j, pair + a_k
    if comp == "bmm":
        width = forward.shape[2]
        factors = forward.reshape(-1, width).index_select(0, row) * backward.reshape(-1, width).index_select(0, column)
        return factors.sum(1)
    there, back = row * actions + a_k, column * actions + a_j
    return (forward.reshape(-1).index_select(0, there) + backward.reshape(-1).index_select(0, back)) / 2


def joint_q(individual: Tensor, pairwise: Tensor, graph: TeamGraph) -> Tensor:
    """[S] Q of the joint actions taken, from each agent's I_j(a_j) [N] and each pair's U_jk(a_j, a_k) [P]."""
    team = torch.cat([graph.team, graph.mate_team, graph.rest_team])
    return individual.new_zeros(graph.num_teams).index_add(0, team, torch.cat([individual, pairwise]))


def learner_advantage(pairwise: Tensor, probabilities: Tensor, graph: TeamGraph) -> Tensor:
    """[S, A] what the learner's own pairs add to Q for each of its actions.

    `pairwise` [Nm, A, A] are those of the learner and each mate; `probabilities` [Nm, A] are the mates' actions'.
    """
    expected = torch.bmm(pairwise, probabilities.unsqueeze(2)).squeeze(2)
    return expected.new_zeros(graph.num_teams, expected.shape[1]).index_add(0, graph.mate_team, expected)


def learner_q(individual: Tensor, pairwise: Tensor, probabilities: Tensor, graph: TeamGraph) -> Tensor:
    """[S, A] Q of the learner's actions, in expectation over the mates' actions under the agent model.

    `individual` [N, A], `pairwise` [P, A, A], `probabilities` [Nm, A]. A learner alone has its individual utility.
    """
    own, rest = pairwise[: len(graph.mate)], pairwise[len(graph.mate) :]
    mates = (probabilities * individual.index_select(0, graph.mate)).sum(1)
    p_j = probabilities.index_select(0, graph.rest_first)
    p_k = probabilities.index_select(0, graph.rest_second)
    pairs = (torch.bmm(rest, p_k.unsqueeze(2)).squeeze(2) * p_j).sum(1)
    team = torch.cat([graph.mate_team, graph.rest_team])
    others = mates.new_zeros(graph.num_teams).index_add(0, team, torch.cat([mates, pairs]))
    value = individual.index_select(0, graph.learner) + others.unsqueeze(1)
    return value + learner_advantage(own, probabilities, graph)
