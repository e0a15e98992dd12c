"""Writing files so that a reader, or a process killed half-way, never sees half of one; locks; reading YAML."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from rl_openness.errors import UserError

WORK_FOLDER = ".*.new"
"""Pattern of what `atomic_directory` may leave behind when its process is killed."""


@contextmanager
def atomic_directory(path: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `path` (replacing an older one) when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    tag = uuid.uuid4().hex[:8]
    work, old = path.with_name(f".{path.name}.{tag}.new"), path.with_name(f".{path.name}.{tag}.old")
    work.mkdir()
    try:
        yield work
        if path.exists():
            path.rename(old)
        work.rename(path)
    except BaseException:
        if old.exists() and not path.exists():
            old.rename(path)
        raise
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A path to write to, which replaces `path` when the block ends without an error."""
    work = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.new")
    try:
        yield work
        os.replace(work, path)
    finally:
        work.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Replace the file's text at once."""
    with atomic_file(path) as work:
        work.write_text(text)


@contextmanager
def only_process(lock: Path) -> Iterator[None]:
    """Hold a lock file as long as the block runs. Raises UserError, with the holder's number, if another process does.

    The system lets go of it when a process dies, however it dies.
    """
    with lock.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise UserError(f"{lock.parent} is in use by another process ({file.read().strip() or '?'})") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as PyYAML reads it, but 1e6 is a number, and a key given twice is an error."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """See PyYAML."""
        seen = set()
        for key_node, _ in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.constructor.ConstructorError(
                    problem="a key must be a plain word", problem_mark=key_node.start_mark
                )
            if key_node.value in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"key {key_node.value!r} is given twice", problem_mark=key_node.start_mark
                )
            seen.add(key_node.value)
        return super().construct_mapping(node, deep)


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+$"), list("-+0123456789")
)


def parse_yaml(text: str) -> Any:
    """Plain data of a YAML text. Raises ValueError with PyYAML's problem and, if known, the line."""
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ValueError(f"{line}not valid YAML: {error.problem}") from None
    except yaml.YAMLError as error:
        raise ValueError(f"not valid YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise ValueError("not valid YAML: it is nested too deeply") from None


def read_yaml(path: Path) -> dict[str, Any]:
    """The keys and values of a YAML file; none of an empty one. Raises UserError naming file and line."""
    try:
        data = parse_yaml(path.read_text(encoding="utf-8"))
        json.dumps(data, default=str)  # refuses what contains itself
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} cannot be read: it is not UTF-8 text") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: {error}") from None
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise UserError(f"{path}: must hold keys and values, found {type(data).__name__}")
    return data
