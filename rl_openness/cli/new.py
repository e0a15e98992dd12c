"""`rl-openness new environment|algorithm NAME`: a small working project to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rl_openness.cli.output import console

new = typer.Typer(
    help="Begin an environment or an algorithm of your own: a small working project.", no_args_is_help=True
)

World = Annotated[str, typer.Argument(help="Of the project and its folder, e.g. my-world.", show_default=False)]
Rule = Annotated[str, typer.Argument(help="Of the project and its folder, e.g. small-mappo.", show_default=False)]


@new.command()
def environment(name: World) -> None:
    """Write ./NAME: a world in which agents and tasks come and go, its training, its test."""
    _write("environment", name, f"rl-openness check {name.replace('-', '_')}.world:World")


@new.command()
def algorithm(name: Rule) -> None:
    """Write ./NAME: a variant of MAPPO with a setting of its own, its training, its test."""
    _write("algorithm", name, "python -m pytest")


def _write(kind: str, name: str, first: str) -> None:
    from rl_openness.experiments.scaffold import write_project

    screen = console()
    for path in write_project(kind, name, Path()):
        screen.print(f"wrote {path}")
    screen.print(f"Next:\n  cd {name}\n  {first}\n  rl-openness train train.yaml")
