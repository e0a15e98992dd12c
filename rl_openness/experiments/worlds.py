"""What an experiment may say about environments: options, how tables call a world, its exact optimum, its rules.

Loads without torch and Ray.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from rl_openness.envs.foraging import ForagingConfig
from rl_openness.envs.registry import environment_names
from rl_openness.envs.wildfire.setups import exact_optimum, setup_names, split_name, wildfire_config
from rl_openness.envs.wolfpack import WolfpackConfig
from rl_openness.errors import UserError, nearest
from rl_openness.experiments.keys import ConfigError, KeyPath, checked, flat
from rl_openness.policies.base import Policy
from rl_openness.policies.prey import check_prey
from rl_openness.policies.teammates import check_teammate, make_teammate, population_types, teammate_names
from rl_openness.policies.wildfire import make_rule, wildfire_rules

DEFAULT_SETUP = "3x3/S3"
_TEAM_WORLDS: dict[str, type[BaseModel]] = {"foraging": ForagingConfig, "wolfpack": WolfpackConfig}
"""Environments whose teammates are drawn from a population."""


class WildfireOptions(BaseModel):
    """What `environment.options` may hold for Wildfire."""

    model_config = ConfigDict(extra="forbid")

    setup: str | None = None
    """A shipped world, `[family/]grid/setup`; 3x3/S3 if neither this nor `config` is given."""
    config: dict[str, Any] | str | None = None
    """An own world: the fields of `WildfireConfig`, or the path of a YAML file that holds them."""
    team_size: int | None = None
    """Number of agents, at least 1; null = as the world has it."""
    overrides: dict[str, Any] | None = None
    """Fields of `WildfireConfig` to change, nested or with dots (`fire.burnout_probability`)."""


@dataclass(frozen=True)
class World:
    """An environment with its options."""

    environment: str
    options: Mapping[str, Any]
    name: str
    """What tables call it, e.g. `3x3/S3` or `3x3/S3 (5 agents, fire.burnout_probability=0.4)`."""
    optimum: float | None
    """Best achievable mean return, where it is known exactly."""


def check_options(environment: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options in full, files read in. Raises ConfigError, its path starting at `environment`'s keys."""
    if environment not in environment_names():
        raise ConfigError(("name",), f"unknown environment {environment!r}{nearest(environment, environment_names())}")
    if environment == "wildfire":
        return _wildfire_options(options)
    return _team_options(environment, options) if environment in _TEAM_WORLDS else dict(options)


def _team_options(environment: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Of a world with teammates: its fields, `teammates` (a population's name or file, or types) and `split`."""
    who = {key: data[key] for key in ("teammates", "split") if data.get(key) is not None}
    fields = {key: value for key, value in data.items() if key not in ("teammates", "split") and value is not None}
    config = _TEAM_WORLDS[environment]
    unknown = [key for key in fields if key not in config.model_fields]
    if unknown:
        known = [*config.model_fields, "teammates", "split"]
        raise ConfigError(("options", unknown[0]), f"unknown key{nearest(unknown[0], known)}")
    checked(config, fields, ("options",))
    if environment == "wolfpack":
        try:
            check_prey(fields.get("prey", "evader"))
        except UserError as error:
            raise ConfigError(("options", "prey"), str(error)) from None
    try:
        for split in ("train", "test"):
            for name in population_types(environment, who.get("teammates", teammate_names(environment)), split):
                check_teammate(environment, name)
    except UserError as error:
        raise ConfigError(("options", "teammates"), str(error)) from None
    if who.get("split", "train") not in ("train", "test"):
        raise ConfigError(("options", "split"), f"must be train or test, not {who['split']!r}")
    return fields | who


def _wildfire_options(data: Mapping[str, Any]) -> dict[str, Any]:
    options = checked(WildfireOptions, data, ("options",))
    setup, config = options.setup, options.config
    if setup is None and config is None:
        setup = DEFAULT_SETUP
    overrides = flat(options.overrides or {})
    steps: list[tuple[KeyPath, dict[str, Any]]] = [
        (("setup" if config is None else "config",), {}),
        (("team_size",), {"team_size": options.team_size}),
    ]
    for n, key in enumerate(overrides, start=1):
        first = dict(list(overrides.items())[:n])
        steps.append((("overrides", *key.split(".")), {"team_size": options.team_size, "overrides": first}))
    problem = None
    for path, kwargs in steps:  # two overrides may be right only together: what counts is the last state
        try:
            wildfire_config(setup, config=config, **kwargs)
            problem = None
        except UserError as error:
            problem = problem or ConfigError(("options", *path), str(error))
    if problem is not None:
        raise problem
    if isinstance(config, str):
        config = wildfire_config(config=config).model_dump(mode="json")
    full = {"setup": setup, "config": config, "team_size": options.team_size, "overrides": overrides or None}
    return {key: value for key, value in full.items() if value is not None}


def find_world(environment: str, options: Mapping[str, Any]) -> World:
    """A world from checked options. Raises UserError if they are wrong."""
    try:
        options = check_options(environment, options)
    except ConfigError as error:
        raise UserError(f"{'.'.join(error.path[1:])}: {error.text}" if error.path[1:] else error.text) from None
    if environment in _TEAM_WORLDS:
        return World(environment, options, _team_world_name(environment, options), None)
    if environment != "wildfire":
        return World(environment, options, environment, None)
    setup = options.get("setup")
    here = wildfire_config(**options)
    if setup is None:
        digest = zlib.crc32(here.model_dump_json().encode())  # tells several own worlds apart
        return World(environment, options, f"own world {here.grid_height}x{here.grid_width} ({digest:08x})", None)
    shipped = wildfire_config(setup)
    notes = [f"{here.num_agents} agents"] if here.num_agents != shipped.num_agents else []
    notes += [f"{key}={value}" for key, value in options.get("overrides", {}).items()]
    optimum = exact_optimum(setup, changed=here != shipped)
    return World(environment, options, f"{setup} ({', '.join(notes)})" if notes else setup, optimum)


def _team_world_name(environment: str, options: Mapping[str, Any]) -> str:
    """What tables call it, e.g. `foraging, 5 agents, foraging-exc test`."""
    team_size = options.get("team_size", _TEAM_WORLDS[environment].model_fields["team_size"].default)
    who = options.get("teammates", "all rules")
    who = who if isinstance(who, str) else "+".join(who)
    parts = [environment, f"{team_size} agents", f"{who} {options.get('split', 'train')}"]
    fields = _TEAM_WORLDS[environment].model_fields
    for key, value in options.items():
        if key in fields and key not in ("team_size", "slots") and value != fields[key].default:
            parts.append(f"{key}={value}")
    return ", ".join(parts)


def with_team_size(environment: str, options: Mapping[str, Any], team_size: int) -> dict[str, Any]:
    """The options for another greatest number of agents; a world with slots gets as many as it needs."""
    changed = {**options, "team_size": team_size}
    if environment in _TEAM_WORLDS:
        slots = options.get("slots", _TEAM_WORLDS[environment].model_fields["slots"].default)
        changed["slots"] = max(slots, team_size)
    return changed


def check_setups(environment: str, setups: list[str]) -> None:
    """Raises UserError unless the environment has all these setups."""
    if environment != "wildfire" and setups:
        raise UserError(f"environment {environment!r} has no named setups")
    for setup in setups:
        split_name(setup)


def known_setups() -> dict[str, float | None]:
    """Wildfire's setups and their exact optima."""
    return {name: exact_optimum(name) for name in setup_names()}


def rule_names(environment: str) -> list[str]:
    """Hand-written policies for an environment, the one that does nothing first."""
    return list(wildfire_rules()) if environment == "wildfire" else teammate_names(environment)


def find_rule(environment: str, name: str) -> Policy:
    """A hand-written policy by name. Raises UserError, with the nearest name, for an unknown one."""
    if environment == "wildfire":
        return make_rule(name)
    if environment not in _TEAM_WORLDS:
        raise UserError(f"there are no hand-written policies for environment {environment!r}")
    return make_teammate(environment, name)
