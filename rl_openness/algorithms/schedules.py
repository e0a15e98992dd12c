"""Settings that may change in the course of a training, in RLlib's notation."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from pydantic import PlainSerializer, PlainValidator

Points = Sequence[tuple[int, float]]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")


def _checked(value: Any) -> float | tuple[tuple[int, float], ...]:
    if isinstance(value, (list, tuple)):
        points = [tuple(point) if isinstance(point, (list, tuple)) else () for point in value]
        if all(len(point) == 2 and all(map(_is_number, point)) for point in points):
            steps = [step for step, _ in points]
            if len(steps) > 1 and steps[0] == 0 and all(a < b for a, b in pairwise(steps)):
                return tuple((int(step), float(number)) for step, number in points)
    elif _is_number(value):
        return float(value)
    raise ValueError(
        "must be a number of at least 0, or a list of two or more [env step, number] with growing steps, the first "
        f"one at step 0; not {value!r}"
    )


Schedule = Annotated[
    float | tuple[tuple[int, float], ...], PlainValidator(_checked), PlainSerializer(lambda value: value)
]
"""One number, or points `[[0, 5e-4], [1000000, 0]]`: env steps and the values to be reached there."""


def value_at(schedule: float | Points, env_steps: int) -> float:
    """A plain number stays itself; between the points of a schedule values run straight, after the last they stay."""
    if isinstance(schedule, (int, float)):
        return schedule
    steps, values = zip(*schedule, strict=True)
    return float(np.interp(env_steps, steps, values))
