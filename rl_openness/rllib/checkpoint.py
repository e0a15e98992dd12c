"""Checkpoints: `policy/` (all that acting needs, see `policies.card`) and `state/` (to go on exactly).

`state/` holds RLlib's whole `Algorithm.get_state()` as safetensors and JSON, so that resuming a run somebody handed on
unpickles nothing. RLlib's own `save_to_path` works too, but writes pickles; its msgpack variant patches msgpack for
the whole process, after which Ray's object store garbles arrays (docs/decisions).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file

from rl_openness.errors import UserError
from rl_openness.files import atomic_directory
from rl_openness.policies.card import PolicyCard
from rl_openness.policies.checkpoint import save_policy
from rl_openness.rllib.algorithm import OpenAlgorithm

STATE = "state"
_TREE, _ARRAYS = "tree.json", "arrays.safetensors"


def encode(value: Any, arrays: dict[str, NDArray[Any]]) -> Any:
    """JSON for a tree of dictionaries, lists, tuples, numbers and arrays; the arrays are put aside under numbers.

    Raises TypeError for anything else.
    """
    if isinstance(value, dict):
        return {"dict": [[encode(key, arrays), encode(item, arrays)] for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [encode(item, arrays) for item in value]}
    if isinstance(value, (np.ndarray, np.generic)):
        name = str(len(arrays))
        arrays[name] = np.array(value, order="C")
        return {"scalar" if isinstance(value, np.generic) else "array": name}
    if value is None or isinstance(value, (bool, int, float, str)):
        return {"plain": value}
    raise TypeError(f"cannot save a {type(value).__name__} in a checkpoint")


def decode(node: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> Any:
    """Inverse of `encode`."""
    ((kind, content),) = node.items()
    if kind == "dict":
        return {decode(key, arrays): decode(item, arrays) for key, item in content}
    if kind in ("list", "tuple"):
        items = [decode(item, arrays) for item in content]
        return items if kind == "list" else tuple(items)
    if kind == "plain":
        return content
    return arrays[content][()] if kind == "scalar" else arrays[content]


def save_checkpoint(algorithm: OpenAlgorithm, folder: Path, card: PolicyCard) -> None:
    """Write both halves into `folder`, which appears complete or not at all."""
    arrays: dict[str, NDArray[Any]] = {}
    tree = encode(algorithm.get_state(), arrays)
    with atomic_directory(folder) as work:
        save_policy(work / "policy", card, algorithm.core_module().actor)
        (work / STATE).mkdir()
        (work / STATE / _TREE).write_text(json.dumps(tree))
        try:
            save_file(arrays, work / STATE / _ARRAYS)
        except SafetensorError as error:  # a full disk
            raise OSError(f"{folder} cannot be written: {error}") from None


def restore_checkpoint(algorithm: OpenAlgorithm, folder: Path) -> None:
    """Bring an algorithm of the same configuration to the saved state, whatever it did before.

    Raises UserError if `folder` holds no state, or a damaged one.
    """
    state = folder / STATE
    older = sorted(path.name for path in folder.parent.glob("[0-9]*/" + STATE) if path.parent.name < folder.name)
    remedy = f"; remove {folder} to go on from the checkpoint before it" if older else ""
    if not (state / _TREE).is_file():
        text = f"{folder} holds no {STATE}/ to resume from (a policy alone can be evaluated, not continued){remedy}"
        raise UserError(text)
    try:
        saved = decode(json.loads((state / _TREE).read_text()), load_file(state / _ARRAYS))
        missing = set(algorithm.get_state()) - set(saved)
        if missing:
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as error:
        raise UserError(f"{state} cannot be read: {_first_line(error)}{remedy}") from None
    try:
        algorithm.restore_state(saved)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RuntimeError) as error:
        raise UserError(f"{state} does not fit this run: {_first_line(error)}{remedy}") from error


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split()[:40]) or type(error).__name__
