"""Speed of the Wildfire environment on one core, beside the reference's.

    python benchmarks/wildfire_env.py [--quick]

Timed is what a learner pays for: a step with the environment's own draws, the automatic reset and the complete packed
observation. Random legal choices are made outside the timer. The last line is JSON for other programs.
"""

import argparse
import json
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from rl_openness.envs.wildfire import make_wildfire
from rl_openness.policies.generic import Random

SETUP = "3x3/S3"
# Reference (free-range-zoo 0.1.25): `step` alone, unbuffered to buffered draws, by number of parallel environments.
REFERENCE = {1: "127", 16: "1,450", 256: "8,700-15,400", 1024: "10,250-22,600", 4096: ""}


def env_steps_per_second(copies: int, seconds: float) -> tuple[float, int]:
    """Environment steps per second of CPU time, and the number of steps of the batch that were timed."""
    env, rule = make_wildfire(copies, setup=SETUP), Random()
    obs = env.observe()
    env.step(rule.act(obs, env.draws()))
    obs = env.observe()
    spent, steps = 0.0, 0
    while spent < seconds:
        choices = rule.act(obs, env.draws())
        started = time.process_time()
        env.step(choices)
        obs = env.observe()
        spent += time.process_time() - started
        steps += 1
    return copies * steps / spent, steps


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the Wildfire environment on one core.")
    parser.add_argument("--quick", action="store_true", help="0.3 instead of 3 CPU-seconds for each batch size")
    seconds = 0.3 if parser.parse_args().quick else 3.0
    table = Table(title=f"Wildfire {SETUP}: environment steps per second of CPU time, one core")
    for heading in ("copies", "rl-openness", "reference", "batch steps timed"):
        table.add_column(heading, justify="right")
    by_batch: dict[str, int] = {}
    for copies, reference in REFERENCE.items():
        rate, steps = env_steps_per_second(copies, seconds)
        by_batch[str(copies)] = round(rate)
        table.add_row(f"{copies:,}", f"{rate:,.0f}", reference, f"{steps:,}")
    Console().print(table)
    result: dict[str, Any] = {"best_env_steps_per_cpu_s": max(by_batch.values()), "by_batch": by_batch}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
