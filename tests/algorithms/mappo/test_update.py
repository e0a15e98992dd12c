"""From chunks to minibatches: nothing lost, nothing twice, and gradients as if every copy were unrolled by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rl_openness.algorithms.mappo.loss import policy_loss
from rl_openness.algorithms.mappo.networks.plato import PlatoNetwork
from rl_openness.algorithms.mappo.settings import PlatoSettings
from rl_openness.algorithms.mappo.update import Minibatch, Rollout, evaluate, mappo_loss, minibatches, prepare_rollout
from rl_openness.envs.base import PackedObs
from rl_openness.envs.draws import child_seeds
from rl_openness.nn.inputs import RowTable
from rl_openness.rllib.chunk import RolloutChunk
from rl_openness.rllib.sampler import Sampler
from tests.algorithms.worlds import MotleyEnv
from tests.nn.builders import (
    ACTORS,
    CRITICS,
    HIDDEN,
    MEMORIES,
    actor_inputs,
    close,
    equal,
    gradients,
    network,
    same_gradients,
    values,
)

ALL = ACTORS | MEMORIES | CRITICS
COPIES = 5


def settings_of(name: str, **more: Any) -> PlatoSettings:
    return PlatoSettings(**{"hidden": HIDDEN, "gamma": 0.9, "lambda_": 0.8, "num_epochs": 1, **ALL[name], **more})


def trained_a_little(net: PlatoNetwork) -> PlatoNetwork:
    """Value statistics that are not the identity."""
    net.critic.norm.update(torch.tensor([1.0, 5.0, 9.0]))
    return net


def collect(
    net: PlatoNetwork, steps: Sequence[int], *, window: int = 20, copies: int = COPIES, **env: Any
) -> list[RolloutChunk]:
    """Consecutive chunks of one sampler."""
    sampler = Sampler(MotleyEnv(copies, **env), window=window)
    sampler.restart(child_seeds(7, count=copies))
    return [sampler.collect(net.actor, count) for count in steps]


def step_of_target(rollout: Rollout, batch: Minibatch) -> np.ndarray:
    """Team-steps of a minibatch, told by their targets, which are all different."""
    whole = rollout.whole.target.numpy()
    assert len(np.unique(whole)) == len(whole)
    return np.array([int(np.flatnonzero(whole == target)[0]) for target in batch.target.numpy()])


def nudged(net: PlatoNetwork, seed: int = 9) -> PlatoNetwork:
    """Other weights than the ones that acted."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype))
    return net


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


# Advantages against a plain loop


def reference(net: PlatoNetwork, chunk: RolloutChunk, settings: PlatoSettings) -> tuple[np.ndarray, np.ndarray]:
    """Raw advantages and targets [T, B], one copy and one episode at a time."""

    def value(obs: PackedObs, row: int) -> float:
        alone = values(net, obs.select(np.array([row]))).detach()
        return float(alone if net.critic.norm is None else net.critic.norm.denormalise(alone))

    advantage, target = np.zeros((2, chunk.num_steps, chunk.num_copies))
    finals = {int(step): i for i, step in enumerate(chunk.final_step)}
    for b in range(chunk.num_copies):
        running = 0.0
        for t in reversed(range(chunk.num_steps)):
            step = t * chunk.num_copies + b
            ended = chunk.terminated[t, b] or chunk.truncated[t, b]
            if chunk.terminated[t, b] or (settings.horizon_as_terminal and ended):
                after = 0.0
            elif ended:
                after = value(chunk.final, finals[step])
            elif t + 1 < chunk.num_steps:
                after = value(chunk.obs, step + chunk.num_copies)
            else:
                after = value(chunk.boot, b)
            now = value(chunk.obs, step)
            running = 0.0 if ended else running
            running = chunk.team_reward[t, b] + 0.9 * after - now + 0.9 * 0.8 * running
            advantage[t, b], target[t, b] = running, running + now
    return advantage, target


@pytest.mark.parametrize("horizon_as_terminal", [False, True])
@pytest.mark.parametrize("name", ["stats-additive-both", "lstm-update", "actions-mean"])
def test_advantages_and_targets(name: str, horizon_as_terminal: bool) -> None:
    settings = settings_of(name, horizon_as_terminal=horizon_as_terminal)
    net = trained_a_little(network(**ALL[name]))
    chunks = collect(net, [9, 4])
    whole = prepare_rollout(chunks, net, settings, torch.float64).whole
    parts = [reference(net, chunk, settings) for chunk in chunks]
    advantage, target = (np.concatenate([part[i].ravel() for part in parts]) for i in (0, 1))
    close(whole.target, target)
    close(net.critic.norm.denormalise(whole.old_value), target - advantage)
    step = np.repeat(np.arange(len(target)), np.diff(whole.actor.step_ptr))
    mine = whole.actor.decides.numpy()
    decisions = advantage[step[mine]]
    close(whole.advantage[mine], (decisions - decisions.mean()) / (decisions.std() + 1e-5))
    assert not whole.advantage[~mine].any()


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


def all_minibatches(
    net: PlatoNetwork, chunks: list[RolloutChunk], settings: PlatoSettings, dtype: torch.dtype = torch.float64
) -> Iterator[tuple[Rollout, Minibatch]]:
    rollout = prepare_rollout(chunks, net, settings, dtype)
    for batch in minibatches(rollout, settings, np.random.default_rng(1)):
        yield rollout, batch


@pytest.mark.parametrize("see", [None, 0.4])
@pytest.mark.parametrize(
    ("name", "window"), [*((name, 20) for name in ALL), *((name, w) for name in MEMORIES for w in (3, 4))]
)
def test_recomputed_probabilities_are_the_samplers(name: str, window: int, see: float | None) -> None:
    net = network(**ALL[name])
    chunks = collect(net, [10, 7], window=window, see=see)
    settings = settings_of(name, minibatch_size=16, max_seq_len=window)
    moved = 0
    for _, batch in all_minibatches(net, chunks, settings):
        outputs = evaluate(net, batch)
        close(outputs.log_prob, batch.old_log_prob, atol=1e-6)  # the sampler's are float32
        close(outputs.value, batch.old_value)
        assert not outputs.entropy[~batch.actor.decides].any()
        assert not batch.chosen[~batch.actor.decides].ge(0).any()
        moved += int((batch.chosen >= 0).sum())
        _, parts = mappo_loss(net, batch, outputs, settings)
        assert abs(parts["kl"].item()) < 1e-9
        assert parts["clip_fraction"].item() == 0.0
    assert moved == sum(int((chunk.choices >= 0).sum()) for chunk in chunks) > 10


@pytest.mark.parametrize("name", ["stats-additive-both", "lstm-update", "lstm-hold", "lstm-pointer"])
def test_probabilities_in_float32(name: str) -> None:
    net = network(**ALL[name]).float()
    chunks = collect(net, [8, 5], window=3)
    settings = settings_of(name, minibatch_size=16, max_seq_len=3)
    for _, batch in all_minibatches(net, chunks, settings, torch.float32):
        assert batch.advantage.dtype == batch.target.dtype == torch.float32
        outputs = evaluate(net, batch)
        close(outputs.log_prob, batch.old_log_prob, atol=1e-4)


@pytest.mark.parametrize("window", [20, 3])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "name", ["stats-additive-both", "agent_pointer-dot-both", "actions-mean", "all-stats", *MEMORIES]
)
def test_rows_stored_once_change_nothing(name: str, dtype: torch.dtype, window: int) -> None:
    net = network(**ALL[name])
    if dtype == torch.float32:  # with weights of the usual size
        torch.manual_seed(0)
        net = PlatoNetwork(net.spec, net.settings)
    chunks = collect(net, [8, 5], window=window, coarse=True)
    nudged(net)
    found = []
    for once in (False, True):
        settings = settings_of(name, minibatch_size=16, max_seq_len=window, deduplicate=once)
        statistics = net.critic.norm.state_dict()
        net.critic.norm.load_state_dict({key: torch.zeros_like(value) for key, value in statistics.items()})
        results = []
        for rollout, batch in all_minibatches(net, chunks, settings, dtype):
            tables = [rollout.whole.critic.task_rows, rollout.whole.actor.key_rows]
            assert all((table.index is not None) == once for table in tables)
            outputs = evaluate(net, batch)
            loss, _ = mappo_loss(net, batch, outputs, settings)
            results.append((outputs, loss, gradients(net, loss)))
        found.append(results)
    atol = 1e-9 if dtype == torch.float64 else 1e-6
    for (plain, loss, on_plain), (stored, stored_loss, on_stored) in zip(*found, strict=True):
        for field in ("log_prob", "entropy", "value"):
            close(getattr(stored, field), getattr(plain, field), atol, rtol=atol)
        close(stored_loss, loss, atol, rtol=atol)
        largest = max(float(gradient.abs().max()) for gradient in on_plain.values())
        same_gradients(on_stored, on_plain, atol * max(largest, 1.0))


@pytest.mark.parametrize("name", ["stats-additive-both", "agent_pointer-dot-both", *MEMORIES])
def test_t10_members_who_are_never_here_change_nothing(name: str) -> None:
    found = []
    for ghosts in (0, 3):
        net = network(**ALL[name])
        chunks = collect(net, [8, 5], window=3, ghosts=ghosts)
        nudged(net)
        settings = settings_of(name, minibatch_size=16, max_seq_len=3)
        results = []
        for _, batch in all_minibatches(net, chunks, settings):
            loss, parts = mappo_loss(net, batch, evaluate(net, batch), settings)
            results.append((loss, parts, gradients(net, loss)))
        found.append(results)
    for (loss, parts, on_weights), (with_ghosts, ghost_parts, on_ghosts) in zip(*found, strict=True):
        close(with_ghosts, loss)
        for name, part in parts.items():
            close(ghost_parts[name], part)
        same_gradients(on_ghosts, on_weights)


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


# Corners


@pytest.mark.parametrize("name", ["stats-dot-both", "agent_pointer-additive-both", "actions-sym", *MEMORIES])
def test_a_rollout_without_any_decision(name: str) -> None:
    settings = settings_of(name, minibatch_size=12)
    net = network(**ALL[name])
    chunk = collect(net, [6], window=3)[0]
    nothing = np.empty(0, dtype=np.int64)
    obs = replace(chunk.obs, pair_agent=nothing, pair_task=nothing, pair_rows=chunk.obs.pair_rows[:0])
    chunk = replace(chunk, obs=obs, choices=np.full(len(chunk.choices), -1), log_probs=np.zeros_like(chunk.log_probs))
    count = 0
    for _, batch in all_minibatches(net, [chunk], settings):
        loss, parts = mappo_loss(net, batch, evaluate(net, batch), settings)
        assert torch.isfinite(loss)
        assert parts["policy_loss"].item() == parts["entropy"].item() == 0.0
        found = gradients(net, loss)
        assert not any(gradient.any() for part, gradient in found.items() if part.startswith("actor"))
        assert any(gradient.any() for part, gradient in found.items() if part.startswith("critic"))
        count += 1
    assert count > 1


@pytest.mark.parametrize("name", ["stats-additive-both", "lstm-update", "agent_pointer-dot-both"])
def test_copies_without_members_or_tasks(name: str) -> None:
    settings = settings_of(name, minibatch_size=2, max_seq_len=2)
    net = network(**ALL[name])
    chunk = collect(net, [16], window=2, copies=2)[0]
    alone = 0
    for _, batch in all_minibatches(net, [chunk], settings):
        alone += len(batch.old_log_prob) == 0
        loss, _ = mappo_loss(net, batch, evaluate(net, batch), settings)
        assert torch.isfinite(loss)
        assert all(torch.isfinite(gradient).all() for gradient in gradients(net, loss).values())
    assert alone > 0


def test_only_terminations_need_no_final_observation() -> None:
    net, settings = network(), settings_of("stats-additive-both")
    chunk = collect(net, [30], stop=1.0)[0]
    assert chunk.terminated.all()
    assert len(chunk.final_step) == 0
    plain = replace(chunk, final=None)
    whole = [prepare_rollout([c], net, settings, torch.float64).whole for c in (chunk, plain)]
    close(whole[0].target, chunk.team_reward.ravel())
    equal(whole[1].target, whole[0].target)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="minibatch_size"):
        PlatoSettings(minibatch_size=2048)
    with pytest.raises(ValueError, match="needs encoder = lstm"):
        PlatoSettings(absent_state="hold")
    with pytest.raises(ValueError, match="learning_rate"):
        PlatoSettings(learning_rate=1e-3)
    for name, value in {"gamma": 1.1, "lr": 0.0, "clip_param": float("inf"), "stats": (), "max_seq_len": 0}.items():
        with pytest.raises(ValueError, match=name):
            PlatoSettings(**{name: value})
