"""The `policy/` half of a checkpoint: all that acting needs, as safetensors and JSON. Loads without Ray or pickle."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from rl_openness.envs.base import EnvSpec
from rl_openness.errors import UserError
from rl_openness.files import atomic_directory
from rl_openness.plugins import find_plugin
from rl_openness.policies.card import ACTORS, CARD, FORMAT, PolicyCard, find_policy, read_card, read_decider_card
from rl_openness.policies.network import NetworkPolicy
from rl_openness.version import __version__

WEIGHTS = "weights.safetensors"


def save_policy(folder: Path, card: PolicyCard, actor: nn.Module) -> None:
    """Write `policy.json` and `weights.safetensors` into `folder` (replaced at once)."""
    data = {"format": FORMAT, "version": __version__, **card.__dict__, "env_spec": card.env_spec.to_json()}
    with atomic_directory(folder) as work:
        (work / CARD).write_text(json.dumps(data, indent=2) + "\n")
        weights = {name: tensor.detach().contiguous() for name, tensor in actor.state_dict().items()}
        try:
            save_file(weights, work / WEIGHTS)
        except SafetensorError as error:  # a full disk
            raise OSError(f"{folder} cannot be written: {error}") from None


def _check_weights(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raises ValueError naming the first tensor that is missing, not known, of another shape or kind, or not finite."""
    for name in [*expected, *found]:
        if name not in found:
            raise ValueError(f"tensor {name!r} is missing")
        if name not in expected:
            raise ValueError(f"tensor {name!r} is not part of this network")
        if found[name].shape != expected[name].shape or found[name].dtype != expected[name].dtype:
            here, there = ((tuple(tensor.shape), tensor.dtype) for tensor in (found[name], expected[name]))
            raise ValueError(f"tensor {name!r} is {here[0]} {here[1]}, not {there[0]} {there[1]}")
        if not found[name].isfinite().all():
            raise ValueError(f"tensor {name!r} holds numbers that are not finite")


def load_policy(path: str | Path, *, explore: bool = False) -> NetworkPolicy:
    """The policy at a path (see `find_policy`). Raises UserError if it is missing, damaged or of an unknown method."""
    folder = find_policy(path)
    card = read_decider_card(folder)
    network = load_network(folder, find_plugin(ACTORS.get(card.method, card.method)))
    return NetworkPolicy(card.method, network, explore=explore)


def load_network(folder: Path, make: Callable[[EnvSpec, Mapping[str, Any]], Any]) -> Any:
    """The network saved in a folder with its weights, made by `make(spec, settings)`. Raises UserError if damaged."""
    card = read_card(folder)
    try:
        actor = make(card.env_spec, card.settings)
    except (ValueError, RuntimeError) as error:  # settings of another version, or far too large ones
        reason = " ".join(str(error).split())
        raise UserError(f"{folder / CARD} does not fit this version of the package: {reason}") from None
    try:
        weights = load_file(folder / WEIGHTS)
        _check_weights(weights, actor.state_dict())
        actor.load_state_dict(weights)
    except (OSError, SafetensorError, ValueError) as error:
        raise UserError(f"{folder / WEIGHTS} cannot be used: {' '.join(str(error).split())}") from None
    return actor.eval()
