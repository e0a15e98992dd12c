"""What verbs print: tables of results, and a line that follows a training."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from rl_openness.errors import PartlyStoppedError, StoppedError

if TYPE_CHECKING:
    import pandas as pd

    from rl_openness.experiments.train import Progress

PLAIN_SECONDS = 5.0
"""Time between lines where stdout is no terminal."""
MANY_ROWS = 12
"""A table of a training's evaluation that is longer is condensed, unless all rows are asked for."""
_MEANINGS = {
    "return_mean": "mean, std: the return over whole episodes.",
    "percent_of_optimum": "% of optimum: 0 = noop (doing nothing), 100 = exact optimum.",
    "reward_per_fight": "reward/fight: return per decision to fight.",
    "burnouts": "Burn-outs and put-outs: per episode.",
    "foods": "Foods: lifted by the team per episode.",
    "captures": "Captures: prey caught by the team per episode.",
    "team_size_mean": "Team size: agents present, mean over all steps.",
}
_COLUMNS = (  # column of the summary, heading, digits
    ("return_mean", "mean\nreturn", 1),
    ("return_std", "std", 1),
    ("optimum", "exact\noptimum", 1),
    ("percent_of_optimum", "% of\noptimum", 1),
    ("reward_per_fight", "reward/\nfight", 3),
    ("noop_percent", "NOOP\n%", 1),
    ("burnouts", "burn-\nouts", 1),
    ("putouts", "put-\nouts", 1),
    ("foods", "foods", 2),
    ("captures", "cap-\ntures", 2),
    ("team_size_mean", "team\nsize", 1),
)


INTERRUPTED = 130
"""Exit code after Ctrl-C or SIGTERM."""


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        """Whoever read has gone (`| head -1`, a closed terminal): work goes on in silence, rich would end it."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def console() -> Console:
    """For stdout; wide enough for a table where stdout is a file or a pipe."""
    plain: dict[str, Any] = {"highlight": False, "markup": False, "soft_wrap": True}
    screen = _Screen(**plain)
    return screen if screen.is_terminal else _Screen(**plain, width=200)


@contextmanager
def interruptible(text: str) -> Iterator[None]:
    """Ctrl-C or SIGTERM inside prints the text, or what is kept, and exits with `INTERRUPTED`."""
    try:
        yield
    except (KeyboardInterrupt, StoppedError) as error:
        console().print(str(error) if isinstance(error, PartlyStoppedError) else text)
        raise typer.Exit(INTERRUPTED) from None


def summary(table: pd.DataFrame) -> Table:
    """`experiments.evaluate.summary_table` for people."""
    known = [column for column in _COLUMNS if column[0] in table.columns]
    shown = [(name, head, digits) for name, head, digits in known if table[name].notna().any()]
    named = ["setup", "policy", *(["protocol"] if (table["protocol"] != "ours").any() else [])]
    lines = Table(*named, box=SIMPLE_HEAD, padding=(0, 1), collapse_padding=True)
    for _, head, _ in shown:
        lines.add_column(head, justify="right")
    for _, row in table.iterrows():
        cells = ["-" if row[name] != row[name] else f"{row[name]:.{digits}f}" for name, _, digits in shown]
        lines.add_row(*(Text(row[name]) for name in named), *cells)
    return lines


def condensed(table: pd.DataFrame, trained: str) -> tuple[pd.DataFrame, int]:
    """Of every setup the `trained` policy and the best of the others by mean return, and how many rows that leaves out.

    The rows of the trained policy come first, in the order of the setups.
    """
    import pandas as pd

    others = table[table["policy"] != trained]
    best = others.loc[others.groupby("setup", sort=False)["return_mean"].idxmax()]
    shown = pd.concat([table[table["policy"] == trained], best])
    return shown, len(table) - len(shown)


def legend(table: pd.DataFrame) -> str:
    """What the columns of `summary` mean."""
    return " ".join(text for name, text in _MEANINGS.items() if name in table.columns and table[name].notna().any())


def hint_to_explore(run: object, mean: float, sampled: float) -> str:
    """What to do about a policy that earns far less by its best option than it did while it sampled."""
    return (
        f"Hint:    by its best option the policy earns {mean:.1f}, in training it earned {sampled:.1f} with sampled "
        f"choices. It may still be undecided: try `rl-openness evaluate {run} --explore`, or train longer."
    )


def played(episodes: pd.DataFrame) -> str:
    """How many episodes of which seeds stand behind each mean, from the table of `experiments.evaluate.play`.

    Policies may play different numbers by the reference's protocol, which stops by time.
    """
    texts: dict[str, list[str]] = {}
    for (protocol, setup), table in episodes.groupby(["protocol", "setup"], sort=False):
        counts, seeds = table.groupby("policy")["seed"].count(), table["seed"]
        number = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
        text = f"{number} episodes of seeds {seeds.min()} to {seeds.max()} for each policy (protocol {protocol})"
        texts.setdefault(text, []).append(str(setup))
    if len(texts) == 1:
        return f"Played: {next(iter(texts))}."
    return " ".join(f"{'; '.join(setups)}: {text}." for text, setups in texts.items())


def progress_line(progress: Progress) -> str:
    """Iteration, steps, speed, return and remaining time, short enough for 80 columns."""
    mean = "-" if progress.episode_return is None else f"{progress.episode_return:.1f}"
    done = f"iteration {progress.iteration}  {progress.env_steps:,}/{progress.total_env_steps:,} env steps  "
    if progress.env_steps_per_second is None or progress.seconds_left is None:
        return f"{done}return {mean}"
    left = timedelta(seconds=round(progress.seconds_left))
    return f"{done}{progress.env_steps_per_second:,.0f}/s  return {mean}  {left} left"


@contextmanager
def follow(screen: Console) -> Iterator[Any]:
    """A function to call with every `Progress`: one live line in a terminal, else a line every few seconds."""
    if screen.is_terminal:
        with Live(console=screen, auto_refresh=False) as live:
            yield lambda progress: live.update(
                Text(progress_line(progress), no_wrap=True, overflow="ellipsis"), refresh=True
            )
        return
    next_time = 0.0

    def show(progress: Progress) -> None:
        nonlocal next_time
        if time.monotonic() >= next_time or progress.env_steps >= progress.total_env_steps:
            next_time = time.monotonic() + PLAIN_SECONDS
            screen.print(progress_line(progress))

    yield show
