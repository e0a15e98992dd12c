"""MAPPO's networks for a fixed set of actions: one actor and one critic, shared by all agents.

Both encode the tasks and the other agents row by row, as the deciding agent sees them, pool each set by mean and
maximum (Zaheer et al. 2017), and read the two beside the agent's own row. No parameter depends on a number of agents or
tasks. Actor and critic share no weights; the critic, which is used in training alone, reads every column.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from rl_openness.algorithms.mappo.networks.kernel import Layers, Table, choose, forward, team_of
from rl_openness.algorithms.mappo.networks.members import Columns, MemberInputs, MemberView, deciding
from rl_openness.algorithms.mappo.settings import ActionsSettings
from rl_openness.envs.base import NO_OP, EnvSpec, Float, PackedObs
from rl_openness.envs.draws import DecisionDraws
from rl_openness.nn.acting import Decision
from rl_openness.nn.mlp import linear, mlp
from rl_openness.nn.pointer import GREEDY_TOLERANCE
from rl_openness.nn.segments import segment_max, segment_sum
from rl_openness.nn.value_norm import ValueNorm


class SetNetwork(nn.Module):
    """From a member's view to `outputs` numbers; with `last_gain` 0.01 they start almost equal."""

    def __init__(self, view: MemberView, hidden: int, outputs: int, last_gain: float) -> None:
        super().__init__()
        own = view.own_width
        self.tasks = nn.Sequential(*mlp(own + view.tasks.width, hidden, hidden), nn.ReLU())
        self.others = nn.Sequential(*mlp(own + view.others.width, hidden, hidden), nn.ReLU())
        self.head = nn.Sequential(
            linear(own + 4 * hidden, 2 * hidden), nn.ReLU(), linear(2 * hidden, outputs, last_gain)
        )

    def forward(self, inputs: MemberInputs) -> Tensor:
        """Outputs [D, outputs]."""
        parts, count = [inputs.own], len(inputs)
        for encoder, (rows, owner) in zip((self.tasks, self.others), inputs.sets(), strict=True):
            encoded = encoder(torch.cat([inputs.own.index_select(0, owner), rows], dim=1))
            size = torch.bincount(owner, minlength=count).clamp(min=1).unsqueeze(1)
            parts.append(segment_sum(encoded, owner, count) / size)
            parts.append(segment_max(encoded, owner, encoded.new_zeros((count, encoded.shape[1]))))
        output: Tensor = self.head(torch.cat(parts, dim=1))
        return output


class ActionDistribution:
    """A categorical distribution over the actions of D members that do something (`mask` [D, A])."""

    def __init__(self, logits: Tensor, mask: Tensor) -> None:
        low = torch.finfo(logits.dtype).min  # finite: 0 x -inf would make the entropy NaN
        self.log_probs = logits.masked_fill(~mask, low).log_softmax(1)

    def log_prob(self, action: Tensor) -> Tensor:
        """[D] log-probabilities of the actions [D]."""
        return self.log_probs.gather(1, action.unsqueeze(1)).squeeze(1)

    def entropy(self) -> Tensor:
        """[D] in nats."""
        return -(self.log_probs.exp() * self.log_probs).sum(1)


def _table(columns: Columns) -> Table:
    return Table(**columns.__dict__)


def _layers(encoder: nn.Sequential) -> Layers:
    """The numbers of an encoder, laid out for the kernel; a copy of a few kilobytes."""
    arrays = []
    for layer in (encoder[0], encoder[2]):
        linear_layer = cast(nn.Linear, layer)
        arrays += [
            np.ascontiguousarray(linear_layer.weight.detach().numpy().T, dtype=np.float32),
            linear_layer.bias.detach().numpy().astype(np.float32, copy=False),
        ]
    return Layers(*arrays)


class ActionsActor(nn.Module):
    """Everything that acting needs. Has no memory: a member's decision depends on the observation alone."""

    memoryless = True

    def __init__(self, spec: EnvSpec, settings: ActionsSettings) -> None:
        super().__init__()
        if spec.num_actions is None:
            raise ValueError(f"agents of {spec.name!r} choose tasks; this network needs a fixed set of actions")
        self.num_actions = spec.num_actions
        self.view = MemberView(spec, everything=False)
        self.network = SetNetwork(self.view, settings.hidden, spec.num_actions, 0.01)
        self._frozen: tuple[Layers, ...] = ()
        self._tables = tuple(_table(each) for each in (self.view.own, self.view.tasks, self.view.others))

    def freeze(self) -> None:
        """Promise that the weights will not change any more, so that acting need not look at them again."""
        self._frozen = self._layers()

    def _layers(self) -> tuple[Layers, ...]:
        return tuple(_layers(each) for each in (self.network.tasks, self.network.others, self.network.head))

    def forward(self, inputs: MemberInputs, mask: Tensor) -> ActionDistribution:
        """Distribution over the actions of each member."""
        return ActionDistribution(self.network(inputs), mask)

    def logits(self, obs: PackedObs, members: np.ndarray) -> Float:
        """[D, A] of the members (rows), by the kernel; what `network` says, to rounding."""
        out = np.empty((len(members), self.num_actions), dtype=np.float32)
        forward(team_of(obs), members, obs.agent_copy[members], *self._tables, *(self._frozen or self._layers()), out)
        return out

    def act(
        self, obs: PackedObs, draws: DecisionDraws | None, memory: Tensor | None = None, *, explore: bool
    ) -> Decision:
        """See `nn.acting.Decider`. A sample takes one random number a member."""
        count = len(obs.present)
        members = np.flatnonzero(deciding(obs))
        choices, log_probs = np.full(count, NO_OP, dtype=np.int64), np.zeros(count, dtype=np.float32)
        if not len(members):
            return Decision(choices, log_probs)
        random = np.zeros(len(members))
        if explore:
            draws = draws or DecisionDraws.fresh(obs.num_copies)
            random = draws.uniform(obs.agent_copy[members], obs.agent_id[members])
        mask = np.ones((count, self.num_actions), dtype=np.bool_) if obs.action_mask is None else obs.action_mask
        choose(self.logits(obs, members), mask, members, random, explore, GREEDY_TOLERANCE, choices, log_probs)
        return Decision(choices, log_probs)


class ActionsCritic(nn.Module):
    """A value for each member, in normalised units."""

    def __init__(self, spec: EnvSpec, settings: ActionsSettings) -> None:
        super().__init__()
        self.view = MemberView(spec, everything=True)
        self.network = SetNetwork(self.view, settings.hidden, 1, 1.0)
        self.norm = ValueNorm() if settings.value_norm else None

    def forward(self, inputs: MemberInputs) -> Tensor:
        """Values [D]."""
        value: Tensor = self.network(inputs).squeeze(1)
        return value


class ActionsNetwork(nn.Module):
    """Actor and critic side by side; `critic` is left out where only acting is needed."""

    def __init__(self, spec: EnvSpec, settings: ActionsSettings, *, with_critic: bool = True) -> None:
        super().__init__()
        self.spec, self.settings = spec, settings
        self.actor = ActionsActor(spec, settings)
        self.critic = ActionsCritic(spec, settings) if with_critic else None


def make_actor(spec: EnvSpec, settings: Mapping[str, Any]) -> ActionsActor:
    """The acting network of a saved policy."""
    return ActionsActor(spec, ActionsSettings(**settings))
