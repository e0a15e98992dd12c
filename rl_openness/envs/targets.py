"""What the name of a user's environment stands for: a function for many copies, or for one foreign environment."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rl_openness.envs.adapters.options import BRIDGE, BridgeOptions, bridge_options
from rl_openness.envs.base import OpenVectorEnv
from rl_openness.errors import UserError, nearest
from rl_openness.plugins import ENVIRONMENTS, find_plugin, installed, is_plugin

_CONFIG_NAMES = ("config", "env_config", "env_context", "cfg")
"""A first argument of this name takes all options as one dict, as RLlib passes them."""
COPIES = "num_copies"
DEFAULTS = "bridge_options"
"""A function or class that gives one environment may hold the usual options of its bridge, as this attribute."""


@dataclass(frozen=True)
class Target:
    """A user's `make_env(num_copies, **options)`, or a function or class that gives one environment."""

    name: str
    make: Callable[..., Any]

    @property
    def many(self) -> bool:
        """Whether it makes an `OpenVectorEnv` of several copies itself."""
        return COPIES in _parameters(self.make)

    def check_options(self, options: Mapping[str, Any]) -> None:
        """Raises UserError for options that it does not take; nothing is made."""
        if not self.many:
            self.bridge(options)
            self.single(options)
        elif BRIDGE in options:
            raise UserError(f"environment {self.name!r} makes its copies itself: there is nothing to {BRIDGE}")
        else:
            _bound(self.make, {COPIES: 1, **options}, self.name)

    def vector(self, num_copies: int, options: Mapping[str, Any]) -> OpenVectorEnv:
        """Copies; one environment is bridged. Raises UserError for wrong options or anything else that is made."""
        if not self.many:
            return self.bridge(options).bridged(self.single(options), num_copies, self.name)
        self.check_options(options)
        bound = _bound(self.make, {COPIES: num_copies, **options}, self.name)
        env = bound()
        if not isinstance(env, OpenVectorEnv):
            raise UserError(
                f"environment {self.name!r} takes {COPIES}, so it must give an OpenVectorEnv, not {_a(env)}"
            )
        return env

    def bridge(self, options: Mapping[str, Any]) -> BridgeOptions:
        """Options of the bridge: those given, over the environment's own. Raises UserError for wrong ones."""
        usual = getattr(self.make, DEFAULTS, {})
        if not isinstance(usual, Mapping):
            raise UserError(f"environment {self.name!r}: {DEFAULTS} must be a dict, not {usual!r:.80}")
        both = {**usual, **(options.get(BRIDGE) or {})}
        mappings = [each["mapping"] for each in (usual, options.get(BRIDGE) or {}) if each.get("mapping")]
        if len(mappings) == 2 and all(isinstance(each, Mapping) for each in mappings):
            both["mapping"] = {**mappings[0], **mappings[1]}
        return bridge_options(both)

    def single(self, options: Mapping[str, Any]) -> Callable[[], Any]:
        """A function that makes one foreign environment. Raises UserError for options that it does not know."""
        own = {key: value for key, value in options.items() if key != BRIDGE}
        first = next(iter(_parameters(self.make)), None)
        if first in _CONFIG_NAMES and first not in own:
            return lambda: _one(self.make(dict(own)), self.name)
        bound = _bound(self.make, own, self.name)
        return lambda: _one(bound(), self.name)


def find_target(name: str) -> Target:
    """What a user's name stands for: `module:attribute`, or an entry point. Raises UserError if there is no such."""
    if is_plugin(name):
        make = find_plugin(name)
    else:
        make = installed(ENVIRONMENTS)[name].load()
    if not callable(make):
        raise UserError(f"environment {name!r} is {_a(make)}: name a function or a class that makes an environment")
    return Target(name, make)


def _parameters(make: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    try:
        return inspect.signature(make).parameters
    except (TypeError, ValueError):  # a builtin
        return {}


def _bound(make: Callable[..., Any], options: Mapping[str, Any], name: str) -> Callable[[], Any]:
    parameters = _parameters(make)
    takes_all = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    known = [each for each in parameters if each != COPIES]
    unknown = [] if takes_all else [option for option in options if option not in parameters]
    if unknown:
        raise UserError(f"environment {name!r}: unknown option {unknown[0]!r}{nearest(unknown[0], known)}")
    try:
        inspect.signature(make).bind(**options)
    except TypeError as error:
        raise UserError(f"environment {name!r}: {error}") from None
    except ValueError:
        pass
    return lambda: make(**options)


def _one(env: Any, name: str) -> Any:
    if isinstance(env, OpenVectorEnv):
        raise UserError(f"environment {name!r} gives an OpenVectorEnv, so its function must take {COPIES}")
    if env is None:
        raise UserError(f"environment {name!r} gives None instead of an environment: is a `return` missing?")
    return env


def _a(value: Any) -> str:
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
