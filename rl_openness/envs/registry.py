"""Environments by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from rl_openness.envs.base import OpenVectorEnv
from rl_openness.errors import UserError, nearest

_BUILT_IN = {  # module:function; a world with teammates is made where its teammates are known
    "wildfire": "rl_openness.envs.wildfire.setups:make_wildfire",
    "foraging": "rl_openness.policies.teammates:make_foraging_world",
    "wolfpack": "rl_openness.policies.teammates:make_wolfpack_world",
}
_SUMMARIES = {
    "wildfire": "firefighters who run dry and fires that spread; tasks and agents come and go",
    "foraging": "open Level-Based Foraging: players lift foods together; teammates leave and others join",
    "wolfpack": "open Wolfpack: predators hunt prey together; teammates leave and others join",
}
_registered: dict[str, Callable[..., OpenVectorEnv]] = {}


def register_environment(name: str, make: Callable[..., OpenVectorEnv]) -> None:
    """Make `make(num_copies, **options) -> OpenVectorEnv` known under a name in this process."""
    _registered[name] = make


def environment_names() -> list[str]:
    """All names that `make_environment` knows."""
    return sorted({*_BUILT_IN, *_registered})


def environment_summary(name: str) -> str:
    """What it is, in a line."""
    return _SUMMARIES.get(name) or (inspect.getdoc(_registered[name]) or "").partition("\n")[0]


def make_environment(name: str, num_copies: int, options: Mapping[str, Any] | None = None) -> OpenVectorEnv:
    """`num_copies` copies of the named environment. Raises UserError for an unknown name or option."""
    if not isinstance(name, str):
        raise UserError(f"an environment is needed, by name ({', '.join(environment_names())}), not {name!r}")
    make = _registered.get(name)
    if make is None:
        if name not in _BUILT_IN:
            raise UserError(f"unknown environment {name!r}{nearest(name, environment_names())}")
        module, _, attribute = _BUILT_IN[name].partition(":")
        make = getattr(import_module(module), attribute)
    signature = inspect.signature(make)
    known = [parameter.name for parameter in list(signature.parameters.values())[1:]]
    try:
        signature.bind(num_copies, **dict(options or {}))
    except TypeError as error:
        unknown = [option for option in options or {} if option not in known]
        reason = f"unknown option {unknown[0]!r}{nearest(unknown[0], known)}" if unknown else str(error)
        raise UserError(f"environment {name!r}: {reason}") from None
    return make(num_copies, **dict(options or {}))
