"""GPL's network: type inference, individual and pairwise utilities, agent model (specification, section (a)).

Nothing depends on the number of agents, except that a team's tasks are read as a vector of `EnvSpec.task_slots` rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from rl_openness.algorithms.gpl.graph import TeamGraph, rows_or_zeros, team_graph
from rl_openness.algorithms.gpl.recurrence import TwinGRU, TwinLinear, TwinLSTM
from rl_openness.algorithms.gpl.settings import GplSettings
from rl_openness.algorithms.gpl.utilities import learner_advantage, learner_q, pairwise_tables, ranged
from rl_openness.algorithms.schedules import value_at
from rl_openness.envs.base import NO_OP, Bool, EnvSpec, Float, Int, PackedObs
from rl_openness.envs.draws import DecisionDraws
from rl_openness.envs.ragged import gather_segments, segment_of_row
from rl_openness.nn.acting import Decision


class TeamInputs:
    """From observations to [x_j, u]: an agent's own columns and all tasks of its copy, in a vector of fixed length.

    Only columns that everybody sees, times their scale. Free slots hold `EnvSpec.empty_task`.
    """

    def __init__(self, spec: EnvSpec) -> None:
        if spec.task_columns and (spec.task_slots is None or len(spec.empty_task) != len(spec.task_columns)):
            raise ValueError(f"GPL reads tasks as a vector: {spec.name!r} needs task_slots and a whole empty_task")
        self.agent = [i for i, column in enumerate(spec.agent_columns) if column.visible == "all"]
        self.task = [i for i, column in enumerate(spec.task_columns) if column.visible == "all"]
        self.slots = spec.task_slots or 0
        self.empty = np.array([spec.empty_task[i] for i in self.task] if self.slots else [], dtype=np.float32)
        scales = [spec.agent_columns[i].scale for i in self.agent]
        scales += [spec.task_columns[i].scale for i in self.task] * self.slots
        self.scale = np.array(scales, dtype=np.float32)

    @property
    def width(self) -> int:
        """Columns of an input row."""
        return len(self.scale)

    def __call__(self, obs: PackedObs) -> Float:
        """[M, width] inputs of all members."""
        counts = np.diff(obs.task_ptr)
        if len(counts) and counts.max() > self.slots > 0:
            raise ValueError(f"{counts.max()} tasks in a copy, but task_slots is {self.slots}")
        tasks = np.empty((obs.num_copies, self.slots, len(self.task)), dtype=np.float32)
        tasks[:] = self.empty
        if self.slots:
            copy = segment_of_row(obs.task_ptr)
            tasks[copy, np.arange(len(copy)) - obs.task_ptr[copy]] = obs.task_rows[:, self.task]
        rows = np.empty((len(obs.present), self.width), dtype=np.float32)
        rows[:, : len(self.agent)] = obs.agent_rows[:, self.agent]
        rows[:, len(self.agent) :] = tasks.reshape(obs.num_copies, -1)[obs.agent_copy]
        rows *= self.scale
        return rows


class SplitLinear(nn.Module):
    """A linear layer on the concatenation of `parts` vectors of one width, stored part by part: W [x; y] = U x + V y.

    Where the same vectors meet in many combinations each is multiplied once, and the sums are formed afterwards.
    Initialised as torch initialises the concatenated layer.
    """

    def __init__(self, parts: int, inputs: int, outputs: int) -> None:
        super().__init__()
        self.parts = parts
        bound = 1.0 / math.sqrt(parts * inputs)
        self.weight = nn.Parameter(torch.empty(parts * outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))

    def project(self, rows: Tensor) -> tuple[Tensor, ...]:
        """What rows [N, inputs] add to the layer in each part's place: `parts` tensors [N, outputs], without bias."""
        return linear(rows, self.weight).chunk(self.parts, dim=1)


def _tail(hidden: int, outputs: int) -> nn.Sequential:
    """What follows the first layer of a utility."""
    return nn.Sequential(nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, outputs))


class TypeInference(nn.Module):
    """Two branches with weights of their own, so that gradients of utilities and agent model do not disturb each other.

    Branch 0 feeds the utilities, branch 1 the agent model.
    """

    def __init__(self, inputs: int, settings: GplSettings) -> None:
        super().__init__()
        hidden, recurrent = settings.encoder_hidden, settings.recurrent_hidden
        self.first = TwinLinear(inputs, hidden)
        self.second = TwinLinear(hidden, hidden)
        self.cell = (TwinLSTM if settings.seq_model == "lstm" else TwinGRU)(hidden, recurrent)
        self.last = TwinLinear(recurrent, settings.type_width)

    def forward(self, inputs: Tensor, memory: Tensor, block_sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Theta [2, R, type_width] and memory [R, width] after rows [R, inputs] (see `recurrence`)."""
        hidden = self.second(self.first(inputs.expand(2, -1, -1)).relu_())
        outputs, after = self.cell(hidden, memory, block_sizes)
        return self.last(outputs.relu()), after


class IndividualUtility(nn.Module):
    """MLP on [theta_j, theta_i], i being the learner of j's team."""

    def __init__(self, settings: GplSettings, actions: int) -> None:
        super().__init__()
        self.first = SplitLinear(2, settings.type_width, settings.utility_hidden)
        self.tail = _tail(settings.utility_hidden, actions)

    def forward(self, theta: Tensor, graph: TeamGraph, *, learner_only: bool = False) -> Tensor:
        """[N, A] of all nodes, or [S, A] of the learners; before its range."""
        if learner_only:
            own, learner = self.first.project(theta.index_select(0, graph.learner))
        else:
            own, learner = self.first.project(theta)
            learner = learner.index_select(0, graph.learner_of_node)
        utility: Tensor = self.tail(own + learner + self.first.bias)
        return utility


class PairwiseFactors(nn.Module):
    """MLP on [theta_j, theta_k, theta_i] (or, per node, on [theta_j, theta_i]), read as a matrix of A rows."""

    def __init__(self, settings: GplSettings, actions: int) -> None:
        super().__init__()
        self.per_node = settings.pair_factor == "node"
        columns = settings.rank if settings.pair_comp == "bmm" else actions
        self.shape = (actions, columns)
        self.first = SplitLinear(2 if self.per_node else 3, settings.type_width, settings.utility_hidden)
        self.tail = _tail(settings.utility_hidden, actions * columns)

    def forward(self, theta: Tensor, graph: TeamGraph, *, learner_only: bool = False) -> tuple[Tensor, Tensor]:
        """C(j, k) and C(k, j) of all pairs or of the learners' pairs, [P, A, columns] each."""
        j, k = graph.factor_edges(learner_only=learner_only)
        own, *other, learner = self.first.project(theta)
        own = own + (learner.index_select(0, graph.learner_of_node) + self.first.bias)
        if self.per_node:
            factors = self.tail(own).index_select(0, j)
        else:
            factors = self.tail(own.index_select(0, j) + other[0].index_select(0, k))
        forward, backward = factors.view(-1, *self.shape).chunk(2)
        return forward, backward


class AgentModel(nn.Module):
    """What each mate will do: one relational block over the same graph as the utilities, and a head.

    The block's sum over messages is taken before their last, linear layer, which is exact. Its global part, whose
    result the authors never use, is left out, and so is everything that only the learner's own node would read.
    """

    def __init__(self, settings: GplSettings, actions: int) -> None:
        super().__init__()
        width, hidden = settings.type_width, settings.agent_model_hidden
        self.message = SplitLinear(2, width, hidden)
        self.message_out = nn.Linear(hidden, width)
        self.node = SplitLinear(2, width, hidden)
        self.node_out = nn.Linear(hidden, width)
        self.head = nn.Sequential(
            nn.Linear(width, settings.agent_head_hidden), nn.ReLU(), nn.Linear(settings.agent_head_hidden, actions)
        )

    def forward(self, theta: Tensor, graph: TeamGraph) -> Tensor:
        """[Nm, A] logits of the mates."""
        sent, taken = self.message.project(theta)
        messages = sent.index_select(0, graph.source) + taken.index_select(0, graph.target)
        messages = messages.add_(self.message.bias).relu_()
        heard = messages[: len(graph.mate)]
        if len(graph.heard):
            heard = heard.index_add(0, graph.heard, messages[len(graph.mate) :])
        total = torch.addcmul(linear(heard, self.message_out.weight), graph.in_degree, self.message_out.bias)
        own, summed = self.node.weight.chunk(2)
        node = torch.addmm(linear(theta.index_select(0, graph.mate), own, self.node.bias), total, summed.t())
        logits: Tensor = self.head(self.node_out(node.relu_()))
        return logits


class GplNetwork(nn.Module):
    """The whole of it. Acts for every controlled agent of a fixed action set; trained for one learner per copy.

    `epsilon` is the share of random actions while exploring, set by whoever knows how far training has come.
    """

    def __init__(self, spec: EnvSpec, settings: GplSettings) -> None:
        super().__init__()
        if spec.num_actions is None:
            raise ValueError(f"GPL needs a fixed set of actions, and agents of {spec.name!r} choose among tasks")
        self.spec, self.settings, self.actions = spec, settings, spec.num_actions
        self.epsilon = value_at(settings.epsilon, 0)
        self.inputs = TeamInputs(spec)
        self.types = TypeInference(self.inputs.width, settings)
        self.individual = IndividualUtility(settings, self.actions)
        self.pairwise = PairwiseFactors(settings, self.actions)
        self.agent_model = AgentModel(settings, self.actions)

    @property
    def memory_width(self) -> int:
        """Columns of a member's memory: h (and c) of both branches."""
        return self.types.cell.width

    @property
    def dtype(self) -> torch.dtype:
        """Of the weights."""
        return self.individual.first.bias.dtype

    def halves(self) -> tuple[list[Tensor], list[Tensor]]:
        """Weights of the utilities and of the agent model, each with its branch of the type inference."""
        twins = [parameter.detach() for parameter in self.types.parameters()]
        utilities = [*self.individual.parameters(), *self.pairwise.parameters()]
        return (
            [twin[0] for twin in twins] + [parameter.detach() for parameter in utilities],
            [twin[1] for twin in twins] + [parameter.detach() for parameter in self.agent_model.parameters()],
        )

    def learner_values(self, theta: Tensor, graph: TeamGraph) -> Tensor:
        """[S, A] the learners' Q in expectation over the mates' actions; the agent model is taken as given."""
        settings = self.settings
        probabilities = self.agent_model(theta[1], graph).detach().softmax(1)
        individual = ranged(self.individual(theta[0], graph), settings.individual_range)
        forward, backward = self.pairwise(theta[0], graph)
        tables = pairwise_tables(forward, backward, settings.pair_comp)
        return learner_q(individual, ranged(tables, settings.pair_range), probabilities, graph)

    def preferences(self, theta: Tensor, graph: TeamGraph) -> Tensor:
        """[S, A] as `learner_values` less what does not depend on the learner's action: enough to act by."""
        settings = self.settings
        probabilities = self.agent_model(theta[1], graph).softmax(1)
        own = ranged(self.individual(theta[0], graph, learner_only=True), settings.individual_range)
        forward, backward = self.pairwise(theta[0], graph, learner_only=True)
        tables = pairwise_tables(forward, backward, settings.pair_comp)
        return own + learner_advantage(ranged(tables, settings.pair_range), probabilities, graph)

    @torch.no_grad()
    def act(
        self,
        obs: PackedObs,
        draws: DecisionDraws | None,
        memory: Tensor | None = None,
        *,
        explore: bool,
        epsilon: float | None = None,
    ) -> Decision:
        """See `nn.acting.Decider`; `epsilon` overrides the attribute. Agents that are not controlled get `NO_OP`."""
        if memory is None:
            memory = torch.zeros(0, self.memory_width, dtype=self.dtype)
        memory_in = rows_or_zeros(memory, obs.carry if len(memory) else np.full_like(obs.carry, -1))
        here = None if obs.present.all() else np.flatnonzero(obs.present)
        rows = torch.from_numpy(self.inputs(obs)).to(self.dtype)
        if here is None:
            theta, after = self.types(rows, memory_in, (len(rows),))
        else:  # who is away has no part in the team, and comes back without a memory
            kept = torch.from_numpy(here)
            theta, memory_here = self.types(rows[kept], memory_in[kept], (len(here),))
            after = torch.zeros_like(memory_in).index_copy_(0, kept, memory_here)
        choices = np.full(len(obs.present), NO_OP, dtype=np.int64)
        decider = np.flatnonzero(obs.present if obs.controlled is None else obs.present & obs.controlled)
        copy = obs.agent_copy[decider]
        if explore:
            random, action = self._random_actions(obs, decider, copy, draws, epsilon)
            choices[decider] = action
            decider, copy = decider[~random], copy[~random]
        if len(decider):
            values = self.preferences(*self._views(theta, obs, decider, copy, here))
            choices[decider] = values.numpy().argmax(1)
        return Decision(choices, np.zeros(len(choices), dtype=np.float32), after, memory_in)

    def _random_actions(
        self, obs: PackedObs, decider: Int, copy: Int, draws: DecisionDraws | None, epsilon: float | None
    ) -> tuple[Bool, Int]:
        """Whether each decider acts at random, and an action for it, uniform over all of them."""
        draws = draws or DecisionDraws.fresh(obs.num_copies)
        use = np.repeat(np.arange(2), len(decider))
        coin, pick = draws.uniform(np.tile(copy, 2), np.tile(obs.agent_id[decider], 2), use).reshape(2, -1)
        return coin < (self.epsilon if epsilon is None else epsilon), (pick * self.actions).astype(np.int64)

    def _views(
        self, theta: Tensor, obs: PackedObs, decider: Int, copy: Int, here: Int | None
    ) -> tuple[Tensor, TeamGraph]:
        """The team as each decider sees it, with itself as the learner; agents of `theta` are those of `here`."""
        ptr, complete = obs.agent_ptr, self.settings.graph == "complete"
        if here is not None:
            ptr = np.searchsorted(here, ptr)
            decider = np.searchsorted(here, decider)
        sizes = np.diff(ptr)
        if len(copy) == len(sizes) and (copy == np.arange(len(sizes))).all():
            return theta, team_graph(sizes, decider, complete=complete)
        rows, view_ptr = gather_segments(ptr, copy)
        graph = team_graph(sizes[copy], view_ptr[:-1] + decider - ptr[copy], complete=complete)
        return theta.index_select(1, torch.from_numpy(rows)), graph


def make_actor(spec: EnvSpec, settings: Mapping[str, Any]) -> GplNetwork:
    """The acting network of a saved policy; where it explores, it does so as at the end of its schedule."""
    checked = GplSettings(**settings)
    network = GplNetwork(spec, checked)
    network.epsilon = checked.epsilon if isinstance(checked.epsilon, float) else checked.epsilon[-1][1]
    return network
