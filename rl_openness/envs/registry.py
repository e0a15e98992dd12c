"""Environments by name: bundled ones, those of installed packages (entry points), and users' `module:attribute`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from rl_openness.envs.base import OpenVectorEnv
from rl_openness.envs.targets import Target, find_target
from rl_openness.errors import UserError, nearest
from rl_openness.plugins import ENVIRONMENTS, installed, is_plugin

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
    """All names that `make_environment` knows, without users' `module:attribute`."""
    return sorted({*_BUILT_IN, *_registered, *installed(ENVIRONMENTS)})


def is_bundled(name: str) -> bool:
    """Whether it comes with this package."""
    return name in _BUILT_IN


def environment_summary(name: str) -> str:
    """What it is, in a line. Imports an environment of another package, and raises UserError if that fails."""
    if name in _SUMMARIES:
        return _SUMMARIES[name]
    make = _registered[name] if name in _registered else installed(ENVIRONMENTS)[name].load()
    return (inspect.getdoc(make) or "").partition("\n")[0]


def user_target(name: str) -> Target | None:
    """What a user's or another package's environment is made by; None for one that is bundled or registered.

    Raises UserError for an unknown name, or if its module cannot be imported.
    """
    if not isinstance(name, str):
        raise UserError(f"an environment is needed, by name ({', '.join(environment_names())}), not {name!r}")
    if name in _registered or name in _BUILT_IN:
        return None
    if not is_plugin(name) and name not in installed(ENVIRONMENTS):
        also = "" if ":" not in name else "; one of yours is named module:attribute, e.g. my_package.my_module:make_env"
        raise UserError(f"unknown environment {name!r}{also or nearest(name, environment_names())}")
    return find_target(name)


def make_environment(name: str, num_copies: int, options: Mapping[str, Any] | None = None) -> OpenVectorEnv:
    """`num_copies` copies of the named environment. Raises UserError for an unknown name or option.

    A function or class of a user's that gives one PettingZoo `ParallelEnv` or RLlib `MultiAgentEnv` is bridged; its
    options may then hold a group `bridge` (see `adapters.options.BridgeOptions`).
    """
    target = user_target(name)
    if target is not None:
        return target.vector(num_copies, options or {})
    make = _registered.get(name)
    if make is None:
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
