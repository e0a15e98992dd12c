"""Code of users by name: `module:attribute`, found among installed modules and in the present folder.

An installed package may give it a short name by a Python entry point (groups `rl_openness.environments`,
`rl_openness.policies` and `rl_openness.algorithms`). Nothing is imported before it is asked for.
"""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from rl_openness.errors import UserError, nearest

ENVIRONMENTS, POLICIES, ALGORITHMS = "rl_openness.environments", "rl_openness.policies", "rl_openness.algorithms"
"""Groups of entry points."""
_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def is_plugin(name: str) -> bool:
    """Whether a name has the form `module:attribute` (or `package.module:attribute`)."""
    return _NAME.fullmatch(name) is not None


def find_plugin(name: str) -> Any:
    """The attribute that `module:attribute` names.

    Raises UserError, in one line, if there is no such module or attribute, or if importing the module fails.
    """
    if not is_plugin(name):
        raise UserError(f"{name!r} must have the form module:attribute")
    module_name, _, attribute = name.partition(":")
    here = os.getcwd()
    if here not in sys.path:  # last, so that no file of the folder stands in for an installed module
        sys.path.append(here)
    try:
        module = import_module(module_name)
    except (Exception, SystemExit) as error:
        reason = str(error) if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise UserError(f"{name}: module {module_name!r} cannot be imported: {' '.join(reason.split())}") from error
    try:
        return getattr(module, attribute)
    except Exception as error:
        if not isinstance(error, AttributeError):  # a module's own __getattr__
            raise UserError(f"{name}: {type(error).__name__}: {error}") from error
        known = [each for each in vars(module) if not each.startswith("_")]
        raise UserError(
            f"{name}: module {module_name!r} has no attribute {attribute!r}{nearest(attribute, known)}"
        ) from None


@dataclass(frozen=True)
class Installed:
    """What an entry point of an installed package offers."""

    name: str
    target: str
    """`module:attribute`."""
    package: str
    """Name and version of the package that it comes from."""

    def load(self) -> Any:
        """The object. Raises UserError, naming the package, if it cannot be imported."""
        try:
            return find_plugin(self.target)
        except UserError as error:
            raise UserError(f"{self.name!r} of package {self.package} is broken: {error}") from error


def installed(group: str) -> dict[str, Installed]:
    """Entry points of a group by name; of two with one name the first that Python finds."""
    return dict(_installed(group, tuple(sys.path)))


@lru_cache(maxsize=16)
def _installed(group: str, path: tuple[str, ...]) -> dict[str, Installed]:
    """`path` is `sys.path`, where packages are looked for."""
    found: dict[str, Installed] = {}
    for each in entry_points(group=group):
        found.setdefault(each.name, Installed(each.name, each.value, _package(each)))
    return dict(sorted(found.items()))


def _package(each: EntryPoint) -> str:
    return "unknown" if each.dist is None else f"{each.dist.name} {each.dist.version}"
