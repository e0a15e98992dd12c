"""One experiment from its settings to an evaluated policy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from rl_openness.algorithms.registry import find_method
from rl_openness.errors import RunFailedError, UserError
from rl_openness.experiments.evaluate import evaluate_run
from rl_openness.experiments.keys import flat
from rl_openness.experiments.process import local_ray, stop_on_signal, use_one_thread
from rl_openness.experiments.progress import ProgressTable, Row, progress_row
from rl_openness.experiments.runs import (
    CONFIG,
    checkpoint_folder,
    checkpoint_steps,
    create_run,
    only_trainer,
    remove_old_checkpoints,
    save_config,
)
from rl_openness.experiments.schema import ExperimentSettings
from rl_openness.experiments.tracking import RunTracker
from rl_openness.policies.card import PolicyCard, read_card

LOST_ITERATIONS = 3
"""So many iterations without a finite loss end a training."""


@dataclass(frozen=True)
class Progress:
    """How far a training is."""

    iteration: int
    env_steps: int
    total_env_steps: int
    env_steps_per_second: float | None
    """Mean since the first iteration, which also compiles; None after that one alone."""
    episode_return: float | None
    """Mean of the last 100 finished episodes; None before the first one."""

    @property
    def seconds_left(self) -> float | None:
        """At the present speed; None where that is unknown."""
        if self.env_steps_per_second is None:
            return None
        return max(self.total_env_steps - self.env_steps, 0) / self.env_steps_per_second


@dataclass(frozen=True)
class Outcome:
    """What `train` leaves behind, apart from the run's folder."""

    checkpoint: Path
    """The last checkpoint."""
    evaluation: pd.DataFrame | None
    """A row per setup and policy, see `evaluate.summary_table`; None if a signal stopped it before `run.env_steps`."""
    tracking_uri: str | None
    """MLflow's store; None if nothing was recorded."""


def train(
    settings: ExperimentSettings,
    run_folder: Path,
    *,
    resume: bool = False,
    report: Callable[[Progress], None] = lambda progress: None,
    say: Callable[[str], None] = lambda text: None,
) -> Outcome:
    """Train, then evaluate; everything lands in `run_folder` (see README).

    `report` is called after every iteration, `say` with a line of text before anything that takes time. With `resume`
    the run goes on from its newest checkpoint exactly as if it had never stopped, or from the start if it has none.
    Ctrl-C or SIGTERM ends it after the running iteration, with a checkpoint. Raises UserError if the folder exists
    (without `resume`).
    """
    if not resume:
        create_run(run_folder, settings)
    with only_trainer(run_folder):
        if resume:
            check_resumable(run_folder, settings)
        tracker = RunTracker(settings, run_folder)
        try:
            outcome = _train_and_evaluate(settings, run_folder, tracker, report, say)
        except BaseException:
            tracker.end("FAILED")
            raise
        tracker.end("KILLED" if outcome.evaluation is None else "FINISHED")
        return outcome


def _train_and_evaluate(
    settings: ExperimentSettings,
    run_folder: Path,
    tracker: RunTracker,
    report: Callable[[Progress], None],
    say: Callable[[str], None],
) -> Outcome:
    use_one_thread()
    say("starting Ray; the first iteration also compiles the environment if this machine has never run it")
    with local_ray(settings.run.num_env_runners + settings.run.num_learners):
        training = _Training(settings, run_folder, tracker)
        try:
            interrupted = training.run(report)
        finally:
            training.algorithm.stop()
    checkpoint = checkpoint_folder(run_folder, training.env_steps)
    if interrupted:
        return Outcome(checkpoint, None, tracker.uri)
    say(f"evaluating: {settings.evaluation.episodes} episodes for each policy and setup")
    evaluation = evaluate_run(settings, run_folder, checkpoint)
    tracker.log_results(evaluation)
    return Outcome(checkpoint, evaluation, tracker.uri)


def check_resumable(folder: Path, settings: ExperimentSettings) -> None:
    """Raises UserError if the newest checkpoint is of another configuration (somebody edited `config.yaml`)."""
    steps = checkpoint_steps(folder)
    if not steps:
        return
    card = read_card(checkpoint_folder(folder, steps[-1]))
    mine = {
        "environment": settings.environment.name,
        "options": settings.environment.options,
        "seed": settings.run.seed,
    }
    saved = {"environment": card.environment, "options": dict(card.env_config), "seed": card.seed}
    before, now = flat({**saved, "settings": card.settings}), flat({**mine, "settings": settings.settings})
    for key in [*before, *now]:
        if before.get(key) != now.get(key):
            raise UserError(
                f"{folder / CONFIG}: {key} is {now.get(key)!r}, but the run was trained with {before.get(key)!r}: a "
                "resumed run keeps its configuration; for anything else begin another run (--run NAME)"
            )


def build_algorithm(settings: ExperimentSettings) -> Any:
    """The RLlib algorithm of an experiment. Needs a running Ray."""
    run = settings.run
    config = (
        find_method(settings.algorithm)
        .new_config()
        .environment(settings.environment.name, env_config=settings.environment.options)
        .debugging(seed=run.seed, log_level="ERROR")
        .env_runners(num_env_runners=run.num_env_runners)
        .learners(num_learners=run.num_learners)
        .training(**settings.settings)
    )
    return config.build_algo()


class _Training:
    """The loop over iterations, from the newest checkpoint on if there is one."""

    def __init__(self, settings: ExperimentSettings, folder: Path, tracker: RunTracker) -> None:
        self.settings, self.folder, self.tracker = settings, folder, tracker
        self.table = ProgressTable(folder)
        self.algorithm = build_algorithm(settings)
        self.env_steps, self.saved_at, self._lost = 0, -1, 0
        saved = checkpoint_steps(folder)
        if saved:
            from rl_openness.rllib.checkpoint import restore_checkpoint

            self.env_steps = self.saved_at = saved[-1]
            restore_checkpoint(self.algorithm, checkpoint_folder(folder, self.env_steps))
            save_config(folder, settings)  # not before: what cannot be continued stays as it is
        before = self.table.cut_after(self.env_steps) or {}
        self.seconds, self.cpu_seconds = before.get("seconds") or 0.0, before.get("cpu_seconds") or 0.0

    def run(self, report: Callable[[Progress], None]) -> bool:
        """Train to the end or until told to stop (returns True then); the last state is always saved."""
        run = self.settings.run
        start: float | None = None
        first = self.env_steps
        with stop_on_signal() as stop:
            while self.env_steps < run.env_steps and not stop.requested:
                before = self.env_steps
                row = self._iterate()
                if row is None:
                    continue
                if self.env_steps // run.checkpoint_every > before // run.checkpoint_every:
                    self._save()
                speed = None if start is None else (self.env_steps - first) / (time.perf_counter() - start)
                if start is None:
                    start, first = time.perf_counter(), self.env_steps
                returns = row["episode_return_mean"]
                report(Progress(self.algorithm.iteration, self.env_steps, run.env_steps, speed, returns))
            if self.env_steps != self.saved_at:
                self._save()
        return self.env_steps < run.env_steps

    def _iterate(self) -> Row | None:
        """One iteration, recorded; None if nothing was learnt because RLlib is restarting all runners."""
        wall, cpu = time.perf_counter(), time.process_time()
        result = self.algorithm.train()
        duration = time.perf_counter() - wall
        if not result.get("learners"):
            return None
        self.seconds += duration
        self.cpu_seconds += time.process_time() - cpu
        row = progress_row(result, seconds=self.seconds, cpu_seconds=self.cpu_seconds, duration=duration)
        self._check_losses(row)
        self.env_steps = int(row["env_steps"] or 0)
        self.table.append(row)
        self.tracker.log_iteration(row)
        return row

    def _check_losses(self, row: Row) -> None:
        """A training whose losses are no numbers any more learns nothing: stop it and say so."""
        self._lost = self._lost + 1 if row.get("total_loss") is None else 0
        if self._lost >= LOST_ITERATIONS:
            raise RunFailedError(
                f"the losses of the last {self._lost} iterations are not finite, so nothing is learnt; begin another "
                "run with a smaller settings.lr, or look at the environment's rewards and observations"
            )

    def _save(self) -> None:
        from rl_openness.rllib.checkpoint import save_checkpoint

        settings = self.settings
        card = PolicyCard(
            method=find_method(settings.algorithm).policy_method,
            settings=settings.settings,
            env_spec=self.algorithm.config.env_spec(),
            environment=settings.environment.name,
            env_config=settings.environment.options,
            env_steps=self.env_steps,
            seed=settings.run.seed,
        )
        save_checkpoint(self.algorithm, checkpoint_folder(self.folder, self.env_steps), card)
        self.saved_at = self.env_steps
        remove_old_checkpoints(self.folder, settings.run.checkpoints_kept)
