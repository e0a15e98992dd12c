"""T8: graph convolutions against a dense adjacency matrix and torch_geometric, and the critic's invariances."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from rl_openness.nn.gcn import CompleteGCN, EdgeGCN, Nodes
from rl_openness.nn.inputs import RowTable
from tests.nn.builders import (
    BUSY,
    CRITICS,
    SEEDS,
    SIZES,
    close,
    gradients,
    network,
    random_obs,
    randomise,
    reorder,
    same_gradients,
    sent_away,
    several,
    shuffled_within,
    values,
)

NORMS = ("sym_selfloop", "sym", "mean")
WIDTH = 5
CRITIC_NETWORKS = {name: network(2, **settings) for name, settings in CRITICS.items()}


def random_nodes(seed: int, sizes: list[tuple[int, int]], *, once: bool = False) -> Nodes:
    generator = torch.Generator().manual_seed(seed)
    tables = []
    for side in (0, 1):
        count = sum(size[side] for size in sizes)
        table = RowTable(torch.randn(count, WIDTH, generator=generator, dtype=torch.float64))
        if once:  # rows of three kinds
            kinds = torch.randn(3, WIDTH, generator=generator, dtype=torch.float64)
            table = RowTable(kinds, torch.randint(3, (count,), generator=generator))
        tables.append(table)
    copies = [torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor([s[i] for s in sizes])) for i in (0, 1)]
    return Nodes(tables[0], copies[0], tables[1], copies[1], len(sizes))


def all_edges(nodes: Nodes) -> tuple[Tensor, Tensor]:
    agent, task = (nodes.agent_copy[:, None] == nodes.task_copy).nonzero(as_tuple=True)
    return agent, task


def dense(
    nodes: Nodes, edge_agent: Tensor, edge_task: Tensor, weights: list[tuple[Tensor, Tensor]], norm: str
) -> Tensor:
    """Kipf and Welling's layers with the adjacency matrix of each team-step written out."""
    agents, tasks = nodes.agents.expand(nodes.agents.rows), nodes.tasks.expand(nodes.tasks.rows)
    pooled = []
    for s in range(nodes.num_copies):
        a, t = (nodes.agent_copy == s).nonzero().squeeze(1), (nodes.task_copy == s).nonzero().squeeze(1)
        n, m = len(a), len(t)
        if n + m == 0:
            pooled.append(0.0 * weights[0][1])
            continue
        adjacency = torch.zeros(n + m, n + m, dtype=torch.float64)
        for i, x in zip(edge_agent.tolist(), edge_task.tolist(), strict=True):
            if i in a:
                row, column = a.tolist().index(i), n + t.tolist().index(x)
                adjacency[row, column] = adjacency[column, row] = 1.0
        if norm != "sym":
            adjacency += torch.eye(n + m)
        degree = adjacency.sum(1)
        if norm == "mean":
            operator = adjacency / degree.unsqueeze(1)
        else:
            root = torch.where(degree > 0, degree**-0.5, torch.zeros_like(degree))
            operator = root.unsqueeze(1) * adjacency * root
        inputs = hidden = torch.cat([agents[a], tasks[t]])
        for layer, (weight, bias) in enumerate(weights):
            hidden = operator @ (hidden @ weight.T) + bias
            if layer < len(weights) - 1:
                hidden = hidden.relu()
        pooled.append((hidden + inputs).mean(0))
    return torch.stack(pooled)


def pair_of_graphs(norm: Any, layers: int, seed: int) -> tuple[CompleteGCN, EdgeGCN]:
    """The same random weights in both forms."""
    complete, edge = randomise(CompleteGCN(WIDTH, layers, norm), seed), EdgeGCN(WIDTH, layers, norm).double()
    with torch.no_grad():
        for mine, theirs in zip(complete.layers, edge.layers, strict=True):
            theirs.lin.weight.copy_(mine.weight)
            theirs.bias.copy_(mine.bias)
    return complete, edge


def weights_of(graph: CompleteGCN) -> list[tuple[Tensor, Tensor]]:
    return [(layer.weight, layer.bias) for layer in graph.layers]


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("once", [False, True])
@several
@example(seed=1, sizes=BUSY, layers=2)
@given(seed=SEEDS, sizes=SIZES, layers=st.integers(1, 3))
def test_closed_form_equals_gcnconv_and_the_dense_matrix(
    norm: str, once: bool, seed: int, sizes: list[tuple[int, int]], layers: int
) -> None:
    complete, edge = pair_of_graphs(norm, layers, seed)
    nodes = random_nodes(seed, sizes, once=once)
    closed = complete(nodes)
    by_edges = edge(nodes, *all_edges(nodes))
    matrix = dense(nodes, *all_edges(nodes), weights_of(complete), norm)
    close(closed, matrix)
    close(by_edges, matrix)
    names = [name.replace("lin.", "") for name, _ in edge.named_parameters()]
    on_edges = dict(zip(names, gradients(edge, by_edges.square().sum()).values(), strict=True))
    same_gradients(gradients(complete, closed.square().sum()), {n: on_edges[n] for n, _ in complete.named_parameters()})
    same_gradients(gradients(complete, closed.square().sum()), gradients(complete, matrix.square().sum()))


@pytest.mark.parametrize("norm", NORMS)
@several
@example(seed=1, sizes=BUSY, layers=2, density=0.5)
@given(seed=SEEDS, sizes=SIZES, layers=st.integers(1, 3), density=st.sampled_from([0.0, 0.3, 0.8]))
def test_given_edges_equal_the_dense_matrix(
    norm: str, seed: int, sizes: list[tuple[int, int]], layers: int, density: float
) -> None:
    complete, edge = pair_of_graphs(norm, layers, seed)
    nodes = random_nodes(seed, sizes)
    agent, task = all_edges(nodes)
    kept = torch.from_numpy(np.random.default_rng(seed).random(len(agent)) < density)
    close(edge(nodes, agent[kept], task[kept]), dense(nodes, agent[kept], task[kept], weights_of(complete), norm))


def test_one_layer_by_hand() -> None:
    """Two agents (1, 2), one task (10), weight 3, bias 0.5: degrees 2, 2, 3."""
    graph = CompleteGCN(1, 1, "sym_selfloop").double()
    with torch.no_grad():
        graph.layers[0].weight.fill_(3.0)
        graph.layers[0].bias.fill_(0.5)
    nodes = Nodes(
        RowTable(torch.tensor([[1.0], [2.0]]).double()),
        torch.tensor([0, 0]),
        RowTable(torch.tensor([[10.0]]).double()),
        torch.tensor([0]),
        1,
    )
    first, second = (3 * (h / 2 + 10 / 6**0.5) + 0.5 for h in (1.0, 2.0))
    third = 3 * (10 / 3 + (1 + 2) / 6**0.5) + 0.5
    close(graph(nodes), [[(first + 1 + second + 2 + third + 10) / 3]])


@pytest.mark.parametrize("norm", NORMS)
def test_new_layers_are_alike_in_both_forms(norm: Any) -> None:
    for graph in (CompleteGCN(64, 2, norm), EdgeGCN(64, 2, norm)):
        for name, parameter in graph.named_parameters():
            if parameter.dim() == 1:
                assert not parameter.any(), name
            else:
                close(parameter @ parameter.T, 2 * np.eye(64), atol=1e-5)


@pytest.mark.parametrize("name", CRITICS)
@several
@example(seed=1, sizes=BUSY)
@given(seed=SEEDS, sizes=SIZES)
def test_values_do_not_know_orders_identities_or_away_members(
    name: str, seed: int, sizes: list[tuple[int, int]]
) -> None:
    rng, net = np.random.default_rng(seed), CRITIC_NETWORKS[name]
    obs = random_obs(rng, sizes)
    value = values(net, obs)
    moved, _ = reorder(obs, shuffled_within(rng, obs.agent_ptr), shuffled_within(rng, obs.task_ptr))
    close(values(net, moved), value)
    close(values(net, replace(obs, agent_id=obs.agent_id[::-1].copy(), carry=np.arange(len(obs.present)))), value)
    present = np.flatnonzero(obs.present)
    gone = rng.choice(present, size=len(present) // 2, replace=False)
    fewer = sent_away(obs, gone)
    without = values(net, fewer)
    fewer.agent_rows[~fewer.present] = np.nan
    close(values(net, fewer), without)
    untouched = ~np.isin(np.arange(obs.num_copies), obs.agent_copy[gone])
    close(without[untouched], value[untouched])


def test_who_may_act_on_what_reaches_the_critic_by_edges_only() -> None:
    rng = np.random.default_rng(0)
    obs = random_obs(rng, [(4, 4)] * 10, present=1.0, pairs=1.0)
    half = rng.random(len(obs.pair_agent)) < 0.5
    fewer = replace(obs, pair_agent=obs.pair_agent[half], pair_task=obs.pair_task[half], pair_rows=obs.pair_rows[half])
    for name, net in CRITIC_NETWORKS.items():
        moved = (values(net, fewer) - values(net, obs)).detach().abs() > 1e-6
        assert moved.float().mean() > 0.8 if name.startswith("actions") else not moved.any()


@pytest.mark.parametrize("norm", NORMS)
def test_all_edges_open_is_the_complete_graph(norm: str) -> None:
    complete, edge = CRITIC_NETWORKS[f"complete-{norm}"], network(5, critic_edges="actions", gcn_norm=norm)
    with torch.no_grad():
        for part in ("agents", "tasks", "value"):
            getattr(edge.critic, part).load_state_dict(getattr(complete.critic, part).state_dict())
        for mine, theirs in zip(complete.critic.graph.layers, edge.critic.graph.layers, strict=True):
            theirs.lin.weight.copy_(mine.weight)
            theirs.bias.copy_(mine.bias)
    obs = random_obs(np.random.default_rng(0), [(3, 4), (0, 2), (5, 0), (0, 0), (1, 1)], present=1.0, pairs=1.0)
    close(values(edge, obs), values(complete, obs))
