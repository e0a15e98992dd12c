"""The `policy/` half of a checkpoint: all that acting needs, as safetensors and JSON. Loads without Ray or pickle."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from rl_openness.errors import UserError, nearest
from rl_openness.files import atomic_directory
from rl_openness.policies.card import CARD, FORMAT, PolicyCard, find_policy, read_card
from rl_openness.policies.network import NetworkPolicy
from rl_openness.version import __version__

WEIGHTS = "weights.safetensors"

# By name, so that this package need not import the methods: module:function(spec, settings) -> acting network.
_ACTORS = {"plato": "rl_openness.algorithms.mappo.networks.plato:make_actor"}


def save_policy(folder: Path, card: PolicyCard, actor: nn.Module) -> None:
    """Write `policy.json` and `weights.safetensors` into `folder` (replaced at once)."""
    data = {"format": FORMAT, "version": __version__, **card.__dict__, "env_spec": card.env_spec.to_json()}
    with atomic_directory(folder) as work:
        (work / CARD).write_text(json.dumps(data, indent=2) + "\n")
        save_file({name: tensor.detach().contiguous() for name, tensor in actor.state_dict().items()}, work / WEIGHTS)


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
