"""The training loop without Ray, and its parts: settings, chunks of a motley world, minibatches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from rl_openness.algorithms.mappo.networks.plato import PlatoNetwork
from rl_openness.algorithms.mappo.settings import PlatoSettings
from rl_openness.algorithms.mappo.update import Minibatch, Rollout, evaluate, mappo_loss, minibatches, prepare_rollout
from rl_openness.envs.base import OpenVectorEnv
from rl_openness.envs.draws import child_seeds
from rl_openness.rllib.chunk import RolloutChunk
from rl_openness.rllib.sampler import Sampler
from tests.algorithms.worlds import MotleyEnv
from tests.nn.builders import ALL, HIDDEN

COPIES = 5  # of the motley world, unless told otherwise


def train(env: OpenVectorEnv, settings: PlatoSettings, updates: int, *, seed: int = 0) -> PlatoNetwork:
    torch.manual_seed(seed)
    network, rng = PlatoNetwork(env.spec, settings), np.random.default_rng(seed)
    sampler = Sampler(env, window=settings.max_seq_len)
    sampler.restart(child_seeds(seed, 0, count=env.num_copies))
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.lr, eps=settings.adam_epsilon)
    for _ in range(updates):
        chunk = sampler.collect(network.actor, settings.train_batch_size_per_learner // env.num_copies)
        for batch in minibatches(prepare_rollout([chunk], network, settings), settings, rng):
            loss, _ = mappo_loss(network, batch, evaluate(network, batch), settings)
            optimizer.zero_grad()
            loss.backward()
            for part in (network.actor, network.critic):
                torch.nn.utils.clip_grad_norm_(part.parameters(), settings.grad_clip or float("inf"))
            optimizer.step()
    return network


def mean_return(env: OpenVectorEnv, network: PlatoNetwork, steps: int, *, explore: bool = False) -> float:
    """Mean return of the episodes that end within `steps` steps of new seeds."""
    sampler = Sampler(env, window=1)
    sampler.restart(child_seeds(99, 1, count=env.num_copies))
    sampler.collect(network.actor, steps, explore=explore)
    return float(np.mean([episode["return"] for _, episode in sampler.finished_episodes()]))


def settings_of(name: str, **more: Any) -> PlatoSettings:
    return PlatoSettings(**{"hidden": HIDDEN, "gamma": 0.9, "lambda_": 0.8, "num_epochs": 1, **ALL[name], **more})


def collect(
    net: PlatoNetwork, steps: Sequence[int], *, window: int = 20, copies: int = COPIES, **env: Any
) -> list[RolloutChunk]:
    """Consecutive chunks of one sampler."""
    sampler = Sampler(MotleyEnv(copies, **env), window=window)
    sampler.restart(child_seeds(7, count=copies))
    return [sampler.collect(net.actor, count) for count in steps]


def all_minibatches(
    net: PlatoNetwork, chunks: list[RolloutChunk], settings: PlatoSettings, dtype: torch.dtype = torch.float64
) -> Iterator[tuple[Rollout, Minibatch]]:
    rollout = prepare_rollout(chunks, net, settings, dtype)
    for batch in minibatches(rollout, settings, np.random.default_rng(1)):
        yield rollout, batch
