"""Wolfpack's prey by name: built in, trained and shipped with the package, or the path of one of your own.

Loads without torch, which only a trained prey needs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rl_openness.envs.wolfpack import PreyPolicy, WolfpackEnv, make_wolfpack, wolfpack_config
from rl_openness.envs.wolfpack.prey import WEIGHTS
from rl_openness.errors import UserError, nearest
from rl_openness.policies.card import LEARNED, PREY, find_policy, is_path, read_card

_TRAINED = {"dqn": LEARNED / "prey-wolfpack"}
_SUMMARIES = {
    "evader": "runs as the reference's prey were recorded to: a fitted table and one habit (the default)",
    "random": "draws among the seven actions",
    "dqn": "trained to get away (`rl-openness teammates train prey-wolfpack`)",
}


def prey_names() -> dict[str, str]:
    """Names of prey and what each is; a trained one that is not there (yet) is left out."""
    return {name: text for name, text in _SUMMARIES.items() if name not in _TRAINED or _TRAINED[name].exists()}


def check_prey(name: str) -> Path | None:
    """Where the prey of that name or path is saved; None for one that is built in.

    Raises UserError if there is none, or something else; weights are not read, which needs torch.
    """
    if name in WEIGHTS:
        return None
    if name not in _TRAINED and not is_path(name):
        raise UserError(f"unknown prey {name!r}{nearest(name, prey_names())}")
    try:
        folder = find_policy(_TRAINED.get(name, name))
    except UserError as error:
        raise UserError(f"{error}; by name: {', '.join(prey_names())}") from None
    method = read_card(folder).method
    if method != PREY:
        raise UserError(f"{folder} holds a policy of {method!r}, not a prey")
    return folder


def make_wolfpack_with_prey(
    num_copies: int = 1, *, prey_policy: PreyPolicy | None = None, **fields: Any
) -> WolfpackEnv:
    """`make_wolfpack`, but the field `prey` may be any name or path that `check_prey` knows. Raises UserError."""
    config = wolfpack_config({name: fields[name] for name in fields if name not in ("teammates", "at_end")})
    folder = None if prey_policy is not None else check_prey(config.prey)
    if folder is not None:
        from rl_openness.policies.prey_network import load_prey

        prey_policy = load_prey(folder, num_copies, config.num_prey, config.team_size)
    return make_wolfpack(num_copies, prey_policy=prey_policy, **fields)
