"""What every environment of the package keeps: a copy's episode is its own, and a state goes on exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from rl_openness.envs.base import OpenVectorEnv, PackedObs, StepResult

Steps = Iterator[tuple[PackedObs, StepResult]]
Play = Callable[[Any, int], Steps]
"""Steps an environment so many times, with choices that depend on its own draws."""


def arrays(obs: PackedObs) -> dict[str, np.ndarray]:
    """The fields that an observation has."""
    return {name: value for name, value in vars(obs).items() if value is not None}


def assert_same(left: PackedObs, right: PackedObs) -> None:
    """Bit-equal observations."""
    assert arrays(left).keys() == arrays(right).keys()
    for name, value in arrays(left).items():
        np.testing.assert_array_equal(value, arrays(right)[name], err_msg=name)


def record(steps: Iterable[tuple[PackedObs, StepResult]], copy: int) -> list[Any]:
    """Everything that one copy shows; `carry` as a place in the copy's previous listing."""
    trail: list[Any] = []
    start = 0
    for obs, result in steps:
        alone = arrays(obs.select(np.array([copy])))
        trail += [alone[name] for name in alone if name != "carry"]
        trail.append(np.where(alone["carry"] < 0, -1, alone["carry"] - start))
        members = slice(obs.agent_ptr[copy], obs.agent_ptr[copy + 1])
        start = members.start
        trail += [result.team_reward[copy], result.agent_reward[members]]
        trail += [] if result.labels is None else [result.labels[members]]
        trail += [result.terminated[copy], result.truncated[copy], *(event[copy] for event in result.events.values())]
        if copy in result.ended:
            assert result.final_obs is not None
            trail.append(result.final_obs.select(np.flatnonzero(result.ended == copy)).agent_rows)
    return trail


def assert_a_copy_is_its_own(
    make: Callable[[int], OpenVectorEnv], play: Play, seeds: list[int], random: Any, steps: int
) -> None:
    """The first seed's episode alone, and somewhere in a batch."""
    alone = make(1)
    alone.reset(seeds[:1])
    expected = record(play(alone, steps), 0)
    shuffled = random.sample(seeds, len(seeds))
    batch = make(len(seeds))
    batch.reset(shuffled)
    found = record(play(batch, steps), shuffled.index(seeds[0]))
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
