"""A new environment or algorithm of a user's: a small working project in a folder of its own."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import rl_openness
from rl_openness.errors import UserError, nearest
from rl_openness.files import atomic_directory

TEMPLATES = Path(rl_openness.__file__).parent / "templates"
"""Files named `....txt`; `@NAME@` and `@PACKAGE@` stand for the project's name and its package."""
KINDS = ("environment", "algorithm")


def write_project(kind: str, name: str, home: Path) -> list[Path]:
    """Write a project into `home`/`name`; returns its files, seen from `home`.

    Raises UserError for a name that no package can have or an installed one has, and if the folder exists.
    """
    if kind not in KINDS:
        raise UserError(f"new: unknown kind {kind!r}{nearest(kind, KINDS)}")
    package = _package_name(name)
    folder = home / name
    if folder.exists() or folder.is_symlink():
        raise UserError(f"new {kind} {name}: {str(folder)!r} exists and is left as it is: choose another name")
    with atomic_directory(folder) as work:
        for path, text in _files(kind, name, package):
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_text(text)
    return sorted(path.relative_to(home) for path in folder.rglob("*") if path.is_file())


def _package_name(name: str) -> str:
    package = name.replace("-", "_")
    if keyword.iskeyword(package):
        raise UserError(f"{name!r} is a word of the Python language, which no package can have: try {f'my-{name}'!r}")
    if not re.fullmatch(r"[a-z][a-z0-9_]*", package):
        raise UserError(f"{name!r} must begin with a small letter and go on with small letters, digits, - or _")
    if find_spec(package) is not None:
        raise UserError(f"{name!r} is the name of an installed module: choose another one")
    return package


def _files(kind: str, name: str, package: str) -> Iterator[tuple[Path, str]]:
    for path in sorted((TEMPLATES / kind).rglob("*.txt")):
        place = path.relative_to(TEMPLATES / kind).with_suffix("")
        if place.parts[0] == "package":
            place = Path(package, *place.parts[1:])
        yield place, path.read_text().replace("@NAME@", name).replace("@PACKAGE@", package)
