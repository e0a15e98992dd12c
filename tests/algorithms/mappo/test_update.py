"""From chunks to losses: advantages, probabilities and gradients, however a chunk is cut and stored."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from rl_openness.algorithms.mappo.networks.plato import PlatoNetwork
from rl_openness.algorithms.mappo.settings import PlatoSettings
from rl_openness.algorithms.mappo.update import evaluate, mappo_loss, prepare_rollout
from rl_openness.envs.base import PackedObs
from rl_openness.rllib.chunk import RolloutChunk
from tests.algorithms.training import all_minibatches, collect, settings_of
from tests.nn.builders import (
    ALL,
    MEMORIES,
    close,
    equal,
    gradients,
    network,
    nudged,
    same_gradients,
    values,
)


def trained_a_little(net: PlatoNetwork) -> PlatoNetwork:
    """Value statistics that are not the identity."""
    net.critic.norm.update(torch.tensor([1.0, 5.0, 9.0]))
    return net


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


# Probabilities, losses and gradients of minibatches


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
