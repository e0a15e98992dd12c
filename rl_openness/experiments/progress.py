"""A run's `progress.csv`: one row per training iteration."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_openness.errors import UserError
from rl_openness.files import write_atomically

PROGRESS = "progress.csv"

Row = dict[str, float | None]


def progress_row(result: Mapping[str, Any], *, seconds: float, cpu_seconds: float, duration: float) -> Row:
    """What `Algorithm.train()` returned, as a row.

    `seconds` and `cpu_seconds` (of this process alone) count from the start of the training, pauses left out;
    `duration` is this iteration's wall time. Numbers that are not known yet, such as the mean return (of the last 100
    finished episodes) before an episode has ended, are None.
    """
    episodes, env_steps = result["env_runners"], result["num_env_steps_sampled_lifetime"]
    (learner,) = [part for name, part in result["learners"].items() if not name.startswith("__")]
    row: dict[str, Any] = {
        "iteration": result["training_iteration"],
        "env_steps": int(env_steps),
        "env_steps_per_second": round(episodes["num_env_steps_sampled"] / duration, 1),
        "episode_return_mean": episodes.get("episode_return_mean"),
        "episode_len_mean": episodes.get("episode_len_mean"),
    }
    row |= {name: learner[name] for name in sorted(learner) if not name.startswith(("num_", "default_optimizer"))}
    row |= {"seconds": round(seconds, 2), "cpu_seconds": round(cpu_seconds, 2)}
    return {name: _number(value) for name, value in row.items()}


def _number(value: Any) -> float | None:
    """A plain finite number, or None."""
    number = math.nan if value is None else float(value)
    if not math.isfinite(number):
        return None
    return int(number) if isinstance(value, int) else number


class ProgressTable:
    """The file, appended to row by row."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / PROGRESS

    def append(self, row: Row) -> None:
        """Add a row; the file's first one decides the columns."""
        with self.path.open("a+", newline="") as file:
            file.seek(0)
            columns = next(csv.reader(file), None)
            writer = csv.DictWriter(file, columns or list(row), extrasaction="ignore", lineterminator="\n")
            if columns is None:
                writer.writeheader()
            writer.writerow(row)

    def rows(self) -> list[Row]:
        """All complete rows, oldest first; none if there is no file. Raises UserError if it is damaged."""
        if not self.path.exists():
            return []
        try:
            with self.path.open(newline="") as file:
                rows = [{name: _parsed(text) for name, text in row.items()} for row in csv.DictReader(file)]
            return [row for row in rows if row["cpu_seconds"] is not None and row["env_steps"] is not None]
        except (OSError, ValueError, KeyError, AttributeError, TypeError, csv.Error) as error:
            raise UserError(
                f"{self.path} is damaged ({type(error).__name__}: {error}): move it away to begin a new table"
            ) from None

    def cut_after(self, env_steps: int) -> Row | None:
        """Drop the rows of later iterations, which will be trained again; returns the last row that is left."""
        kept = [row for row in self.rows() if (row["env_steps"] or 0) <= env_steps]
        if not kept:
            self.path.unlink(missing_ok=True)
            return None
        text = io.StringIO()
        writer = csv.DictWriter(text, list(kept[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(kept)
        write_atomically(self.path, text.getvalue())
        return kept[-1]


def _parsed(text: str | None) -> float | None:
    if not text:
        return None
    return int(text) if text.lstrip("-").isdigit() else float(text)
