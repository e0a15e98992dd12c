"""It learns: whom it plays with, what they will do, and what that is worth."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rl_openness.algorithms.gpl.network import GplNetwork
from rl_openness.algorithms.gpl.settings import GPL_VARIANTS, GplSettings
from rl_openness.algorithms.gpl.update import evaluate, gpl_loss, prepare, soft_update
from rl_openness.rllib.sampler import Sampler
from tests.algorithms.gpl.worlds import GuessingEnv

SIZES = {
    "encoder_hidden": 24,
    "recurrent_hidden": 24,
    "type_width": 16,
    "utility_hidden": 24,
    "agent_model_hidden": 16,
    "agent_head_hidden": 12,
    "rank": 3,
}


@pytest.mark.parametrize("variant", ["gpl", "ciao-s"])
def test_the_guessing_game(variant: str) -> None:
    torch.manual_seed(0)
    settings = GplSettings(**{**SIZES, **GPL_VARIANTS[variant], "tau": 0.02})
    env = GuessingEnv(16)
    online, target = (GplNetwork(env.spec, settings) for _ in range(2))
    target.load_state_dict(online.state_dict())
    optimizer = torch.optim.Adam(online.parameters(), lr=5e-3, fused=True)
    sampler, memory = Sampler(env, window=4), None
    updates, parts = 160, {}
    for update in range(updates):
        online.epsilon = max(1.0 - 1.5 * update / updates, 0.1)
        batch, memory = prepare([sampler.collect(online, 4)], target, memory)
        loss, parts = gpl_loss(batch, evaluate(online, batch.passage, batch.actions), settings)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        soft_update(target, online, settings.tau)
    sampler.finished_episodes()
    sampler.collect(online, 40, explore=False)
    episodes = [episode for _, episode in sampler.finished_episodes()]
    earned, best = (np.mean([episode[name] for episode in episodes]) for name in ("return", "best"))
    assert len(episodes) == 16 * 20
    assert earned > 0.95 * best  # by chance: about 0.55
    assert parts["agent_model_accuracy"] > 0.97  # by chance: 0.33
    assert abs(parts["q"] - parts["target"]) < 0.3
