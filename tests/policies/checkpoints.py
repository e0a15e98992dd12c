"""Untrained policies, saved as trained ones are."""

from pathlib import Path
from typing import Any

import torch

from rl_openness.algorithms.gpl.network import GplNetwork
from rl_openness.algorithms.gpl.settings import GplSettings
from rl_openness.algorithms.mappo.networks.actions import ActionsActor
from rl_openness.algorithms.mappo.settings import ActionsSettings
from rl_openness.envs.registry import make_environment
from rl_openness.policies.card import PREY, PolicyCard
from rl_openness.policies.checkpoint import save_policy
from rl_openness.policies.prey_network import PreyNetwork

SMALL = {"encoder_hidden": 8, "recurrent_hidden": 8, "type_width": 8, "utility_hidden": 8}


def save_untrained(folder: Path, method: str, environment: str, **options: Any) -> Path:
    """A policy of `gpl` or `mappo`, or a prey, made for that world."""
    spec = make_environment(environment, 1, options).spec
    torch.manual_seed(0)
    settings: Any
    if method == "gpl":
        settings = GplSettings(**SMALL)
        network: torch.nn.Module = GplNetwork(spec, settings)
    elif method == PREY:
        settings, network = ActionsSettings(hidden=4), PreyNetwork(4)
    else:
        settings = ActionsSettings(hidden=8)
        network = ActionsActor(spec, settings)
    card = PolicyCard(method, settings.model_dump(mode="json"), spec, environment, options, 0, 0)
    save_policy(folder, card, network)
    return folder
