"""Experiments in YAML: `extends`, `a.b.c=value` on the command line, and errors that name the key and its file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from rl_openness.errors import UserError
from rl_openness.experiments.keys import ConfigError, KeyPath, first_problem
from rl_openness.experiments.schema import ExperimentSettings, all_keys
from rl_openness.files import parse_yaml, read_yaml

EXTENDS = "extends"
SHIPPED = Path("tune_configs")
"""Where the configurations of this repository lie, seen from its root."""


def load_experiment(path: Path | None, changes: Sequence[str | tuple[str, Any]] = ()) -> ExperimentSettings:
    """The experiment of a file, with `changes`: texts `a.b.c=value` (value in YAML) or pairs of path and value.

    A key with dots names a path, in files as well. `extends: other.yaml` (relative to the file) puts this file's keys
    over the other's, group by group. Raises UserError with the path of the key and where it was given.
    """
    layers = _layers(path, ()) if path is not None else []
    for change in changes:
        if isinstance(change, str):
            key, value = _parse_change(change)
            layers.append(("--set", {key: value}))
        else:
            key, value = change
            layers.append(("--run" if key == "name" else "--set", {key: value}))
    tree: dict[str, Any] = {}
    origins: dict[KeyPath, str] = {}
    for source, layer in layers:
        twice = _given_twice(layer)
        if twice is not None:
            raise UserError(f"{source}: {'.'.join(twice)}: is given twice")
        _merge(tree, layer, source, origins)
    try:
        return ExperimentSettings.model_validate(tree)
    except ValidationError as error:
        problem = first_problem(error, ExperimentSettings, all_keys)
        source = _origin(problem, origins) or str(path)
        raise UserError(f"{source}: {problem}") from None


def changed_options(changes: Sequence[str]) -> dict[str, Any]:
    """Options of an environment from texts `a.b=value` alone. Raises UserError for a text of another form."""
    tree: dict[str, Any] = {}
    for change in changes:
        key, value = _parse_change(change)
        _merge(tree, {key: value}, "--set", {})
    return tree


def _origin(problem: ConfigError, origins: Mapping[KeyPath, str]) -> str | None:
    """Where the wrong key was given; of a group, the last given key that the message names."""
    named = [
        source
        for key, source in origins.items()
        if len(key) > len(problem.path)
        and key[: len(problem.path)] == problem.path
        and re.search(rf"\b{re.escape(key[-1])}\b", problem.text)
    ]
    above = [origins[problem.path[:n]] for n in range(len(problem.path), 0, -1) if problem.path[:n] in origins]
    words = re.findall(r"[\w.]+", problem.text)
    if "--set" in named or any(source == "--set" and ".".join(key) in words for key, source in origins.items()):
        return "--set"
    return named[-1] if named else above[0] if above else None


def dump_experiment(settings: ExperimentSettings) -> str:
    """YAML that `load_experiment` reads back as the same experiment."""
    text: str = yaml.safe_dump(settings.model_dump(mode="json"), sort_keys=False, width=120)
    return text


def _layers(path: Path, above: tuple[Path, ...]) -> list[tuple[str, dict[str, Any]]]:
    """The files that make up an experiment, the most basic one first."""
    where = path.resolve()
    if where in above:
        chain = " -> ".join(each.name for each in (*above[above.index(where) :], where))
        raise UserError(f"{path}: {EXTENDS} goes in a circle: {chain}")
    data = _read(path)
    base = data.pop(EXTENDS, None)
    if base is None:
        return [(str(path), data)]
    if not isinstance(base, str):
        raise UserError(f"{path}: {EXTENDS}: must be the name of a file, not {base!r}")
    other = path.parent / base
    if not other.is_file():
        raise UserError(f"{path}: {EXTENDS}: {no_file(other)}")
    return [*_layers(other, (*above, where)), (str(path), data)]


def no_file(path: Path) -> str:
    """'no file 'a.yaml'; did you mean 'b.yaml'?', from the files of the same folder, then of `tune_configs`."""
    for folder in (path.parent, SHIPPED):
        files = {each.name: str(each) for each in folder.glob("*.y*ml")}
        close = difflib.get_close_matches(path.stem + ".yaml", files, n=1)
        if close:
            return f"no file {str(path)!r}; did you mean {files[close[0]]!r}?"
    return f"no file {str(path)!r}"


def _read(path: Path) -> dict[str, Any]:
    if (path / "config.yaml").is_file():
        raise UserError(f"{path} is a run: go on with it by --resume {path}, or begin another from {path}/config.yaml")
    if not path.is_file():
        raise UserError(f"{path} is a folder, not a YAML file" if path.is_dir() else no_file(path))
    return read_yaml(path)


def _parse_change(text: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise UserError(f"--set {text}: must have the form path.of.key=value")
    try:
        return key.strip(), parse_yaml(value)
    except ValueError:
        raise UserError(f"--set {text}: the value is not valid YAML") from None


def _merge(
    tree: dict[str, Any], layer: Mapping[Any, Any], source: str, origins: dict[KeyPath, str], path: KeyPath = ()
) -> None:
    """Put a layer's keys over the tree's. A group without keys (null) changes nothing."""
    for key, value in layer.items():
        *groups, last = str(key).split(".")
        node, where = tree, path
        for group in groups:
            node, where = _group(node, group), (*where, group)
        where = (*where, last)
        if isinstance(value, Mapping):
            _merge(_group(node, last), value, source, origins, where)
        elif value is not None or not isinstance(node.get(last), dict):
            node[last] = value
        origins[where] = source


def _given_twice(layer: Mapping[Any, Any]) -> KeyPath | None:
    """A key that a file gives both with dots and in its group."""
    seen: set[KeyPath] = set()
    groups: list[tuple[KeyPath, Mapping[Any, Any]]] = [((), layer)]
    while groups:
        above, group = groups.pop()
        for key, value in group.items():
            path = (*above, *str(key).split("."))
            if isinstance(value, Mapping):
                groups.append((path, value))
            elif path in seen:
                return path
            else:
                seen.add(path)
    return None


def _group(node: dict[str, Any], name: str) -> dict[str, Any]:
    if not isinstance(node.get(name), dict):
        node[name] = {}
    group: dict[str, Any] = node[name]
    return group
