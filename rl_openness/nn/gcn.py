"""Graph convolutions over a bipartite graph of agents and tasks, pooled to one vector per team-step (PLATO section 4).

For the complete graph a layer has a closed form that needs no edge list: with n agents and m tasks in a copy, and
self-loops, an agent's degree is m + 1 and a task's n + 1, so (Kipf and Welling's normalisation) an agent becomes
`W (h / (m + 1) + sum over tasks / sqrt((m + 1)(n + 1))) + b`. Other edge sets use torch_geometric's `GCNConv`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from rl_openness.nn.inputs import RowTable
from rl_openness.nn.mlp import linear
from rl_openness.nn.segments import segment_sum

GCNNorm = Literal["sym_selfloop", "sym", "mean"]


@dataclass(frozen=True)
class Nodes:
    """Agents and tasks of S team-steps: hidden rows and the team-step of each."""

    agents: RowTable
    agent_copy: Tensor
    tasks: RowTable
    task_copy: Tensor
    num_copies: int

    def counts(self) -> tuple[Tensor, Tensor]:
        """[S, 1] numbers of agents and of tasks."""
        return tuple(  # type: ignore[return-value]
            torch.bincount(copy, minlength=self.num_copies).to(self.agents.rows.dtype).unsqueeze(1)
            for copy in (self.agent_copy, self.task_copy)
        )

    def sums(self, agents: Tensor, tasks: Tensor) -> tuple[Tensor, Tensor]:
        """[S, h] sums over the agents and over the tasks of each team-step."""
        return (
            segment_sum(agents, self.agent_copy, self.num_copies),
            segment_sum(tasks, self.task_copy, self.num_copies),
        )


def _inverse(x: Tensor) -> Tensor:
    return torch.where(x > 0, 1.0 / x.clamp(min=1e-30), torch.zeros_like(x))


@dataclass(frozen=True)
class _Coefficients:
    """Per team-step [S, 1]: weight of a node's own row and of the sum over the other side."""

    agent_self: Tensor
    agent_cross: Tensor
    task_self: Tensor
    task_cross: Tensor


def _coefficients(n: Tensor, m: Tensor, norm: GCNNorm) -> _Coefficients:
    if norm == "sym_selfloop":
        cross = ((m + 1) * (n + 1)).rsqrt()
        return _Coefficients(1 / (m + 1), cross, 1 / (n + 1), cross)
    if norm == "mean":
        return _Coefficients(1 / (m + 1), 1 / (m + 1), 1 / (n + 1), 1 / (n + 1))
    cross = _inverse((m * n).sqrt())
    return _Coefficients(torch.zeros_like(m), cross, torch.zeros_like(n), cross)


class CompleteGCN(nn.Module):
    """L layers on the complete bipartite graph, a skip from the input, and the mean over all nodes: -> [S, h].

    ReLU after every layer but the last. The last layer is linear, so it is applied to the pooled vector instead of to
    every node. A team-step without any node gives 0.
    """

    def __init__(self, hidden: int, layers: int = 2, norm: GCNNorm = "sym_selfloop") -> None:
        super().__init__()
        self.norm: GCNNorm = norm
        self.layers = nn.ModuleList(linear(hidden, hidden) for _ in range(layers))

    def forward(self, nodes: Nodes) -> Tensor:
        """[S, h] pooled nodes."""
        n, m = nodes.counts()
        c = _coefficients(n, m, self.norm)
        agent_self = c.agent_self.index_select(0, nodes.agent_copy)
        task_self = c.task_self.index_select(0, nodes.task_copy)
        agents, tasks = nodes.agents, nodes.tasks
        sum_agents, sum_tasks = sum_inputs = nodes.sums(agents.expand(agents.rows), tasks.expand(tasks.rows))
        for layer in cast("list[nn.Linear]", self.layers[:-1]):
            # W (a h + b sum h') = a (W h) + b sum (W h'): one product per stored row serves both terms.
            mine, theirs = (table.expand(table.rows @ layer.weight.T) for table in (agents, tasks))
            sum_agents, sum_tasks = nodes.sums(mine, theirs)
            from_tasks = (c.agent_cross * sum_tasks + layer.bias).index_select(0, nodes.agent_copy)
            from_agents = (c.task_cross * sum_agents + layer.bias).index_select(0, nodes.task_copy)
            agents = RowTable((agent_self * mine + from_tasks).relu())
            tasks = RowTable((task_self * theirs + from_agents).relu())
            sum_agents, sum_tasks = nodes.sums(agents.rows, tasks.rows)
        per_node = _inverse(n + m)
        mixed = (c.agent_self + m * c.task_cross) * sum_agents + (c.task_self + n * c.agent_cross) * sum_tasks
        pooled: Tensor = self.layers[-1](mixed * per_node) + (sum_inputs[0] + sum_inputs[1]) * per_node
        return torch.where(n + m > 0, pooled, torch.zeros_like(pooled))


class EdgeGCN(nn.Module):
    """The same over given undirected edges (`critic_edges: actions`), by torch_geometric's `GCNConv`."""

    def __init__(self, hidden: int, layers: int = 2, norm: GCNNorm = "sym_selfloop") -> None:
        super().__init__()
        from torch_geometric.nn import GCNConv

        self.norm: GCNNorm = norm
        self.layers = nn.ModuleList()
        for _ in range(layers):
            conv = GCNConv(hidden, hidden, add_self_loops=norm == "sym_selfloop", normalize=norm != "mean")
            nn.init.orthogonal_(conv.lin.weight, 2**0.5)
            self.layers.append(conv)

    def forward(self, nodes: Nodes, edge_agent: Tensor, edge_task: Tensor) -> Tensor:
        """[S, h] pooled nodes; edges [E] name rows of `nodes.agents` and of `nodes.tasks`."""
        num_agents = len(nodes.agents)
        inputs = torch.cat([table.expand(table.rows) for table in (nodes.agents, nodes.tasks)])
        task = edge_task + num_agents
        edges = torch.stack([torch.cat([edge_agent, task]), torch.cat([task, edge_agent])])
        weight = None
        if self.norm == "mean":
            loops = torch.arange(len(inputs), device=edges.device)
            edges = torch.cat([edges, loops.expand(2, -1)], dim=1)
            weight = 1.0 / torch.bincount(edges[1], minlength=len(inputs)).to(inputs.dtype).index_select(0, edges[1])
        hidden = inputs
        for i, layer in enumerate(self.layers):
            hidden = layer(hidden, edges, weight)
            if i < len(self.layers) - 1:
                hidden = hidden.relu()
        hidden = hidden + inputs
        sums = nodes.sums(hidden[:num_agents], hidden[num_agents:])
        n, m = nodes.counts()
        return (sums[0] + sums[1]) / (n + m).clamp(min=1)
