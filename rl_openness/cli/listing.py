"""`rl-openness list ...`: what there is, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

import typer
from rich.table import Table

from rl_openness.cli.output import console
from rl_openness.errors import UserError

if TYPE_CHECKING:
    from rl_openness.plugins import Installed
    from rl_openness.policies.base import Policy

Found = TypeVar("Found")

listing = typer.Typer(help="List what there is, by name; without a word: everything.", invoke_without_command=True)


@listing.callback()
def everything(context: typer.Context) -> None:
    """List what there is, by name; without a word: everything."""
    if context.invoked_subcommand is None:
        for part in (algorithms, environments, setups, policies, teammates):
            part()


@listing.command()
def setups() -> None:
    """List Wildfire's worlds, with the exact optimum: the best mean return that any policy can reach."""
    from rl_openness.envs.wildfire.setups import LEVELS, family_names, wildfire_config
    from rl_openness.experiments.worlds import known_setups

    table = Table("setup", "agents", "exact optimum")
    for name, optimum in known_setups().items():
        table.add_row(name, str(wildfire_config(name).num_agents), "-" if optimum is None else f"{optimum:g}")
    screen = console()
    screen.print(table)
    for level, meaning in LEVELS.items():
        screen.print(f"{level}: {meaning}")
    screen.print(f"A name may begin with a family, {' or '.join(family_names())} (upstream/3x3/S3); without: living.")


@listing.command()
def algorithms() -> None:
    """List methods, with what sets each apart from the defaults; also those of other packages."""
    from rl_openness.algorithms.registry import bundled_methods, find_method
    from rl_openness.plugins import ALGORITHMS, installed

    others, broken = _loaded({name: (each, find_method) for name, each in installed(ALGORITHMS).items()})
    table = Table("algorithm", "what it is", "settings apart from the defaults", *(["package"] if others else []))
    rows = [(method.name, method, "rl-openness") for method in bundled_methods()]
    rows += [(name, method, package) for name, (method, package) in others.items()]
    for name, method, package in rows:
        changed = [f"{key}: {value}" for key, value in method.defaults.items()]
        table.add_row(name, method.summary, ", ".join(changed) or "-", *([package] if others else []))
    _show(table, broken)


@listing.command()
def environments() -> None:
    """List environments; also those of other packages."""
    from rl_openness.envs.registry import environment_names, environment_summary, is_bundled
    from rl_openness.plugins import ENVIRONMENTS, installed

    others, broken = _loaded({name: (each, environment_summary) for name, each in installed(ENVIRONMENTS).items()})
    table = Table("environment", "what it is", *(["package"] if others else []))
    for name in environment_names():
        if is_bundled(name):
            table.add_row(name, environment_summary(name), *(["rl-openness"] if others else []))
    for name, (what, package) in others.items():
        table.add_row(name, what, package)
    _show(table, broken)
    console().print("One of yours: my_package.my_module:make_env, see `check --help`.")


@listing.command()
def policies() -> None:
    """List policies by environment: hand-written ones, learned teammates of this package, those of other packages."""
    from rl_openness.envs.registry import environment_names, is_bundled
    from rl_openness.experiments.teammates import find_recipe
    from rl_openness.experiments.worlds import find_rule, rule_names
    from rl_openness.plugins import POLICIES, installed
    from rl_openness.policies.generic import GENERIC
    from rl_openness.policies.teammates import learned_names, user_policy

    table = Table("environment", "policy", "what it does")
    for environment in filter(is_bundled, environment_names()):
        for name in rule_names(environment):
            if environment == "wildfire" and name in GENERIC:  # the same ones, shown once below
                continue
            table.add_row(environment, name, _what(find_rule(environment, name)))
        for name in learned_names(environment):
            table.add_row(environment, name, f"Learned: {find_recipe(f'{name}-{environment}').summary}")
    for name, kind in GENERIC.items():
        table.add_row("wildfire, any other", name, (inspect.getdoc(kind) or "").partition("\n")[0])

    def load(name: str) -> Policy:
        environment, _, policy = name.rpartition(".")
        return user_policy(environment, policy)

    others, broken = _loaded({name: (each, load) for name, each in installed(POLICIES).items()})
    for name, (found, package) in others.items():
        environment, _, policy = name.rpartition(".")
        table.add_row(environment, policy, f"{_what(found)} (package {package})")
    _show(table, broken)


def _what(policy: Policy) -> str:
    return policy.summary or (inspect.getdoc(type(policy)) or "").partition("\n")[0]


def _loaded(
    offers: Mapping[str, tuple[Installed, Callable[[str], Found]]],
) -> tuple[dict[str, tuple[Found, str]], list[str]]:
    """What other packages offer, each with its package, and a line for everything that cannot be used."""
    found: dict[str, tuple[Found, str]] = {}
    broken: list[str] = []
    for name, (each, load) in offers.items():
        try:
            found[name] = (load(name), each.package)
        except UserError as error:
            broken.append(f"warning: {error}")
    return found, broken


def _show(table: Table, broken: list[str]) -> None:
    console().print(table)
    for line in broken:
        typer.echo(line, err=True)


@listing.command()
def teammates() -> None:
    """List populations (the types that teammates are drawn from in training and in tests), and Wolfpack's prey."""
    from rl_openness.experiments.teammates import find_recipe, recipe_names
    from rl_openness.policies.card import PREY
    from rl_openness.policies.prey import prey_names
    from rl_openness.policies.teammates import population_files, read_population

    table = Table("population", "environment", "in training", "in tests")
    for name in population_files():
        population = read_population(name)
        test = "the same" if population.test == population.train else ", ".join(population.test)
        table.add_row(name, population.environment, ", ".join(population.train), test)
    screen = console()
    screen.print(table)
    learned = Table("learned type", "environment", "made by `teammates train`", "what it is")
    for name in recipe_names():
        kind, _, environment = name.rpartition("-")
        if kind != PREY:
            learned.add_row(kind, environment, name, find_recipe(name).summary)
    screen.print(learned)
    trainable = ", ".join(recipe_names())
    screen.print(f"`rl-openness teammates train NAME` makes {trainable}. Other types: see `list policies`.")
    screen.print("A file of yours works too: --teammates mine.yaml; a type in it may be a path beside the file, or a")
    screen.print("function of yours without arguments that returns a Policy, as module:function.")
    prey = Table("prey of wolfpack", "what it is")
    for name, text in prey_names().items():
        prey.add_row(name, text)
    screen.print(prey)
    screen.print("Chosen by environment.options.prey, also by the path of one that you trained (`--out FOLDER`).")
