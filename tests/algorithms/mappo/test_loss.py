"""Advantages and losses against numbers worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from rl_openness.algorithms.mappo.loss import generalised_advantages, policy_loss, value_loss
from rl_openness.algorithms.mappo.settings import PlatoSettings
from rl_openness.algorithms.mappo.update import Minibatch, Outputs, mappo_loss, prepare_rollout
from rl_openness.envs.base import NO_OP, PackedObs
from rl_openness.envs.ragged import pointer
from rl_openness.nn.inputs import ActorInputs, RowTable
from rl_openness.rllib.chunk import RolloutChunk, join_steps
from tests.nn.builders import AGENT, SPEC, close, network

HALF = {"gamma": 0.5, "lambda_": 0.5}
REWARDS, VALUES, BOOT = [1.0, 2.0, 3.0], [4.0, 8.0, 16.0], 32.0
# With gamma = lambda = 1/2 a sum runs back with factor 1/4.
GOES_ON = [1.6875, 2.75, 3.0]  # deltas 1 + 4 - 4, 2 + 8 - 8, 3 + 16 - 16
TERMINATED = [-0.5, -6.0, 3.0]  # after step 1: 2 - 8, then 1 + (-6) / 4
TRUNCATED = [2.0, 4.0, 3.0]  # after step 1, at a state worth 20: 2 + 10 - 8, then 1 + 4 / 4


def column(numbers: list[float]) -> Tensor:
    return torch.tensor(numbers, dtype=torch.float64).unsqueeze(1)


@pytest.mark.parametrize(
    ("terminated", "ended", "after", "expected"),
    [
        (False, False, 16.0, GOES_ON),
        (True, True, 16.0, TERMINATED),
        (False, True, 20.0, TRUNCATED),
        (True, True, 20.0, TERMINATED),  # terminated in the step of the time limit: nothing follows
    ],
)
def test_advantages(terminated: bool, ended: bool, after: float, expected: list[float]) -> None:
    flags = [torch.tensor([[False], [flag], [False]]) for flag in (terminated, ended)]
    next_values = column([8.0, after, BOOT])
    close(generalised_advantages(column(REWARDS), column(VALUES), next_values, *flags, **HALF), column(expected))


def test_advantages_of_copies_do_not_mix() -> None:
    terminated = torch.tensor([[False] * 3, [False, True, False], [False] * 3])
    ended = torch.tensor([[False] * 3, [False, True, True], [False] * 3])
    rewards, values = (column(numbers).expand(3, 3) for numbers in (REWARDS, VALUES))
    next_values = torch.tensor([[8.0] * 3, [16.0, 16.0, 20.0], [BOOT] * 3], dtype=torch.float64)
    expected = torch.cat([column(x) for x in (GOES_ON, TERMINATED, TRUNCATED)], dim=1)
    close(generalised_advantages(rewards, values, next_values, terminated, ended, **HALF), expected)


@pytest.mark.parametrize("lambda_", [0.0, 1.0])
def test_extremes_of_lambda(lambda_: float) -> None:
    never = torch.zeros(3, 1, dtype=torch.bool)
    found = generalised_advantages(
        column(REWARDS), column(VALUES), column([8.0, 16.0, BOOT]), never, never, gamma=0.5, lambda_=lambda_
    )
    returns = [1 + 2 / 2 + 3 / 4 + BOOT / 8, 2 + 3 / 2 + BOOT / 4, 3 + BOOT / 2]
    close(found, column([1.0, 2.0, 3.0]) if lambda_ == 0.0 else column(returns) - column(VALUES))


# The same through a chunk, with a critic that reads off the value of a state


class OpenBook(nn.Module):
    """The value of a state stands in a column of its only agent."""

    norm = None

    def __init__(self, like: nn.Module) -> None:
        super().__init__()
        self.inputs = like.inputs

    def forward(self, inputs: Any) -> Tensor:
        return inputs.agent_rows.rows[:, AGENT["secret"]] / SPEC.agent_columns[AGENT["secret"]].scale


def scene(values: list[float], may_choose: list[bool]) -> PackedObs:
    """Copies with one present agent and one task each; the agent may choose the task or nothing."""
    count = len(values)
    agents = np.ones((count, len(SPEC.agent_columns)), dtype=np.float32)
    agents[:, AGENT["secret"]] = values
    each = np.arange(count, dtype=np.int64)
    pairs = np.flatnonzero(may_choose)
    return PackedObs(
        agent_rows=agents,
        present=np.ones(count, dtype=bool),
        carry=np.full(count, -1),
        agent_id=np.zeros(count, dtype=np.int64),
        agent_ptr=pointer(np.ones(count, dtype=np.int64)),
        task_rows=np.ones((count, len(SPEC.task_columns)), dtype=np.float32),
        task_ptr=pointer(np.ones(count, dtype=np.int64)),
        pair_agent=each[pairs],
        pair_task=each[pairs],
        pair_rows=np.zeros((len(pairs), len(SPEC.pair_columns)), dtype=np.float32),
    )


COPIES = 4  # goes on; terminates after step 1; is truncated there; both at once
FLAGS = np.zeros((3, COPIES), dtype=bool)


def book(may_choose: list[list[bool]] | None = None) -> RolloutChunk:
    may_choose = may_choose or [[True] * COPIES] * 3
    terminated, truncated = FLAGS.copy(), FLAGS.copy()
    terminated[1, [1, 3]] = truncated[1, [2, 3]] = True
    return RolloutChunk(
        num_steps=3,
        num_copies=COPIES,
        obs=join_steps([scene([v] * COPIES, open_) for v, open_ in zip(VALUES, may_choose, strict=True)]),
        choices=np.full(3 * COPIES, NO_OP),
        log_probs=np.zeros(3 * COPIES, dtype=np.float32),
        team_reward=np.repeat(np.array(REWARDS)[:, None], COPIES, axis=1),
        terminated=terminated,
        truncated=truncated,
        boot=scene([BOOT] * COPIES, [True] * COPIES),
        final=scene([20.0], [False]),
        final_step=np.array([COPIES + 2]),
        window=3,
        memory=None,
        begins=np.zeros(COPIES, dtype=np.uint64),
        goes_on=np.ones(COPIES, dtype=np.uint64),
    )


def advantages_of(chunks: list[RolloutChunk], **settings: Any) -> tuple[Tensor, Tensor]:
    """Raw advantages [S] from the targets, and the actor's."""
    net = network()
    net.critic = OpenBook(net.critic)
    rollout = prepare_rollout(chunks, net, PlatoSettings(**HALF, **settings), torch.float64)
    return rollout.whole.target - rollout.whole.old_value, rollout.whole.advantage


def test_advantages_of_a_chunk() -> None:
    found, _ = advantages_of([book()])
    close(found.view(3, COPIES).T, [GOES_ON, TERMINATED, TRUNCATED, TERMINATED])


def test_the_horizon_as_an_end_of_the_world() -> None:
    found, _ = advantages_of([book()], horizon_as_terminal=True)
    close(found.view(3, COPIES).T, [GOES_ON, TERMINATED, TERMINATED, TERMINATED])


def test_chunks_bootstrap_from_their_own_states() -> None:
    other = replace(book(), boot=scene([0.0] * COPIES, [True] * COPIES), final=scene([4.0], [False]))
    found, _ = advantages_of([book(), other])
    first, second = found.view(2, 3, COPIES)
    close(first.T, [GOES_ON, TERMINATED, TRUNCATED, TERMINATED])
    # boot 0: 3 - 16; final state worth 4: 2 + 2 - 8
    going, cut = [1 + (2 - 13 / 4) / 4, 2 - 13 / 4, -13.0], [1 - 4 / 4, -4.0, -13.0]
    ends = [-0.5, -6.0, -13.0]
    close(second.T, [going, ends, cut, ends])


def test_final_states_in_any_order() -> None:
    chunk = book()
    chunk.truncated[0, 0] = True
    chunk = replace(chunk, final=scene([20.0, 40.0], [False] * 2), final_step=np.array([COPIES + 2, 0]))
    swapped = replace(chunk, final=scene([40.0, 20.0], [False] * 2), final_step=np.array([0, COPIES + 2]))
    found, _ = advantages_of([chunk])
    close(found.view(3, COPIES)[:, 0], [1 + 20 - 4, *GOES_ON[1:]])
    close(found.view(3, COPIES)[:, 2], TRUNCATED)
    close(advantages_of([swapped])[0], found)


def test_being_away_is_a_step_without_a_decision() -> None:
    """The advantage of a decision before an absence is discounted by the time away, not by one decision."""
    open_ = [[True] * COPIES, [False] * COPIES, [True] * COPIES]
    found, actor = advantages_of([book(open_)])
    close(found.view(3, COPIES)[0], [GOES_ON[0], TERMINATED[0], TRUNCATED[0], TERMINATED[0]])
    decisions = np.array([*found.view(3, COPIES)[0].tolist(), *found.view(3, COPIES)[2].tolist()])
    close(actor, (decisions - decisions.mean()) / (decisions.std() + 1e-5))


def test_advantages_are_standardised_over_decisions_only() -> None:
    open_ = [[True, False, False, False], [False, True, False, False], [False] * 4]
    _, actor = advantages_of([book(open_)])
    mean, deviation = (GOES_ON[0] - 6.0) / 2, (GOES_ON[0] + 6.0) / 2
    close(actor, np.array([GOES_ON[0] - mean, -6.0 - mean]) / (deviation + 1e-5))
    _, alone = advantages_of([book([[True, False, False, False], [False] * 4, [False] * 4])])
    close(alone, [0.0])
    assert len(advantages_of([book([[False] * 4] * 3)])[1]) == 0


def test_large_advantages_keep_their_differences_in_float32() -> None:
    """The variance is a difference of large numbers; summed in float32 nothing of it would be left."""
    net = network()
    net.critic = OpenBook(net.critic)
    chunk = replace(book(), team_reward=3e4 + np.arange(12.0).reshape(3, 4), truncated=FLAGS, terminated=~FLAGS)
    chunk = replace(chunk, final=None, final_step=np.empty(0, dtype=np.int64))
    net = net.float()
    actor = prepare_rollout([chunk], net, PlatoSettings(**HALF)).whole.advantage
    raw = (chunk.team_reward - np.array(VALUES)[:, None]).ravel()
    close(actor, (raw - raw.mean()) / (raw.std() + 1e-5), atol=1e-3)


# Losses


def test_policy_loss_by_hand() -> None:
    ratios = torch.tensor([1.0, 1.5, 1.5, 0.5, 0.5, 1.1], dtype=torch.float64)
    advantages = torch.tensor([2.0, 1.0, -1.0, 1.0, -1.0, 3.0], dtype=torch.float64)
    old = torch.tensor([-1.0, -2.0, -0.5, -3.0, -1.0, -2.0], dtype=torch.float64)
    new = (old + ratios.log()).requires_grad_()
    loss = policy_loss(new, old, advantages, 0.2)
    kept = [2.0, 1.2, -1.5, 0.5, -0.8, 3.3]  # min of plain and clipped
    close(loss, -np.mean(kept))
    (gradient,) = torch.autograd.grad(loss, new)
    close(gradient, -np.array([2.0, 0.0, -1.5, 0.5, 0.0, 3.3]) / 6)


def test_policy_loss_without_decisions() -> None:
    nothing = torch.empty(0, requires_grad=True)
    loss = policy_loss(nothing, nothing, nothing, 0.2)
    assert loss.item() == 0.0
    loss.backward()


def test_value_loss_by_hand() -> None:
    old = torch.zeros(5, dtype=torch.float64)
    value = torch.tensor([0.1, 1.0, 1.0, -1.0, 4.0], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([1.0, 0.0, 2.0, 0.5, 0.0], dtype=torch.float64)
    # clip 0.5, Huber: e^2 / 2 up to 2, then 2 (|e| - 1)
    expected = [
        0.9**2 / 2,  # within the clip
        1.0**2 / 2,  # clipped to 0.5 would be better: the worse counts
        1.5**2 / 2,  # clipped is worse, and has no gradient
        1.5**2 / 2,
        2 * (4.0 - 1.0),  # beyond delta
    ]
    loss = value_loss(value, old, target, 0.5, 2.0)
    close(loss, np.mean(expected))
    (gradient,) = torch.autograd.grad(loss, value)
    close(gradient, np.array([-0.9, 1.0, 0.0, -1.5, 2.0]) / 5)


def minibatch(deciders: list[int], decides: list[bool]) -> Minibatch:
    """Team-steps with the given numbers of deciders; 8 numbers of each kind."""
    count = sum(deciders)
    empty = torch.empty(0, dtype=torch.long)
    inputs = ActorInputs(
        step_ptr=torch.from_numpy(pointer(np.array(deciders))),
        member=torch.arange(count),
        decides=torch.tensor(decides, dtype=torch.bool),
        query_rows=RowTable(torch.zeros(count, 1)),
        pair_ptr=torch.zeros(count + 1, dtype=torch.long),
        key_rows=RowTable(torch.zeros(0, 1)),
    )
    steps = len(deciders)
    return Minibatch(
        actor=inputs,
        critic=None,
        chosen=empty,
        old_log_prob=torch.linspace(-1, -2, count, dtype=torch.float64),
        advantage=torch.linspace(-1, 2, count, dtype=torch.float64),
        target=torch.linspace(3, 5, steps, dtype=torch.float64),
        old_value=torch.linspace(0, 1, steps, dtype=torch.float64),
    )


def outputs(batch: Minibatch) -> Outputs:
    log_prob = batch.old_log_prob + torch.linspace(-0.4, 0.5, len(batch.old_log_prob), dtype=torch.float64)
    entropy = torch.linspace(0.1, 1.0, len(log_prob), dtype=torch.float64)
    value = batch.old_value + 0.05
    return Outputs(*(x.clone().requires_grad_() for x in (log_prob, entropy, value)))


def test_loss_and_its_parts_by_hand() -> None:
    settings = PlatoSettings(hidden=8, vf_loss_coeff=0.5, entropy_coeff=0.1, value_norm=False)
    batch = minibatch([2, 0, 3], [True, False, True, True, False])
    out = outputs(batch)
    loss, parts = mappo_loss(network(value_norm=False), batch, out, settings)
    deciding = batch.actor.decides
    move = (out.log_prob - batch.old_log_prob).detach()[deciding].numpy()
    advantage, ratio = batch.advantage[deciding].numpy(), np.exp(move)
    policy = -np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage).mean()
    value = ((batch.old_value + 0.05 - batch.target) ** 2 / 2).mean()
    entropy = out.entropy[deciding].mean()
    close(parts["policy_loss"], policy)
    close(parts["value_loss"], value)
    close(parts["entropy"], entropy)
    close(parts["kl"], (ratio - 1 - move).mean())
    close(parts["clip_fraction"], (np.abs(ratio - 1) > 0.2).mean(), atol=1e-6)
    close(loss, policy + 0.5 * float(value) - 0.1 * float(entropy.detach()))
    assert not any(part.requires_grad for part in parts.values())


def test_the_value_normalisation_takes_in_targets_first() -> None:
    settings = PlatoSettings(hidden=8, entropy_coeff=0.0)
    net, batch = network(), minibatch([1, 1], [True, True])
    out = outputs(batch)
    _, parts = mappo_loss(net, batch, out, settings)
    mean, scale = 4.0, 1.0  # of the targets 3 and 5
    close(net.critic.norm.normalise(batch.target), [-1.0, 1.0], atol=1e-6)
    target = (batch.target - mean) / scale
    plain, clipped = out.value.detach(), batch.old_value + 0.05
    close(parts["value_loss"], (torch.maximum((plain - target) ** 2, (clipped - target) ** 2) / 2).mean(), atol=1e-6)


# T10: what is masked


def test_t10_steps_without_a_choice_weigh_nothing() -> None:
    settings, net = PlatoSettings(hidden=8, value_norm=False), network(value_norm=False)
    plain = minibatch([2, 0, 3], [True] * 5)
    out = outputs(plain)
    loss, parts = mappo_loss(net, plain, out, settings)
    # the same decisions with absent agents beside them, which have numbers of their own
    padded = minibatch([4, 3, 4], [True, False, True, False, False, False, False, True, True, False, True])
    place = padded.actor.decides.nonzero().squeeze(1)
    for name in ("old_log_prob", "advantage"):
        getattr(padded, name)[:] = 77.0
        getattr(padded, name)[place] = getattr(plain, name)
    numbers = [
        torch.full((11,), -9.0, dtype=torch.float64).index_copy(0, place, x.detach())
        for x in (out.log_prob, out.entropy)
    ]
    wide = Outputs(*(x.requires_grad_() for x in numbers), out.value)
    padded_loss, padded_parts = mappo_loss(net, padded, wide, settings)
    close(padded_loss, loss)
    for name, part in parts.items():
        close(padded_parts[name], part)
    left = torch.autograd.grad(loss, [out.log_prob, out.entropy, out.value])
    right = torch.autograd.grad(padded_loss, [wide.log_prob, wide.entropy, wide.value])
    for mine, theirs in zip(left[:2], right[:2], strict=True):
        close(theirs[place], mine)
        assert not theirs[~padded.actor.decides].any()
    close(right[2], left[2])


@pytest.mark.parametrize("deciders", [[1, 1, 1], [5, 0, 1], [0, 0, 0], [9, 9, 9]])
def test_t10_a_team_step_weighs_once_however_many_agents_share_it(deciders: list[int]) -> None:
    settings, net = PlatoSettings(hidden=8, value_norm=False), network(value_norm=False)
    batch = minibatch(deciders, [True] * sum(deciders))
    out = outputs(batch)
    loss, _ = mappo_loss(net, batch, out, settings)
    (gradient,) = torch.autograd.grad(loss, out.value)
    close(gradient, (batch.old_value + 0.05 - batch.target) / 3)


def test_t10_each_decision_weighs_the_same() -> None:
    settings, net = PlatoSettings(hidden=8, value_norm=False, entropy_coeff=0.25), network(value_norm=False)
    batch = minibatch([1, 6, 1], [True] * 8)
    out = outputs(batch)
    loss, _ = mappo_loss(net, batch, out, settings)
    (gradient,) = torch.autograd.grad(loss, out.entropy)
    close(gradient, np.full(8, -0.25 / 8))


@pytest.mark.parametrize("decides", [[], [False] * 3])
def test_a_minibatch_without_any_decision(decides: list[bool]) -> None:
    settings, net = PlatoSettings(hidden=8), network()
    batch = minibatch([len(decides), 0], decides)
    out = outputs(batch)
    out = replace(out, entropy=torch.zeros(len(decides), dtype=torch.float64, requires_grad=True))
    loss, parts = mappo_loss(net, batch, out, settings)
    loss.backward()
    assert torch.isfinite(loss)
    for name in ("policy_loss", "entropy", "kl", "clip_fraction"):
        assert float(parts[name]) == 0.0
    assert out.value.grad.any()
