"""The command line: `rl-openness VERB ...`, a file per verb. Help, lists and wrong input need neither torch nor Ray."""

from __future__ import annotations

import contextlib
import re
import signal
import sys
from typing import Annotated

import typer

from rl_openness.cli.check import check
from rl_openness.cli.evaluate import evaluate
from rl_openness.cli.listing import listing
from rl_openness.cli.new import new
from rl_openness.cli.teammates import teammates
from rl_openness.cli.train import train
from rl_openness.errors import RunFailedError, UserError
from rl_openness.version import __version__

app = typer.Typer(
    help="Training for open multi-agent systems: agents and tasks appear and disappear while the system runs.",
    epilog="Exit codes: 0 done, 1 a run failed or a check found faults, 2 wrong input (told in one line), "
    "130 stopped by Ctrl-C or SIGTERM.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.command()(train)
app.command()(evaluate)
app.command()(check)
app.add_typer(new, name="new")
app.add_typer(teammates, name="teammates")
app.add_typer(listing, name="list")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rl-openness {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command line; what the user can mend is told in one line on stderr, with exit code 2."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        app(prog_name="rl-openness")
    except UserError as error:
        _fail(str(error), 2)
    except RunFailedError as error:
        _fail(str(error), 1)
    except OSError as error:
        _fail(": ".join(str(part) for part in (error.filename, error.strerror or error) if part), 2)


def _shortened(text: str) -> str:
    """With names that no one reads to their end cut off; directories and file names of usual length stay whole."""
    return re.sub(r"[^\s/:;,'\"]{81,}", lambda name: f"{name.group()[:57]}...", text)


def _fail(text: str, code: int) -> None:
    with contextlib.suppress(OSError):  # nobody may be reading
        typer.echo(f"error: {_shortened(' '.join(text.split()))}", err=True)
    sys.exit(code)
