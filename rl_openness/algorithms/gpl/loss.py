"""Losses of GPL and CIAO in plain torch (specification, sections (b) and "Regulariser")."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from rl_openness.algorithms.gpl.graph import TeamGraph
from rl_openness.algorithms.gpl.settings import Graph, Reduction, Transitions


def td_targets(reward: Tensor, next_value: Tensor, terminal: Tensor, *, gamma: float, reward_shift: float) -> Tensor:
    """[S] r + shift + gamma max_a Q(s', a), without the last term where the episode is over."""
    return reward + reward_shift + gamma * torch.where(terminal, 0.0, next_value)


def kept_transitions(
    rule: Transitions, sizes: Tensor, next_sizes: Tensor, joined: Tensor, ended: Tensor
) -> Tensor | None:
    """[S] team-steps to learn Q from; None = all.

    `joined`: somebody is in the team at the next step who was not before. The set rule knows of no joins after a last
    step (`ended`). The size rule, like the authors' code, then compares with the next episode's first team, and it lets
    pass a step at which as many agents left as joined.
    """
    if rule == "all":
        return None
    if rule == "no_joins_set":
        return ~joined | ended
    return next_sizes <= sizes


def _mean(values: Tensor, kept: Tensor | None) -> Tensor:
    """Mean of those kept; 0 without any."""
    if kept is not None:
        values = values[kept]
    return values.mean() if len(values) else values.sum()


def td_loss(q: Tensor, target: Tensor, kept: Tensor | None = None) -> Tensor:
    """Mean squared error of the joint action's Q [S], without a factor 1/2; no gradient through the target."""
    return _mean((q - target.detach()).square(), kept)


def agent_model_loss(logits: Tensor, actions: Tensor) -> Tensor:
    """Mean cross-entropy over all mates [Nm] of all team-steps, those that leave at this step included."""
    if len(actions) == 0:
        return logits.sum()
    return cross_entropy(logits, actions)


def regulariser_pairs(individual: Tensor, graph: TeamGraph, kind: Graph) -> tuple[Tensor, Tensor]:
    """Which numbers CIAO pulls where: predictions and (fixed) targets, from I_j(a_j) [N].

    Star: the learner's utility towards the sum of its mates' [S]; the gradient is the learner's alone. Complete: each
    agent's utility towards the learner's [N]; the gradient is the mates' alone, the learner's own term being 0.
    """
    if kind == "star":
        mates = individual.detach().index_select(0, graph.mate)
        total = mates.new_zeros(graph.num_teams).index_add(0, graph.mate_team, mates)
        return individual.index_select(0, graph.learner), total
    return individual, individual.detach().index_select(0, graph.learner_of_node)


def regulariser(
    individual: Tensor, graph: TeamGraph, kind: Graph, reduction: Reduction, kept: Tensor | None = None
) -> Tensor:
    """Mean squared distance of `regulariser_pairs`.

    Star: over team-steps. Complete: `node_mean` over all agents of the batch, or `paper_sum` over team-steps of the
    sums over their mates.
    """
    prediction, target = regulariser_pairs(individual, graph, kind)
    square = (prediction - target).square()
    if kind == "star":
        return _mean(square, kept)
    if reduction == "node_mean":
        return _mean(square, None if kept is None else kept.index_select(0, graph.team))
    return _mean(square.new_zeros(graph.num_teams).index_add(0, graph.team, square), kept)
