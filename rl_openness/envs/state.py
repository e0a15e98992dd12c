"""Checking the arrays of a state that come from outside, before kernels use them as indices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

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
