"""Values of somebody else's environment: do they fit their space, are two of them equal, a random legal action."""

from __future__ import annotations

import numbers
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np

from rl_openness.envs.adapters.foreign import Name
from rl_openness.envs.adapters.mapping import MASK, count_actions, entries, entry, numbered_action
from rl_openness.envs.conformance.findings import Findings


def misfit(space: gym.Space[Any], value: Any, name: str = "") -> tuple[str, str, str] | None:
    """Kind, text and remedy of what is wrong with an observation; None if its space contains it."""
    spaces = gym.spaces
    what = f"entry {name!r} of its observation" if name else "its observation"
    if isinstance(space, spaces.Dict):
        return _misfit_of_entries(space, value, name, what)
    if isinstance(space, spaces.Box):
        found = _misfit_of_box(space, value, what)
        if found is not None:
            return found
    try:
        inside = bool(space.contains(value))
    except Exception as error:  # noqa: BLE001 - it is told
        return "observation-space", f"{what} cannot be compared with its space {space}: {error!r}", "Mend the value."
    if inside:
        return None
    return (
        "observation-space",
        f"{what} is {_short(value)}, which its space {space} does not contain",
        "Return values of the declared space, or declare the space that they have.",
    )


def _misfit_of_entries(space: gym.spaces.Dict, value: Any, name: str, what: str) -> tuple[str, str, str] | None:
    if not isinstance(value, Mapping):
        text = f"{what} is a {type(value).__name__}, but its space is a Dict"
        return "observation-entries", text, "Return a dict with the entries of the space."
    missing = sorted(str(key) for key in space.spaces.keys() - value.keys())
    extra = sorted(str(key) for key in value.keys() - space.spaces.keys())
    if missing or extra:
        parts = [f"lacks {', '.join(missing)}"] if missing else []
        parts += [f"has {', '.join(extra)}, which its space lacks"] if extra else []
        return "observation-entries", f"{what} {' and '.join(parts)}", "Return exactly the entries of the space."
    for key, each in space.spaces.items():
        found = misfit(each, value[key], f"{name}.{key}" if name else str(key))
        if found is not None:
            return found
    return None


def _misfit_of_box(space: gym.spaces.Box, value: Any, what: str) -> tuple[str, str, str] | None:
    if not isinstance(value, np.ndarray):
        text = f"{what} is a {type(value).__name__}, but its space {space} holds NumPy arrays"
        return "observation-type", text, f"Return np.asarray(..., dtype=np.{space.dtype})."
    if value.shape != space.shape:
        text = f"{what} has shape {value.shape}, but its space has {space.shape}"
        return "observation-shape", text, "Return arrays of the declared shape, or declare the shape that they have."
    if value.dtype.kind not in "biuf":
        return "observation-dtype", f"{what} is of {value.dtype}, which is no number", "Return numbers."
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        at = int(np.flatnonzero(~np.isfinite(value.ravel()))[0])
        text = f"{what} holds {value.ravel()[at]} at place {at}"
        return (
            "observation-finite",
            text,
            "Return finite numbers; one that is unknown needs a mark such as 0 and a flag.",
        )
    if not np.can_cast(value.dtype, np.dtype(space.dtype or np.float32)):
        text = f"{what} is of {value.dtype}, but its space is of {space.dtype}"
        return "observation-dtype", text, f"Return it as {space.dtype}: observation.astype(np.{space.dtype})."
    outside = np.flatnonzero(((value < space.low) | (value > space.high)).ravel())
    if len(outside):
        at = int(outside[0])
        low, high = space.low.ravel()[at], space.high.ravel()[at]
        text = f"{what} holds {value.ravel()[at]} at place {at}, outside {low} to {high}"
        return "observation-bounds", text, "Widen the bounds of the space, or clip the value."
    return None


def same(one: Any, other: Any) -> bool:
    """Whether two nested values hold the same numbers (NaN equals NaN)."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other, strict=True))
    first, second = np.asarray(one), np.asarray(other)
    if first.shape != second.shape:
        return False
    if first.dtype.kind == "f" and second.dtype.kind == "f":
        return bool(np.array_equal(first, second, equal_nan=True))
    return bool(np.array_equal(first, second))


def mask_of(space: gym.Space[Any], observation: Any, named: str | None = None) -> np.ndarray[Any, Any] | None:
    """The action mask in an observation, flat; None where there is none. `named`: its entry, with dots."""
    name = named or next((leaf for leaf in entries(space) if leaf.rpartition(".")[2] == MASK), None)
    if name is None:
        return None
    try:
        return np.asarray(entry(observation, name)).ravel()
    except (KeyError, TypeError, IndexError):
        return None


def random_action(space: gym.Space[Any], mask: np.ndarray[Any, Any] | None, rng: np.random.Generator) -> Any:
    """An action that the mask (over all combinations, if they are several) allows; any if it allows none."""
    count = count_actions(space)
    if count is not None:
        return numbered_action(space, _pick(count, mask, rng))
    space.seed(int(rng.integers(2**31)))
    return space.sample()


def _pick(count: int, mask: np.ndarray[Any, Any] | None, rng: np.random.Generator) -> int:
    allowed = np.flatnonzero(mask) if mask is not None and len(mask) == count else np.empty(0, dtype=np.int64)
    return int(rng.choice(allowed)) if len(allowed) else int(rng.integers(count))


def action_outside(space: gym.Space[Any]) -> Any:
    """An action that the space does not contain; None if there is no simple one."""
    if isinstance(space, gym.spaces.Discrete):
        return int(space.start) + int(space.n) + 1
    if isinstance(space, gym.spaces.MultiDiscrete):
        return (space.start + space.nvec + 1).astype(space.dtype)
    return None


def _short(value: Any) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= 80 else f"{text[:80]} ..."


def check_reward(findings: Findings, name: Name, reward: Any) -> None:
    """Faults of a reward that is no finite number."""
    number = isinstance(reward, (numbers.Real, np.number)) or (isinstance(reward, np.ndarray) and reward.ndim == 0)
    if not number:
        text = f"its reward is {short(reward)}, which is no number"
        findings.fault("reward-type", text, "Return a float.", name)
    elif not np.isfinite(float(reward)):
        text = f"its reward is {float(reward)}"
        findings.fault("reward-finite", text, "Return finite rewards; the losses become NaN otherwise.", name)


def short(value: Any) -> str:
    """A value in at most 120 characters of one line."""
    text = " ".join(str(value).split())
    return text if len(text) <= 120 else f"{text[:120]} ..."
