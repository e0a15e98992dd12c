"""Keys of a configuration as paths, and what is wrong with one in one line of text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rl_openness.errors import UserError, nearest

Model = TypeVar("Model", bound=BaseModel)
KeyPath = tuple[str, ...]


class ConfigError(UserError):
    """A key of a configuration is unknown, or its value is wrong."""

    def __init__(self, path: KeyPath, text: str) -> None:
        super().__init__(f"{'.'.join(path)}: {text}" if path else text)
        self.path, self.text = path, text


def checked(model: type[Model], data: Mapping[str, Any], path: KeyPath = ()) -> Model:
    """`data` as a `model`. Raises ConfigError for the first thing wrong, its path starting with `path`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problem = first_problem(error, model)
        raise ConfigError((*path, *problem.path), problem.text) from None


def first_problem(
    error: ValidationError, model: type[BaseModel], elsewhere: Callable[[], Sequence[str]] = list
) -> ConfigError:
    """The first entry of pydantic's list, in the words of this package.

    `elsewhere` lists dotted keys of the whole configuration: an unknown key may be one of them in the wrong group.
    """
    problem = error.errors()[0]
    path = tuple(str(part) for part in problem["loc"])
    cause = problem.get("ctx", {}).get("error")
    if isinstance(cause, ConfigError):
        return ConfigError((*path, *cause.path), cause.text)
    if problem["type"] == "extra_forbidden":
        moved = [key for key in elsewhere() if key.rpartition(".")[2] == path[-1].rpartition(".")[2]]
        return ConfigError(path, f"unknown key{nearest(path[-1], moved or _fields(model, path[:-1]))}")
    if problem["type"] == "missing":
        return ConfigError(path, "this key is missing")
    if problem["type"] == "model_type":
        return ConfigError(path, f"must be a group of keys, not {problem['input']!r}")
    message = problem["msg"].removeprefix("Value error, ")
    given = "" if problem["type"] == "value_error" else f", not {problem['input']!r}"
    return ConfigError(path, message[:1].lower() + message[1:] + given)


def _fields(model: type[BaseModel], path: KeyPath) -> list[str]:
    """Keys known in the group at `path`."""
    for name in path:
        model = model.model_fields[name].annotation  # type: ignore[assignment]
    return list(model.model_fields)


def leaf_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """Dotted keys of all fields that are no groups."""
    keys: list[str] = []
    for name, field in model.model_fields.items():
        group = field.annotation
        is_group = isinstance(group, type) and issubclass(group, BaseModel)
        keys += leaf_keys(group, f"{prefix}{name}.") if is_group else [f"{prefix}{name}"]  # type: ignore[arg-type]
    return keys


def flat(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested groups as one mapping with dotted keys."""
    pairs: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{prefix}{key}"
        pairs |= flat(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return pairs
