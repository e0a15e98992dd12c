"""A run's folder: its configuration, its checkpoints, and how a run is found again."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from rl_openness.errors import UserError, nearest
from rl_openness.experiments.keys import flat
from rl_openness.experiments.schema import ExperimentSettings
from rl_openness.experiments.yaml_files import dump_experiment, load_experiment
from rl_openness.files import WORK_FOLDER, only_process, write_atomically

CONFIG = "config.yaml"
CHECKPOINTS = "checkpoints"
LOCK = ".lock"
EPISODES = "episodes.parquet"


def create_run(folder: Path, settings: ExperimentSettings) -> None:
    """Make the folder and write the configuration, every default spelt out. Raises UserError if it exists."""
    refuse_existing(folder)
    folder.mkdir(parents=True)
    save_config(folder, settings)


def only_trainer(folder: Path) -> AbstractContextManager[None]:
    """Nobody else may train the run while this is held. Raises UserError, with the process, if somebody does."""
    return only_process(folder / LOCK)


def refuse_existing(folder: Path) -> None:
    """Raises UserError if there is a run of that name."""
    if folder.exists():
        resume = f"rl-openness train --resume {folder}"
        raise UserError(f"run {str(folder)!r} exists: go on with it by `{resume}`, or name another one by --run NAME")


def save_config(folder: Path, settings: ExperimentSettings) -> None:
    """Write `config.yaml`."""
    text = "# The run's configuration with every default spelt out; `train --resume` reads it.\n"
    write_atomically(folder / CONFIG, text + dump_experiment(settings))


def resumed_settings(folder: Path, config: Path | None, changes: Sequence[str] = ()) -> ExperimentSettings:
    """What a run goes on with: its own configuration (or `config`) with `changes`, see `load_experiment`.

    Raises UserError if anything but `run.env_steps` would change, or if that would shrink.
    """
    old = load_experiment(folder / CONFIG)
    new = load_experiment(config or folder / CONFIG, [*changes, ("name", old.name)])
    before, after = flat(old.model_dump(mode="json")), flat(new.model_dump(mode="json"))
    for key in [*before, *after]:
        was, now = before.get(key), after.get(key)
        if was != now and not (key == "run.env_steps" and new.run.env_steps > old.run.env_steps):
            raise UserError(
                f"--resume {folder}: {key} is {was!r} in this run and cannot become {now!r}: a resumed run keeps its "
                "configuration, only run.env_steps may grow; for anything else begin another run (--run NAME)"
            )
    return new


def is_finished(folder: Path, settings: ExperimentSettings) -> bool:
    """Whether the run has all its steps and its evaluation."""
    reached, episodes = (checkpoint_steps(folder) or [0])[-1], folder / EPISODES
    if reached < settings.run.env_steps or not episodes.is_file():
        return False
    # A run that was lengthened has the evaluation of its shorter self until the new one is written.
    return episodes.stat().st_mtime >= checkpoint_folder(folder, reached).stat().st_mtime


def find_run(run: str, runs_folder: Path) -> Path:
    """The folder of a run given by its path or its name. Raises UserError, with the nearest name, if there is none."""
    for folder in (Path(run), runs_folder / run):
        if (folder / CONFIG).is_file():
            return folder
    names = [path.parent.name for path in runs_folder.glob(f"*/{CONFIG}")]
    raise UserError(f"no run {run!r} in {str(runs_folder)!r}{nearest(run, names)}")


def checkpoint_folder(folder: Path, env_steps: int) -> Path:
    """Where the checkpoint after that many steps lies; names sort by age."""
    return folder / CHECKPOINTS / f"{env_steps:012d}"


def checkpoint_steps(folder: Path) -> list[int]:
    """Environment steps of all checkpoints, ascending. They appear whole, so none is incomplete."""
    steps = (int(path.name) for path in (folder / CHECKPOINTS).glob("[0-9]" * 12) if path.is_dir())
    return sorted(steps)


def remove_old_checkpoints(folder: Path, kept: int) -> None:
    """Keep the newest ones, and clear away what a killed process left unfinished."""
    for env_steps in checkpoint_steps(folder)[:-kept]:
        shutil.rmtree(checkpoint_folder(folder, env_steps))
    for path in (folder / CHECKPOINTS).glob(WORK_FOLDER):
        shutil.rmtree(path, ignore_errors=True)
