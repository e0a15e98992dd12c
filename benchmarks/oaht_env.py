"""Speed of the ad hoc teamwork environments on one core: open foraging and open Wolfpack.

    python benchmarks/oaht_env.py [--quick] [--only foraging] [--prey dqn]

Timed is what a learner pays for: a step in which teammates decide (H1 to H8, or the seven heuristics of Wolfpack's
paper), the automatic reset and the complete packed observation. Random actions of the learner are made outside the
timer. The last line is JSON for other programs; its rates are those with 256 copies and the training's team size.
"""

import argparse
import json
import time

import numpy as np
from rich.console import Console
from rich.table import Table

from rl_openness.envs.base import NO_OP
from rl_openness.envs.registry import make_environment

COPIES, TEAM_SIZE = 256, 3
TARGETS = {"foraging": 300_000, "wolfpack": 100_000}
"""Environment steps per CPU-second wanted with 256 copies."""
CASES = [(1, 3), (16, 3), (256, 3), (1024, 3), (256, 5), (256, 9)]
"""(copies, greatest number of agents)"""


def env_steps_per_second(name: str, copies: int, team_size: int, seconds: float, **options: str) -> tuple[float, float]:
    """Environment steps per second of CPU time, and the mean number of agents."""
    env = make_environment(name, copies, {"team_size": team_size, "slots": max(5, team_size), **options})
    num_actions = env.spec.num_actions
    assert num_actions is not None
    rng = np.random.default_rng(0)
    spent, steps, members = 0.0, 0, 0
    for _ in range(60):  # kernels are compiled, and episodes end at different times
        env.step(np.where(env.observe().controlled, rng.integers(num_actions, size=len(env.observe().present)), NO_OP))
    while spent < seconds:
        obs = env.observe()
        choices = np.where(obs.controlled, rng.integers(num_actions, size=len(obs.present)), NO_OP)
        started = time.process_time()
        env.step(choices)
        env.observe()
        spent += time.process_time() - started
        steps += 1
        members += len(choices)
    return copies * steps / spent, members / (copies * steps)


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the ad hoc teamwork environments on one core.")
    parser.add_argument("--quick", action="store_true", help="0.3 instead of 2 CPU-seconds for each row")
    parser.add_argument("--only", choices=list(TARGETS), help="one environment instead of both")
    parser.add_argument("--prey", help="who moves Wolfpack's prey instead of the default, e.g. dqn")
    arguments = parser.parse_args()
    seconds = 0.3 if arguments.quick else 2.0
    table = Table(title="Environment steps per second of CPU time, one core, with teammates")
    for heading in ("environment", "copies", "agents at most", "mean agents", "rl-openness", "target"):
        table.add_column(heading, justify="right")
    result: dict[str, int] = {}
    for name in [arguments.only] if arguments.only else TARGETS:
        for copies, team_size in CASES:
            options = {"prey": arguments.prey} if arguments.prey and name == "wolfpack" else {}
            rate, agents = env_steps_per_second(name, copies, team_size, seconds, **options)
            wanted = (copies, team_size) == (COPIES, TEAM_SIZE)
            target = f"{TARGETS[name]:,}" if wanted and TARGETS[name] else ""
            table.add_row(name, f"{copies:,}", str(team_size), f"{agents:.1f}", f"{rate:,.0f}", target)
            if wanted:
                result[f"{name}_env_steps_per_cpu_s"] = round(rate)
    Console().print(table)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
