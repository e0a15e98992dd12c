"""Methods by name, known without Ray or torch: settings to check a configuration, RLlib's class when it is built."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from rl_openness.algorithms.gpl.settings import GPL_VARIANTS, GplSettings
from rl_openness.algorithms.mappo.settings import MAPPO_VARIANTS, PLATO_VARIANTS, ActionsSettings, PlatoSettings
from rl_openness.errors import UserError, nearest
from rl_openness.plugins import ALGORITHMS, find_plugin, installed, is_plugin


@dataclass(frozen=True)
class Method:
    """A named method: a learning rule with a set of defaults."""

    name: str
    summary: str
    """What it is, in a line."""
    policy_method: str
    """The name its trained policies are saved under (`PolicyCard.method`): a bundled method's, whose network can read
    its weights and settings, or `module:function(spec, settings)` of another package that makes the acting network."""
    settings: type[BaseModel]
    """Fields and checks; the only truth about the method's settings."""
    defaults: Mapping[str, Any]
    """What this variant sets apart from the fields' own defaults."""
    config: str
    """`module:class` of the RLlib configuration, which takes every field of `settings` in `training(...)`."""

    def new_config(self) -> Any:
        """A fresh RLlib configuration. Imports torch and Ray."""
        return find_plugin(self.config)()


_PLATO = "pointer actor over the tasks, graph critic, trained by MAPPO"
_GPL = "Q-learning over a graph of the team, among teammates that it does not control"
_CHANGES = {
    "gpl": _GPL,
    "ciao-c": f"{_GPL}; complete graph, non-negative utilities, regulariser",
    "ciao-s": f"{_GPL}; star graph, non-negative utilities, regulariser",
}


def _plato(variant: str) -> Method:
    return Method(
        name=variant,
        summary=_PLATO if variant == "plato" else "PLATO in the form of the paper",
        policy_method="plato",
        settings=PlatoSettings,
        defaults=PLATO_VARIANTS[variant],
        config="rl_openness.algorithms.mappo.config:PLATOConfig",
    )


def _gpl(variant: str) -> Method:
    return Method(
        name=variant,
        summary=_CHANGES.get(variant, f"an ablation of {variant[:6].upper()}"),
        policy_method="gpl",
        settings=GplSettings,
        defaults=GPL_VARIANTS[variant],
        config=f"rl_openness.algorithms.gpl.config:{'GPLConfig' if variant == 'gpl' else 'CIAOConfig'}",
    )


def _mappo(variant: str) -> Method:
    return Method(
        name=variant,
        summary="one actor and one critic for all agents, whose set of actions is fixed; own or team rewards",
        policy_method="mappo",
        settings=ActionsSettings,
        defaults=MAPPO_VARIANTS[variant],
        config="rl_openness.algorithms.mappo.config:MAPPOConfig",
    )


_METHODS = {
    **{name: _plato(name) for name in PLATO_VARIANTS},
    **{name: _mappo(name) for name in MAPPO_VARIANTS},
    **{name: _gpl(name) for name in GPL_VARIANTS},
}


def bundled_methods() -> list[Method]:
    """Those of this package."""
    return [_METHODS[name] for name in sorted(_METHODS)]


def method_names() -> list[str]:
    """All names that `find_method` knows, without users' `module:attribute`."""
    return sorted({*_METHODS, *installed(ALGORITHMS)})


def find_method(name: str) -> Method:
    """The method of that name: bundled, an entry point of another package, or a user's `module:attribute`.

    Raises UserError, with the nearest name, for an unknown one, and for one that cannot be imported or is no `Method`.
    """
    if name in _METHODS:
        return _METHODS[name]
    if is_plugin(name):
        found = find_plugin(name)
    elif name in installed(ALGORITHMS):
        found = installed(ALGORITHMS)[name].load()
    else:
        raise UserError(f"unknown algorithm {name!r}{nearest(name, method_names())}")
    if not isinstance(found, Method):
        raise UserError(f"algorithm {name!r} must be an rl_openness.algorithms.registry.Method, not {found!r:.80}")
    return found
