"""One MAPPO update over a fixed set of actions in plain torch: from chunks to minibatches to a loss. No Ray in here.

Every member that the network controls has a value and an advantage of its own (`chains`). The actor's loss is a mean
over the decisions of a minibatch, the critic's one over its members.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rl_openness.algorithms.mappo.chains import MemberValues, member_advantages
from rl_openness.algorithms.mappo.networks.actions import ActionsNetwork
from rl_openness.algorithms.mappo.networks.members import MemberInputs, controlled_members, deciding
from rl_openness.algorithms.mappo.settings import ActionsSettings
from rl_openness.algorithms.mappo.update import Decisions, Outputs, Values, clipped_loss, standardise
from rl_openness.envs.base import PackedObs, concatenate
from rl_openness.envs.ragged import pointer, segment_of_row
from rl_openness.nn.segments import gather_segments
from rl_openness.rllib.chunk import RolloutChunk


@dataclass(frozen=True)
class MemberBatch:
    """S team-steps with the D members that the network controls in them."""

    step_ptr: Tensor
    """[S + 1]"""
    actor: MemberInputs
    critic: MemberInputs
    mask: Tensor
    """[D, A]"""
    decides: Tensor
    """[D] bool: present, and with an action that does something."""
    chosen: Tensor
    old_log_prob: Tensor
    advantage: Tensor
    target: Tensor
    old_value: Tensor
    """[D] each; raw value targets, normalised values when the rollout was made"""

    def __len__(self) -> int:
        return len(self.step_ptr) - 1

    def select(self, steps: Tensor) -> MemberBatch:
        """Some of the team-steps, in that order."""
        members, step_ptr = gather_segments(self.step_ptr, steps)
        return MemberBatch(
            step_ptr=step_ptr,
            actor=self.actor.select(members),
            critic=self.critic.select(members),
            mask=self.mask.index_select(0, members),
            decides=self.decides.index_select(0, members),
            chosen=self.chosen.index_select(0, members),
            old_log_prob=self.old_log_prob.index_select(0, members),
            advantage=self.advantage.index_select(0, members),
            target=self.target.index_select(0, members),
            old_value=self.old_value.index_select(0, members),
        )


def _member_values(network: ActionsNetwork, obs: PackedObs | None, dtype: torch.dtype) -> Tensor:
    """[M] normalised values of the members that the network controls, 0 for the others."""
    assert network.critic is not None
    if obs is None:
        return torch.zeros(0, dtype=dtype)
    members = controlled_members(obs)
    values = torch.zeros(len(obs.present), dtype=dtype)
    with torch.no_grad():
        values[torch.from_numpy(members)] = network.critic(network.critic.view.inputs(obs, members, dtype))
    return values


def _advantages(
    chunk: RolloutChunk, network: ActionsNetwork, settings: ActionsSettings, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Advantages, raw targets and normalised old values of all members [M] of a chunk."""
    assert network.critic is not None
    norm = network.critic.norm
    old_value = _member_values(network, chunk.obs, dtype)
    own, boot, final, parted = (
        norm.denormalise(each) if norm is not None else each
        for each in (
            old_value,
            _member_values(network, chunk.boot, dtype),
            _member_values(network, chunk.final, dtype),
            _member_values(network, chunk.parted, dtype),
        )
    )
    if settings.rewards == "own":
        assert chunk.agent_reward is not None, "the sampler was not asked for the members' own rewards"
        rewards = chunk.agent_reward
    else:
        rewards = chunk.team_reward.ravel()[segment_of_row(chunk.obs.agent_ptr)]
    advantage = member_advantages(
        chunk,
        torch.tensor(rewards, dtype=dtype),  # a chunk that came through Ray is read-only
        MemberValues(own, boot, final, parted),
        gamma=settings.gamma,
        lambda_=settings.lambda_,
        horizon_as_terminal=settings.horizon_as_terminal,
        clock=settings.clock,
    )
    return advantage, advantage + own, old_value


def prepare_members(
    chunks: Sequence[RolloutChunk],
    network: ActionsNetwork,
    settings: ActionsSettings,
    dtype: torch.dtype = torch.float32,
) -> MemberBatch:
    """All chunks of one update as one batch: everything that stays the same through its epochs."""
    assert network.critic is not None
    obs = concatenate([chunk.obs for chunk in chunks])
    members = controlled_members(obs)
    rows = torch.from_numpy(members)
    parts = [_advantages(chunk, network, settings, dtype) for chunk in chunks]
    advantage, target, old_value = (torch.cat(each).index_select(0, rows) for each in zip(*parts, strict=True))
    decides = torch.from_numpy(deciding(obs)[members])
    standard = torch.zeros_like(advantage)
    standard[decides] = standardise(advantage[decides])
    mask = np.ones((len(obs.present), network.actor.num_actions), dtype=np.bool_)
    choices = np.concatenate([chunk.choices for chunk in chunks])[members]
    log_probs = np.concatenate([chunk.log_probs for chunk in chunks])[members]
    return MemberBatch(
        step_ptr=torch.from_numpy(pointer(np.bincount(obs.agent_copy[members], minlength=obs.num_copies))),
        actor=network.actor.view.inputs(obs, members, dtype),
        critic=network.critic.view.inputs(obs, members, dtype),
        mask=torch.from_numpy((mask if obs.action_mask is None else obs.action_mask)[members]),
        decides=decides,
        chosen=torch.from_numpy(choices.clip(min=0)),  # -1 only where nobody decides
        old_log_prob=torch.from_numpy(log_probs).to(dtype),
        advantage=standard,
        target=target,
        old_value=old_value,
    )


def member_minibatches(
    whole: MemberBatch, settings: ActionsSettings, rng: np.random.Generator
) -> Iterator[MemberBatch]:
    """`num_epochs` passes over all team-steps in random order, in minibatches of (almost) equal size."""
    total = len(whole)
    count = -(-total // settings.minibatch_size)
    for _ in range(settings.num_epochs):
        for part in np.array_split(rng.permutation(total), count):
            yield whole.select(torch.from_numpy(part))


def evaluate_members(network: ActionsNetwork, batch: MemberBatch) -> Outputs:
    """Forward pass for training: log-probabilities, entropies and normalised values, [D] each."""
    assert network.critic is not None
    distribution = network.actor(batch.actor, batch.mask)
    return Outputs(distribution.log_prob(batch.chosen), distribution.entropy(), network.critic(batch.critic))


def member_loss(
    network: ActionsNetwork, batch: MemberBatch, outputs: Outputs, settings: ActionsSettings, env_steps: int = 0
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss to minimise, and its parts (detached), see `update.mappo_loss`; without members it is 0."""
    assert network.critic is not None
    if not len(batch.target):
        nothing = outputs.value.sum() + outputs.log_prob.sum()
        return nothing, {}
    decides = batch.decides
    return clipped_loss(
        network.critic.norm,
        Decisions(
            outputs.log_prob[decides], batch.old_log_prob[decides], batch.advantage[decides], outputs.entropy[decides]
        ),
        Values(outputs.value, batch.old_value, batch.target),
        settings,
        env_steps,
    )
