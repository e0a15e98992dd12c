"""PLATO's networks: pointer actor and graph-convolutional critic (Algorithm 1, lines 9-15 and 16-21).

Actor and critic share no weights. No parameter depends on a number of agents or tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rl_openness.algorithms.mappo.settings import PlatoSettings
from rl_openness.envs.base import NO_OP, EnvSpec, PackedObs
from rl_openness.envs.draws import DecisionDraws
from rl_openness.nn.acting import Decision, carried, option_noise
from rl_openness.nn.features import ActorFeatures, critic_inputs
from rl_openness.nn.gcn import CompleteGCN, EdgeGCN, Nodes
from rl_openness.nn.inputs import ActorInputs, CriticInputs, RowTable, TeamTensors
from rl_openness.nn.mlp import linear, mlp
from rl_openness.nn.pointer import PointerDistribution, PointerScorer
from rl_openness.nn.segments import segment_ids, segment_softmax, segment_sum
from rl_openness.nn.value_norm import ValueNorm


class AgentPointer(nn.Module):
    """Reads a team by attention: the own row asks, the rows of all seen agents answer (Lemma 3)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.encode = mlp(width, hidden, hidden)
        self.key = linear(hidden, hidden, 1.0, bias=False)
        self.query = linear(hidden, hidden, 1.0, bias=False)
        self.head = linear(hidden, 1, 1.0, bias=False)

    def attention(self, inputs: ActorInputs) -> tuple[Tensor, Tensor, Tensor]:
        """Weights [V] over the seen agents of each decider, their keys [V, h], and the decider of each."""
        assert inputs.seen_ptr is not None and inputs.seen_rows is not None
        owner = segment_ids(inputs.seen_ptr)
        encoded = self.encode(inputs.seen_rows.rows)
        keys = inputs.seen_rows.expand(encoded)
        asked = inputs.query_rows.apply(lambda rows: self.query(self.encode(rows))).index_select(0, owner)
        scores = self.head((inputs.seen_rows.expand(self.key(encoded)) + asked).tanh()).squeeze(-1)
        return segment_softmax(scores, owner, len(inputs.query_rows)), keys, owner

    def forward(self, inputs: ActorInputs) -> RowTable:
        """[D, h] encoded teams."""
        weights, keys, owner = self.attention(inputs)
        return RowTable(segment_sum(weights.unsqueeze(1) * keys, owner, len(inputs.query_rows)))


class StatisticsQuery(nn.Module):
    """Reads a team by fixed statistics of its rows (section 4.1)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.encode = mlp(width, hidden, hidden)

    def forward(self, inputs: ActorInputs) -> RowTable:
        """[D, h] encoded teams."""
        return RowTable(self.encode(inputs.query_rows.rows), inputs.query_rows.index)


class Memory(nn.Module):
    """LSTM on the query path. A member's state is one row [2 h], zero when it is new."""

    def __init__(self, hidden: int, absent_state: str) -> None:
        super().__init__()
        self.hidden, self.absent_state = hidden, absent_state
        self.cell = nn.LSTMCell(hidden, hidden)
        self.out = linear(hidden, hidden)

    def forward(self, rows: Tensor, state: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        """Queries [M, h] and the next state [M, 2 h], for all members with their current state."""
        new = torch.cat(self.cell(rows, (state[:, : self.hidden], state[:, self.hidden :])), dim=1)
        if self.absent_state != "update":
            old = state if self.absent_state == "hold" else torch.zeros_like(state)
            new = torch.where(present.unsqueeze(1), new, old)
        return self.out(new[:, : self.hidden]), new


class PlatoActor(nn.Module):
    """Everything that acting needs."""

    def __init__(self, spec: EnvSpec, settings: PlatoSettings) -> None:
        super().__init__()
        hidden = settings.hidden
        self.features = ActorFeatures(
            spec,
            frame=settings.frame,
            stats=settings.stats,
            include_self=settings.query_include_self,
            task_extras=settings.task_extras,
            pointer=settings.query == "agent_pointer",
            memory=settings.encoder == "lstm",
            away_rows=settings.absent_state == "update",
        )
        width = self.features.query_width
        self.query = AgentPointer(width, hidden) if self.features.pointer else StatisticsQuery(width, hidden)
        self.memory = Memory(hidden, settings.absent_state) if settings.encoder == "lstm" else None
        self.keys = mlp(self.features.key_width, hidden, hidden)
        self.scorer = PointerScorer(hidden, settings.scorer, scaled=settings.dot_scaled)
        self.noop_kind = settings.noop
        if settings.noop != "zeros":
            width = self.features.key_width if settings.noop == "feature_row" else hidden
            self.noop = nn.Parameter(torch.randn(1, width) * 0.1)

    def noop_key(self) -> Tensor:
        """[1, h] the key that stands for doing nothing."""
        if self.noop_kind == "learned_key":
            return self.noop
        row = (
            self.noop
            if self.noop_kind == "feature_row"
            else self.scorer.key.weight.new_zeros(1, self.features.key_width)
        )
        encoded: Tensor = self.keys(row)
        return encoded

    def decide(self, inputs: ActorInputs, queries: RowTable) -> PointerDistribution:
        """Distribution over the options of each decider, given its query [D, h] (lines 12 to 14)."""
        keys = inputs.key_rows.apply(lambda rows: self.scorer.key(self.keys(rows)))
        projected = queries.apply(self.scorer.query)
        distribution: PointerDistribution = self.scorer(keys, inputs.owner, self.noop_key(), projected)
        return distribution

    def forward(self, inputs: ActorInputs) -> PointerDistribution:
        """Memoryless policy: distribution for all deciders of all team-steps."""
        return self.decide(inputs, self.query(inputs))

    @torch.no_grad()
    def act(
        self, obs: PackedObs, draws: DecisionDraws | None, memory: Tensor | None = None, *, explore: bool
    ) -> Decision:
        """See `nn.acting.Decider`."""
        team = TeamTensors.from_obs(obs, self.scorer.key.weight.dtype)
        inputs = self.features(team)
        queries, memory_in = self.query(inputs), None
        if self.memory is not None:
            memory_in = carried(memory, team.carry, 2 * self.memory.hidden, queries.rows)
            remembered, memory = self.memory(queries.rows, memory_in, team.present)
            queries = RowTable(remembered)
        distribution = self.decide(inputs, queries)
        noise: tuple[Tensor, Tensor] | tuple[()] = ()
        if explore:
            draws = draws or DecisionDraws.fresh(obs.num_copies)
            drawn = option_noise(draws, obs, inputs.member.numpy(), inputs.pair_ptr.numpy())
            noise = (
                torch.from_numpy(drawn[0]).to(queries.rows.dtype),
                torch.from_numpy(drawn[1]).to(queries.rows.dtype),
            )
        best = distribution.best(*noise)
        member = inputs.member.numpy()
        choices = np.full(len(obs.present), NO_OP, dtype=np.int64)
        choices[member] = torch.where(best >= 0, best - inputs.pair_ptr[:-1], NO_OP).numpy()
        log_probs = np.zeros(len(choices), dtype=np.float32)
        log_probs[member] = distribution.log_prob(best).float().numpy()
        return Decision(choices, log_probs, memory if self.memory is not None else None, memory_in)


class PlatoCritic(nn.Module):
    """One value per team-step from the graph of present agents and tasks (lines 16 to 21), in normalised units."""

    def __init__(self, spec: EnvSpec, settings: PlatoSettings) -> None:
        super().__init__()
        hidden = settings.hidden
        self.spec = spec
        self.use_edges = settings.critic_edges == "actions"
        self.agents = mlp(len(spec.agent_columns), hidden, hidden)
        self.tasks = mlp(len(spec.task_columns), hidden, hidden)
        graph = EdgeGCN if self.use_edges else CompleteGCN
        self.graph = graph(hidden, settings.gcn_layers, settings.gcn_norm)
        self.value = mlp(hidden, hidden, 1, last_gain=1.0)
        self.norm = ValueNorm() if settings.value_norm else None

    def inputs(self, team: TeamTensors) -> CriticInputs:
        """What `forward` reads."""
        return critic_inputs(team, self.spec, edges=self.use_edges)

    def forward(self, inputs: CriticInputs) -> Tensor:
        """[S] normalised values."""
        nodes = Nodes(
            agents=RowTable(self.agents(inputs.agent_rows.rows), inputs.agent_rows.index),
            agent_copy=segment_ids(inputs.agent_ptr),
            tasks=RowTable(self.tasks(inputs.task_rows.rows), inputs.task_rows.index),
            task_copy=segment_ids(inputs.task_ptr),
            num_copies=inputs.num_steps,
        )
        if inputs.edge_ptr is None:
            pooled = self.graph(nodes)
        else:
            pooled = self.graph(nodes, segment_ids(inputs.edge_ptr), inputs.edge_task)
        value: Tensor = self.value(pooled).squeeze(-1)
        return value


class PlatoNetwork(nn.Module):
    """Actor and critic side by side; `critic` is left out where only acting is needed."""

    def __init__(self, spec: EnvSpec, settings: PlatoSettings, *, with_critic: bool = True) -> None:
        super().__init__()
        self.spec, self.settings = spec, settings
        self.actor = PlatoActor(spec, settings)
        self.critic = PlatoCritic(spec, settings) if with_critic else None


def make_actor(spec: EnvSpec, settings: Mapping[str, Any]) -> PlatoActor:
    """The acting network of a saved policy."""
    return PlatoActor(spec, PlatoSettings(**settings))
