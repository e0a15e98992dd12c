"""What batched environments do alike with their state: begin episodes, and take over arrays that were checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_openness.envs.base import Int, whole_numbers

BIG = 2**62
"""Bound of counts that nothing else bounds: adding to it does not overflow."""


def restore(
    arrays: Mapping[str, NDArray[Any]], state: Mapping[str, Any], limits: Mapping[str, tuple[ArrayLike, ArrayLike]]
) -> None:
    """Overwrite `arrays` with the arrays of the same names in `state`.

    `limits` are the smallest and largest value by name (0 and `BIG` if not given), or arrays of them along the last
    axis. Raises ValueError, before anything changes, for an array that is missing or of another shape, kind or range.
    """
    for name, mine in arrays.items():
        if name not in state or np.shape(state[name]) != mine.shape:
            found = np.shape(state[name]) if name in state else "nothing"
            raise ValueError(f"state array {name!r} must have shape {mine.shape}, found {found}")
        given = np.asarray(state[name])
        if not np.can_cast(given.dtype, mine.dtype, "same_kind") or (given.dtype == bool) != (mine.dtype == bool):
            raise ValueError(f"state array {name!r} must be {mine.dtype}, found {given.dtype}")
        low, high = (np.asarray(limit) for limit in limits.get(name, (0, BIG)))
        if not ((given >= low) & (given <= high)).all():  # also refuses NaN
            raise ValueError(f"state array {name!r} must lie in {low.tolist()} to {high.tolist()}")
    for name, mine in arrays.items():
        mine[...] = state[name]


def begin_episodes(
    seed: Int, episode: Int, seeds: Int | Sequence[int] | None, copies: Int | Sequence[int] | None
) -> Int:
    """Seeds and episode numbers [B] of the copies that begin anew (`OpenVectorEnv.reset`); returns these copies.

    Raises ValueError for copies that do not exist, or seeds that are not one whole number for each.
    """
    rows = np.arange(len(seed)) if copies is None else whole_numbers(copies, "copies")
    if len(rows) and (rows.min() < 0 or rows.max() >= len(seed)):
        raise ValueError(f"reset: copies must lie in 0 to {len(seed) - 1}, found {rows.tolist()}")
    if seeds is None:
        episode[rows] += 1
        return rows
    seeds = whole_numbers(seeds, "seeds")
    if seeds.shape != rows.shape:
        raise ValueError(f"reset needs one seed per copy: {len(rows)} copies, seeds of shape {seeds.shape}")
    seed[rows], episode[rows] = seeds, 0
    return rows
