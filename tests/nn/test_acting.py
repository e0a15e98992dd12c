"""Memory that follows a member, and noise that depends on episode, agent and option only."""

import numpy as np
import pytest
import torch
from hypothesis import example, given

from rl_openness.nn.acting import carried, option_noise
from tests.nn.builders import BUSY, MEMORIES, SEEDS, SIZES, draws, equal, network, random_obs, several


def test_carried() -> None:
    memory = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    equal(carried(memory, torch.tensor([1, -1, 0]), 2, memory), [[3.0, 4.0], [0.0, 0.0], [1.0, 2.0]])
    equal(carried(None, torch.tensor([-1, -1]), 2, memory), np.zeros((2, 2)))
    equal(carried(memory[:0], torch.tensor([-1]), 2, memory), np.zeros((1, 2)))
    assert carried(memory, torch.empty(0, dtype=torch.long), 2, memory).shape == (0, 2)


@several
@example(seed=1, sizes=BUSY)
@given(seed=SEEDS, sizes=SIZES)
def test_noise_of_options(seed: int, sizes: list[tuple[int, int]]) -> None:
    obs = random_obs(np.random.default_rng(seed), sizes)
    drawn = draws(obs, seed)
    member = np.flatnonzero(np.diff(obs.pair_ptr))
    counts = np.diff(obs.pair_ptr)[member]
    pairs, noop = option_noise(drawn, obs, member, np.concatenate([[0], np.cumsum(counts)]))
    row = 0
    for d, m in enumerate(member):
        copy, agent = obs.agent_copy[[m]], obs.agent_id[[m]]
        equal(noop[d], drawn.gumbel(copy, agent, np.array([0]))[0])
        for k in range(counts[d]):
            equal(pairs[row], drawn.gumbel(copy, agent, np.array([k + 1]))[0])
            row += 1
    assert row == len(pairs)
    everything = np.concatenate([pairs, noop])
    assert len(np.unique(everything)) == len(everything)
    assert np.isfinite(everything).all()


@pytest.mark.parametrize("name", MEMORIES)
def test_a_decision_has_memory_before_and_after(name: str) -> None:
    net = network(**MEMORIES[name])
    obs = random_obs(np.random.default_rng(0), [(3, 2), (2, 0)])
    decision = net.actor.act(obs, draws(obs), explore=True)
    equal(decision.memory_in, np.zeros((5, 16)))
    assert decision.memory.shape == (5, 16)
    assert network().actor.act(obs, draws(obs), explore=True).memory is None


def test_without_draws_decisions_differ() -> None:
    net = network()
    obs = random_obs(np.random.default_rng(0), [(6, 6)] * 6, present=1.0, pairs=1.0)
    choices = {tuple(net.actor.act(obs, None, explore=True).choices) for _ in range(5)}
    assert len(choices) > 1
    assert len({tuple(net.actor.act(obs, None, explore=False).choices) for _ in range(3)}) == 1
