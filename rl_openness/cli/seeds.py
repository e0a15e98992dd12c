"""`rl-openness train --seeds`: a process per seed, some at a time, their output line by line with the seed in front."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType

import typer
from rich.table import Table

from rl_openness.cli.output import INTERRUPTED, console
from rl_openness.errors import UserError


def train_seeds(
    what: Sequence[str], changes: Sequence[str], name: str, seeds: str, jobs: int | None, runs_folder: Path
) -> int:
    """Train `what` (a file, or --environment NAME) once per seed as the runs `<name>-seed<N>`.

    Returns the exit code: 0, 1 if any failed, 130 if stopped. Raises UserError, before anything starts, for a wrong
    list of seeds or if one of the runs exists.
    """
    from rl_openness.experiments.runs import refuse_existing

    runs = {f"{name}-seed{seed}": seed for seed in _parse(seeds)}
    for run in runs:
        refuse_existing(runs_folder / run)
    commands = {}
    for run, seed in runs.items():
        options = [option for change in changes for option in ("--set", change)]
        options += ["--seed", str(seed), "--run", run, "--runs-folder", str(runs_folder)]
        commands[run] = [sys.executable, "-m", "rl_openness", "train", *what, *options]
    fleet = _Fleet()
    before = {number: signal.signal(number, fleet.stop) for number in (signal.SIGINT, signal.SIGTERM)}
    with ThreadPoolExecutor(jobs or len(os.sched_getaffinity(0))) as pool:
        codes = dict(zip(runs, pool.map(fleet.run, commands.values(), runs.values()), strict=True))
    for number, handler in before.items():
        signal.signal(number, handler)
    for run, code in codes.items():
        typer.echo(f"{run}: {'done' if code == 0 else f'exit code {code}'} ({runs_folder / run})")
    finished = [runs_folder / run for run, code in codes.items() if code == 0]
    if len(finished) > 1:
        _show_means(finished)
    return INTERRUPTED if fleet.stopped else int(any(codes.values()))


def _show_means(folders: Sequence[Path]) -> None:
    """What each policy earned, over the seeds: every seed counts once, by its mean return."""
    import pandas as pd

    from rl_openness.experiments.runs import EPISODES

    tables = [pd.read_parquet(folder / EPISODES) for folder in folders]
    by_seed = pd.concat([table.groupby(["setup", "policy"], sort=False)["return"].mean() for table in tables], axis=1)
    lines = Table("setup", "policy", "mean", "std", "lowest", "highest", title=f"mean return over {len(folders)} seeds")
    for names, means in zip(by_seed.index.to_list(), by_seed.to_numpy(), strict=True):
        numbers = (means.mean(), means.std(ddof=1), means.min(), means.max())
        lines.add_row(*names, *(f"{number:.1f}" for number in numbers))
    console().print(lines)


def _parse(text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and int(part) < 2**31 for part in parts):
        raise UserError(f"--seeds {text}: must be whole numbers below 2^31 with commas between, such as 1,2,3")
    seeds = [int(part) for part in parts]
    if len(set(seeds)) < len(seeds):
        raise UserError(f"--seeds {text}: a seed is given twice")
    return seeds


class _Fleet:
    """Running trainings. They are out of reach of the terminal's Ctrl-C, which `stop` hands on once."""

    def __init__(self) -> None:
        self.stopped = False
        self._lock = threading.RLock()
        self._running: list[subprocess.Popen[str]] = []

    def run(self, command: list[str], seed: int) -> int:
        """Run one to its end, echoing its lines; returns the exit code."""
        with self._lock:
            if self.stopped:
                return INTERRUPTED
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
            )
            self._running.append(process)
        assert process.stdout is not None
        for line in process.stdout:
            typer.echo(f"[seed {seed}] {line.rstrip()}")
        return process.wait()

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Signal handler: let each finish its iteration and save."""
        with self._lock:
            self.stopped = True
            for process in self._running:
                if process.poll() is None:
                    process.send_signal(number)
