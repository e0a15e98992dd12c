"""Saved policies without their weights: where they lie, and what they are. Loads without torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rl_openness.envs.base import EnvSpec
from rl_openness.errors import UserError, nearest
from rl_openness.plugins import is_plugin

FORMAT = 1
CARD = "policy.json"
RUNS = Path("runs")
"""Where the command line keeps runs unless told otherwise."""
LEARNED = Path(__file__).parent / "learned"
"""Where learned policies lie that come with the package, in a folder `type-environment` each."""
PREY = "prey"
"""Method of what is no policy but moves the prey of Wolfpack (`policies.prey`)."""
GPL = "gpl"
"""The method whose policies value actions (random ones are a way to learn) and read tasks as a vector."""
ACTORS = {
    "plato": "rl_openness.algorithms.mappo.networks.plato:make_actor",
    "mappo": "rl_openness.algorithms.mappo.networks.actions:make_actor",
    GPL: "rl_openness.algorithms.gpl.network:make_actor",
}
"""By name, so that this package need not import the methods: `module:function(spec, settings)` -> acting network."""


@dataclass(frozen=True)
class PolicyCard:
    """What a saved policy is."""

    method: str
    """One of `ACTORS`, or `module:function` of the package that it was trained by."""
    settings: Mapping[str, Any]
    env_spec: EnvSpec
    environment: str
    """Name of the environment it was trained on."""
    env_config: Mapping[str, Any]
    env_steps: int
    seed: int | None

    def mismatch(self, spec: EnvSpec) -> str | None:
        """Why the policy cannot act in a world of that `spec`, in words; None if it can.

        The greatest number of tasks matters to methods that read tasks as a vector of that length, not to sets.
        """
        own = self.env_spec if self.method == GPL else replace(self.env_spec, task_slots=spec.task_slots)
        return own.mismatch(spec)


def users_modules(card: PolicyCard) -> dict[str, str]:
    """Modules of users' that playing this policy imports, and what each is for; packages by entry points apart."""
    named = {card.environment: "environment", card.method: "policy"}
    return {name.partition(":")[0]: what for name, what in named.items() if is_plugin(name)}


def is_path(name: str) -> bool:
    """Whether a user means a path by it, not a name."""
    return "/" in name or (name != "" and Path(name).exists())


def find_policy(path: str | Path) -> Path:
    """The `policy/` folder for a path to it, to a checkpoint, or to a run or its name (its newest checkpoint).

    Raises UserError, with the nearest run or checkpoint, if there is none.
    """
    path = Path(path)
    for home in (path, RUNS / path):
        in_run = sorted(home.glob("checkpoints/[!.]*/policy"), reverse=True)  # a dot: not complete
        for candidate in (home, home / "policy", *in_run):
            if (candidate / CARD).is_file():
                return candidate
    runs = {str(found.parent) for folder in (path.parent, RUNS) for found in folder.glob("*/checkpoints")} - {str(path)}
    beside = {str(found.parent) for found in path.parent.glob("[!.]*/policy")}
    raise UserError(f"no checkpoint at {str(path)!r}{nearest(str(path), runs | beside)}")


def read_card(path: str | Path) -> PolicyCard:
    """What the policy at a path (see `find_policy`) is. Raises UserError if it cannot be read."""
    folder = find_policy(path)
    try:
        data = json.loads((folder / CARD).read_text())
        version, kind = data.pop("version"), data.pop("format")
        if kind != FORMAT:
            raise UserError(f"{folder}: policy format {kind} (package {version}); this package reads format {FORMAT}")
        card = PolicyCard(**{**data, "env_spec": EnvSpec.from_json(data["env_spec"])})
        for name, kind in (("method", str), ("environment", str), ("settings", dict), ("env_config", dict)):
            if not isinstance(getattr(card, name), kind):
                raise TypeError(f"{name} is {getattr(card, name)!r}")
        return card
    except UserError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UserError(f"{folder / CARD} cannot be read: {error}") from None


def read_decider_card(path: str | Path) -> PolicyCard:
    """`read_card` of a policy that decides for agents. Raises UserError for a prey or an unknown method, too."""
    card = read_card(path)
    if card.method == PREY:
        raise UserError(
            f"{path} holds a prey of {card.environment}, not a policy: it goes with environment.options.prey"
        )
    if card.method not in ACTORS and not is_plugin(card.method):
        raise UserError(f"{path}: unknown method {card.method!r}{nearest(card.method, ACTORS)}")
    return card
