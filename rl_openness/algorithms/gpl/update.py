"""One update of GPL in plain torch: from packed chunks to one loss, and on to the target network. No Ray in here.

A chunk is one window of T steps of B copies. The online network runs through it from the memory stored at its start and
is differentiated through all of it; the target network runs through the observations that followed, with memory of its
own that goes on from window to window. Everything but the recurrent cells is evaluated once for all team-steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from rl_openness.algorithms.gpl.loss import agent_model_loss, kept_transitions, regulariser, td_loss, td_targets
from rl_openness.algorithms.gpl.network import GplNetwork
from rl_openness.algorithms.gpl.settings import GplSettings
from rl_openness.algorithms.gpl.timeline import Passage, Timeline, joined
from rl_openness.algorithms.gpl.utilities import joint_q, pairwise_entries, ranged
from rl_openness.envs.ragged import segment_of_row
from rl_openness.rllib.chunk import RolloutChunk


@dataclass(frozen=True)
class Batch:
    """S team-steps to learn from."""

    passage: Passage
    actions: Tensor
    """[R] what all agents chose, in the passage's order; the mates' are the agent model's labels"""
    target: Tensor
    """[S]"""
    kept: Tensor | None
    """[S] team-steps for Q and the regulariser; None = all"""

    def __len__(self) -> int:
        return len(self.target)


def prepare(
    chunks: Sequence[RolloutChunk], target: GplNetwork, target_memory: Sequence[Tensor | None] | None = None
) -> tuple[Batch, list[Tensor]]:
    """What the online network learns from, and the target network's memory of the members of each chunk's `boot`.

    That memory is the `target_memory` of the next chunk of the same runner. None where there is none yet: the target
    network then begins without a memory of observation 0, as the authors' does.
    """
    settings = target.settings
    lines = [Timeline.of(chunk, target.inputs, with_final=not settings.horizon_as_terminal) for chunk in chunks]
    counts = [line.first[0] for line in lines]
    stored = [None if chunk.memory is None else torch.tensor(chunk.memory) for chunk in chunks]
    own = _entering(chunks, lines, stored, target)
    theirs = _entering(chunks, lines, target_memory or [None] * len(chunks), target)
    passage = Passage.of(joined([line.online() for line in lines], counts), own, target)
    following = Passage.of(joined([line.following() for line in lines], counts), theirs, target)
    value, memory = _next_values(chunks, lines, following, target)
    choices = np.concatenate([c.choices[line.present[: len(c.choices)]] for c, line in zip(chunks, lines, strict=True)])
    if (choices < 0).any():
        raise ValueError("every present agent needs the action that it chose (StepResult.labels)")
    batch = Batch(
        passage=passage,
        actions=torch.from_numpy(choices[passage.order]),
        target=torch.cat([_targets(chunk, v, settings) for chunk, v in zip(chunks, value, strict=True)]),
        kept=_kept(chunks, lines, settings),
    )
    return batch, memory


def _entering(
    chunks: Sequence[RolloutChunk], lines: Sequence[Timeline], memories: Sequence[Tensor | None], network: GplNetwork
) -> Tensor:
    """Memory of the present members of all first observations; zeros where none is given."""
    parts = []
    for chunk, line, memory in zip(chunks, lines, memories, strict=True):
        here = line.present[: chunk.obs.agent_ptr[chunk.num_copies]]
        if memory is None:
            memory = torch.zeros(len(here), network.memory_width, dtype=network.dtype)
        if len(memory) != len(here):
            raise ValueError(f"memory of {len(memory)} members, but the window begins with {len(here)}")
        parts.append(memory if here.all() else memory[torch.from_numpy(here)])
    return torch.cat(parts) if len(parts) > 1 else parts[0]


@torch.no_grad()
def _next_values(
    chunks: Sequence[RolloutChunk], lines: Sequence[Timeline], following: Passage, target: GplNetwork
) -> tuple[list[Tensor], list[Tensor]]:
    """max_a Q after every team-step of each chunk, and the target network's memory of the members of `boot`."""
    theta, after = target.types(following.inputs, following.memory, following.block_sizes)
    values = target.learner_values(theta, following.graph).amax(1)
    next_values, memories, row, step = [], [], 0, 0
    for chunk, line in zip(chunks, lines, strict=True):
        steps, teams = chunk.env_steps(), len(line.sizes) - line.first[1]
        value = values[step : step + teams]
        if len(value) > steps:
            value, last = value[:steps].clone(), value[steps:]
            value[torch.tensor(chunk.final_step)] = last
        next_values.append(value)
        here = line.present[len(chunk.choices) :][: len(chunk.boot.present)]
        start = row + line.window[0] - line.first[0]
        nodes = following.place[start : start + int(here.sum())]
        memory = after.index_select(0, torch.from_numpy(nodes))
        if not here.all():
            rows = torch.from_numpy(np.flatnonzero(here))
            memory = memory.new_zeros(len(here), memory.shape[1]).index_copy_(0, rows, memory)
        memories.append(memory)
        row, step = row + len(line.features) - line.first[0], step + teams
    return next_values, memories


def _targets(chunk: RolloutChunk, next_value: Tensor, settings: GplSettings) -> Tensor:
    over = chunk.terminated | chunk.truncated if settings.horizon_as_terminal else chunk.terminated
    return td_targets(
        torch.tensor(chunk.team_reward, dtype=next_value.dtype).reshape(-1),
        next_value,
        torch.tensor(over).reshape(-1),
        gamma=settings.gamma,
        reward_shift=settings.reward_shift,
    )


def _kept(chunks: Sequence[RolloutChunk], lines: Sequence[Timeline], settings: GplSettings) -> Tensor | None:
    """Team-steps to learn Q from; what is bootstrapped from, also an episode's last observation, counts as next."""
    if settings.transitions == "all":
        return None
    parts = []
    for chunk, line in zip(chunks, lines, strict=True):
        steps, copies = line.window[1], chunk.num_copies
        team = segment_of_row(np.append(0, np.cumsum(line.sizes)))
        new = np.bincount(team[line.previous < 0], minlength=len(line.sizes)) > 0
        next_new, next_sizes = new[copies : copies + steps].copy(), line.sizes[copies : copies + steps].copy()
        ended = (chunk.terminated | chunk.truncated).ravel()
        if len(line.sizes) > copies + steps:
            next_new[chunk.final_step] = new[copies + steps :]
            next_sizes[chunk.final_step] = line.sizes[copies + steps :]
            ended[chunk.final_step] = False
        kept = kept_transitions(
            settings.transitions, *(torch.tensor(x) for x in (line.sizes[:steps], next_sizes, next_new, ended))
        )
        assert kept is not None
        parts.append(kept)
    return torch.cat(parts)


@dataclass(frozen=True)
class Outputs:
    """What the online network says about a batch."""

    joint_q: Tensor
    """[S] Q of the joint action taken"""
    individual: Tensor
    """[R] I_j(a_j) of all agents"""
    logits: Tensor
    """[mates, A] the agent model's"""


def evaluate(network: GplNetwork, passage: Passage, actions: Tensor) -> Outputs:
    """Forward pass for training: the whole window at once."""
    settings, graph = network.settings, passage.graph
    theta, _ = network.types(passage.inputs, passage.memory, passage.block_sizes)
    utilities, agent_model = theta.unbind()
    table = network.individual(utilities, graph)
    individual = ranged(table.gather(1, actions.unsqueeze(1)).squeeze(1), settings.individual_range)
    a_j, a_k = actions.index_select(0, graph.first), actions.index_select(0, graph.second)
    forward, backward = network.pairwise(utilities, graph)
    pairs = pairwise_entries(forward, backward, a_j, a_k, settings.pair_comp)
    return Outputs(
        joint_q=joint_q(individual, ranged(pairs, settings.pair_range), graph),
        individual=individual,
        logits=network.agent_model(agent_model, graph),
    )


def gpl_loss(batch: Batch, outputs: Outputs, settings: GplSettings) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss to minimise, and its parts (detached)."""
    graph = batch.passage.graph
    labels = batch.actions.index_select(0, graph.mate)
    td = td_loss(outputs.joint_q, batch.target, batch.kept)
    model = agent_model_loss(outputs.logits, labels)
    total = td + settings.agent_model_weight * model
    parts = {"td_loss": td, "agent_model_loss": model}
    if settings.regularizer_weight > 0.0:
        pull = regulariser(outputs.individual, graph, settings.graph, settings.reg_reduction, batch.kept)
        total = total + settings.regularizer_weight * pull
        parts["regularizer"] = pull
    with torch.no_grad():
        parts["q"] = outputs.joint_q.mean()
        parts["target"] = batch.target.mean()
        parts["agent_model_accuracy"] = (outputs.logits.argmax(1) == labels).sum() / max(len(labels), 1)
    return total, {name: value.detach() for name, value in parts.items()}


@torch.no_grad()
def soft_update(target: GplNetwork, online: GplNetwork, tau: float) -> None:
    """Move the target's utilities a share `tau` towards the online network's, and copy its agent model."""
    (soft, hard), (new, copied) = target.halves(), online.halves()
    torch._foreach_lerp_(soft, new, tau)
    torch._foreach_copy_(hard, copied)
