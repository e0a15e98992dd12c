"""`rl-openness train`: from a YAML file to an evaluated policy."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_openness.cli.output import (
    INTERRUPTED,
    MANY_ROWS,
    condensed,
    console,
    follow,
    hint_to_explore,
    interruptible,
    legend,
    summary,
)
from rl_openness.cli.seeds import train_seeds
from rl_openness.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from rl_openness.experiments.schema import ExperimentSettings
    from rl_openness.experiments.train import Outcome


def train(
    config: Annotated[
        Path | None,
        typer.Argument(help="Experiment (YAML). Not needed with --resume or --environment.", show_default=False),
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(help="Environment: a name of `list environments`, or yours, my_package.my_module:make_env."),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(help="See `list algorithms`. Default: as in the file; without one plato for tasks, else mappo."),
    ] = None,
    env_steps: Annotated[int | None, typer.Option(min=1, help="Same as --set run.env_steps=N.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change a key, e.g. settings.lr=1e-3; may be repeated."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Same as --set run.seed=N.")] = None,
    seeds: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Train once per seed, as runs NAME-seedN side by side.")
    ] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Trainings of --seeds at once. Default: the cores.")] = None,
    resume: Annotated[str | None, typer.Option(metavar="RUN", help="Go on with a run, by its name or folder.")] = None,
    run: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the run. Default: as in the file.")] = None,
    runs_folder: Annotated[Path, typer.Option(help="Where the runs' folders lie.")] = Path("runs"),
    all_rows: Annotated[
        bool,
        typer.Option("--all-rows", help="Show every policy of a long evaluation, not just the best of the others."),
    ] = False,
) -> None:
    """Train a policy, evaluate it beside hand-written ones, and leave everything in runs/NAME/.

    Ctrl-C ends the training after the running iteration, with a checkpoint (again: at once, without); `--resume` then
    goes on exactly. A resumed run keeps its configuration, only `--set run.env_steps=N` may lengthen it.
    """
    changes = [*(set_ or []), *([f"run.seed={seed}"] if seed is not None else [])]
    changes += [f"run.env_steps={env_steps}"] if env_steps is not None else []
    if resume is not None:
        others = {"--environment": environment, "--algorithm": algorithm}
        _refuse_with("--resume", {"--seed": seed, "--seeds": seeds, "--run": run, **others})
        from rl_openness.experiments.runs import find_run, is_finished, resumed_settings

        folder = find_run(resume, runs_folder)
        settings = resumed_settings(folder, config, changes)
        if is_finished(folder, settings):
            longer = f"{_go_on(folder)} --set run.env_steps={2 * settings.run.env_steps}"
            raise UserError(f"{folder} is finished ({settings.run.env_steps:,} env steps); to train longer: {longer}")
        _train(settings, folder, resume=True, all_rows=all_rows)
        return
    if config is None and environment is None:
        raise UserError(
            "nothing to train: name a configuration (a YAML file), an --environment, or a run with --resume"
        )
    settings = _settings(config, environment, algorithm, changes, run)
    if seeds is not None:
        _refuse_with("--seeds", {"--seed": seed})
        what = [str(config)] if config is not None else []
        what += ["--environment", environment] if environment is not None else []
        what += ["--algorithm", algorithm] if algorithm is not None else []
        raise typer.Exit(train_seeds(what, changes, settings.name, seeds, jobs, runs_folder))
    _train(settings, runs_folder / settings.name, resume=False, all_rows=all_rows)


def _settings(
    config: Path | None, environment: str | None, algorithm: str | None, changes: list[str], run: str | None
) -> ExperimentSettings:
    """The experiment of a file, or the usual one of an environment, with what the command line changes."""
    from rl_openness.experiments.defaults import default_experiment
    from rl_openness.experiments.yaml_files import changed_options, load_experiment

    given: list[str | tuple[str, Any]] = []
    if config is None and environment is not None:
        prefix = "environment.options."
        options = changed_options([change.removeprefix(prefix) for change in changes if change.startswith(prefix)])
        given += default_experiment(environment, options, algorithm).items()
    elif environment is not None:
        given.append(("environment.name", environment))
    if algorithm is not None:
        given.append(("algorithm", algorithm))
    return load_experiment(config, [*given, *changes, *([("name", run)] if run is not None else [])])


def _refuse_with(option: str, others: dict[str, object]) -> None:
    for name, value in others.items():
        if value is not None:
            raise UserError(f"{option} and {name} do not go together")


def _train(settings: ExperimentSettings, folder: Path, *, resume: bool, all_rows: bool) -> None:
    from rl_openness.experiments.runs import EPISODES, refuse_existing
    from rl_openness.experiments.train import train as run_training

    if not resume:
        refuse_existing(folder)
    screen = console()
    environment, run = settings.environment, settings.run
    where = environment.options.get("setup", environment.name)
    screen.print(f"{folder}: {settings.algorithm} on {where}, seed {run.seed}; return = mean of the last 100 episodes")
    stopped = f"Stopped. What was saved is in {folder}; go on from there with:\n  {_go_on(folder)}"
    with interruptible(stopped), follow(screen) as report:
        outcome = run_training(settings, folder, resume=resume, report=report, say=screen.print)
    if outcome.evaluation is None:
        screen.print(f"Stopped; {outcome.checkpoint} is saved. Go on with:\n  {_go_on(folder)}")
        raise typer.Exit(INTERRUPTED)
    table, left_out = outcome.evaluation, 0
    if len(table) > MANY_ROWS and not all_rows:
        table, left_out = condensed(table, settings.algorithm)
    screen.print(summary(table))
    if left_out:
        screen.print(f"Shown beside {settings.algorithm}: the best of the others in each setup. {left_out} more rows:")
        screen.print(f"  all episodes are in {folder / EPISODES}; train with --all-rows to see every row.")
    screen.print(legend(table))
    for line in [*_undecided(settings, folder, outcome.evaluation), *_what_next(settings, folder, outcome)]:
        screen.print(line)


def _undecided(settings: ExperimentSettings, folder: Path, evaluation: pd.DataFrame) -> list[str]:
    """A hint if the policy earned far more while it sampled, in the world of its training."""
    from rl_openness.experiments.evaluate import better_in_training
    from rl_openness.experiments.worlds import evaluation_options, find_world

    environment = settings.environment
    (options,) = evaluation_options(environment.name, environment.options, None, None)
    home = find_world(environment.name, options).name
    rows = evaluation[(evaluation["policy"] == settings.algorithm) & (evaluation["setup"] == home)]
    hints = []
    for mean, std, episodes in zip(rows["return_mean"], rows["return_std"], rows["episodes"], strict=True):
        sampled = better_in_training(folder, mean, std, int(episodes))
        if sampled is not None:
            hints.append(hint_to_explore(folder, mean, sampled))
    return hints


def _what_next(settings: ExperimentSettings, folder: Path, outcome: Outcome) -> list[str]:
    lines = [f"Results: {folder} (checkpoints/, config.yaml, progress.csv, episodes.parquet, learning_curve.png)"]
    if outcome.tracking_uri is not None and outcome.tracking_uri.startswith("sqlite:"):
        lines.append(f"Browse:  {_command('mlflow')} ui --backend-store-uri {outcome.tracking_uri}")
    elif outcome.tracking_uri is not None:
        lines.append(f"Browse:  {outcome.tracking_uri}")
    return [*lines, f"Go on:   {_go_on(folder)} --set run.env_steps={2 * settings.run.env_steps}"]


def _go_on(folder: Path) -> str:
    return f"{_command('rl-openness')} train --resume {folder}"


def _command(name: str) -> str:
    """A command of this installation as one can type it here."""
    return name if shutil.which(name) else os.path.relpath(Path(sys.executable).with_name(name))
