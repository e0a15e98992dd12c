"""The measuring processes of `plato_iteration.py`: an iteration, the network floor, the stock path, a whole trial.

Every process imports no more than it measures, so imports are inside functions.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

SETUP = "3x3/S3"
LARGE = {"num_envs_per_env_runner": 128, "train_batch_size_per_learner": 4096, "minibatch_size": 1024}
DEFAULT = {"num_envs_per_env_runner": 64, "train_batch_size_per_learner": 1024, "minibatch_size": 256}
SETTINGS = {"large": LARGE, "default": DEFAULT}
Result = dict[str, float]


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
