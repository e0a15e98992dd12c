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

EXTENDS = "extends"
SHIPPED = Path("tune_configs")
"""Where the configurations of this repository lie, seen from its root."""


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as PyYAML reads it, but 1e6 is a number, and a key given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """See PyYAML."""
        seen = set()
        for key_node, _ in node.value:
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"key {key_node.value!r} is given twice", problem_mark=key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


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
        _merge(tree, layer, source, origins)
    try:
        return ExperimentSettings.model_validate(tree)
    except ValidationError as error:
        problem = first_problem(error, ExperimentSettings, all_keys)
        source = _origin(problem, origins) or str(path)
        raise UserError(f"{source}: {problem}") from None


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
    if "--set" in named:
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
    try:
        data = yaml.load(path.read_text(), _Loader)
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise UserError(f"{path}{line}: not valid YAML: {error.problem}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise UserError(f"{path}: must hold keys and values, found {type(data).__name__}")
    return data


def _parse_change(text: str) -> tuple[str, Any]:
    key, sign, value = text.partition("=")
    if not sign or not key.strip():
        raise UserError(f"--set {text}: must have the form path.of.key=value")
    try:
        return key.strip(), yaml.load(value, _Loader)
    except yaml.YAMLError:
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


def _group(node: dict[str, Any], name: str) -> dict[str, Any]:
    if not isinstance(node.get(name), dict):
        node[name] = {}
    group: dict[str, Any] = node[name]
    return group
