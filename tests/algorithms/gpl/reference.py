"""The network as the specification writes it: one agent, one pair, one edge at a time, with concatenated inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import linear

from rl_openness.algorithms.gpl.network import GplNetwork, SplitLinear


def concatenated(layer: SplitLinear, *parts: Tensor) -> Tensor:
    """The layer as one matrix on the concatenation of its inputs."""
    return linear(torch.cat(parts), torch.cat(layer.weight.chunk(layer.parts), dim=1), layer.bias)


def cell(net: GplNetwork, branch: int, x: Tensor, state: Sequence[Tensor]) -> list[Tensor]:
    """Textbook LSTM or GRU."""
    recurrent = net.types.cell
    own = linear(x, recurrent.weight_ih[branch], recurrent.bias_ih[branch])
    past = linear(state[0], recurrent.weight_hh[branch], recurrent.bias_hh[branch])
    if net.settings.seq_model == "lstm":
        i, f, g, o = (own + past).chunk(4)
        c = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
        return [torch.sigmoid(o) * torch.tanh(c), c]
    (r, z, n), (r_past, z_past, n_past) = own.chunk(3), past.chunk(3)
    reset, update = torch.sigmoid(r + r_past), torch.sigmoid(z + z_past)
    new = torch.tanh(n + reset * n_past)
    return [(1 - update) * new + update * state[0]]


def state_of(net: GplNetwork, memory: Tensor | None = None) -> list[list[Tensor]]:
    """For each branch h (and c) of an agent with that memory [width]; zeros for a new agent."""
    if memory is None:
        memory = torch.zeros(net.memory_width, dtype=net.dtype)
    parts = memory.chunk(2 * net.types.cell.parts)
    return [list(parts[branch::2]) for branch in range(2)]


def infer(net: GplNetwork, x: Tensor, state: list[list[Tensor]]) -> tuple[list[Tensor], list[list[Tensor]]]:
    """Both branches' types of one agent, and its next state."""
    types, after = [], []
    for branch in range(2):
        layers = [net.types.first, net.types.second, net.types.last]
        first, second, last = ((layer.weight[branch], layer.bias[branch]) for layer in layers)
        hidden = linear(torch.relu(linear(x, *first)), *second)
        after.append(cell(net, branch, hidden, state[branch]))
        types.append(linear(torch.relu(after[-1][0]), *last))
    return types, after


def ranged(value: Tensor, kind: str) -> Tensor:
    return {"free": value, "pos": value.abs(), "neg": -value.abs(), "zero": 0 * value.detach()}[kind]


@dataclass
class Team:
    """One team at one step: everything about it, from its members' types and the learner's number."""

    net: GplNetwork
    theta: list[Tensor]
    agent_theta: list[Tensor]
    learner: int
    individual: list[Tensor] = field(init=False)
    pair: dict[tuple[int, int], Tensor] = field(init=False)
    logits: dict[int, Tensor] = field(init=False)

    def __post_init__(self) -> None:
        net, settings, size = self.net, self.net.settings, len(self.theta)
        everyone = range(size)
        mine = self.theta[self.learner]
        self.individual = [
            ranged(net.individual.tail(concatenated(net.individual.first, t, mine)), settings.individual_range)
            for t in self.theta
        ]
        adjacent = [
            (j, k) for j in everyone for k in everyone if j < k and self.adjacent(j, k)
        ]  # each unordered pair once
        self.pair = {(j, k): ranged(self.table(j, k), settings.pair_range) for j, k in adjacent}
        self.logits = {j: self.logit(j) for j in everyone if j != self.learner}

    def adjacent(self, j: int, k: int) -> bool:
        return j != k and (self.net.settings.graph == "complete" or self.learner in (j, k))

    def factor(self, j: int, k: int) -> Tensor:
        pairwise = self.net.pairwise
        mine = self.theta[self.learner]
        between = () if self.net.settings.pair_factor == "node" else (self.theta[k],)
        return pairwise.tail(concatenated(pairwise.first, self.theta[j], *between, mine)).view(pairwise.shape)

    def table(self, j: int, k: int) -> Tensor:
        if self.net.settings.pair_comp == "bmm":
            return self.factor(j, k) @ self.factor(k, j).T
        return (self.factor(j, k) + self.factor(k, j).T) / 2

    def logit(self, j: int) -> Tensor:
        model, theta = self.net.agent_model, self.agent_theta
        total = torch.zeros_like(theta[0])
        for k in range(len(theta)):
            if self.adjacent(j, k):
                total = total + model.message_out(torch.relu(concatenated(model.message, theta[k], theta[j])))
        return model.head(model.node_out(torch.relu(concatenated(model.node, theta[j], total))))

    def joint_q(self, actions: Sequence[int]) -> Tensor:
        single = sum(utility[a] for utility, a in zip(self.individual, actions, strict=True))
        return single + sum(table[actions[j], actions[k]] for (j, k), table in self.pair.items())

    def learner_q(self) -> Tensor:
        """By enumeration: the expected joint Q over all the mates' joint actions."""
        mates = sorted(self.logits)
        chance = {j: torch.softmax(self.logits[j].detach(), 0) for j in mates}
        values = []
        for a in range(self.net.actions):
            total = torch.zeros((), dtype=self.net.dtype)
            for choice in torch.cartesian_prod(*[torch.arange(self.net.actions)] * max(len(mates), 1)).view(
                -1, max(len(mates), 1)
            ):
                actions = [a] * len(self.theta)
                for j, b in zip(mates, choice.tolist(), strict=False):
                    actions[j] = b
                weight = torch.ones((), dtype=self.net.dtype)
                for j in mates:
                    weight = weight * chance[j][actions[j]]
                total = total + weight * self.joint_q(actions)
            values.append(total / (1 if mates else self.net.actions))
        return torch.stack(values)


def teams(net: GplNetwork, rows: Tensor, memory: Tensor, sizes: Sequence[int], learner: Sequence[int]) -> list[Team]:
    """Teams from input rows and memory of all members; `learner` are numbers within the teams."""
    made, start = [], 0
    for size, number in zip(sizes, learner, strict=True):
        types = [infer(net, rows[i], state_of(net, memory[i]))[0] for i in range(start, start + size)]
        made.append(Team(net, [t[0] for t in types], [t[1] for t in types], number))
        start += size
    return made
