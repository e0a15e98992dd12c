"""Environments of others, as they are: what the checker says of them, and how they come through the bridge."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from rl_openness.envs.adapters.bridge import bridge
from rl_openness.envs.adapters.options import BridgeOptions
from rl_openness.envs.base import NO_OP
from rl_openness.envs.conformance import check_foreign


def knights() -> Any:
    from pettingzoo.butterfly import knights_archers_zombies_v11

    return knights_archers_zombies_v11.parallel_env(obs_method="vector", max_cycles=200)


def battle() -> Any:
    from magent2.environments import battle_v4

    return battle_v4.parallel_env(map_size=12, max_cycles=60)


def cart_poles() -> Any:
    from ray.rllib.examples.envs.classes.multi_agent import MultiAgentCartPole

    return MultiAgentCartPole({"num_agents": 3})


@pytest.fixture(autouse=True)
def _no_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


@pytest.mark.parametrize(
    ("make", "convention", "faults"),
    [
        (knights, "parallel", {"episode-leaks"}),  # the same seed on a used environment: another episode
        (battle, "parallel", set()),
        (cart_poles, "rllib", set()),
    ],
)
def test_what_the_checker_says(make: Callable[[], Any], convention: str, faults: set[str]) -> None:
    report = check_foreign(make, BridgeOptions(), episodes=4, steps=200)
    assert report.convention == convention
    assert {each.kind for each in report.faults} == faults
    assert report.steps > 50


@pytest.mark.parametrize("make", [knights, battle, cart_poles])
def test_episodes_come_through_the_bridge(make: Callable[[], Any]) -> None:
    env = bridge(make, 2, max_steps=120)
    env.reset(np.arange(2))
    rng, ended, left = np.random.default_rng(0), 0, 0
    for _ in range(260):
        obs = env.observe()
        assert obs.present.all()  # nobody here goes away and comes back
        result = env.step(np.where(obs.present, rng.integers(0, env.spec.num_actions, len(obs.present)), NO_OP))
        own = np.bincount(obs.agent_copy, result.agent_reward, minlength=2)
        np.testing.assert_allclose(own, result.team_reward)
        ended += len(result.ended)
        left += int(result.events["leaves"].sum())
    assert ended >= 2
    assert left > 0 or make is not cart_poles
