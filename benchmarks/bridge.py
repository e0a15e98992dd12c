"""What it costs to sample from somebody else's environment: through our bridge, and with RLlib's own runner.

    python benchmarks/bridge.py [--quick]

The same environments of others, the same number of copies, both sides in one process on one core, taking turns; medians
of CPU seconds for the same number of env steps. Each side acts as it does in training: stock PPO with its default
network, shared by all agents, and our MAPPO. RLlib's cart poles cost little, so they show what is the runners'; of
PettingZoo's `knights_archers_zombies`, whose agents die, the world itself is most. The last line is JSON for other
programs.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import time
from collections.abc import Callable
from statistics import median
from typing import Any

ALLOWED = 1.1


def pin() -> None:
    """One core and one thread, before torch is imported; no window for games."""
    os.environ |= {"OMP_NUM_THREADS": "1", "SDL_VIDEODRIVER": "dummy"}
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def cart_poles() -> Any:
    """RLlib's own example: four agents with a cart pole each, whose episodes end one by one."""
    from ray.rllib.examples.envs.classes.multi_agent import MultiAgentCartPole

    return MultiAgentCartPole({"num_agents": 4})


def zombies() -> Any:
    """Four agents that may die, rows of numbers as observations."""
    from pettingzoo.butterfly import knights_archers_zombies_v11

    return knights_archers_zombies_v11.parallel_env(obs_method="vector", max_cycles=200)


ENVIRONMENTS: dict[str, Callable[[], Any]] = {"cart_poles": cart_poles, "knights_archers_zombies": zombies}


def stock_runner(make: Callable[[], Any], copies: int) -> Any:
    """RLlib's own multi-agent runner."""
    from ray import tune
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.connectors.env_to_module import FlattenObservations
    from ray.rllib.env.multi_agent_env_runner import MultiAgentEnvRunner
    from ray.rllib.env.wrappers.pettingzoo_env import ParallelPettingZooEnv

    wrapped = make if make is cart_poles else lambda: ParallelPettingZooEnv(make())
    tune.register_env("stock", lambda _: wrapped())
    config = PPOConfig().environment("stock").debugging(seed=0, log_level="ERROR")
    config.multi_agent(policies={"shared"}, policy_mapping_fn=lambda *_, **__: "shared")
    config.env_runners(
        num_envs_per_env_runner=copies,
        num_env_runners=0,
        env_to_module_connector=lambda *_, **__: FlattenObservations(multi_agent=True),
    )
    return MultiAgentEnvRunner(config=config)


def our_runner(name: str, make: Callable[[], Any], copies: int) -> Any:
    """Ours, through the bridge."""
    from rl_openness.algorithms.mappo.config import MAPPOConfig
    from rl_openness.envs.adapters.bridge import bridge
    from rl_openness.envs.registry import register_environment
    from rl_openness.rllib.runner import OpenEnvRunner

    register_environment(name, lambda num_copies: bridge(make, num_copies))
    config = MAPPOConfig().environment(name).debugging(seed=0, log_level="ERROR")
    config.env_runners(num_envs_per_env_runner=copies)
    config.training(train_batch_size_per_learner=25 * copies, minibatch_size=25)
    config.validate()
    return OpenEnvRunner(config=config)


def compare(name: str, copies: int, steps: int, rounds: int) -> tuple[float, float, float]:
    """CPU microseconds of an env step, stock and ours, and the median of the rounds' ratios (ours over stock)."""
    make = ENVIRONMENTS[name]
    runners = stock_runner(make, copies), our_runner(name, make, copies)
    spent: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds + 1):
        for runner, times in zip(runners, spent, strict=True):
            started = time.process_time()
            runner.sample(num_timesteps=steps)
            runner.get_metrics()
            if number > 0:  # the first round warms up
                times.append(1e6 * (time.process_time() - started) / steps)
    stock, ours = spent
    return median(stock), median(ours), median(mine / theirs for mine, theirs in zip(ours, stock, strict=True))


def main(rounds: int, steps: int) -> None:
    """Measure and print a table."""
    import ray
    import torch

    torch.set_num_threads(1)
    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    print(f"{'environment':<26}{'copies':>7}{'stock us/step':>15}{'ours us/step':>14}{'ours/stock':>12}")
    ratios = {}
    for name in ENVIRONMENTS:
        for copies in (1, 8):
            stock, ours, ratio = compare(name, copies, steps, rounds)
            ratios[f"{name}_{copies}"] = round(ratio, 3)
            print(f"{name:<26}{copies:>7}{stock:>15.0f}{ours:>14.0f}{ratio:>12.2f}", flush=True)
    worst = max(ratios.values())
    print(f"worst {worst:.2f}; allowed are {ALLOWED}")
    print(json.dumps({"worst_ratio": worst, "ratios": ratios}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    quick = parser.parse_args().quick
    pin()
    main(rounds=3 if quick else 9, steps=800 if quick else 2400)
