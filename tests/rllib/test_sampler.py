"""The sampler continues exactly from its state, keeps the books on episodes, and stores what training needs."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from rl_openness.envs.base import OpenVectorEnv, PackedObs, StepResult
from rl_openness.envs.draws import child_seeds
from rl_openness.envs.wildfire import make_wildfire
from rl_openness.nn.acting import Decision
from rl_openness.rllib.chunk import RolloutChunk
from rl_openness.rllib.sampler import EPISODE_WINDOW, Sampler
from tests.algorithms.worlds import MotleyEnv
from tests.nn.builders import MEMORIES, equal, network

COPIES = 5
SETTINGS: dict[str, dict[str, Any]] = {"mlp": {}, **MEMORIES}


def same(left: Any, right: Any) -> None:
    """Bit-equal chunks or observations."""
    for field in fields(left):
        mine, theirs = getattr(left, field.name), getattr(right, field.name)
        if isinstance(mine, PackedObs):
            same(mine, theirs)
        elif mine is None or theirs is None:
            assert mine is theirs, field.name
        else:
            equal(mine, theirs)


def new_sampler(env: OpenVectorEnv | None = None, window: int = 20, seed: int = 5) -> Sampler:
    env = env or MotleyEnv(COPIES)
    sampler = Sampler(env, window=window)
    sampler.restart(child_seeds(seed, count=env.num_copies))
    return sampler


class Recorder:
    """The environment with a record of its results."""

    def __init__(self, env: OpenVectorEnv) -> None:
        self.env, self.results, self.observed = env, [], []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.env, name)

    def step(self, choices: np.ndarray) -> StepResult:
        self.observed.append(self.env.observe())
        self.results.append(self.env.step(choices))
        return self.results[-1]


# Continuing


@pytest.mark.parametrize("explore", [True, False])
@pytest.mark.parametrize("name", SETTINGS)
def test_state_continues_bit_exactly(name: str, explore: bool) -> None:
    actor = network(**SETTINGS[name]).float().actor
    sampler, other = new_sampler(window=3), new_sampler(window=3, seed=77)
    sampler.collect(actor, 7, explore=explore)
    other.collect(actor, 4, explore=explore)
    sampler.finished_episodes()
    state = sampler.state()
    other.set_state(state)
    for steps in (4, 5):
        same(other.collect(actor, steps, explore=explore), sampler.collect(actor, steps, explore=explore))
        assert other.finished_episodes() == sampler.finished_episodes() != []
        assert other.recent_means() == sampler.recent_means()
    # the state is a copy: what happened since has not changed it
    third = new_sampler(window=3, seed=78)
    third.set_state(state)
    fourth = new_sampler(window=3, seed=79)
    fourth.set_state(state)
    same(third.collect(actor, 6), fourth.collect(actor, 6))


@pytest.mark.parametrize("name", ["mlp", "lstm-hold"])
def test_state_continues_bit_exactly_in_wildfire(name: str) -> None:
    def start() -> Sampler:
        return new_sampler(make_wildfire(4, setup="3x3/S3"), window=20)

    sampler, other = start(), start()
    actor = network(spec=sampler.env.spec, **SETTINGS[name]).float().actor
    sampler.collect(actor, 60)
    sampler.finished_episodes()
    other.set_state(sampler.state())
    same(other.collect(actor, 60), sampler.collect(actor, 60))
    assert other.finished_episodes() == sampler.finished_episodes() != []


@pytest.mark.parametrize("name", ["mlp", "lstm-update", "lstm-hold"])
def test_one_long_chunk_is_many_short_ones(name: str) -> None:
    actor = network(**SETTINGS[name]).float().actor
    long, short = new_sampler(), new_sampler()
    whole = long.collect(actor, 12)
    parts = [short.collect(actor, steps) for steps in (5, 1, 6)]
    for field in ("choices", "log_probs"):
        equal(np.concatenate([getattr(part, field) for part in parts]), getattr(whole, field))
    for field in ("team_reward", "terminated", "truncated"):
        equal(np.concatenate([getattr(part, field) for part in parts]), getattr(whole, field))
    same(parts[-1].boot, whole.boot)
    assert short.finished_episodes() == long.finished_episodes()


def test_a_chunk_knows_the_one_that_follows() -> None:
    actor = network().float().actor
    sampler = new_sampler()
    first, second = sampler.collect(actor, 8), sampler.collect(actor, 8)
    equal(first.goes_on, second.begins)
    sampler.restart(child_seeds(6, count=COPIES))
    assert (sampler.collect(actor, 8).begins != second.goes_on).all()


def test_restart() -> None:
    actor = network(encoder="lstm").float().actor
    sampler = new_sampler()
    first = sampler.collect(actor, 8)
    sampler.finished_episodes()
    assert sampler.recent_means()
    sampler.restart(child_seeds(5, count=COPIES))
    assert sampler.recent_means() == {}
    same(sampler.collect(actor, 8), first)
    sampler.restart()  # without seeds: the next episodes
    assert not np.array_equal(sampler.collect(actor, 8).team_reward, first.team_reward)


# Books


def test_books_of_episodes() -> None:
    env = Recorder(MotleyEnv(COPIES, stop=0.2))
    sampler = new_sampler(env)
    actor = network().float().actor
    for steps in (11, 3, 17):
        sampler.collect(actor, steps)
    found = sampler.finished_episodes()
    assert sampler.finished_episodes() == []
    expected, running, names = [], [dict.fromkeys(("return", "length", "moves"), 0.0) for _ in range(COPIES)], set()
    for result in env.results:
        names |= set(result.events)
        for b, episode in enumerate(running):
            episode["return"] += result.team_reward[b]
            episode["length"] += 1.0
            for name, counts in result.events.items():
                episode[name] = episode.get(name, 0.0) + float(counts[b])
        for b in result.ended:
            expected.append((int(b), {**dict.fromkeys(names, 0.0), **running[b]}))
            running[b] = dict.fromkeys(("return", "length", "moves"), 0.0)
    assert len(found) == len(expected) > 20
    for (copy, episode), (expected_copy, numbers) in zip(found, expected, strict=True):
        assert copy == expected_copy
        assert episode == pytest.approx(numbers)
    means = sampler.recent_means()
    assert means["return"] == pytest.approx(np.mean([episode["return"] for _, episode in found]))


def test_recent_means_cover_the_last_episodes() -> None:
    sampler = new_sampler(MotleyEnv(COPIES, horizon=2))
    actor = network().float().actor
    lengths: list[float] = []
    returns: list[float] = []
    for _ in range(8):
        sampler.collect(actor, 10)
        for _, episode in sampler.finished_episodes():
            lengths.append(episode["length"])
            returns.append(episode["return"])
    assert len(returns) > EPISODE_WINDOW
    means = sampler.recent_means()
    assert means["return"] == pytest.approx(np.mean(returns[-EPISODE_WINDOW:]))
    assert means["length"] == pytest.approx(np.mean(lengths[-EPISODE_WINDOW:]))


# What a chunk holds


@pytest.mark.parametrize("window", [1, 3, 4, 20])
def test_a_chunk_says_what_happened(window: int) -> None:
    env = Recorder(MotleyEnv(COPIES))
    sampler, actor = new_sampler(env, window), network(encoder="lstm").float().actor
    decisions: list[Decision] = []

    class Spy:
        def act(self, *args: Any, **kwargs: Any) -> Decision:
            decisions.append(actor.act(*args, **kwargs))
            return decisions[-1]

    sampler.collect(actor, 2)
    env.results.clear()
    env.observed.clear()
    chunk: RolloutChunk = sampler.collect(Spy(), 13)
    assert (chunk.num_steps, chunk.num_copies, chunk.window) == (13, COPIES, window)
    equal(chunk.choices, np.concatenate([d.choices for d in decisions]))
    equal(chunk.log_probs, np.concatenate([d.log_probs for d in decisions]))
    for name in ("team_reward", "terminated", "truncated"):
        equal(getattr(chunk, name), np.stack([getattr(result, name) for result in env.results]))
    for t, obs in enumerate(env.observed):
        mine = chunk.obs.select(np.arange(t * COPIES, (t + 1) * COPIES))
        for field in fields(obs):
            if field.name != "carry":
                equal(getattr(mine, field.name), getattr(obs, field.name))
    same(chunk.boot, env.observe())
    stored = [d.memory_in for t, d in enumerate(decisions) if t % window == 0]
    equal(chunk.memory, torch.cat(stored))
    assert torch.cat(stored)[: len(stored[0])].any()  # goes on from the chunk before


def test_final_observations_are_those_of_truncated_episodes() -> None:
    env = Recorder(MotleyEnv(COPIES, stop=0.15))
    sampler = new_sampler(env)
    chunk = sampler.collect(network().float().actor, 40)
    rows = []
    for t, result in enumerate(env.results):
        for i, b in enumerate(result.ended):
            if result.truncated[b] and not result.terminated[b]:
                rows.append((t * COPIES + b, result.final_obs.select(np.array([i]))))
    assert any((result.truncated & result.terminated).any() for result in env.results)
    equal(chunk.final_step, [step for step, _ in rows])
    assert chunk.final.num_copies == len(rows) > 5
    for i, (_, obs) in enumerate(rows):
        mine = chunk.final.select(np.array([i]))
        for field in fields(obs):
            if field.name != "carry":
                equal(getattr(mine, field.name), getattr(obs, field.name))


def test_nothing_to_bootstrap_where_nothing_ended() -> None:
    chunk = new_sampler(MotleyEnv(COPIES, horizon=1000, stop=0.0)).collect(network().float().actor, 5)
    assert chunk.final is None
    assert len(chunk.final_step) == 0
    assert chunk.memory is None
