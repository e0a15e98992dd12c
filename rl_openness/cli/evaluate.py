"""`rl-openness evaluate`: fresh episodes of trained policies and rules, also in worlds they were not trained on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rl_openness.cli.output import console, interruptible, legend, summary
from rl_openness.errors import UserError
from rl_openness.files import atomic_file

if TYPE_CHECKING:
    import pandas as pd

    from rl_openness.experiments.worlds import World

_WRITERS = (".parquet", ".csv")


def evaluate(
    checkpoints: Annotated[
        list[Path] | None, typer.Argument(help="Runs, checkpoints or their policy/ folders.", show_default=False)
    ] = None,
    setup: Annotated[
        list[str] | None,
        typer.Option(help="Wildfire setup to play, e.g. 4x4/S3; may be repeated. Default: as in training, or 3x3/S3."),
    ] = None,
    policy: Annotated[
        list[str] | None, typer.Option(help="Policy by name to play too, see `list policies`; may be repeated.")
    ] = None,
    episodes: Annotated[int, typer.Option(min=1, help="Episodes per policy and setup.")] = 50,
    first_seed: Annotated[
        int, typer.Option(min=0, max=2**31 - 1, help="Seed of the first episode; the next ones follow on.")
    ] = 200,
    environment: Annotated[str, typer.Option(help="World for --policy alone, see `list environments`.")] = "wildfire",
    team_size: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Other (greatest) numbers of agents. Default: as in training.")
    ] = None,
    teammates: Annotated[
        str | None, typer.Option(help="Population whose test list the teammates come from, see `list teammates`.")
    ] = None,
    prey: Annotated[
        str | None, typer.Option(help="Who moves Wolfpack's prey, see `list teammates`. Default: as in training.")
    ] = None,
    explore: Annotated[bool, typer.Option("--explore", help="Let trained policies sample their choices.")] = False,
    protocol: Annotated[
        Literal["ours", "reference"],
        typer.Option(help="`reference`: foraging and Wolfpack as the papers' code evaluates them (seeds, count)."),
    ] = "ours",
    output: Annotated[Path | None, typer.Option(help="Write a row per episode to a .parquet or .csv file.")] = None,
) -> None:
    """Play whole episodes with trained and hand-written policies, on the same seeds, and show what they earn.

    A trained policy plays any setup and any team size unchanged. Percentages: 0 is doing nothing on the same seeds,
    100 the exact optimum.
    """
    if not checkpoints and not policy:
        raise UserError("nothing to evaluate: name a checkpoint, or a rule with --policy (see `list policies`)")
    if output is not None:
        _check_output(output)
    from rl_openness.experiments.evaluate import check_players, play, summary_table

    sizes = [None] if team_size is None else _numbers(team_size)
    games = _games(checkpoints or [], environment, setup or [], sizes, {"teammates": teammates, "prey": prey})
    for world, players in games:
        check_players(world, policy or [], players.values())
    seeds = range(first_seed, first_seed + episodes)
    with interruptible("Stopped."):
        options: dict[str, Any] = {"explore": explore, "protocol": protocol}
        tables = [play(world, policy or [], players, seeds, **options) for world, players in games]
    import pandas as pd

    table = pd.concat(tables, ignore_index=True)
    screen = console()
    means = summary_table(table, [world for world, _ in games])
    screen.print(summary(means))
    screen.print(legend(means))
    if output is not None:
        _write(table, output)
        screen.print(f"{len(table)} episodes in {output}")


def _numbers(text: str) -> list[int | None]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < int(part) < 10**6 for part in parts):
        raise UserError(f"--team-size {text}: must be whole numbers of at least 1 with commas between, such as 3,5,9")
    return [int(part) for part in parts]


def _games(
    checkpoints: Sequence[Path],
    environment: str,
    setups: Sequence[str],
    team_sizes: Sequence[int | None],
    changes: Mapping[str, str | None],
) -> list[tuple[World, dict[str, Path]]]:
    """Worlds to play in, and who plays there: everyone in the named setups, else each where it was trained."""
    from rl_openness.experiments.worlds import DEFAULT_SETUP, find_world, with_team_size
    from rl_openness.policies.card import read_card

    everyone = {str(path): path for path in checkpoints}
    homes: list[tuple[str, dict[str, Any], dict[str, Path]]] = []
    if setups or (not checkpoints and environment == "wildfire"):
        homes = [("wildfire", {"setup": name}, everyone) for name in dict.fromkeys(setups or [DEFAULT_SETUP])]
    elif not checkpoints:
        homes = [(environment, {}, everyone)]
    for name, path in everyone.items() if not setups else ():
        card = read_card(path)
        homes.append((card.environment, dict(card.env_config), {name: path}))
    games: dict[str, tuple[World, dict[str, Path]]] = {}
    for where, options, players in homes:
        options |= {name: value for name, value in changes.items() if value is not None}
        if "teammates" in options:
            options["split"] = "test"
        for size in team_sizes:
            world = find_world(where, options if size is None else with_team_size(where, options, size))
            games.setdefault(world.name, (world, {}))[1].update(players)
    return list(games.values())


def _check_output(path: Path) -> None:
    """Before hours of episodes."""
    if path.suffix not in _WRITERS:
        raise UserError(f"--output {path}: must end with {' or '.join(_WRITERS)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--output {path}: {error.strerror}") from None
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise UserError(f"--output {path}: cannot be written")


def _write(table: pd.DataFrame, path: Path) -> None:
    options: dict[str, Any] = {"index": False}
    with atomic_file(path) as work:
        if path.suffix == ".csv":
            table.to_csv(work, **options)
        else:
            table.to_parquet(work, **options)
