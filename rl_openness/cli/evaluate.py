"""`rl-openness evaluate`: fresh episodes of trained policies and rules, also in worlds they were not trained on."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rl_openness.cli.output import console, hint_to_explore, interruptible, legend, played, summary
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
        list[str] | None,
        typer.Option(help="Policy by name to play too, hand-written or learned, see `list policies`; may be repeated."),
    ] = None,
    episodes: Annotated[
        int | None,
        typer.Option(min=1, help="Episodes per policy and setup. Default: 50, in foraging and Wolfpack 80."),
    ] = None,
    first_seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=2**31 - 1,
            help="Seed of the first episode; the next ones follow on. Default: 200, in foraging and Wolfpack 2500.",
        ),
    ] = None,
    environment: Annotated[
        str | None,
        typer.Option(help="World for --policy alone, see `list environments`. Default: wildfire.", show_default=False),
    ] = None,
    team_size: Annotated[
        str | None, typer.Option(metavar="N,N,...", help="Other (greatest) numbers of agents. Default: as in training.")
    ] = None,
    teammates: Annotated[
        str | None,
        typer.Option(
            help="Population whose test list the teammates come from, see `list teammates`; who was trained to decide "
            "for the whole team (controlled: all) is then one agent among them."
        ),
    ] = None,
    prey: Annotated[
        str | None, typer.Option(help="Who moves Wolfpack's prey, see `list teammates`. Default: as in training.")
    ] = None,
    explore: Annotated[
        bool, typer.Option("--explore", help="Let trained and learned policies sample their choices.")
    ] = False,
    protocol: Annotated[
        Literal["ours", "reference"],
        typer.Option(
            help="`ours`: an episode per seed, every one counted. `reference`: foraging and Wolfpack as the papers' "
            "code evaluates them; it has its own seeds and number of episodes."
        ),
    ] = "ours",
    output: Annotated[Path | None, typer.Option(help="Write a row per episode to a .parquet or .csv file.")] = None,
) -> None:
    """Play whole episodes with trained and hand-written policies, on the same seeds, and show what they earn.

    By default 50 episodes of seeds 200 on; in foraging and Wolfpack 80 of seeds 2500 on. A trained policy plays any
    setup and any team size unchanged. Percentages: 0 is doing nothing on the same seeds, 100 the exact optimum.
    """
    _refuse_contradictions(checkpoints, policy, environment, protocol, episodes, first_seed)
    if setup and environment not in (None, "wildfire"):
        raise UserError(f"--setup names worlds of wildfire: {environment} has none, leave it out (see `list setups`)")
    if output is not None:
        _check_output(output)
    from rl_openness.experiments.evaluate import check_players, evaluation_seeds, play, summary_table

    sizes = [None] if team_size is None else _numbers(team_size)
    changes = {"teammates": teammates, "prey": prey}
    for path in checkpoints or []:
        _say_imports(path)
    games = _games(checkpoints or [], "wildfire" if environment is None else environment, setup or [], sizes, changes)
    for world, players in games:
        check_players(world, policy or [], players.values())
    tables = []
    with interruptible("Stopped."):
        for world, players in games:
            seeds = evaluation_seeds(world.environment, episodes, first_seed)
            tables.append(play(world, policy or [], players, seeds, explore=explore, protocol=protocol))
    import pandas as pd

    table = pd.concat(tables, ignore_index=True)
    screen = console()
    means = summary_table(table, [world for world, _ in games])
    screen.print(summary(means))
    screen.print(legend(means))
    if not explore and protocol == "ours" and not (setup or team_size or teammates or prey):
        for line in _undecided(means, games):
            screen.print(line)
    screen.print(played(table))
    if output is not None:
        _write(table, output)
        screen.print(f"{len(table)} episodes in {output}")


def _refuse_contradictions(
    checkpoints: list[Path] | None,
    policy: list[str] | None,
    environment: str | None,
    protocol: str,
    episodes: int | None,
    first_seed: int | None,
) -> None:
    """Options that say nothing together."""
    if not checkpoints and not policy:
        raise UserError("nothing to evaluate: name a checkpoint, or a rule with --policy (see `list policies`)")
    if checkpoints and environment is not None:
        raise UserError(
            "--environment goes with --policy alone: a checkpoint plays where it was trained, or in --setup"
        )
    if protocol == "reference" and (episodes is not None or first_seed is not None):
        given = "--episodes" if episodes is not None else "--first-seed"
        raise UserError(f"--protocol reference and {given} do not go together: it has its own seeds and episodes")


def _say_imports(path: Path) -> None:
    """Code of others that a checkpoint names is run: say so before."""
    from rl_openness.policies.card import read_card, users_modules

    for module, what in users_modules(read_card(path)).items():
        console().print(f"{path}: importing module {module}, which its {what} comes from")


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
    from rl_openness.experiments.worlds import DEFAULT_SETUP, find_world
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
        _refuse_elsewhere(where, changes)
        options |= {name: value for name, value in changes.items() if value is not None}
        if "teammates" in options:
            options["split"] = "test"
            if options.get("controlled") == "all":  # teammates decide for the others now
                options["controlled"] = "first"
        for size in team_sizes:
            world = find_world(where, options) if size is None else _sized(where, options, size)
            games.setdefault(world.key, (world, {}))[1].update(players)
    return list(games.values())


def _refuse_elsewhere(environment: str, changes: Mapping[str, str | None]) -> None:
    """Options of other worlds than a bundled one; what a user's takes, it says itself."""
    for option, worlds in (("teammates", ("foraging", "wolfpack")), ("prey", ("wolfpack",))):
        if changes[option] is not None and environment in {"wildfire", "foraging"} - {*worlds}:
            raise UserError(f"--{option} applies to {' and '.join(worlds)} alone: {environment} has no {option}")


def _sized(environment: str, options: Mapping[str, Any], team_size: int) -> World:
    """The world with a team of that size. Raises UserError that names the option if that is what is wrong."""
    from rl_openness.experiments.worlds import find_world, with_team_size

    find_world(environment, options)
    try:
        return find_world(environment, with_team_size(environment, options, team_size))
    except UserError as error:
        alone = team_size == 1 and environment in ("foraging", "wolfpack")
        needs = f"{environment} needs 2 or more, the learner and a teammate"
        reason = needs if alone else str(error).removeprefix("team_size: ")
        raise UserError(f"--team-size {team_size}: {reason}") from None


def _undecided(means: pd.DataFrame, games: Sequence[tuple[World, dict[str, Path]]]) -> list[str]:
    """A hint for every run that earned far more while it sampled; its worlds are those of the training."""
    from rl_openness.experiments.evaluate import better_in_training

    hints = []
    for world, players in games:
        for name, path in players.items():
            (row,) = means[(means["policy"] == name) & (means["setup"] == world.name)].to_dict("records")
            sampled = better_in_training(path, row["return_mean"], row["return_std"], int(row["episodes"]))
            if sampled is not None:
                hints.append(hint_to_explore(path, row["return_mean"], sampled))
    return hints


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
