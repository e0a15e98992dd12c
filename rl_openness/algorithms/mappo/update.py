"""One MAPPO update in plain torch: from packed chunks to minibatches to a loss. No Ray in here.

Values are computed once for every team-step, advantages run on environment time, the actor's loss is a mean over agent
decisions and the critic's a mean over team-steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rl_openness.algorithms.mappo.loss import generalised_advantages, policy_loss, value_loss
from rl_openness.algorithms.mappo.networks.plato import PlatoNetwork
from rl_openness.algorithms.mappo.settings import MappoSettings, PlatoSettings
from rl_openness.algorithms.schedules import value_at
from rl_openness.envs.base import concatenate
from rl_openness.nn.inputs import ActorInputs, CriticInputs, RowTable, TeamTensors, deduplicated
from rl_openness.nn.value_norm import ValueNorm
from rl_openness.rllib.chunk import RolloutChunk


@dataclass(frozen=True)
class Recurrence:
    """How memory runs through a minibatch of windows, or (for a whole rollout) where it is stored."""

    state: Tensor
    """[rows of first steps, width] memory that enters each window."""
    carry: Tensor
    """[D] row of the same member one step earlier in the same matrix; -1 = new."""
    bounds: list[int]
    """Rows of step k are `bounds[k] : bounds[k + 1]`."""
    present: Tensor
    """[D]"""


@dataclass(frozen=True)
class Minibatch:
    """S team-steps with their D deciders."""

    actor: ActorInputs
    critic: CriticInputs
    chosen: Tensor
    """[D] pair row, -1 = no-op"""
    old_log_prob: Tensor
    advantage: Tensor
    """[D] each"""
    target: Tensor
    old_value: Tensor
    """[S] raw value targets; normalised values when the rollout was made"""
    recurrence: Recurrence | None = None

    def __len__(self) -> int:
        return len(self.target)


@dataclass(frozen=True)
class Rollout:
    """All chunks of one update, ready to be cut; `windows` are lists of consecutive team-steps of one copy."""

    whole: Minibatch
    member_step: Tensor
    """[D] team-step of each decider"""
    windows: list[np.ndarray]
    memory_of_window: dict[int, tuple[int, int]]

    @property
    def num_steps(self) -> int:
        """S: number of team-steps."""
        return len(self.whole.target)


def _bootstrap(chunks: Sequence[RolloutChunk], network: PlatoNetwork, dtype: torch.dtype) -> list[Tensor]:
    """Normalised values of all team-steps, then of each chunk's following states, then of its final observations."""
    assert network.critic is not None
    parts = [chunk.obs for chunk in chunks]
    for chunk in chunks:
        parts += [chunk.boot] if chunk.final is None else [chunk.boot, chunk.final]
    team = TeamTensors.from_obs(concatenate(parts), dtype)
    with torch.no_grad():
        values = network.critic(network.critic.inputs(team))
    return list(values.split([part.num_copies for part in parts]))


def _advantages(
    chunks: Sequence[RolloutChunk], network: PlatoNetwork, settings: MappoSettings, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Advantages, raw targets and normalised old values of all team-steps [S]."""
    assert network.critic is not None
    norm = network.critic.norm
    parts = _bootstrap(chunks, network, dtype)
    old_values = torch.cat(parts[: len(chunks)])
    raw = [norm.denormalise(part) if norm is not None else part for part in parts]
    advantages, targets = [], []
    following = iter(raw[len(chunks) :])
    for chunk, values in zip(chunks, raw[: len(chunks)], strict=True):
        shape = (chunk.num_steps, chunk.num_copies)
        value = values.view(shape)
        next_value = torch.cat([value[1:], next(following).unsqueeze(0)])
        terminated, truncated = torch.tensor(chunk.terminated), torch.tensor(chunk.truncated)
        if chunk.final is not None:
            next_value.view(-1)[torch.tensor(chunk.final_step)] = next(following)
        if settings.horizon_as_terminal:
            terminated = terminated | truncated
        rewards = torch.tensor(chunk.team_reward, dtype=dtype)
        advantage = generalised_advantages(
            rewards,
            value,
            next_value,
            terminated,
            terminated | truncated,
            gamma=settings.gamma,
            lambda_=settings.lambda_,
        )
        advantages.append(advantage.reshape(-1))
        targets.append((advantage + value).reshape(-1))
    return torch.cat(advantages), torch.cat(targets), old_values


def standardise(advantage: Tensor) -> Tensor:
    """Over all decisions of the rollout, of all learners."""
    exact = advantage.double()  # in float32 the difference below loses a small spread around a large mean
    moments = torch.stack([exact.sum(), exact.square().sum(), exact.new_tensor(len(exact))])
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.all_reduce(moments)
    count = moments[2].clamp(min=1)
    mean = moments[0] / count
    std = (moments[1] / count - mean.square()).clamp(min=0).sqrt()
    return ((exact - mean) / (std + 1e-5)).to(advantage.dtype)


def prepare_rollout(
    chunks: Sequence[RolloutChunk], network: PlatoNetwork, settings: PlatoSettings, dtype: torch.dtype = torch.float32
) -> Rollout:
    """Derive everything that stays the same through the epochs of one update."""
    assert network.critic is not None
    obs = concatenate([chunk.obs for chunk in chunks])
    team = TeamTensors.from_obs(obs, dtype)
    actor = network.actor.features(team)
    advantage, target, old_value = _advantages(chunks, network, settings, dtype)
    step_of = torch.repeat_interleave(torch.arange(obs.num_copies), actor.step_ptr.diff())
    choice = torch.from_numpy(np.concatenate([chunk.choices for chunk in chunks])).index_select(0, actor.member)
    log_prob = torch.from_numpy(np.concatenate([chunk.log_probs for chunk in chunks])).to(dtype)
    decision_advantage = advantage.index_select(0, step_of)
    standard = torch.zeros_like(decision_advantage)
    standard[actor.decides] = standardise(decision_advantage[actor.decides])
    critic = network.critic.inputs(team)
    whole = Minibatch(
        actor=deduplicated(actor) if settings.deduplicate else actor,
        critic=deduplicated(critic) if settings.deduplicate else critic,
        chosen=torch.where(choice >= 0, choice + actor.pair_ptr[:-1], -1),
        old_log_prob=log_prob.index_select(0, actor.member),
        advantage=standard,
        target=target,
        old_value=old_value,
        recurrence=_stored_memory(chunks, team) if network.actor.memory is not None else None,
    )
    windows, memory_of_window = _windows(chunks) if whole.recurrence is not None else ([], {})
    return Rollout(whole, step_of, windows, memory_of_window)


def _stored_memory(chunks: Sequence[RolloutChunk], team: TeamTensors) -> Recurrence:
    carry, row = [], 0
    for chunk in chunks:
        own = torch.tensor(chunk.obs.carry)
        carry.append(torch.where(own >= 0, own + row, -1))
        row += len(own)
    state = torch.from_numpy(np.concatenate([chunk.memory for chunk in chunks if chunk.memory is not None]))
    return Recurrence(state.to(team.agent_rows.dtype), torch.cat(carry), [], team.present)


def _windows(chunks: Sequence[RolloutChunk]) -> tuple[list[np.ndarray], dict[int, tuple[int, int]]]:
    """Team-steps of every window, and for each first team-step the rows of its stored memory."""
    windows, rows = [], {}
    first, memory_row = 0, 0
    for chunk in chunks:
        for start in range(0, chunk.num_steps, chunk.window):
            length = min(chunk.window, chunk.num_steps - start)
            for b in range(chunk.num_copies):
                step = start * chunk.num_copies + b
                members = int(chunk.obs.agent_ptr[step + 1] - chunk.obs.agent_ptr[step])
                windows.append(first + step + np.arange(length) * chunk.num_copies)
                rows[first + step] = (memory_row, memory_row + members)
                memory_row += members
        first += chunk.env_steps()
    return windows, rows


def minibatches(rollout: Rollout, settings: MappoSettings, rng: np.random.Generator) -> Iterator[Minibatch]:
    """`num_epochs` passes over the rollout in random order, in minibatches of (almost) equal size."""
    total = rollout.num_steps
    count = -(-total // settings.minibatch_size)
    for _ in range(settings.num_epochs):
        if rollout.whole.recurrence is not None:
            order = rng.permutation(len(rollout.windows))
            for part in np.array_split(order, min(count, len(order))):
                yield _cut_windows(rollout, [rollout.windows[i] for i in part])
        else:
            for part in np.array_split(rng.permutation(total), count):
                yield _cut(rollout, torch.from_numpy(part))[0]


def _cut(rollout: Rollout, steps: Tensor) -> tuple[Minibatch, Tensor]:
    whole = rollout.whole
    actor, deciders = whole.actor.select(steps)
    chosen = whole.chosen.index_select(0, deciders)
    old_ptr = whole.actor.pair_ptr.index_select(0, deciders)
    batch = Minibatch(
        actor=actor,
        critic=whole.critic.select(steps),
        chosen=torch.where(chosen >= 0, chosen - old_ptr + actor.pair_ptr[:-1], -1),
        old_log_prob=whole.old_log_prob.index_select(0, deciders),
        advantage=whole.advantage.index_select(0, deciders),
        target=whole.target.index_select(0, steps),
        old_value=whole.old_value.index_select(0, steps),
    )
    return batch, deciders


def _cut_windows(rollout: Rollout, windows: list[np.ndarray]) -> Minibatch:
    """Windows side by side, step by step: all first steps, then all second steps, and so on."""
    stored = rollout.whole.recurrence
    assert stored is not None
    windows = sorted(windows, key=len, reverse=True)
    by_step = [np.array([w[k] for w in windows if len(w) > k]) for k in range(len(windows[0]))]
    steps = torch.from_numpy(np.concatenate(by_step))
    batch, deciders = _cut(rollout, steps)
    ends = np.cumsum([len(part) for part in by_step])
    rows = np.concatenate([np.arange(*rollout.memory_of_window[int(w[0])]) for w in windows])
    place = torch.full((len(rollout.whole.chosen),), -1)
    place[deciders] = torch.arange(len(deciders))
    carry = stored.carry.index_select(0, deciders)
    recurrence = Recurrence(
        state=stored.state.index_select(0, torch.from_numpy(rows)),
        carry=torch.where(carry >= 0, place.index_select(0, carry.clamp(min=0)), -1),
        bounds=[0, *batch.actor.step_ptr[torch.from_numpy(ends)].tolist()],
        present=stored.present.index_select(0, deciders),
    )
    return Minibatch(**{**batch.__dict__, "recurrence": recurrence})


def queries(network: PlatoNetwork, batch: Minibatch) -> RowTable:
    """[D, h] queries of all deciders, memory run through the windows."""
    table: RowTable = network.actor.query(batch.actor)
    memory, recurrence = network.actor.memory, batch.recurrence
    if memory is None or recurrence is None:
        return table
    rows = table.expand(table.rows)
    outputs, state, before = [], recurrence.state, 0
    for k, (start, stop) in enumerate(zip(recurrence.bounds, recurrence.bounds[1:], strict=False)):
        if k > 0:
            carry = recurrence.carry[start:stop] - before
            state = torch.cat([state, state.new_zeros(1, state.shape[1])])  # the last row is for new members
            state = state.index_select(0, torch.where(carry >= 0, carry, len(state) - 1))
        query, state = memory(rows[start:stop], state, recurrence.present[start:stop])
        outputs.append(query)
        before = start
    return RowTable(torch.cat(outputs))


@dataclass(frozen=True)
class Outputs:
    """What the network says about a minibatch: [D] log-probabilities and entropies, [S] normalised values."""

    log_prob: Tensor
    entropy: Tensor
    value: Tensor


def evaluate(network: PlatoNetwork, batch: Minibatch) -> Outputs:
    """Forward pass for training."""
    assert network.critic is not None
    distribution = network.actor.decide(batch.actor, queries(network, batch))
    return Outputs(distribution.log_prob(batch.chosen), distribution.entropy(), network.critic(batch.critic))


def mappo_loss(
    network: PlatoNetwork, batch: Minibatch, outputs: Outputs, settings: MappoSettings, env_steps: int = 0
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss to minimise, and its parts (detached). Updates the value normalisation with the batch's targets.

    `env_steps` done so far place the loss in the schedule of `entropy_coeff`, if that is one.
    The actor's part is a mean over *this* learner's decisions; RLlib then averages the learners' gradients.
    """
    assert network.critic is not None
    decides = batch.actor.decides
    log_prob, old = outputs.log_prob[decides], batch.old_log_prob[decides]
    return clipped_loss(
        network.critic.norm,
        Decisions(log_prob, old, batch.advantage[decides], outputs.entropy[decides]),
        Values(outputs.value, batch.old_value, batch.target),
        settings,
        env_steps,
    )


@dataclass(frozen=True)
class Decisions:
    """What a minibatch says about its decisions, each [D]."""

    log_prob: Tensor
    old_log_prob: Tensor
    advantage: Tensor
    entropy: Tensor


@dataclass(frozen=True)
class Values:
    """What a minibatch says about its values, each [V]: normalised now and before, and raw targets."""

    value: Tensor
    old_value: Tensor
    target: Tensor


def clipped_loss(
    norm: ValueNorm | None, decisions: Decisions, values: Values, settings: MappoSettings, env_steps: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """See `mappo_loss`; whatever decides and whatever has a value. Values are at least one."""
    log_prob, old = decisions.log_prob, decisions.old_log_prob
    actor = policy_loss(log_prob, old, decisions.advantage, settings.clip_param)
    entropy = decisions.entropy.mean() if len(log_prob) else decisions.entropy.sum()
    target = values.target
    if norm is not None:
        norm.update(target)
        target = norm.normalise(target)
    critic = value_loss(values.value, values.old_value, target, settings.clip_param, settings.huber_delta)
    total = actor + settings.vf_loss_coeff * critic - value_at(settings.entropy_coeff, env_steps) * entropy
    with torch.no_grad():
        move = log_prob - old
        ratio = move.exp()
        parts = {
            "policy_loss": actor,
            "value_loss": critic,
            "entropy": entropy,
            "kl": (ratio - 1.0 - move).sum() / max(len(move), 1),
            "clip_fraction": ((ratio - 1.0).abs() > settings.clip_param).sum() / max(len(move), 1),
        }
    return total, {name: value.detach() for name, value in parts.items()}
