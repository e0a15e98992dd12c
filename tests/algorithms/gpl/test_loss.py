"""Losses by hand, and where their gradients go."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from rl_openness.algorithms.gpl.graph import TeamGraph, team_graph
from rl_openness.algorithms.gpl.loss import (
    agent_model_loss,
    kept_transitions,
    regulariser,
    td_loss,
    td_targets,
)
from tests.nn.builders import close


def tensor(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


def test_targets() -> None:
    reward, after = tensor(1.0, -2.0, 0.5), tensor(10.0, 20.0, -4.0)
    over = torch.tensor([False, True, False])
    close(td_targets(reward, after, over, gamma=0.9, reward_shift=0.0), [10.0, -2.0, -3.1])
    close(td_targets(reward, after, over, gamma=0.9, reward_shift=2.0), [12.0, 0.0, -1.1])
    broken = torch.tensor([10.0, float("nan"), -4.0])  # what follows an end is not looked at
    assert torch.isfinite(td_targets(reward, broken, over, gamma=0.9, reward_shift=0.0)).all()


def test_td_loss_and_its_gradient() -> None:
    q, target = tensor(1.0, 2.0, 5.0), tensor(0.0, 4.0, 5.0)
    loss = td_loss(q, target)
    close(loss, (1 + 4 + 0) / 3)
    loss.backward()
    close(q.grad, np.array([2.0, -4.0, 0.0]) / 3)
    assert target.grad is None
    kept = torch.tensor([True, False, True])
    close(td_loss(q, target, kept), 0.5)
    close(torch.autograd.grad(td_loss(q, target, kept), q)[0], [1.0, 0.0, 0.0])
    nothing = td_loss(q, target, torch.zeros(3, dtype=torch.bool))
    close(nothing, 0.0)
    assert not torch.autograd.grad(nothing, q)[0].any()


def test_agent_model_loss() -> None:
    logits = torch.tensor([[0.0, 0.0], [math.log(3.0), 0.0], [0.0, math.log(4.0)]], requires_grad=True)
    loss = agent_model_loss(logits, torch.tensor([0, 0, 0]))
    close(loss, (math.log(2) + math.log(4 / 3) + math.log(5)) / 3, atol=1e-6)
    (gradient,) = torch.autograd.grad(loss, logits)
    close(gradient, np.array([[-0.5, 0.5], [-0.25, 0.25], [-0.8, 0.8]]) / 3, atol=1e-6)
    nobody = torch.zeros(0, 2, requires_grad=True)
    loss = agent_model_loss(nobody, torch.empty(0, dtype=torch.long))
    close(loss, 0.0)
    loss.backward()


def three_teams(*, complete: bool) -> TeamGraph:
    """Of 3, 1 and 2 agents, the learner being the second of the first team."""
    return team_graph(np.array([3, 1, 2]), np.array([1, 3, 4]), complete=complete)


INDIVIDUAL = (1.0, 4.0, 2.0, 7.0, 3.0, 5.0)


def test_the_stars_regulariser_moves_the_learner() -> None:
    graph, values = three_teams(complete=False), tensor(*INDIVIDUAL)
    gaps = [4.0 - 3.0, 7.0 - 0.0, 3.0 - 5.0]
    for reduction in ("node_mean", "paper_sum"):
        loss = regulariser(values, graph, "star", reduction)
        close(loss, sum(gap**2 for gap in gaps) / 3)
        (gradient,) = torch.autograd.grad(loss, values)
        close(gradient, np.array([0, gaps[0], 0, gaps[1], gaps[2], 0]) * 2 / 3)
    kept = torch.tensor([True, False, True])
    close(regulariser(values, graph, "star", "node_mean", kept), (1 + 4) / 2)


def test_the_complete_graphs_regulariser_moves_the_mates() -> None:
    graph, values = three_teams(complete=True), tensor(*INDIVIDUAL)
    gaps = np.array([1.0 - 4.0, 0.0, 2.0 - 4.0, 0.0, 0.0, 5.0 - 3.0])
    for reduction, count in (("node_mean", 6), ("paper_sum", 3)):
        loss = regulariser(values, graph, "complete", reduction)
        close(loss, (gaps**2).sum() / count)
        (gradient,) = torch.autograd.grad(loss, values)
        close(gradient, 2 * gaps / count)
    kept = torch.tensor([False, True, True])
    close(regulariser(values, graph, "complete", "node_mean", kept), 4 / 3)
    close(regulariser(values, graph, "complete", "paper_sum", kept), 4 / 2)
    close(regulariser(values, graph, "complete", "paper_sum", torch.zeros(3, dtype=torch.bool)), 0.0)


@pytest.mark.parametrize("kind", ["star", "complete"])
def test_regulariser_without_individual_utilities(kind: str) -> None:
    graph = three_teams(complete=kind == "complete")
    close(regulariser(torch.zeros(6), graph, kind, "node_mean"), 0.0)


def test_transitions_by_hand() -> None:
    """The same; one leaves; one joins; one leaves and one joins; the episode ends before a larger team."""
    sizes, after = torch.tensor([3, 3, 2, 3, 2]), torch.tensor([3, 2, 3, 3, 3])
    joined = torch.tensor([False, False, True, True, True])
    ended = torch.tensor([False, False, False, False, True])
    assert kept_transitions("all", sizes, after, joined, ended) is None
    assert kept_transitions("no_joins_set", sizes, after, joined, ended).tolist() == [True, True, False, False, True]
    assert kept_transitions("no_joins_size", sizes, after, joined, ended).tolist() == [True, True, False, True, False]
