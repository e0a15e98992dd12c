"""Learned teammates and how each is made: a registry of recipes, and the training of one from this repository alone.

A recipe learns a policy and measures it. What it leaves is a folder that `Policy.load` reads, with `card.json` beside:
the command that made it, and how good it is. Loads without torch and Ray.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from rl_openness.errors import PartlyStoppedError, UserError, nearest
from rl_openness.files import atomic_directory, write_atomically
from rl_openness.policies.card import LEARNED

TEAMMATE_CARD = "card.json"
MAX_BYTES = 1_000_000
"""Weights that come with the package stay smaller."""


@dataclass(frozen=True)
class Request:
    """What is asked of a recipe."""

    env_steps: int
    seed: int
    folder: Path
    """An empty folder to work in."""
    report: Callable[[Any], None]
    """To call with the training's `Progress`, see `experiments.train`."""
    say: Callable[[str], None]
    """To call with a line of text before anything that takes time."""


@dataclass(frozen=True)
class Recipe:
    """How a learned teammate is made."""

    name: str
    """`type-environment`, the folder that it is shipped in."""
    summary: str
    env_steps: int
    """How long the shipped one was trained."""
    learn: str
    """`module:function(Request) -> Path`: train, and return a folder with `policy.json` and `weights.safetensors`."""
    measure: str
    """`module:function(Path, say) -> dict`: numbers for the card, the same for the same weights.

    `say` is called with a line of text for every player that is measured.
    """


_RECIPES = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="a2c-foraging",
            summary="self-play in open foraging with up to five agents, each after its own reward (MAPPO)",
            env_steps=1_500_000,
            learn="rl_openness.experiments.a2c_foraging:learn",
            measure="rl_openness.experiments.a2c_foraging:measure",
        ),
        Recipe(
            name="distilled-wolfpack",
            summary="behaviour cloning of teammate_aware in open Wolfpack, by a network without memory",
            env_steps=1_000_000,
            learn="rl_openness.experiments.distilled_wolfpack:learn",
            measure="rl_openness.experiments.distilled_wolfpack:measure",
        ),
        Recipe(
            name="dqn-wolfpack",
            summary="a graph Q-network with memory, from self-play in open Wolfpack for the team's reward (GPL)",
            env_steps=1_500_000,
            learn="rl_openness.experiments.dqn_wolfpack:learn",
            measure="rl_openness.experiments.dqn_wolfpack:measure",
        ),
        Recipe(
            name="prey-wolfpack",
            summary="no teammate but Wolfpack's prey `dqn`, trained to get away from the heuristics (double DQN)",
            env_steps=1_200_000,
            learn="rl_openness.experiments.prey_wolfpack:learn",
            measure="rl_openness.experiments.prey_wolfpack:measure",
        ),
    )
}


def recipe_names() -> list[str]:
    """All names that `find_recipe` knows."""
    return sorted(_RECIPES)


def find_recipe(name: str) -> Recipe:
    """The recipe of that name. Raises UserError, with the nearest name, for an unknown one."""
    if name not in _RECIPES:
        raise UserError(f"no recipe for a learned teammate {name!r}{nearest(name, _RECIPES)}")
    return _RECIPES[name]


def read_teammate_card(folder: Path) -> dict[str, Any]:
    """The card of a learned teammate; empty if there is none."""
    try:
        card: dict[str, Any] = json.loads((folder / TEAMMATE_CARD).read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise UserError(f"{folder / TEAMMATE_CARD} cannot be read: {error}") from None
    return card


def shipped_folder(name: str) -> Path:
    """Where the learned teammate of a recipe comes with the package."""
    return LEARNED / name


def train_teammate(
    name: str,
    *,
    seed: int = 0,
    env_steps: int | None = None,
    out: Path | None = None,
    replace: bool = False,
    report: Callable[[Any], None] = lambda progress: None,
    say: Callable[[str], None] = lambda text: None,
) -> Path:
    """Train a learned teammate, leave it in `out` (by default where the package ships it), and measure it there.

    The folder appears with weights and a card, to which the measuring adds its numbers. Raises UserError for an unknown
    name, or (without `replace`) if there is something already, before anything is trained; PartlyStoppedError if a
    signal ends the measuring.
    """
    recipe = find_recipe(name)
    out = out or shipped_folder(name)
    steps = recipe.env_steps if env_steps is None else env_steps
    if out.exists() and not replace:
        raise UserError(f"{out} exists: add --replace to put a new one in its place, or name another folder by --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="rl_openness-") as work:
        policy = _call(recipe.learn, Request(steps, seed, Path(work), report, say))
        _publish(policy, out, _card(recipe, seed, steps, {}))
    say(f"weights are saved in {out}; measuring their strength (Ctrl-C leaves that out)")
    try:
        numbers = _call(recipe.measure, out, say)
    except KeyboardInterrupt:
        raise PartlyStoppedError(f"Stopped; the weights are in {out}, their strength was not measured.") from None
    write_atomically(out / TEAMMATE_CARD, _text(_card(recipe, seed, steps, numbers)))
    return out


def _call(target: str, *arguments: Any) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(import_module(module), attribute)(*arguments)


def _card(recipe: Recipe, seed: int, env_steps: int, numbers: Mapping[str, Any]) -> dict[str, Any]:
    command = f"rl-openness teammates train {recipe.name} --seed {seed} --env-steps {env_steps}"
    return {
        "name": recipe.name,
        "summary": recipe.summary,
        "command": command,
        "seed": seed,
        "env_steps": env_steps,
        **numbers,
    }


def _text(card: Mapping[str, Any]) -> str:
    return json.dumps(card, indent=2) + "\n"


def _publish(policy: Path, out: Path, card: Mapping[str, Any]) -> None:
    with atomic_directory(out) as work:
        for file in sorted(policy.iterdir()):
            if file.stat().st_size > MAX_BYTES:
                raise UserError(f"{file.name} has {file.stat().st_size:,} bytes: a teammate has at most {MAX_BYTES:,}")
            shutil.copyfile(file, work / file.name)
        write_atomically(work / TEAMMATE_CARD, _text(card))
