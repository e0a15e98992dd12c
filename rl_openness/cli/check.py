"""`rl-openness check`: does an environment keep the rules that training relies on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_openness.cli.output import console, interruptible

if TYPE_CHECKING:
    from rl_openness.envs.conformance import Finding, Report

_LIBRARIES = {
    "parallel": "a PettingZoo ParallelEnv",
    "rllib": "an RLlib MultiAgentEnv",
    "native": "an OpenVectorEnv of this package",
}


def check(
    target: Annotated[
        str,
        typer.Argument(
            help="An environment: my_package.my_module:make_env, a name of `list environments`, or an experiment "
            "(YAML) whose environment and options are taken.",
            show_default=False,
        ),
    ],
    episodes: Annotated[int, typer.Option(min=1, help="Episodes, each of another seed.")] = 5,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Seed of the first episode.")] = 0,
    steps: Annotated[int, typer.Option(min=1, help="Most steps of an episode.")] = 200,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="An option, e.g. bridge.max_steps=100; may be repeated."),
    ] = None,
) -> None:
    """Play random legal actions in an environment and tell what breaks a rule, with where, and what to do.

    A fault makes training wrong or breaks a rule of the environment's own library; a note is worth knowing. Exit code
    1 if there are faults.
    """
    from rl_openness.envs.conformance import check_environment

    name, options = _environment(target, set_ or [])
    with interruptible("Stopped."):
        report = check_environment(name, options, episodes=episodes, seed=seed, steps=steps)
    screen = console()
    screen.print(f"{name} is checked as {_LIBRARIES[report.convention]}.")
    for finding in report.findings:
        screen.print(told(finding))
    screen.print(result_line(report))
    if report.faults:
        raise typer.Exit(1)


def _environment(target: str, changes: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Name and options, from an experiment or from the command line alone."""
    from rl_openness.experiments.worlds import check_options
    from rl_openness.experiments.yaml_files import changed_options, load_experiment

    if target.endswith((".yaml", ".yml")):
        settings = load_experiment(Path(target), [f"environment.options.{change}" for change in changes])
        return settings.environment.name, settings.environment.options
    return target, check_options(target, changed_options(changes))


def told(finding: Finding) -> str:
    """A finding as full sentences: where, what, how often, and what to do."""
    place = [f"agent {finding.agent!r}"] if finding.agent is not None else []
    if finding.step is not None:
        place.append("reset" if finding.step == 0 else f"step {finding.step}")
    place += [f"seed {finding.seed}"] if finding.seed is not None else []
    also = f", also for {', '.join(repr(name) for name in finding.also)}" if finding.also else ""
    times = f" ({finding.times} times{also})" if finding.times > 1 else ""
    where = ", ".join(place) or "whole environment"
    ending = "" if not times and finding.text.endswith("?") else "."
    return f"{finding.severity}: {where}: {finding.text}{times}{ending} {finding.remedy}"


def result_line(report: Report) -> str:
    """What was played, and how many faults there are."""
    counts = [(report.episodes, "episode"), (report.steps, "step"), (report.agents, "agent")]
    counts += [(number, name[:-1]) for name, number in report.events.items()]
    played = ", ".join(f"{number:,} {word}{'' if number == 1 else 's'}" for number, word in counts)
    faults, notes = len(report.faults), len(report.notes)
    ending = f"{faults or 'no'} fault{'' if faults == 1 else 's'}"
    ending += f", {notes} note{'' if notes == 1 else 's'}" if notes else ""
    return f"{played}: {ending}."
