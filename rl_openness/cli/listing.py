"""`rl-openness list ...`: what there is, by name."""

from __future__ import annotations

import inspect

import typer
from rich.table import Table

from rl_openness.cli.output import console

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
    """List methods, with what sets each apart from the defaults."""
    from rl_openness.algorithms.registry import find_method, method_names

    table = Table("algorithm", "what it is", "settings apart from the defaults")
    for name in method_names():
        method = find_method(name)
        changed = [f"{key}: {value}" for key, value in method.defaults.items()]
        table.add_row(name, method.summary, ", ".join(changed) or "-")
    console().print(table)


@listing.command()
def environments() -> None:
    """List environments."""
    from rl_openness.envs.registry import environment_names, environment_summary

    table = Table("environment", "what it is")
    for name in environment_names():
        table.add_row(name, environment_summary(name))
    console().print(table)


@listing.command()
def policies() -> None:
    """List policies by environment: hand-written ones, then the learned teammates that come with the package."""
    from rl_openness.envs.registry import environment_names
    from rl_openness.experiments.teammates import find_recipe
    from rl_openness.experiments.worlds import find_rule, rule_names
    from rl_openness.policies.teammates import learned_names

    table = Table("environment", "policy", "what it does")
    for environment in environment_names():
        for name in rule_names(environment):
            rule = find_rule(environment, name)
            table.add_row(environment, name, rule.summary or (inspect.getdoc(type(rule)) or "").partition("\n")[0])
        for name in learned_names(environment):
            table.add_row(environment, name, f"Learned: {find_recipe(f'{name}-{environment}').summary}")
    console().print(table)


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
    learned = Table("learned type", "environment", "what it is")
    for name in recipe_names():
        kind, _, environment = name.rpartition("-")
        if kind != PREY:
            learned.add_row(kind, environment, find_recipe(name).summary)
    screen.print(learned)
    screen.print("Made by `rl-openness teammates train TYPE-ENVIRONMENT`. Other types: see `list policies`.")
    screen.print("A file of yours works too: --teammates mine.yaml; a type in it may be a path beside the file, or a")
    screen.print("function of yours without arguments that returns a Policy, as module:function.")
    prey = Table("prey of wolfpack", "what it is")
    for name, text in prey_names().items():
        prey.add_row(name, text)
    screen.print(prey)
    screen.print("Chosen by environment.options.prey, also by the path of one that you trained (`--out FOLDER`).")
