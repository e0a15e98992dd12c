"""Curves and a table from the runs of several seeds of one experiment.

    python docs/results/learning.py docs/results/plato_3x3_s3 runs/plato-wildfire-3x3-s3-seed*

writes `plato_3x3_s3.csv` (all curves) and `.png`, and prints the table of final evaluations as Markdown.
"""

import sys
from pathlib import Path

import pandas as pd
import yaml
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from rl_openness.envs.wildfire.setups import exact_optimum
from rl_openness.evaluation.metrics import percent_of_optimum

EVERY = 10_000
"""Env steps between the points of the CSV file."""


def curve(run: Path) -> pd.DataFrame:
    """Mean return of the last 100 training episodes at every `EVERY` env steps."""
    table = pd.read_csv(run / "progress.csv", usecols=["env_steps", "episode_return_mean", "cpu_seconds"]).dropna()
    table = table.groupby(table["env_steps"] // EVERY).first()
    seed = yaml.safe_load((run / "config.yaml").read_text())["run"]["seed"]
    return table.assign(seed=seed)


def final_returns(run: Path) -> pd.Series:
    """Mean return of every policy in the run's final evaluation."""
    return pd.read_parquet(run / "episodes.parquet").groupby("policy")["return"].mean()


def draw(curves: pd.DataFrame, setup: str, coalition: float, path: Path) -> None:
    """All seeds, their mean, Coalition and the optimum."""
    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    for seed, part in curves.groupby("seed"):
        axes.plot(part["env_steps"], part["episode_return_mean"], linewidth=0.9, alpha=0.7, label=f"seed {seed}")
    mean = curves.groupby(curves["env_steps"] // EVERY)[["env_steps", "episode_return_mean"]].mean()
    axes.plot(mean["env_steps"], mean["episode_return_mean"], color="black", linewidth=2, label="mean")
    axes.axhline(coalition, color="grey", linestyle=":", label="Coalition")
    axes.axhline(exact_optimum(setup), color="black", linestyle="--", label="exact optimum")
    axes.set(title=f"PLATO on {setup}", xlabel="environment steps", ylabel="return in training (sampled decisions)")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=120)


def main(out: Path, runs: list[Path]) -> None:
    """Write the files and print the table."""
    config = yaml.safe_load((runs[0] / "config.yaml").read_text())
    setup, policy = config["environment"]["options"]["setup"], config["algorithm"]
    curves = pd.concat([curve(run) for run in runs], ignore_index=True).sort_values(["seed", "env_steps"])
    finals = [final_returns(run) for run in runs]
    curves.round(3).to_csv(out.with_suffix(".csv"), index=False)
    draw(curves, setup, finals[0]["coalition"], out.with_suffix(".png"))
    returns = [final[policy] for final in finals]
    mean = sum(returns) / len(returns)
    percent = percent_of_optimum(mean, finals[0]["noop"], exact_optimum(setup))
    cpu = curves.groupby("seed")["cpu_seconds"].max()
    cells = " | ".join(f"{value:.1f}" for value in returns)
    coalition, optimum = finals[0]["coalition"], exact_optimum(setup)
    print(f"| {setup} | {cells} | **{mean:.1f}** | {coalition:.1f} | {optimum} | {percent:.0f} % |")
    print(f"CPU seconds per run: {', '.join(f'{value:.0f}' for value in cpu)}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(run) for run in sys.argv[2:]])
