"""`rl-openness teammates train NAME`: the learned teammates that come with the package, made from this repository."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_openness.cli.output import console, follow, interruptible

_NAMES = "a2c-foraging, distilled-wolfpack, dqn-wolfpack or prey-wolfpack; `list teammates` says what each is."

teammates = typer.Typer(help="Learned teammates: make one.", no_args_is_help=True)


@teammates.callback()
def _options() -> None:
    """Learned teammates: make one."""


@teammates.command()
def train(
    name: Annotated[str, typer.Argument(help=_NAMES, show_default=False)],
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of weights, episodes and minibatches.")] = 0,
    env_steps: Annotated[
        int | None, typer.Option(min=1, help="Steps of the environment. Default: as the shipped one was trained.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to leave it. Default: where the package ships it.")
    ] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Put it in the place of one that is there.")] = False,
) -> None:
    """Train a learned teammate, leave weights and a card (command, seed, steps), and add its strength to the card.

    In another FOLDER it is a type of teammate by its path, e.g. `- ./mine/a2c-foraging` in a population's file.
    """
    from rl_openness.experiments.teammates import TEAMMATE_CARD, train_teammate

    screen = console()
    with interruptible("Stopped; nothing was kept."), follow(screen) as report:
        folder = train_teammate(
            name, seed=seed, env_steps=env_steps, out=out, replace=replace, report=report, say=screen.print
        )
    screen.print((folder / TEAMMATE_CARD).read_text().rstrip())
    screen.print(f"Weights and card: {folder}")
