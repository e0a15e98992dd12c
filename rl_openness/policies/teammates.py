"""Teammates by name, populations by file, and the worlds that are given them.

A type of teammate is a hand-written rule, a learned policy that comes with the package, a user's function given as
`module:function` or by an entry point, or the path of a trained policy.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import rl_openness
from rl_openness.envs.base import EnvSpec, OpenVectorEnv
from rl_openness.envs.foraging import make_foraging
from rl_openness.errors import UserError, nearest
from rl_openness.files import read_yaml
from rl_openness.plugins import POLICIES, find_plugin, installed, is_plugin
from rl_openness.policies.base import Policy
from rl_openness.policies.card import CARD, GPL, LEARNED, PREY, PolicyCard, is_path, read_decider_card
from rl_openness.policies.population import Population
from rl_openness.policies.prey import make_wolfpack_with_prey
from rl_openness.policies.users import guarded

Split = Literal["train", "test"]
FOLDER = Path("tune_configs/teammates")
"""Where populations lie, in the present folder."""
SHIPPED = Path(__file__).parent / "populations"
"""Where those of the package lie: a link to the repository's `FOLDER`, a real folder once the package is installed."""

_RULES = {
    "foraging": "rl_openness.policies.foraging:foraging_rules",
    "wolfpack": "rl_openness.policies.wolfpack:wolfpack_rules",
}
_DEFAULTS = {
    "foraging": "rl_openness.policies.foraging:foraging_rules",
    "wolfpack": "rl_openness.policies.wolfpack:HEURISTICS",
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
    """Make `make() -> Policy` known as a type of teammate in this process.

    Runners in processes of their own and the command line do not know it: they know `module:function`.
    """
    _registered.setdefault(environment, {})[name] = make


def teammate_names(environment: str) -> list[str]:
    """Named types of teammates of an environment that are programs; none where it has no teammates."""
    return [*_rules(environment), *_registered.get(environment, {})]


def default_types(environment: str) -> list[str]:
    """Types of teammates of a world that names none: the papers' hand-written ones."""
    module, _, attribute = _DEFAULTS[environment].partition(":")
    types = getattr(import_module(module), attribute)
    return list(types() if callable(types) else types)


def learned_names(environment: str) -> list[str]:
    """Learned types of teammates that come with the package (trained by `rl-openness teammates train`)."""
    found = sorted(LEARNED.glob(f"*-{environment}/{CARD}"))
    names = (path.parent.name.removesuffix(f"-{environment}") for path in found)
    return [name for name in names if name != PREY]


def check_teammate(environment: str, name: str, spec: EnvSpec | None = None) -> None:
    """Raises UserError if `make_teammate` does not know that type, or a trained one cannot act in a world of `spec`.

    Trained policies are not loaded, which needs torch, and a user's function is found but not called.
    """
    if name in teammate_names(environment):
        return
    card = _card(environment, name)
    if card is None:
        _plugin(environment, name)
        return
    mismatch = None if spec is None else card.mismatch(spec)
    if mismatch:
        raise UserError(f"teammate {name!r} was trained on {card.environment} and cannot act here: {mismatch}")


def make_teammate(environment: str, name: str, *, explore: bool | None = None) -> Policy:
    """The type of that name, what the user's function returns, or the trained policy at that path.

    `explore` tells trained policies whether to sample. None: as teammates do, that is as in training, but those that
    value actions (GPL) take the best. Raises UserError if there is none.
    """
    if name in _registered.get(environment, {}):
        return _registered[environment][name]()
    if name in _rules(environment):
        return _rules(environment)[name]
    card = _card(environment, name)
    if card is None:
        return user_policy(environment, name)
    policy = Policy.load(_folder(environment, name), explore=card.method != GPL if explore is None else explore)
    if name in learned_names(environment):
        policy.name = name
    return policy


def _folder(environment: str, name: str) -> str | Path:
    return LEARNED / f"{name}-{environment}" if name in learned_names(environment) else name


def _card(environment: str, name: str) -> PolicyCard | None:
    """The card of a trained policy by name or path; None for a user's function. Raises UserError for anything else."""
    if name not in learned_names(environment):
        if is_users(environment, name):
            return None
        if not is_path(name):
            known = [*teammate_names(environment), *learned_names(environment), *installed_names(environment)]
            raise UserError(f"unknown type of teammate {name!r} in {environment}{nearest(name, known)}")
    return read_decider_card(_folder(environment, name))


def installed_names(environment: str) -> list[str]:
    """Policies of other packages for an environment: their entry points are named `environment.policy`."""
    names = (name.rpartition(".") for name in installed(POLICIES))
    return [policy for where, _, policy in names if where == environment]


def is_users(environment: str, name: str) -> bool:
    """Whether it is a policy of a user's or of another package: `module:function`, or an entry point."""
    return is_plugin(name) or name in installed_names(environment)


def _plugin(environment: str, name: str) -> Callable[[], Any]:
    found = find_plugin(name) if is_plugin(name) else installed(POLICIES)[f"{environment}.{name}"].load()
    make: Callable[[], Any] = found
    try:
        inspect.signature(make).bind()
    except TypeError:
        raise UserError(f"teammate {name!r} must be a function without arguments that returns a Policy") from None
    return make


def user_policy(environment: str, name: str) -> Policy:
    """What a user's function gives. Raises UserError, in one line, if it fails or gives something else."""
    make = _plugin(environment, name)
    try:
        policy = make()
    except Exception as error:
        raise UserError(f"teammate {name!r} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(policy, Policy):
        raise UserError(f"teammate {name!r} must return a Policy, not {type(policy).__name__}")
    return guarded(policy, name, environment)


def _rules(environment: str) -> Mapping[str, Policy]:
    if environment not in _RULES:
        return {}
    module, _, attribute = _RULES[environment].partition(":")
    rules: Mapping[str, Policy] = getattr(import_module(module), attribute)()
    return rules


def population_files() -> dict[str, Path]:
    """Shipped populations by name, and those in the present folder's `FOLDER`, which come first."""
    beside = Path(rl_openness.__file__).parent.parent / FOLDER  # for a copy of the repository that lost its links
    folders = (SHIPPED if SHIPPED.is_dir() else beside, FOLDER)
    return {path.stem: path for folder in folders for path in sorted(folder.glob("*.yaml"))}


def read_population(name: str) -> PopulationFile:
    """A population by its name or the path of its file; paths in it are relative to the file.

    Raises UserError naming file and key if it is wrong.
    """
    path = Path(name) if name.endswith((".yaml", ".yml")) else population_files().get(name)
    if path is None or not path.is_file():
        beside = [str(file) for file in Path(name).parent.glob("*.y*ml")] if path is not None else []
        close = difflib.get_close_matches(str(path), beside, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else nearest(name, population_files())
        raise UserError(f"no population {name!r}{hint}")
    data = read_yaml(path)
    unknown = set(data) - {"environment", "train", "test"}
    if unknown:
        raise UserError(f"{path}: {min(unknown, key=str)}: unknown key; known: environment, train, test")
    environment = data.get("environment")
    if not isinstance(environment, str) or environment not in _RULES:
        raise UserError(f"{path}: environment: must be one of {', '.join(_RULES)}, not {environment!r}")
    types = {split: _types(data.get(split), f"{path}: {split}") for split in ("train", "test") if split in data}
    if "train" not in types:
        raise UserError(f"{path}: train: this key is missing")
    found = {split: tuple(_located(name, environment, path.parent) for name in names) for split, names in types.items()}
    return PopulationFile(path.stem, environment, found["train"], found.get("test", found["train"]))


def _located(name: str, environment: str, folder: Path) -> str:
    """A type as a population's file names it, seen from the present folder."""
    if folder == Path() or name in teammate_names(environment) or name in learned_names(environment):
        return name
    is_file = not is_plugin(name) and ("/" in name or (folder / name).exists())
    return str(folder / name) if is_file else name


def _types(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(name, str) for name in value):
        raise UserError(f"{where}: must be a list of types of teammates, not {value!r}")
    if not value:
        raise UserError(f"{where}: a population needs at least one type of teammate")
    if not all(value):
        raise UserError(f"{where}: the name of a type is empty: name one of `list policies`, or take the entry out")
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
    """B copies of an environment with teammates; without any named, `default_types`.

    `teammates` is a population (name or file) or a list of types; `fields` are the environment's. With
    `controlled="all"` there are no teammates.
    """
    if fields.get("controlled") == "all":
        if teammates is not None:
            raise UserError(f"{environment}: controlled = all leaves nobody for teammates to decide for")
        return make(num_copies, **fields)
    names = population_types(environment, default_types(environment) if teammates is None else teammates, split)
    spec = make(1, **{**fields, "controlled": "all"}).spec
    for name in names:
        check_teammate(environment, name, spec)
    population = Population([make_teammate(environment, name) for name in names], spec)
    return make(num_copies, teammates=population, **fields)


make_foraging_world = partial(make_world, "foraging", make_foraging)
make_wolfpack_world = partial(make_world, "wolfpack", make_wolfpack_with_prey)
