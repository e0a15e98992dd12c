"""The `policy/` half of a checkpoint: all that acting needs, as safetensors and JSON. Loads without Ray or pickle."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from rl_openness.envs.base import EnvSpec
from rl_openness.errors import UserError, nearest
from rl_openness.files import atomic_directory
from rl_openness.policies.network import NetworkPolicy
from rl_openness.version import __version__

FORMAT = 1
CARD, WEIGHTS = "policy.json", "weights.safetensors"
RUNS = Path("runs")
"""Where the command line keeps runs unless told otherwise."""

# By name, so that this package need not import the methods: module:function(spec, settings) -> acting network.
_ACTORS = {"plato": "rl_openness.algorithms.mappo.networks.plato:make_actor"}


@dataclass(frozen=True)
class PolicyCard:
    """What a saved policy is."""

    method: str
    settings: Mapping[str, Any]
    env_spec: EnvSpec
    environment: str
    """Name of the environment it was trained on."""
    env_config: Mapping[str, Any]
    env_steps: int
    seed: int | None


def save_policy(folder: Path, card: PolicyCard, actor: nn.Module) -> None:
    """Write `policy.json` and `weights.safetensors` into `folder` (replaced at once)."""
    data = {"format": FORMAT, "version": __version__, **card.__dict__, "env_spec": card.env_spec.to_json()}
    with atomic_directory(folder) as work:
        (work / CARD).write_text(json.dumps(data, indent=2) + "\n")
        save_file({name: tensor.detach().contiguous() for name, tensor in actor.state_dict().items()}, work / WEIGHTS)


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
    runs = {str(found.parent) for folder in (path.parent, RUNS) for found in folder.glob("*/checkpoints")}
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
        return PolicyCard(**{**data, "env_spec": EnvSpec.from_json(data["env_spec"])})
    except UserError:
        raise
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder / CARD} cannot be read: {error}") from None


def load_policy(path: str | Path, *, explore: bool = False) -> NetworkPolicy:
    """The policy at a path (see `find_policy`). Raises UserError if it is missing, damaged or of an unknown method."""
    folder = find_policy(path)
    card = read_card(folder)
    if card.method not in _ACTORS:
        raise UserError(f"{folder}: unknown method {card.method!r}{nearest(card.method, _ACTORS)}")
    module, _, attribute = _ACTORS[card.method].partition(":")
    try:
        actor = getattr(import_module(module), attribute)(card.env_spec, card.settings)
    except ValueError as error:  # settings of another version
        reason = " ".join(str(error).split())
        raise UserError(f"{folder / CARD} does not fit this version of the package: {reason}") from None
    try:
        actor.load_state_dict(load_file(folder / WEIGHTS))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise UserError(f"{folder / WEIGHTS} cannot be read: {str(error).splitlines()[0]}") from None
    return NetworkPolicy(card.method, actor.eval(), explore=explore)
