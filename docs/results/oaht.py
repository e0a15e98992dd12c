"""Learning curves and tables of open ad hoc teamwork, from the checkpoints of several runs.

    python docs/results/oaht.py docs/results/gpl_foraging runs/gpl_foraging_all-seed*

plays the evaluation of every kept checkpoint (at 3, 5 and 9 agents by our protocol, at 3 by the reference's), keeps the
episodes beside each run (`curve.parquet`: what was played is not played again), writes `gpl_foraging.csv` (mean
returns), `.parquet` (episodes of the last checkpoints) and `.png`, and prints tables as Markdown. Intervals are 95 %
of Student's t over seeds.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from scipy.stats import t as student

from rl_openness.experiments.evaluate import evaluation_worlds, play
from rl_openness.experiments.runs import checkpoint_folder, checkpoint_steps
from rl_openness.experiments.schema import ExperimentSettings
from rl_openness.files import atomic_file

KEYS = ["method", "protocol", "team_size"]


def evaluations(settings: ExperimentSettings) -> Iterator[tuple[str, int, object]]:
    """Protocol, team size and world of every evaluation of a checkpoint."""
    worlds = dict(zip(settings.evaluation.team_sizes, evaluation_worlds(settings), strict=True))
    yield "reference", 3, worlds[3]
    for team_size, world in worlds.items():
        yield "ours", team_size, world


def episodes_of(run: Path) -> pd.DataFrame:
    """Every episode of every evaluation of a run's checkpoints."""
    settings = ExperimentSettings.model_validate(yaml.safe_load((run / "config.yaml").read_text()))
    path = run / "curve.parquet"
    tables = [pd.read_parquet(path)] if path.exists() else []
    done = set(tables[0]["env_steps"]) if tables else set()
    seeds = range(settings.evaluation.first_seed, settings.evaluation.first_seed + settings.evaluation.episodes)
    for env_steps in checkpoint_steps(run):
        if env_steps in done:
            continue
        for protocol, team_size, world in evaluations(settings):
            checkpoint = {settings.algorithm: checkpoint_folder(run, env_steps)}
            table = play(world, [], checkpoint, seeds, protocol=protocol)
            note = {"method": settings.algorithm, "run": settings.run.seed, "env_steps": env_steps}
            tables.append(table.assign(**note, protocol=protocol, team_size=team_size))
        with atomic_file(path) as work:
            pd.concat(tables, ignore_index=True).to_parquet(work, index=False)
        print(f"{run.name}: {env_steps:,} env steps evaluated", flush=True)
    return pd.concat(tables, ignore_index=True)


def interval(values: pd.Series) -> float:
    """Half the width of the 95 % interval of a mean over seeds."""
    count = len(values)
    return float(student.ppf(0.975, count - 1) * values.std(ddof=1) / np.sqrt(count)) if count > 1 else np.nan


def over_seeds(means: pd.DataFrame) -> pd.DataFrame:
    """Mean and interval over seeds, of every method, protocol, team size and number of env steps."""
    grouped = means.groupby([*KEYS, "env_steps"])["return"]
    return grouped.agg(mean="mean", half=interval, seeds="count").reset_index()


def draw(curves: pd.DataFrame, title: str, path: Path) -> None:
    """A panel for each protocol and team size, a line with its interval for each method."""
    panels = list(curves.groupby(["protocol", "team_size"]))
    figure = Figure(figsize=(4.2 * len(panels), 4), layout="constrained")
    FigureCanvasAgg(figure)
    for number, ((protocol, team_size), panel) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), number + 1)
        for method, line in panel.groupby("method"):
            axes.plot(line["env_steps"], line["mean"], label=method)
            axes.fill_between(line["env_steps"], line["mean"] - line["half"], line["mean"] + line["half"], alpha=0.15)
        kind = "reference's protocol" if protocol == "reference" else "80 episodes, each once"
        axes.set(title=f"{team_size} agents ({kind})", xlabel="environment steps", ylabel="mean return")
        axes.legend(fontsize="small")
    figure.suptitle(title)
    figure.savefig(path, dpi=110)


def markdown(curves: pd.DataFrame, at: list[int]) -> Iterator[str]:
    """Rows: method, protocol, team size; columns: env steps."""
    yield "| method | protocol | agents | " + " | ".join(f"{steps:,}" for steps in at) + " |"
    yield "|---" * (3 + len(at)) + "|"
    for (method, protocol, team_size), line in curves.groupby(KEYS):
        shown = line.set_index("env_steps")
        cells = [f"{shown['mean'][s]:.2f} ± {shown['half'][s]:.2f}" if s in shown.index else "-" for s in at]
        yield f"| {method} | {protocol} | {team_size} | " + " | ".join(cells) + " |"


def main(out: Path, title: str, runs: list[Path]) -> None:
    """Evaluate, write the files and print the tables."""
    episodes = pd.concat([episodes_of(run) for run in runs], ignore_index=True)
    means = episodes.groupby([*KEYS, "run", "env_steps"])["return"].mean().reset_index()
    means.round(4).to_csv(out.with_suffix(".csv"), index=False)
    curves = over_seeds(means)
    draw(curves, title, out.with_suffix(".png"))
    last = int(episodes["env_steps"].max())
    final = episodes[episodes["env_steps"] == last].dropna(axis=1, how="all")
    final.to_parquet(out.with_suffix(".parquet"), index=False)
    quarters = [last // 20, last // 10, last // 5, last // 2, last]
    steps = np.array(sorted(episodes["env_steps"].unique()))
    at = sorted({int(steps[np.abs(steps - wanted).argmin()]) for wanted in quarters})
    print("\n".join(markdown(curves, at)))
    print("\nLast checkpoint, seed by seed:")
    for (method, protocol, team_size), part in means[means["env_steps"] == last].groupby(KEYS):
        print(f"{method}, {protocol}, {team_size} agents: " + ", ".join(f"{value:.2f}" for value in part["return"]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="where to write, without an ending")
    parser.add_argument("runs", type=Path, nargs="+", help="folders of runs")
    parser.add_argument("--title", default="", help="of the figure")
    arguments = parser.parse_args()
    main(arguments.out, arguments.title or arguments.out.name, arguments.runs)
