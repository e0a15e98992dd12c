"""From chunks to minibatches: nothing lost, nothing twice, and gradients as if every copy were unrolled by itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rl_openness.algorithms.mappo.loss import policy_loss
from rl_openness.algorithms.mappo.networks.plato import PlatoNetwork
from rl_openness.algorithms.mappo.update import Minibatch, Rollout, evaluate, minibatches, prepare_rollout
from rl_openness.envs.base import PackedObs
from rl_openness.nn.inputs import RowTable
from tests.algorithms.training import COPIES, all_minibatches, collect, settings_of
from tests.algorithms.worlds import MotleyEnv
from tests.nn.builders import (
    ALL,
    HIDDEN,
    MEMORIES,
    actor_inputs,
    close,
    equal,
    gradients,
    network,
    nudged,
    same_gradients,
)


def step_of_target(rollout: Rollout, batch: Minibatch) -> np.ndarray:
    """Team-steps of a minibatch, told by their targets, which are all different."""
    whole = rollout.whole.target.numpy()
    assert len(np.unique(whole)) == len(whole)
    return np.array([int(np.flatnonzero(whole == target)[0]) for target in batch.target.numpy()])


# The world of these tests


def test_the_world_has_it_all() -> None:
    chunk = collect(network(), [60])[0]
    obs = chunk.obs
    assert (chunk.terminated & chunk.truncated).any()
    assert (chunk.terminated & ~chunk.truncated).any()
    assert (chunk.truncated & ~chunk.terminated).any()
    at_once = np.bincount(chunk.final_step // COPIES)
    assert at_once.max() > 1
    assert (np.diff(chunk.final_step) < 0).any()
    size = np.diff(obs.agent_ptr)
    assert size.min() == 0
    assert size.max() == MotleyEnv.SLOTS
    later = obs.agent_copy >= COPIES
    running = ~np.repeat(np.concatenate([np.ones((1, COPIES), bool), (chunk.terminated | chunk.truncated)[:-1]]), size)
    assert ((obs.carry < 0) & later & running).any()  # joined a running episode
    away, back = ~obs.present, (obs.carry >= 0) & obs.present
    assert away[obs.carry[back]].any()
    assert (np.bincount(obs.agent_copy, minlength=len(size)) > 0).any()
    assert ((np.diff(obs.task_ptr) > 0) & (size == 0)).any()


# Minibatches


@pytest.mark.parametrize("once", [False, True])
@pytest.mark.parametrize("name", ["stats-dot-both", "agent_pointer-additive-both", "actions-sym"])
def test_every_team_step_once_an_epoch(name: str, once: bool) -> None:
    settings = settings_of(name, num_epochs=3, minibatch_size=16, deduplicate=once)
    net = network(**ALL[name])
    rollout = prepare_rollout(collect(net, [7, 4], coarse=once), net, settings, torch.float64)
    batches = list(minibatches(rollout, settings, np.random.default_rng(0)))
    assert rollout.num_steps == 11 * COPIES
    assert len(batches) == 3 * 4
    assert {len(batch) for batch in batches} == {13, 14}
    orders = []
    for epoch in range(3):
        steps = np.concatenate([step_of_target(rollout, batch) for batch in batches[4 * epoch : 4 * epoch + 4]])
        equal(np.sort(steps), np.arange(rollout.num_steps))
        orders.append(steps.tolist())
    assert orders[0] != orders[1]
    again = [step_of_target(rollout, b) for b in minibatches(rollout, settings, np.random.default_rng(0))]
    equal(np.concatenate(again), np.concatenate([step_of_target(rollout, batch) for batch in batches]))


@pytest.mark.parametrize(("steps", "window"), [([8], 20), ([8], 8), ([8], 3), ([8], 1), ([7, 5], 3), ([4, 9, 2], 4)])
@pytest.mark.parametrize("minibatch_size", [4, 16, 1000])
def test_every_window_once_an_epoch(steps: list[int], window: int, minibatch_size: int) -> None:
    settings = settings_of(
        "lstm-hold", num_epochs=2, minibatch_size=minibatch_size, train_batch_size_per_learner=1000, max_seq_len=window
    )
    net = network(**ALL["lstm-hold"])
    rollout = prepare_rollout(collect(net, steps, window=window), net, settings, torch.float64)
    total = sum(steps) * COPIES
    lengths = sorted(len(w) for w in rollout.windows)
    expected = [min(window, t - k) for t in steps for k in range(0, t, window)]
    assert lengths == sorted(expected * COPIES)
    batches = list(minibatches(rollout, settings, np.random.default_rng(0)))
    half = len(batches) // 2
    assert half == min(-(-total // minibatch_size), len(rollout.windows))
    for epoch in (batches[:half], batches[half:]):
        found = np.concatenate([step_of_target(rollout, batch) for batch in epoch])
        equal(np.sort(found), np.arange(total))
        sizes = [len(batch) for batch in epoch]
        if len(set(lengths)) == 1:
            assert max(sizes) - min(sizes) <= lengths[0]
    for batch in batches:  # no copy's step without the ones before it in its window
        found = step_of_target(rollout, batch)
        chosen = [w for w in rollout.windows if w[0] in found]
        equal(np.sort(np.concatenate(chosen)), np.sort(found))


# Memory through windows, against every copy unrolled by itself


def unrolled(net: PlatoNetwork, obs: PackedObs, states: dict[int, Tensor]) -> tuple[Any, dict[int, Tensor]]:
    """One step of one copy: the distribution over its members' options, and the states after it by agent id."""
    actor = net.actor
    inputs = actor_inputs(actor, obs)
    table = actor.query(inputs)
    zero = torch.zeros(2 * HIDDEN, dtype=torch.float64)
    outputs, after = [], {}
    for row, agent in enumerate(obs.agent_id.tolist()):
        state = states.get(agent, zero)
        query, new = actor.memory(
            table.expand(table.rows)[row : row + 1], state.unsqueeze(0), torch.from_numpy(obs.present[row : row + 1])
        )
        outputs.append(query)
        after[agent] = new[0]
    outputs = torch.cat(outputs) if outputs else torch.zeros(0, HIDDEN, dtype=torch.float64)
    return actor.decide(inputs, RowTable(outputs)), after


@pytest.mark.parametrize(
    ("name", "steps", "window"),
    [
        *((name, [6, 5], 3) for name in MEMORIES),
        *((name, steps, w) for name in ("lstm-update", "lstm-hold") for steps, w in (([9], 20), ([9], 4), ([3, 3], 1))),
    ],
)
def test_gradients_of_windows_are_those_of_a_plain_unroll(name: str, steps: list[int], window: int) -> None:
    settings = settings_of(name, max_seq_len=window, minibatch_size=16)
    acted, net = network(**ALL[name]), nudged(network(**ALL[name]))
    chunks = collect(acted, steps, window=window)
    rollout = prepare_rollout(chunks, net, settings, torch.float64)
    whole = rollout.whole
    log_probs: dict[int, Tensor] = {}
    entropies: dict[int, Tensor] = {}
    first = 0
    real: list[dict[int, Tensor]] = [{} for _ in range(COPIES)]  # what the acting network remembered
    for chunk in chunks:
        for b in range(COPIES):
            states: dict[int, Tensor] = {}
            for t in range(chunk.num_steps):
                step = t * COPIES + b
                obs = chunk.obs.select(np.array([step]))
                if t % window == 0:
                    states = dict(real[b])
                dist, states = unrolled(net, obs, states)
                rows = slice(chunk.obs.agent_ptr[step], chunk.obs.agent_ptr[step + 1])
                choice = torch.from_numpy(chunk.choices[rows])
                chosen = torch.where(choice >= 0, choice + torch.from_numpy(obs.pair_ptr[:-1]), -1)
                log_probs[first + step], entropies[first + step] = dist.log_prob(chosen), dist.entropy()
                with torch.no_grad():
                    real[b] = unrolled(acted, obs, real[b])[1]
                if chunk.terminated[t, b] or chunk.truncated[t, b]:
                    states, real[b] = {}, {}
        first += chunk.env_steps()
    joins = 0
    for batch in minibatches(rollout, settings, np.random.default_rng(3)):
        found = step_of_target(rollout, batch)
        joins += int((batch.recurrence.carry[batch.recurrence.bounds[1] :] < 0).sum())
        outputs = evaluate(net, batch)
        expected = torch.cat([log_probs[s] for s in found])
        entropy = torch.cat([entropies[s] for s in found])
        close(outputs.log_prob, expected)
        close(outputs.entropy, entropy)
        decides = batch.actor.decides
        losses = [
            policy_loss(x[decides], batch.old_log_prob[decides], batch.advantage[decides], 0.2)
            - 0.01 * y[decides].mean()
            for x, y in ((outputs.log_prob, outputs.entropy), (expected, entropy))
        ]
        close(*losses)
        same_gradients(gradients(net.actor, losses[0]), gradients(net.actor, losses[1]))
    assert joins > 0 or window == 1
    assert whole.recurrence is not None


@pytest.mark.parametrize("name", MEMORIES)
def test_memory_matters_in_these_tests(name: str) -> None:
    """A carry that points elsewhere, or a lost state, would be noticed."""
    settings = settings_of(name, max_seq_len=4, minibatch_size=1000, train_batch_size_per_learner=1000)
    net = network(**ALL[name])
    chunks = collect(net, [9], window=4)
    (_, batch) = next(all_minibatches(net, chunks, settings))
    recurrence = batch.recurrence
    for broken in (
        replace(recurrence, state=torch.zeros_like(recurrence.state)),
        replace(recurrence, carry=torch.full_like(recurrence.carry, -1)),
        replace(recurrence, state=recurrence.state.flip(0)),
    ):
        moved = evaluate(net, replace(batch, recurrence=broken)).log_prob - batch.old_log_prob
        assert moved.abs().max() > 1e-3


@pytest.mark.parametrize("name", MEMORIES)
def test_windows_where_everybody_was_gone(name: str) -> None:
    """No member at all in one step of all windows of a minibatch, and members in the next."""
    net = network(**ALL[name])
    settings = settings_of(name, max_seq_len=9, minibatch_size=1)
    chunks = collect(net, [9, 9], window=9, copies=3)
    empty_then_not = 0
    for _, batch in all_minibatches(net, chunks, settings):
        sizes = np.diff(batch.recurrence.bounds)
        empty_then_not += int(((sizes[:-1] == 0) & (sizes[1:] > 0)).sum())
        close(evaluate(net, batch).log_prob, batch.old_log_prob, atol=1e-6)
    assert empty_then_not > 0
