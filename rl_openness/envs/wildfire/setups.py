"""The shipped worlds by name (specification parts 8 and 13), and how a user changes them or brings an own one.

A name is `[family/]grid/setup`, e.g. `3x3/S3` or `upstream/4x4/S1`; without a family it is `living`.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rl_openness.envs.wildfire.config import WildfireConfig
from rl_openness.envs.wildfire.env import AtEnd, WildfireEnv
from rl_openness.errors import UserError, nearest
from rl_openness.files import read_yaml

DEFAULT_FAMILY = "living"


@cache
def _data(name: str) -> Any:
    return json.loads(resources.files(__package__).joinpath(name).read_text())


def setup_names() -> list[str]:
    """Names without a family: 2x3/S0 ... 5x5/S3."""
    data = _data("setups.json")
    return [f"{grid}/{setup}" for grid in data["grids"] for setup in data["setups"]]


def family_names() -> list[str]:
    """The names `living` and `upstream`."""
    return sorted(_data("setups.json")["families"])


def split_name(setup: str) -> tuple[str, str]:
    """`(family, grid/setup)` of a full or short name. Raises UserError, with the nearest name, for an unknown one."""
    head, _, tail = setup.partition("/")
    family, short = (head, tail) if head in family_names() else (DEFAULT_FAMILY, setup)
    if short not in setup_names():
        named = [f"{each}/{name}" for each in family_names() for name in setup_names()]
        raise UserError(f"unknown setup {setup!r}{nearest(short, named if short.count('/') > 1 else setup_names())}")
    return family, short


def set_by_path(data: dict[str, Any], path: str, value: Any) -> None:
    """Set `a.b.c` in nested dictionaries, making groups as needed; UserError if `a` or `a.b` is a single value."""
    *groups, last = path.split(".")
    for group in groups:
        data = data.setdefault(group, {})
        if not isinstance(data, dict):
            raise UserError(f"wildfire field {path!r}: {group!r} is a single value, not a group of fields")
    data[last] = value


LEVELS = {
    "S0": "the fires at the start are all there is, nobody runs dry",
    "S1": "fires spread; firefighters run dry and are away until refilled",
    "S2": "new fires break out; firefighters run dry",
    "S3": "fires spread and break out; firefighters run dry",
}
"""The four degrees of openness (paper, setups S0 to S3), in words."""


def setup_data(setup: str) -> dict[str, Any]:
    """The plain, unchecked configuration of a shipped setup."""
    family, short = split_name(setup)
    data = _data("setups.json")
    grid, _, level = short.partition("/")
    config: dict[str, Any] = json.loads(json.dumps(data["common"]))
    for layer in (data["grids"][grid], data["setups"][level], data["families"][family]):
        for path, value in layer.items():
            set_by_path(config, path, value)
    return config


def resize_team(config: dict[str, Any], size: int) -> None:
    """In a checked world, keep the first `size` agents; further ones repeat positions, powers and ranges in order."""
    if size < 1:
        raise UserError(f"team_size must be at least 1, not {size}")
    agent = config["agent"]
    for name in ("agents", "fire_reduction_power", "attack_range"):
        agent[name] = [agent[name][i % len(agent[name])] for i in range(size)]


def wildfire_config(
    setup: str | None = None,
    *,
    config: Mapping[str, Any] | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    team_size: int | None = None,
) -> WildfireConfig:
    """A checked world: a shipped `setup` or an own `config`, then `team_size`, then `overrides`.

    `config` is a mapping or the path of a YAML file with the fields of `WildfireConfig`; `overrides` have dotted keys
    such as `fire.burnout_probability`. Raises UserError naming the field that is wrong.
    """
    if (setup is None) == (config is None):
        raise UserError("wildfire needs either `setup` (a shipped name) or `config` (an own world), and not both")
    _check_types(setup=setup, config=config, overrides=overrides, team_size=team_size)
    if setup is not None:
        data = setup_data(setup)
    elif isinstance(config, str):
        data = _read_world(config)
    else:
        data = copy.deepcopy(dict(config or {}))
    if team_size is not None:
        _check(data)
        resize_team(data, team_size)
    for key, value in _leaves(overrides or {}):
        set_by_path(data, key, value)
    return _check(data)


def _check_types(**arguments: Any) -> None:
    for name, kinds, words in (
        ("setup", str, "a name such as 3x3/S3"),
        ("config", (str, Mapping), "the fields of a world, or the path of a YAML file"),
        ("overrides", Mapping, "fields and values, such as {'fire.burnout_probability': 0.4}"),
        ("team_size", int, "a whole number"),
    ):
        value = arguments[name]
        if value is not None and (not isinstance(value, kinds) or isinstance(value, bool)):
            raise UserError(f"wildfire: {name} must be {words}, not {value!r}")


def _leaves(fields: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of fields that may be nested."""
    for key, value in fields.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _check(data: dict[str, Any]) -> WildfireConfig:
    try:
        return WildfireConfig.model_validate(data)
    except ValidationError as error:
        raise UserError(_first_problem(error)) from None


def _read_world(name: str) -> dict[str, Any]:
    path = Path(name)
    if not path.is_file():
        raise UserError(f"wildfire config {name!r}: no such file")
    return read_yaml(path)


def _first_problem(error: ValidationError) -> str:
    problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        known = [name for name, field in WildfireConfig.model_fields.items()]
        for name, field in WildfireConfig.model_fields.items():
            known += [f"{name}.{inner}" for inner in getattr(field.annotation, "model_fields", ())]
        last = str(problem["loc"][-1])
        moved = [name for name in known if name.rpartition(".")[2] == last]
        return f"wildfire has no field {where!r}{nearest(last if moved else where, known)}"
    message = problem["msg"].removeprefix("Value error, ")
    return f"wildfire field {where!r}: {message}" if where else f"wildfire: {message}"


def make_wildfire(
    num_copies: int = 1,
    *,
    setup: str | None = None,
    config: Mapping[str, Any] | str | None = None,
    overrides: Mapping[str, Any] | None = None,
    team_size: int | None = None,
    at_end: AtEnd = "reset",
) -> WildfireEnv:
    """B copies of a world; arguments as for `wildfire_config` (no argument: the setup 3x3/S3)."""
    if setup is None and config is None:
        setup = "3x3/S3"
    world = wildfire_config(setup, config=config, overrides=overrides, team_size=team_size)
    return WildfireEnv(world, num_copies, at_end=at_end)


def exact_optimum(setup: str | None, *, changed: bool = False) -> float | None:
    """Best achievable mean return of a `living` setup (exact dynamic programming, full information); else None.

    `changed`: the world has overrides or another team, so the number would not hold.
    """
    if setup is None or changed:
        return None
    family, short = split_name(setup)
    return float(_data("optimum.json")[short]) if family == "living" else None
