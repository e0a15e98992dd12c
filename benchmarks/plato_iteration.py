"""What a training iteration of PLATO costs: beside its bare networks, beside RLlib's stock path, and as a whole trial.

    python benchmarks/plato_iteration.py [--quick]

All times are CPU seconds of one process with one torch thread, pinned to one core; compared sides take turns, and
medians are reported. Wildfire 3x3/S3, hidden width 64, 10 epochs, row deduplication off (except where it says so).

Settings   the defaults (64 copies of the environment, batch 1024 and minibatch 256 environment steps) and `large`
           (128, 4096 and 1024). JSON keys without `_default` or `_large`: the floor's are large, the others default.
Ours       `Algorithm.train()` without remote runners and learners: sampling, preparation, updates, metrics, weights.
Floor      forward, loss, backward and fused Adam step on minibatches prepared beforehand from a rollout of the same
           policy, in the same process. Gradient clipping is not part of the floor (a column shows it with clipping).
Stock      RLlib's PPO on the padded `MultiAgentEnv` view: same layers, team-steps per batch and minibatch, and epochs;
           the cheaper of 8 and 32 sub-environments.
Trial      200,000 environment steps at the defaults in a process of its own: imports, start of Ray, build, training.
           Ray's helper processes (control plane, idle workers) are counted beside it.

The last line is JSON for other programs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from statistics import median
from typing import Any

from _plato_sides import SETTINGS, Result, serve, start_ray, trial
from rich.console import Console
from rich.table import Table

TITLES = {name: "{} copies, {}/{}".format(*sizes.values()) for name, sizes in SETTINGS.items()}
SUB_ENVS = (8, 32)
TRIAL_STEPS = 200_000
STEPS = 100_000
"""Costs are given per so many environment steps."""
console = Console(width=150)


class Worker:
    """A process of this file that answers one request at a time."""

    def __init__(self, kind: str, core: int, *arguments: str, ray_address: str = "") -> None:
        self.said: deque[str] = deque(maxlen=40)
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", kind, "--core", str(core), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1", "BENCHMARK_RAY": ray_address},
        )

    def wait(self, word: str) -> Result:
        """The numbers of the next line that starts with `word`."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(word):
                numbers: Result = json.loads(line.removeprefix(word))
                return numbers
            self.said.append(line)
        raise RuntimeError("a measuring process died:\n" + "".join(self.said))

    def ask(self, request: str) -> Result:
        assert self.process.stdin is not None
        print(request, file=self.process.stdin, flush=True)
        return self.wait("ANSWER")

    def end(self) -> None:
        self.process.communicate()


def medians(answers: list[Result]) -> Result:
    return {key: median(answer.get(key, 0.0) for answer in answers) for key in answers[0]}


def per_steps(answer: Result, key: str) -> float:
    """CPU seconds per `STEPS` environment steps."""
    return answer[key] / answer["steps"] * STEPS


def in_turns(rounds: dict[str, int]) -> Iterator[str]:
    """The settings, each as often as told, mixed."""
    for turn in range(max(rounds.values())):
        yield from (name for name, count in rounds.items() if turn < count)


def floor_part(ours: Worker, rounds: dict[str, int]) -> Result:
    """Print the table; the ratio of each setting."""
    answers: dict[str, list[Result]] = {name: [] for name in rounds}
    for name in in_turns(rounds):
        answers[name].append(ours.ask(f"{name} floor"))
    table = Table(title=f"Our iteration over its network floor (CPU s per {STEPS:,} environment steps; medians)")
    columns = ("sampling", "prepare", "update", "rest", "total", "floor", "ratio")
    for heading in ("setting", "rounds", *columns, "ms/minibatch: update", "floor", "floor + clip"):
        table.add_column(heading, justify="right" if heading != "setting" else "left")
    ratios = {}
    for name, rows in answers.items():
        middle = medians(rows)
        ratios[name] = median(row["total"] / row["floor"] for row in rows)
        costs = [f"{per_steps(middle, key):.1f}" for key in columns[:-1]]
        milliseconds = [
            f"{1e3 * middle[key] / middle['minibatches']:.2f}" for key in ("update", "floor", "floor_with_clip")
        ]
        table.add_row(TITLES[name], str(len(rows)), *costs, f"{ratios[name]:.2f}", *milliseconds)
    console.print(table)
    return ratios


def stock_part(workers: dict[str, Worker], rounds: dict[str, int]) -> dict[str, Result]:
    """Print the table; for each setting the best stock path over ours, in total and for sampling alone."""
    answers: dict[str, dict[str, list[Result]]] = {name: {side: [] for side in workers} for name in rounds}
    for name in in_turns(rounds):
        for side, worker in workers.items():
            answers[name][side].append(worker.ask(name))
    table = Table(title=f"RLlib's stock path (CPU s per {STEPS:,} environment steps; medians)")
    for heading in ("setting", "path", "rounds", "sampling", "update", "other", "total", "total/ours", "sampling/ours"):
        table.add_column(heading, justify="right" if heading not in ("setting", "path") else "left")
    best: dict[str, Result] = {}
    for name, by_side in answers.items():
        cost = {
            side: {key: per_steps(medians(rows), key) for key in ("sampling", "update", "total")}
            for side, rows in by_side.items()
        }
        ours = cost.pop("ours")
        best[name] = {key: min(c[key] for c in cost.values()) / ours[key] for key in ("total", "sampling")}
        for side, own in {"ours": ours, **cost}.items():
            is_ours = side == "ours"
            other = own["total"] - own["sampling"] - own["update"]
            table.add_row(
                TITLES[name] if is_ours else "",
                "ours" if is_ours else f"stock, {side} sub-environments",
                str(len(by_side[side])),
                *(f"{number:.1f}" for number in (own["sampling"], own["update"], other, own["total"])),
                *("" if is_ours else f"{own[key] / ours[key]:.1f}" for key in ("total", "sampling")),
            )
    console.print(table)
    return best


def trial_part(core: int, steps: int) -> Result:
    """Print the table; CPU seconds with and without deduplicated rows."""
    table = Table(title=f"A trial of {TRIAL_STEPS:,} steps at the defaults, one process, one core (CPU s)")
    for heading in ("rows", "steps run", "start", "training", "all", "Ray's helper processes", "last return"):
        table.add_column(heading, justify="right" if heading != "rows" else "left")
    totals = {}
    for name in ("plain", "deduplicated"):
        worker = Worker(f"trial-{name}", core, "--steps", str(steps))
        seen = worker.wait("ANSWER")
        worker.end()
        training = (seen["cpu"] - seen["start"]) * TRIAL_STEPS / seen["steps"]
        totals[name] = seen["start"] + training
        numbers = (seen["start"], training, totals[name], seen["helpers"], seen["return"])
        table.add_row(name, f"{seen['steps']:,.0f}", *(f"{number:.1f}" for number in numbers))
    console.print(table)
    if steps < TRIAL_STEPS:
        console.print(f"Training is extrapolated from {steps:,} steps; the start is counted once.")
    return totals


def run(quick: bool, parts: list[str]) -> None:
    core = max(os.sched_getaffinity(0))
    summary: dict[str, Any] = {"quick": quick}
    if {"floor", "stock"} & set(parts):
        start_ray()
        import ray

        address = ray.get_runtime_context().gcs_address
        kinds = ["ours", *(map(str, SUB_ENVS) if "stock" in parts else ())]
        workers = {kind: Worker(kind, core, ray_address=address) for kind in kinds}
        facts = [worker.wait("READY") for worker in workers.values()]  # nothing is timed while another one starts
        if "floor" in parts:
            ratios = floor_part(workers["ours"], {"large": 3, "default": 5} if quick else {"large": 9, "default": 15})
            summary["ratio_to_floor"] = round(ratios["large"], 3)
            summary["ratio_to_floor_default"] = round(ratios["default"], 3)
        if "stock" in parts:
            difference, present = facts[-1]["difference"], facts[-1]["present"]
            assert difference < 1e-4, difference
            console.print(
                f"Padded and packed network agree to {difference:.0e}. Present are {present:.2f} of 3 agents, so the "
                f"stock path's minibatches have {present:.2f} times as many (agent-)steps."
            )
            best = stock_part(workers, {"large": 1, "default": 2} if quick else {"large": 3, "default": 6})
            for name, suffix in (("default", ""), ("large", "_large")):
                summary[f"stock_over_ours{suffix}"] = round(best[name]["total"], 2)
                summary[f"stock_over_ours_sampling{suffix}"] = round(best[name]["sampling"], 2)
        for worker in workers.values():
            worker.end()
        ray.shutdown()
    if "trial" in parts:
        totals = trial_part(core, 20_000 if quick else TRIAL_STEPS)
        summary["trial_cpu_s"] = round(totals["plain"], 1)
        summary["trial_cpu_s_deduplicated"] = round(totals["deduplicated"], 1)
    print(json.dumps(summary))


def main() -> None:
    parser = argparse.ArgumentParser(description="What a training iteration of PLATO costs.")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and 20,000 steps of the trial")
    parser.add_argument("--parts", default="floor,stock,trial", help="which parts to run (default: all)")
    for hidden, kind in (("worker", str), ("core", int), ("steps", int)):
        parser.add_argument(f"--{hidden}", type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.worker:
        run(options.quick, options.parts.split(","))
    elif options.worker.startswith("trial"):
        trial(options.core, options.steps, options.worker == "trial-deduplicated")
    else:
        serve(options.worker, options.core)


if __name__ == "__main__":
    main()
