"""What training GPL and CIAO costs on one core, everything included, beside the bare networks.

    python benchmarks/ciao_training.py [--quick]

Ours       `Algorithm.train()` of CIAO-C with its default network in open foraging among the eight hand-written types:
           environment, teammates, acting, target, update, target's update, metrics, weights. One process, one thread.
Floor      the networks alone on tensors that were prepared beforehand (4 x acting, target, online, gradient, Adam,
           soft update), without environment, observations or indices: see `_gpl_floor.py`.

Both sides take turns in one process pinned to one core; medians of CPU seconds. Exploration is as at the end of its
schedule: a random action costs no network, and the first env steps would take nothing else.

Ray's helper processes (control plane, idle workers) are not part of it: RLlib needs them once a training.
The last line is JSON for other programs.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from statistics import median

VARIANT, TARGET, WANTED = "ciao-c", 2_200, 3_000


def pin() -> None:
    """One core and one thread, before torch is imported."""
    os.environ["OMP_NUM_THREADS"] = "1"
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


def build(updates: int):  # type: ignore[no-untyped-def]
    """The algorithm, warmed up."""
    import logging

    import ray

    from rl_openness.algorithms.gpl.config import CIAOConfig

    logging.getLogger("ray").setLevel(logging.ERROR)
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    config = CIAOConfig(variant=VARIANT).environment("foraging", env_config={"teammates": "foraging-no-a2c"})
    config = config.debugging(seed=0, log_level="ERROR").training(updates_per_iteration=updates, epsilon=0.05)
    algorithm = config.build_algo()
    algorithm.train()
    return algorithm


def main(rounds: int, updates: int) -> None:
    """Take turns, print a table."""
    import torch
    from _gpl_floor import COPIES, STEPS, Floor

    torch.set_num_threads(1)
    algorithm, floor = build(updates), Floor(VARIANT)
    env_steps = updates * STEPS * COPIES
    ours, bare = [], []
    for number in range(rounds + 1):
        started = time.process_time()
        algorithm.train()
        middle = time.process_time()
        for _ in range(updates):
            floor.update(lambda name: None)
        if number > 0:  # the first round warms up
            ours.append(middle - started)
            bare.append(time.process_time() - middle)
    algorithm.stop()
    rate, floor_rate = env_steps / median(ours), env_steps / median(bare)
    ratio = median(mine / theirs for mine, theirs in zip(ours, bare, strict=True))
    print(f"{'':<34}{'ms an update':>14}{'env steps per CPU s':>22}")
    print(f"{'ours, everything included':<34}{1e3 * median(ours) / updates:>14.2f}{rate:>22,.0f}")
    print(f"{'bare networks':<34}{1e3 * median(bare) / updates:>14.2f}{floor_rate:>22,.0f}")
    print(f"ours over bare: {ratio:.2f}; wanted are {TARGET:,} env steps per CPU second, better {WANTED:,}")
    print(json.dumps({"env_steps_per_cpu_s": round(rate), "ratio_to_floor": round(ratio, 3)}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    quick = parser.parse_args().quick
    pin()
    main(rounds=3 if quick else 12, updates=64)
