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
import time
from collections import deque
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

SETUP = "3x3/S3"
LARGE = {"num_envs_per_env_runner": 128, "train_batch_size_per_learner": 4096, "minibatch_size": 1024}
DEFAULT = {"num_envs_per_env_runner": 64, "train_batch_size_per_learner": 1024, "minibatch_size": 256}
SETTINGS = {"large": LARGE, "default": DEFAULT}
TITLES = {name: "{} copies, {}/{}".format(*sizes.values()) for name, sizes in SETTINGS.items()}
SUB_ENVS = (8, 32)
TRIAL_STEPS = 200_000
STEPS = 100_000
"""Costs are given per so many environment steps."""
console = Console(width=150)
Result = dict[str, float]


# What runs in worker processes -----------------------------------------------------------------------------------


class Stopwatch:
    """Sums the CPU time spent inside wrapped functions, by name."""

    def __init__(self) -> None:
        self.spent: Result = {}

    def wrap(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.process_time()
            try:
                return function(*args, **kwargs)
            finally:
                self.spent[name] = self.spent.get(name, 0.0) + time.process_time() - started

        return timed

    def take(self) -> Result:
        spent, self.spent = self.spent, {}
        return spent


def start_ray() -> None:
    import ray

    address = os.environ.get("BENCHMARK_RAY")
    where = {"address": address} if address else {"num_cpus": 2, "include_dashboard": False}
    ray.init(**where, log_to_driver=False, logging_level="ERROR")


def pin(core: int) -> None:
    import torch

    torch.set_num_threads(1)
    os.sched_setaffinity(0, {core})


def our_algorithm(name: str, **changes: Any) -> Any:
    from rl_openness.algorithms.mappo.config import PLATOConfig

    options = {**SETTINGS[name], "num_epochs": 10, "hidden": 64, "deduplicate": False, **changes}
    config = PLATOConfig().environment("wildfire", env_config={"setup": SETUP})
    return (
        config.env_runners(num_envs_per_env_runner=options.pop("num_envs_per_env_runner"))
        .training(**options)
        .debugging(seed=0)
        .build_algo()
    )


def train_once(algorithm: Any, watch: Stopwatch) -> Result:
    """One iteration: total CPU seconds, its parts, steps, and minibatches."""
    watch.take()
    started = time.process_time()
    result = algorithm.train()
    total = time.process_time() - started
    return {"total": total, **watch.take(), "steps": float(result["env_runners"]["num_env_steps_sampled"])}


class Ours:
    """Our algorithm, with a stopwatch at its seams."""

    def __init__(self, name: str) -> None:
        import rl_openness.algorithms.mappo.learner as learner_module

        self.algorithm, self.watch = our_algorithm(name), Stopwatch()
        self.learner = self.algorithm.learner_group._learner
        runner = self.algorithm.env_runner
        runner.sample = self.watch.wrap("sampling", runner.sample)
        self.algorithm.learner_group.update = self.watch.wrap("learner", self.algorithm.learner_group.update)
        self._plain, self._module = learner_module.prepare_rollout, learner_module

    def train(self) -> Result:
        self._module.prepare_rollout = self.watch.wrap("prepare", self._plain)
        try:
            parts = train_once(self.algorithm, self.watch)
        finally:
            self._module.prepare_rollout = self._plain
        parts["update"] = parts.pop("learner") - parts["prepare"]
        parts["rest"] = parts["total"] - parts["sampling"] - parts["prepare"] - parts["update"]
        return parts


class Floor:
    """The bare networks of an algorithm on prepared minibatches."""

    def __init__(self, ours: Ours) -> None:
        import copy

        import torch

        from rl_openness.envs.draws import child_seeds
        from rl_openness.envs.registry import make_environment
        from rl_openness.rllib.sampler import Sampler

        self.ours, self.settings = ours, ours.algorithm.config.settings()
        self.network = copy.deepcopy(ours.learner.core.network)
        self.optimizer = torch.optim.Adam(
            self.network.parameters(), lr=self.settings.lr, eps=self.settings.adam_epsilon, fused=True
        )
        copies = self.settings.num_envs_per_env_runner
        self.sampler = Sampler(make_environment("wildfire", copies, {"setup": SETUP}), window=1)
        self.sampler.restart(child_seeds(1, count=copies))

    def prepare(self) -> list[Any]:
        """Minibatches of one iteration, from a rollout of the algorithm's present policy."""
        import numpy as np

        from rl_openness.algorithms.mappo.update import minibatches, prepare_rollout

        self.network.load_state_dict(self.ours.learner.core.network.state_dict())
        steps = self.settings.train_batch_size_per_learner // self.settings.num_envs_per_env_runner
        chunk = self.sampler.collect(self.network.actor, steps)
        rollout = prepare_rollout([chunk], self.network, self.settings)
        return list(minibatches(rollout, self.settings, np.random.default_rng(0)))

    def run(self, batches: list[Any], *, clip: bool) -> float:
        """CPU seconds."""
        import torch

        from rl_openness.algorithms.mappo.update import evaluate, mappo_loss

        network, settings, optimizer = self.network, self.settings, self.optimizer
        started = time.process_time()
        for batch in batches:
            loss, _ = mappo_loss(network, batch, evaluate(network, batch), settings)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            if clip:
                for half in (network.actor, network.critic):
                    torch.nn.utils.clip_grad_norm_(half.parameters(), settings.grad_clip)
            optimizer.step()
        return time.process_time() - started


class Stock:
    """RLlib's PPO, with a stopwatch at its seams."""

    def __init__(self, name: str, sub_envs: int) -> None:
        from _stock_ppo import stock_config

        from rl_openness.algorithms.mappo.settings import PlatoSettings

        settings = PlatoSettings(**SETTINGS[name])
        self.algorithm, self.watch = stock_config(SETUP, settings, sub_envs).build_algo(), Stopwatch()
        runner, learner = self.algorithm.env_runner, self.algorithm.learner_group._learner
        runner.sample = self.watch.wrap("sampling", runner.sample)
        learner._update = self.watch.wrap("update", learner._update)

    def train(self) -> Result:
        parts = train_once(self.algorithm, self.watch)
        parts["rest"] = parts["total"] - parts["sampling"] - parts["update"]
        return parts


def serve(kind: str, core: int) -> None:
    """Answer every line on stdin, "<setting>" or "<setting> floor", with the numbers of one iteration, as JSON."""
    start_ray()
    sides = {name: Ours(name) if kind == "ours" else Stock(name, int(kind)) for name in SETTINGS}
    floors = {name: Floor(side) for name, side in sides.items() if isinstance(side, Ours)}
    facts = equality() if kind != "ours" else {}
    pin(core)
    for side in sides.values():
        side.train()
    for floor in floors.values():
        floor.run(floor.prepare(), clip=True)
    print("READY " + json.dumps(facts), flush=True)
    for turn, line in enumerate(sys.stdin):
        name, *extra = line.split()
        answer = sides[name].train()
        if extra:
            batches = floors[name].prepare()
            answer["minibatches"] = float(len(batches))
            for clip in (False, True) if turn % 2 else (True, False):
                answer["floor_with_clip" if clip else "floor"] = floors[name].run(batches, clip=clip)
        print("ANSWER " + json.dumps(answer), flush=True)
    os._exit(0)  # RLlib would take seconds to put things away


def equality() -> Result:
    """How far the padded network is from the packed one, and how many agents are there on average."""
    from _stock_ppo import difference, mean_present

    from rl_openness.algorithms.mappo.settings import PlatoSettings

    return {"difference": difference(SETUP, PlatoSettings()), "present": mean_present(SETUP)}


def trial(core: int, steps: int, deduplicate: bool) -> None:
    """One training from nothing; prints the CPU seconds of this process since it began, and until it was built."""
    import psutil

    start_ray()
    algorithm = our_algorithm("default", deduplicate=deduplicate)
    pin(core)
    built, done = time.process_time(), 0
    result: dict[str, Any] = {}
    while done < steps:
        result = algorithm.train()
        done = int(result["env_runners"]["num_env_steps_sampled_lifetime"])
    cpu = time.process_time()
    helpers = sum(sum(child.cpu_times()[:2]) for child in psutil.Process().children(recursive=True))
    answer = {"cpu": cpu, "start": built, "steps": done, "helpers": helpers}
    answer["return"] = float(result["env_runners"]["episode_return_mean"])
    print("ANSWER " + json.dumps(answer), flush=True)
    algorithm.stop()


# What drives them ------------------------------------------------------------------------------------------------


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
