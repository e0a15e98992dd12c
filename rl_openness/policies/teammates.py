"""Teammates by name, populations by file, and the worlds that are given them.

A type of teammate is a hand-written rule, a learned policy that comes with the package, a function that a user
registered, or the path of a trained policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import rl_openness
from rl_openness.envs.base import EnvSpec, OpenVectorEnv
from rl_openness.envs.foraging import make_foraging
from rl_openness.errors import UserError, nearest
from rl_openness.files import read_yaml
from rl_openness.policies.base import Policy
from rl_openness.policies.card import CARD, LEARNED, PREY, is_path, read_card, read_decider_card
from rl_openness.policies.population import Population
from rl_openness.policies.prey import make_wolfpack_with_prey

Split = Literal["train", "test"]
FOLDER = Path("tune_configs/teammates")
"""Where populations lie, in the present folder or beside the package."""

_GPL = "gpl"
"""Its policies value actions, so as teammates they take the best one: random ones are a way to learn. They read tasks
as a vector of fixed length."""

_RULES = {
    "foraging": "rl_openness.policies.foraging:foraging_rules",
    "wolfpack": "rl_openness.policies.wolfpack:wolfpack_rules",
}
_registered: dict[str, dict[str, Callable[[], Policy]]] = {}


@dataclass(frozen=True)
class PopulationFile:
    """Types that teammates are drawn from, uniformly and by everyone who joins."""

    name: str
    environment: str
    train: tuple[str, ...]
    test: tuple[str, ...]


def register_teammate(environment: str, name: str, make: Callable[[], Policy]) -> None:
    """Make `make() -> Policy` known as a type of teammate in this process."""
    _registered.setdefault(environment, {})[name] = make


def teammate_names(environment: str) -> list[str]:
    """Named types of teammates of an environment that are programs; none where it has no teammates."""
    return [*_rules(environment), *_registered.get(environment, {})]


def learned_names(environment: str) -> list[str]:
    """Learned types of teammates that come with the package (trained by `rl-openness teammates train`)."""
    found = sorted(LEARNED.glob(f"*-{environment}/{CARD}"))
    names = (path.parent.name.removesuffix(f"-{environment}") for path in found)
    return [name for name in names if name != PREY]


def check_teammate(environment: str, name: str) -> None:
    """Raises UserError if `make_teammate` does not know that type; a learned one is not loaded, which needs torch."""
    if name in learned_names(environment):
        read_card(LEARNED / f"{name}-{environment}")
    elif is_path(name):
        read_decider_card(name)
    else:
        make_teammate(environment, name)


def make_teammate(environment: str, name: str) -> Policy:
    """The type of that name, or the trained policy at that path. Raises UserError if there is none.

    Trained policies sample, as they do in training; those that value actions (GPL) take the best.
    """
    if name in _registered.get(environment, {}):
        return _registered[environment][name]()
    if name in _rules(environment):
        return _rules(environment)[name]
    if name in learned_names(environment):
        policy = _load(LEARNED / f"{name}-{environment}")
        policy.name = name
        return policy
    if is_path(name):
        return _load(name)
    known = [*teammate_names(environment), *learned_names(environment)]
    raise UserError(f"unknown type of teammate {name!r} in {environment}{nearest(name, known)}")


def _load(path: str | Path) -> Policy:
    return Policy.load(path, explore=read_card(path).method != _GPL)


def _check_fits(environment: str, name: str, spec: EnvSpec) -> None:
    """Raises UserError if the type is a trained policy that cannot read the observations of this world."""
    if name in teammate_names(environment) or not (name in learned_names(environment) or is_path(name)):
        return
    card = read_card(LEARNED / f"{name}-{environment}" if name in learned_names(environment) else name)
    known = card.env_spec if card.method == _GPL else replace(card.env_spec, task_slots=spec.task_slots)
    mismatch = known.mismatch(spec)
    if mismatch:
        raise UserError(f"teammate {name!r} was trained on {card.environment} and cannot act here: {mismatch}")


def _rules(environment: str) -> Mapping[str, Policy]:
    if environment not in _RULES:
        return {}
    module, _, attribute = _RULES[environment].partition(":")
    rules: Mapping[str, Policy] = getattr(import_module(module), attribute)()
    return rules


def population_files() -> dict[str, Path]:
    """Shipped populations by name."""
    folders = (Path(rl_openness.__file__).parent.parent / FOLDER, FOLDER)
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}


def read_population(name: str) -> PopulationFile:
    """A population by its name or the path of its file. Raises UserError naming file and key if it is wrong."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else population_files().get(name)
    if path is None or not path.is_file():
        raise UserError(f"no population {name!r}{nearest(name, population_files())}")
    data = read_yaml(path)
    unknown = set(data) - {"environment", "train", "test"}
    if unknown:
        raise UserError(f"{path}: {min(unknown)}: unknown key; known: environment, train, test")
    environment = data.get("environment")
    if environment not in _RULES:
        raise UserError(f"{path}: environment: must be one of {', '.join(_RULES)}, not {environment!r}")
    types = {split: _types(data.get(split), f"{path}: {split}") for split in ("train", "test") if split in data}
    if "train" not in types:
        raise UserError(f"{path}: train: this key is missing")
    return PopulationFile(path.stem, str(environment), types["train"], types.get("test", types["train"]))


def _types(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise UserError(f"{where}: must be a list of types of teammates, not {value!r}")
    if not value:
        raise UserError(f"{where}: a population needs at least one type of teammate")
    return tuple(value)


def population_types(environment: str, teammates: str | Sequence[str], split: Split = "train") -> tuple[str, ...]:
    """Names of the types in a population, given by name, by file, or as a list. Raises UserError if it is wrong."""
    if split not in ("train", "test"):
        raise UserError(f"{environment}: split must be train or test, not {split!r}")
    if not isinstance(teammates, str):
        return _types(teammates, f"{environment}: teammates")
    population = read_population(teammates)
    if population.environment != environment:
        raise UserError(f"population {teammates!r} is for {population.environment}, not for {environment}")
    return population.train if split == "train" else population.test


def make_world(
    environment: str,
    make: Callable[..., OpenVectorEnv],
    num_copies: int = 1,
    *,
    teammates: str | Sequence[str] | None = None,
    split: Split = "train",
    **fields: Any,
) -> OpenVectorEnv:
    """B copies of an environment with teammates; without any named, all hand-written types.

    `teammates` is a population (name or file) or a list of types; `fields` are the environment's. With
    `controlled="all"` there are no teammates.
    """
    if fields.get("controlled") == "all":
        if teammates is not None:
            raise UserError(f"{environment}: controlled = all leaves nobody for teammates to decide for")
        return make(num_copies, **fields)
    names = population_types(environment, list(_rules(environment)) if teammates is None else teammates, split)
    spec = make(1, **{**fields, "controlled": "all"}).spec
    for name in names:
        _check_fits(environment, name, spec)
    population = Population([make_teammate(environment, name) for name in names], spec)
    return make(num_copies, teammates=population, **fields)


make_foraging_world = partial(make_world, "foraging", make_foraging)
make_wolfpack_world = partial(make_world, "wolfpack", make_wolfpack_with_prey)
