"""One copy of a foreign environment while it runs: who is a member, what each observes, and what a step gave.

A *stay* begins with an agent's first observation and ends when its environment says so (terminated, truncated). Who has
no observation for a while is away and stays a member. An agent that comes back after its stay is over begins a new one:
it has the same identity, but nothing of it is carried over.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_openness.envs.adapters.foreign import ConventionError, Foreign, Moment, Name
from rl_openness.envs.adapters.mapping import Reader, Reading
from rl_openness.envs.base import NO_OP
from rl_openness.errors import UserError

JOINS, LEAVES, ABSENCES, WITHOUT_ACTION = EVENTS = ("joins", "leaves", "absences", "without_action")
"""Stays that began after the reset; stays that ended before the episode; times that somebody went away; decisions of
agents none of whose actions does anything."""


class EnvironmentFailedError(RuntimeError):
    """An environment raised, or broke its rules: which one, where, when, and after which joint action."""


@dataclass
class Member:
    """An agent in one of its stays."""

    name: Name
    number: int
    """Identity."""
    reading: Reading
    """What it observed last."""
    present: bool = True
    row: int = -1
    """Its row in the last observation of all copies; -1 = it was in none."""


@dataclass
class Played:
    """What a step gave."""

    rewards: NDArray[np.float64]
    """[members before the step] what each earned,"""
    by_name: dict[Name, float]
    """and all agents, members or not,"""
    team: float
    """and these together."""
    events: dict[str, int]
    final: list[Member] | None = None
    """Members at the end of the episode, if it has ended: those whose values go on after a cut."""
    cut: bool = False
    parted: list[Member] | None = None
    """Where agents were cut off and the episode goes on: they, at their last observations, and the members now."""


class Copy:
    """A foreign environment with its members; `index` and `label` name it in messages."""

    def __init__(
        self,
        make: Callable[[], Foreign],
        reader: Reader,
        *,
        index: int,
        label: str,
        pattern: str | None,
        max_steps: int | None,
    ) -> None:
        self._make, self._reader, self._pattern, self._max_steps = make, reader, pattern, max_steps
        self._index, self._label = index, label
        self._foreign: Foreign | None = None
        self._declared = tuple(reader.kind_of)
        self._numbers: dict[Name, int] = {}
        self.members: list[Member] = []
        self.seed = self.steps = 0
        self.history: list[NDArray[np.int64]] = []

    def adopt(self, foreign: Foreign) -> None:
        """Use an environment that was made already."""
        self._foreign = foreign

    def plays(self, env: Any) -> bool:
        """Whether this very object is the copy's environment now."""
        return self._foreign is not None and self._foreign.env is env

    def begin(self, seed: int) -> None:
        """Start an episode. Raises EnvironmentFailedError."""
        self.seed, self.steps, self.history, self.members = seed, 0, [], []
        self._numbers = {name: number for number, name in enumerate(self._declared)}
        moment = self._guarded(lambda foreign: foreign.reset(seed), None)
        self._checked(lambda: self._update(moment), None)
        if moment.over:
            raise EnvironmentFailedError(self._where("ended its episode at the reset", None))

    def play(self, choices: Sequence[int]) -> Played:
        """One step; a choice for every member. Raises EnvironmentFailedError, after which only `renew` helps."""
        present = [(m, int(c)) for m, c in zip(self.members, choices, strict=True) if m.present]
        joint = {m.name: self._reader.action(m.name, m.reading, _legal(m.reading, c)) for m, c in present}
        without = sum(not can_act(m.reading) for m, _ in present)
        self.history.append(np.asarray(choices, dtype=np.int64))
        before = list(self.members)
        self.steps += 1
        moment = self._guarded(lambda foreign: foreign.step(joint), joint)
        played: Played = self._checked(lambda: self._played(moment, before, without), joint)
        return played

    def _played(self, moment: Moment, before: list[Member], without: int) -> Played:
        rewards = {name: _reward(name, value) for name, value in moment.rewards.items()}
        were = [member.name for member in self.members]
        events = self._update(moment)
        cut = moment.cut or (not moment.over and self.steps == self._max_steps)
        ended = moment.over or cut
        last = self._with_cut(moment, were)
        return Played(
            rewards=np.array([rewards.get(member.name, 0.0) for member in before], dtype=np.float64),
            by_name=rewards,
            team=sum(rewards.values()),
            events={**events, LEAVES: 0 if ended else events[LEAVES], WITHOUT_ACTION: without},
            final=last if ended else None,
            cut=cut,
            parted=last if not ended and len(last) > len(self.members) else None,
        )

    def _update(self, moment: Moment) -> dict[str, int]:
        """Members after a moment."""
        done = moment.terminated | moment.truncated
        stay = [member for member in self.members if member.name not in done]
        left = len(self.members) - len(stay)
        absences = 0
        known = {member.name for member in stay}
        for member in stay:
            here = member.name in moment.observations
            absences += member.present and not here
            member.present = here
            if here:
                member.reading = self._read(member.name, moment.observations[member.name])
        new = [name for name in moment.observations if name not in known and name not in done]
        stay += [Member(name, self._number(name), self._read(name, moment.observations[name])) for name in new]
        self.members = stay
        return {JOINS: len(new) if self.steps else 0, LEAVES: left, ABSENCES: absences}

    def _with_cut(self, moment: Moment, were: list[Name]) -> list[Member]:
        """The members now and those who were cut off: all whose stay did not end by itself."""
        cut = [name for name in were if name in moment.truncated and name in moment.last]
        back = [Member(name, self._number(name), self._read(name, moment.last[name])) for name in cut]
        return [*self.members, *back]

    def _read(self, name: Name, observation: Any) -> Reading:
        try:
            return self._reader.read(name, observation)
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise ConventionError(f"the observation of agent {name!r} cannot be read: {_told(error)}") from error

    def _number(self, name: Name) -> int:
        """An agent's identity: its place among those that are known, new ones at the end."""
        if name not in self._reader.kind_of:
            if self._pattern is None or not re.fullmatch(self._pattern, str(name)):
                also = "" if self._pattern is None else f" and does not match {self._pattern!r}"
                remedy = "name it in possible_agents, or accept it by a pattern (option bridge.agents)"
                raise ConventionError(f"agent {name!r} was not declared{also}: {remedy}")
            assert self._foreign is not None
            self._reader.add(name, self._foreign.spaces(name))
        return self._numbers.setdefault(name, len(self._numbers))

    def _guarded(self, call: Callable[[Foreign], Moment], joint: dict[Name, Any] | None) -> Moment:
        """Whatever an environment raises, told with its place."""
        try:
            if self._foreign is None:
                self._foreign = self._make()
            return call(self._foreign)
        except UserError:  # it cannot be made: no other copy could be
            raise
        except (Exception, SystemExit) as error:
            raise EnvironmentFailedError(self._where(f"raised {_told(error)}", joint)) from error

    def _checked(self, call: Callable[[], Any], joint: dict[Name, Any] | None) -> Any:
        try:
            return call()
        except ConventionError as error:
            raise EnvironmentFailedError(self._where(f"broke a rule: {error}", joint)) from error

    def _where(self, what: str, joint: dict[Name, Any] | None) -> str:
        place = f"copy {self._index}, seed {self.seed}, step {self.steps}"
        after = "" if joint is None else f", joint action {_short(joint)}"
        return f"environment {self._label} {what} ({place}{after})"

    def renew(self) -> None:
        """Throw the environment away; the next `begin` makes a new one."""
        if self._foreign is not None:
            with contextlib.suppress(Exception):  # it is broken already
                self._foreign.close()
            self._foreign = None


def _reward(name: Name, value: Any) -> float:
    """A finite number. Raises ConventionError for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = np.nan
    if np.ndim(value) or isinstance(value, str) or not np.isfinite(number):
        raise ConventionError(f"the reward of agent {name!r} is {value!r}, not a finite number")
    return number


def can_act(reading: Reading) -> bool:
    """Whether any choice but the no-op does something."""
    if reading.legal is not None:
        return bool(reading.legal.any())
    return reading.mask is None or bool(reading.mask.any())


def _legal(reading: Reading, choice: int) -> int:
    """A choice, or the no-op where an action of a fixed set does nothing."""
    if choice >= 0 and reading.mask is not None and not reading.mask[choice]:
        return NO_OP
    return choice


def _told(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def _short(joint: dict[Name, Any]) -> str:
    text = ", ".join(f"{name}: {action}" for name, action in joint.items())
    return f"{{{text if len(text) <= 400 else text[:400] + ' ...'}}}"
