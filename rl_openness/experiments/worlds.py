"""What an experiment may say about environments: options, how tables call a world, its exact optimum, its rules.

Loads without torch and Ray.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict

from rl_openness.envs.adapters.options import BRIDGE, BridgeOptions
from rl_openness.envs.base import EnvSpec
from rl_openness.envs.foraging import ForagingConfig
from rl_openness.envs.foraging.view import foraging_spec
from rl_openness.envs.registry import user_target
from rl_openness.envs.wildfire.setups import exact_optimum, setup_names, split_name, wildfire_config
from rl_openness.envs.wolfpack import WolfpackConfig
from rl_openness.envs.wolfpack.view import wolfpack_spec
from rl_openness.errors import UserError, nearest
from rl_openness.experiments.keys import ConfigError, KeyPath, checked, flat
from rl_openness.policies.base import Policy
from rl_openness.policies.generic import GENERIC, generic_policy
from rl_openness.policies.prey import check_prey
from rl_openness.policies.teammates import (
    check_teammate,
    default_types,
    installed_names,
    is_users,
    make_teammate,
    population_types,
    teammate_names,
    user_policy,
)
from rl_openness.policies.wildfire import make_rule, wildfire_rules

DEFAULT_SETUP = "3x3/S3"
_TEAM_WORLDS: dict[str, type[BaseModel]] = {"foraging": ForagingConfig, "wolfpack": WolfpackConfig}
"""Environments whose teammates are drawn from a population."""
_SPECS: dict[str, Callable[[Any], EnvSpec]] = {"foraging": foraging_spec, "wolfpack": wolfpack_spec}
_DEFAULT_TEAMMATES = {"foraging": "all rules", "wolfpack": "heuristics"}
"""What tables call `default_types`."""
_LISTS = {"train": "training", "test": "test"}


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


class EnvironmentNameError(ConfigError):
    """The environment's name is wrong, which the text says by itself where there is no configuration around it."""

    def __init__(self, text: str) -> None:
        super().__init__(("name",), text)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class World:
    """An environment with its options."""

    environment: str
    options: Mapping[str, Any]
    name: str
    """What tables call it, e.g. `3x3/S3` or `3x3/S3 (5 agents, fire.burnout_probability=0.4)`."""
    optimum: float | None
    """Best achievable mean return, where it is known exactly."""
    key: str
    """The same for two worlds just if they have the same environment and options, defaults included."""


def check_options(environment: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options in full, files read in. Raises ConfigError, its path starting at `environment`'s keys."""
    if environment == "wildfire":
        return _wildfire_options(options)
    return _team_options(environment, options) if environment in _TEAM_WORLDS else _user_options(environment, options)


def _user_options(environment: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Of an environment of a user's, whose module is imported to see what it takes."""
    try:
        target = user_target(environment)
    except UserError as error:
        raise EnvironmentNameError(str(error)) from None
    if target is None:
        return dict(options)
    given = {key: value for key, value in options.items() if value is not None}
    if BRIDGE in given and not target.many:
        bridge = checked(BridgeOptions, given[BRIDGE], ("options", BRIDGE))
        given[BRIDGE] = bridge.model_dump(mode="json", exclude_unset=True)
    try:
        target.check_options(given)
    except UserError as error:
        raise ConfigError(("options",), str(error)) from None
    return given


def _team_options(environment: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """Of a world with teammates: its fields, `teammates` (a population's name or file, or types) and `split`."""
    who = {key: data[key] for key in ("teammates", "split") if data.get(key) is not None}
    fields = {key: value for key, value in data.items() if key not in ("teammates", "split") and value is not None}
    config = _TEAM_WORLDS[environment]
    unknown = [key for key in fields if key not in config.model_fields]
    if unknown:
        known = [*config.model_fields, "teammates", "split"]
        raise ConfigError(("options", unknown[0]), f"unknown key{nearest(unknown[0], known)}")
    spec = _SPECS[environment](checked(config, fields, ("options",)))
    if environment == "wolfpack":
        try:
            check_prey(fields.get("prey", "evader"))
        except UserError as error:
            raise ConfigError(("options", "prey"), str(error)) from None
    if who.get("split", "train") not in ("train", "test"):
        raise ConfigError(("options", "split"), f"must be train or test, not {who['split']!r}")
    try:
        _check_teammates(environment, who.get("teammates"), spec, alone=fields.get("controlled") == "all")
    except UserError as error:
        raise ConfigError(("options", "teammates"), str(error)) from None
    return fields | who


def _check_teammates(environment: str, teammates: Any, spec: EnvSpec, *, alone: bool) -> None:
    """Raises UserError unless all that a population or a list names can act in a world of that spec."""
    if alone:
        if teammates is not None:
            raise UserError("controlled = all leaves nobody for teammates to decide for")
        return
    for split in ("train", "test"):
        types = default_types(environment) if teammates is None else teammates
        for name in population_types(environment, types, split):
            check_teammate(environment, name, spec)


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
    name, optimum, facts = environment, None, dict(options)
    if environment in _TEAM_WORLDS:
        who = {"teammates": options.get("teammates"), "split": options.get("split", "train")}
        fields = {key: value for key, value in options.items() if key not in who}
        facts = _TEAM_WORLDS[environment].model_validate(fields).model_dump(mode="json") | who
        name = _team_world_name(environment, facts)
    elif environment == "wildfire":
        name, optimum = _wildfire_world(options)
        facts = {"name": name, "config": wildfire_config(**options).model_dump(mode="json")}
    elif options.keys() - {BRIDGE}:
        shown = (f"{key}={value}" for key, value in options.items() if key != BRIDGE)
        name = f"{environment} ({', '.join(shown)})"
    key = json.dumps([environment, facts], sort_keys=True, default=str)
    return World(environment, options, name, optimum, key)


def _wildfire_world(options: Mapping[str, Any]) -> tuple[str, float | None]:
    """What tables call it, and its exact optimum where that is known."""
    setup = options.get("setup")
    here = wildfire_config(**options)
    if setup is None:
        digest = zlib.crc32(here.model_dump_json().encode())  # tells several own worlds apart
        return f"own world {here.grid_height}x{here.grid_width} ({digest:08x})", None
    shipped = wildfire_config(setup)
    notes = [f"{here.num_agents} agents"] if here.num_agents != shipped.num_agents else []
    notes += [f"{key}={value}" for key, value in options.get("overrides", {}).items()]
    return f"{setup} ({', '.join(notes)})" if notes else setup, exact_optimum(setup, changed=here != shipped)


def _team_world_name(environment: str, facts: Mapping[str, Any]) -> str:
    """What tables call it, e.g. `foraging, 5 agents, teammates foraging-exc (test list)`.

    From all fields, teammates and split.
    """
    team_size = facts["team_size"]
    who = facts["teammates"] or _DEFAULT_TEAMMATES[environment]
    who = who if isinstance(who, str) else "+".join(who)
    parts = [environment, f"{team_size} agents"]
    if facts["controlled"] != "all":
        parts.append(f"teammates {who} ({_LISTS[facts['split']]} list)")
    usual = _TEAM_WORLDS[environment]().model_dump(mode="json") | {"team_size": team_size}
    usual["slots"] = max(usual["slots"], team_size)  # as many as `with_team_size` gives
    parts += [f"{key}={facts[key]}" for key, default in usual.items() if facts[key] != default]
    return ", ".join(parts)


def with_team_size(environment: str, options: Mapping[str, Any], team_size: int) -> dict[str, Any]:
    """The options for another greatest number of agents.

    A world with slots gets as many as it needs, and one with a number of agents at reset no more than fit.
    """
    changed = {**options, "team_size": team_size}
    if environment in _TEAM_WORLDS:
        fields = _TEAM_WORLDS[environment].model_fields
        changed["slots"] = max(options.get("slots", fields["slots"].default), team_size)
        if "start_size" in fields and options.get("start_size", fields["start_size"].default) > team_size:
            changed["start_size"] = team_size
    return changed


def evaluation_options(
    environment: str, options: Mapping[str, Any], setups: Iterable[str] | None, team_size: int | None
) -> list[dict[str, Any]]:
    """Options of the worlds that a run is evaluated in, one for each setup; teammates come from the test list."""
    worlds: list[dict[str, Any]] = [{"setup": setup} for setup in setups or []] or [dict(options)]
    if "teammates" in options:
        worlds = [{**each, "split": "test"} for each in worlds]
    return worlds if team_size is None else [with_team_size(environment, each, team_size) for each in worlds]


def check_setups(environment: str, setups: list[str]) -> None:
    """Raises UserError unless the environment has all these setups."""
    if environment != "wildfire" and setups:
        raise UserError(f"environment {environment!r} has no named setups")
    for setup in setups:
        split_name(setup)


def usual_evaluation(environment: str) -> tuple[int, int]:
    """First seed and number of episodes of an evaluation that names none."""
    return (2500, 80) if environment in _TEAM_WORLDS else (200, 50)


def known_setups() -> dict[str, float | None]:
    """Wildfire's setups and their exact optima."""
    return {name: exact_optimum(name) for name in setup_names()}


def rule_names(environment: str) -> list[str]:
    """Policies to compare with: an environment's hand-written ones, the one that does nothing first; else generic ones.

    Those of other packages take part only where they are named.
    """
    return (list(wildfire_rules()) if environment == "wildfire" else teammate_names(environment)) or list(GENERIC)


def check_rule(environment: str, name: str, options: Mapping[str, Any]) -> None:
    """Raises UserError if `find_rule` does not know the name, or if that policy cannot act in a world of the options.

    A trained one is not loaded, which needs torch.
    """
    if _is_generic(environment, name):
        return
    if environment not in _TEAM_WORLDS:
        find_rule(environment, name)
        return
    config = _TEAM_WORLDS[environment]
    fields = {key: value for key, value in options.items() if key in config.model_fields}
    check_teammate(environment, name, _SPECS[environment](config.model_validate(fields)))


def _is_generic(environment: str, name: str) -> bool:
    if environment == "wildfire" or name not in GENERIC:
        return False
    return name not in teammate_names(environment)


def find_rule(environment: str, name: str, *, spec: EnvSpec | None = None, explore: bool = False) -> Policy:
    """A policy by name, hand-written or a learned teammate, which takes its best option unless `explore`.

    Generic ones need the environment's `spec`. Raises UserError, with the nearest name, for an unknown one.
    """
    if _is_generic(environment, name) and spec is not None:
        return generic_policy(name, spec)
    if environment in _TEAM_WORLDS:
        return make_teammate(environment, name, explore=explore)
    if is_users(environment, name):
        return user_policy(environment, name)
    if environment == "wildfire":
        return make_rule(name)
    known = [*GENERIC, *installed_names(environment)]
    raise UserError(f"unknown policy {name!r} for environment {environment!r}{nearest(name, known)}")
