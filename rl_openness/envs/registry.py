"""Environments by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from rl_openness.envs.base import OpenVectorEnv
from rl_openness.errors import UserError, nearest

_BUILT_IN = {"wildfire": "rl_openness.envs.wildfire.setups:make_wildfire"}
_registered: dict[str, Callable[..., OpenVectorEnv]] = {}


def register_environment(name: str, make: Callable[..., OpenVectorEnv]) -> None:
    """Make `make(num_copies, **options) -> OpenVectorEnv` known under a name in this process."""
    _registered[name] = make


def environment_names() -> list[str]:
    """All names that `make_environment` knows."""
    return sorted({*_BUILT_IN, *_registered})


def make_environment(name: str, num_copies: int, options: Mapping[str, Any] | None = None) -> OpenVectorEnv:
    """`num_copies` copies of the named environment. Raises UserError for an unknown name or option."""
    make = _registered.get(name)
    if make is None:
        if name not in _BUILT_IN:
            raise UserError(f"unknown environment {name!r}{nearest(name, environment_names())}")
        module, _, attribute = _BUILT_IN[name].partition(":")
        make = getattr(import_module(module), attribute)
    try:
        inspect.signature(make).bind(num_copies, **dict(options or {}))
    except TypeError as error:
        raise UserError(f"environment {name!r}: {error}") from None
    return make(num_copies, **dict(options or {}))
