"""Evaluation: policies side by side on the same seeds, as a table of episodes, a summary and a learning curve."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from rl_openness.envs.base import OpenVectorEnv
from rl_openness.envs.registry import make_environment
from rl_openness.errors import UserError
from rl_openness.evaluation import reference
from rl_openness.evaluation.metrics import percent_of_optimum, summarise
from rl_openness.evaluation.rollout import play_episodes
from rl_openness.experiments.process import use_one_thread
from rl_openness.experiments.progress import ProgressTable
from rl_openness.experiments.runs import EPISODES
from rl_openness.experiments.schema import ExperimentSettings
from rl_openness.experiments.worlds import (
    World,
    check_rule,
    evaluation_options,
    find_rule,
    find_world,
    usual_evaluation,
)
from rl_openness.files import atomic_file
from rl_openness.policies.base import Policy
from rl_openness.policies.card import read_card
from rl_openness.policies.users import fit

CURVE = "learning_curve.png"
NOOP = "noop"
Protocol = Literal["ours", "reference"]
_COPIES = 64  # episodes played at once; has no influence on results


def evaluation_seeds(environment: str, episodes: int | None = None, first_seed: int | None = None) -> range:
    """Seeds to play, by default those that this package evaluates the environment with."""
    usual_seed, usual_episodes = usual_evaluation(environment)
    first = usual_seed if first_seed is None else first_seed
    return range(first, first + (usual_episodes if episodes is None else episodes))


def trained_policy(path: Path, env: OpenVectorEnv, world: World, *, explore: bool = False) -> Policy:
    """The policy at a path (see `Policy.load`), ready to act in `env`.

    Raises UserError if there is none, or if the environment's observations are not those it was trained on.
    """
    card = read_card(path)
    mismatch = card.mismatch(env.spec)
    if mismatch:
        raise UserError(f"{path} was trained on {card.environment!r} and cannot act in {world.name}: {mismatch}")
    use_one_thread()
    return Policy.load(path, explore=explore)


def check_players(world: World, rules: Sequence[str], checkpoints: Iterable[Path]) -> None:
    """Raises UserError for an unknown rule or a missing checkpoint, before anything slow is imported."""
    for rule in rules:
        check_rule(world.environment, rule, world.options)
    for path in checkpoints:
        read_card(path)


def play(
    world: World,
    rules: Sequence[str],
    checkpoints: Mapping[str, Path],
    seeds: Sequence[int],
    *,
    explore: bool = False,
    protocol: Protocol = "ours",
) -> pd.DataFrame:
    """Episodes of checkpoints (by the name to show) and rules in one world, all on the same seeds.

    A row per episode: `policy`, `setup`, `protocol`, and the columns of `evaluation.rollout.play_episodes`. Where the
    optimum is known, NOOP always plays too: it is the zero of the percentages. Policies take their best option unless
    `explore`.
    `protocol` reference plays what `evaluation.reference` says instead of `seeds`. Raises UserError where it has none.
    """
    if protocol == "reference" and world.environment not in ("foraging", "wolfpack"):
        raise UserError(f"there is no reference protocol for {world.environment}: only for foraging and wolfpack")
    copies = reference.COPIES if protocol == "reference" else min(_COPIES, len(seeds))
    env = make_environment(world.environment, copies, world.options)
    policies = {name: trained_policy(path, env, world, explore=explore) for name, path in checkpoints.items()}
    names = dict.fromkeys([*([NOOP] if world.optimum is not None else []), *rules])
    found = {name: find_rule(world.environment, name, spec=env.spec, explore=explore) for name in names}
    policies |= {name: fit(rule, env.spec) for name, rule in found.items()}
    tables = []
    for name, policy in policies.items():
        table = reference.play_reference(env, policy) if protocol == "reference" else play_episodes(env, policy, seeds)
        table.insert(0, "policy", name)
        table.insert(1, "setup", world.name)
        table.insert(2, "protocol", protocol)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)


def summary_table(episodes: pd.DataFrame, worlds: Sequence[World]) -> pd.DataFrame:
    """A row per setup and policy, in the order of play.

    Columns: `setup`, `policy`, `protocol`, those of `evaluation.metrics.summarise`, `optimum` (best achievable mean
    return, NaN where unknown) and `percent_of_optimum` (0 = NOOP on the same seeds, 100 = the optimum).
    """
    rows: list[dict[str, Any]] = []
    by = ["setup", "policy", "protocol"]
    for (setup, policy, protocol), table in episodes.groupby(by, sort=False):
        summary = summarise(table.drop(columns=by))
        optimum = next(world.optimum for world in worlds if world.name == setup)
        rows.append({"setup": setup, "policy": policy, "protocol": protocol, **summary, "optimum": optimum})
    noop = {row["setup"]: row["return_mean"] for row in rows if row["policy"] == NOOP}
    for row in rows:
        if row["optimum"] is not None:  # then NOOP has played
            row["percent_of_optimum"] = percent_of_optimum(row["return_mean"], noop[row["setup"]], row["optimum"])
    return pd.DataFrame(rows, columns=[*dict.fromkeys([*rows[0], "percent_of_optimum"])]).astype({"optimum": float})


def evaluate_run(settings: ExperimentSettings, run_folder: Path, checkpoint: Path) -> pd.DataFrame:
    """Play the run's evaluation, write `episodes.parquet` and `learning_curve.png`, and return `summary_table`."""
    evaluation = settings.evaluation
    worlds = evaluation_worlds(settings)
    home = worlds[0]
    seeds = range(evaluation.first_seed, evaluation.first_seed + evaluation.episodes)
    policies = {settings.algorithm: checkpoint}
    episodes = pd.concat([play(world, evaluation.rules or [], policies, seeds) for world in worlds], ignore_index=True)
    with atomic_file(run_folder / EPISODES) as work:
        episodes.to_parquet(work, index=False)
    summary = summary_table(episodes, worlds)
    of_home = summary[summary["setup"] == home.name]
    means = dict(zip(of_home["policy"], of_home["return_mean"], strict=True))
    draw_learning_curve(run_folder, home, means, trained=settings.algorithm)
    return summary


def better_in_training(run_folder: Path, mean: float, std: float, episodes: int) -> float | None:
    """The return of a training's last 100 episodes if an evaluation's `mean` is far worse, else None.

    Far is more than two standard errors of the mean, and more than a fifth of the larger of both. Training samples its
    choices: a policy that is still undecided may be good at that, and bad where it takes its best option.
    """
    try:
        returns = [row["episode_return_mean"] for row in ProgressTable(run_folder).rows()]
    except (UserError, KeyError):  # a damaged table takes nothing from the evaluation
        return None
    sampled = next((value for value in reversed(returns) if value is not None), None)
    if sampled is None or episodes < 2:
        return None
    least = max(2 * std / episodes**0.5, 0.2 * max(abs(mean), abs(sampled)))
    return sampled if sampled - mean > least else None


def evaluation_worlds(settings: ExperimentSettings) -> list[World]:
    """Setups by team sizes; teammates come from the population's test list."""
    evaluation, environment = settings.evaluation, settings.environment
    sizes: Sequence[int | None] = evaluation.team_sizes or [None]
    by_size = [evaluation_options(environment.name, environment.options, evaluation.setups, size) for size in sizes]
    # all sizes of the first setup, then those of the next
    return [
        find_world(environment.name, options) for same_setup in zip(*by_size, strict=True) for options in same_setup
    ]


def draw_learning_curve(run_folder: Path, world: World, means: Mapping[str, float], *, trained: str) -> None:
    """Mean return over environment steps from the run's progress, beside the evaluation's `means` by policy.

    The `trained` policy's is a star at the end (it takes its best option there, and samples in training), those of
    rules are lines, as is the optimum.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    points = [
        (row["env_steps"], row["episode_return_mean"])
        for row in ProgressTable(run_folder).rows()
        if row["episode_return_mean"] is not None
    ]
    figure = Figure(figsize=(9, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    if points:
        steps, returns = zip(*points, strict=True)
        axes.plot(steps, returns, label="training (last 100 episodes)")
        if trained in means:
            axes.plot(steps[-1:], [means[trained]], "*", color="C0", markersize=14, label=f"{trained}, evaluated")
    rules = {name: value for name, value in means.items() if name != trained}
    for i, (name, value) in enumerate(rules.items(), start=1):
        axes.axhline(value, color=f"C{i}", linestyle=":", label=name)
    if world.optimum is not None:
        axes.axhline(world.optimum, color="black", linestyle="--", label="exact optimum")
    axes.set(title=f"{run_folder.name}: {world.name}", xlabel="environment steps", ylabel="mean return of an episode")
    figure.legend(loc="outside right upper")
    figure.savefig(run_folder / CURVE, dpi=120)
