"""What PettingZoo's `ParallelEnv` and RLlib's `MultiAgentEnv` ask of resets and steps, where they differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rl_openness.envs.adapters.foreign import ALL, Foreign, Name
from rl_openness.envs.conformance.findings import Findings
from rl_openness.envs.conformance.values import same, short

_NUMBERS = (bool, int, np.bool_, np.integer)


@dataclass(frozen=True)
class Raw:
    """What a reset or a step returned, unchanged; of a reset only the observations."""

    observations: Mapping[Name, Any]
    rewards: Mapping[Name, Any] = field(default_factory=dict)
    terminated: Mapping[Name, Any] = field(default_factory=dict)
    truncated: Mapping[Name, Any] = field(default_factory=dict)

    def done(self) -> set[Name]:
        """Agents whose stay is over."""
        flags = (*self.terminated.items(), *self.truncated.items())
        return {name for name, flag in flags if name != ALL and bool(flag)}


@dataclass
class Episode:
    """Who was in the running episode."""

    present: list[Name] = field(default_factory=list)
    """Who acts next."""
    listed: set[Name] = field(default_factory=set)
    """Whom the environment called its agents after the last step."""
    members: set[Name] = field(default_factory=set)
    """Whose stay is not over, present or away."""
    seen: set[Name] = field(default_factory=set)
    """Everyone so far,"""
    finished: set[Name] = field(default_factory=set)
    """and whose stay was over once."""


def difference(one: Raw, other: Raw) -> tuple[Name | None, str] | None:
    """Whose what differs first between two answers."""
    for word in ("observations", "rewards", "terminated", "truncated"):
        what = {"observations": "its observation", "rewards": "its reward"}.get(word, f"its flag ({word})")
        mine, theirs = getattr(one, word), getattr(other, word)
        for name in [*mine, *(theirs.keys() - mine.keys())]:
            if name not in mine or name not in theirs or not same(mine[name], theirs[name]):
                return (None if name == ALL else name), what
    return None


class Rules(ABC):
    """One library's conventions."""

    terminated_word: str
    truncated_word: str
    library: str

    def __init__(self, foreign: Foreign, findings: Findings) -> None:
        self.foreign, self.findings = foreign, findings

    @abstractmethod
    def check(self, episode: Episode, raw: Raw, *, reset: bool) -> None:
        """Faults against this library's rules in one answer of the environment; `episode` is of before it."""

    def lists_agents(self) -> bool:
        """Whether it says who is there as it must; told if not."""
        return True

    @abstractmethod
    def acting(self, raw: Raw) -> list[Name]:
        """Who acts next."""

    @abstractmethod
    def over(self, raw: Raw) -> bool:
        """Whether the episode has ended."""

    @abstractmethod
    def known_now(self, episode: Episode, raw: Raw) -> set[Name]:
        """Who may have rewards and flags in this answer."""

    def check_names(self, episode: Episode, raw: Raw) -> None:
        """Rewards and flags for agents that never were, flags that are none, revivals."""
        known = self.known_now(episode, raw)
        for name in raw.rewards.keys() - known:
            self.findings.fault(
                "reward-unknown",
                f"it has a reward, but it never was in this episode (agents so far: {_names(known)})",
                "Give rewards only to agents that have had an observation.",
                name,
            )
        for word, flags in ((self.terminated_word, raw.terminated), (self.truncated_word, raw.truncated)):
            for name in flags.keys() - known - {ALL}:
                self.findings.fault(
                    "flag-unknown",
                    f"it has a flag in {word}, but it never was in this episode",
                    "Give flags only to agents that have had an observation.",
                    name,
                )
            for name, flag in flags.items():
                if not isinstance(flag, _NUMBERS):
                    self.findings.fault(
                        "flag-type",
                        f"its flag in {word} is {flag!r}, which is neither true nor false",
                        "Use bool(...).",
                        name,
                    )
        arrived = set(self.acting(raw)) | (raw.done() & raw.observations.keys())
        for name in sorted(arrived & episode.finished - episode.members, key=str):
            self.findings.note(
                "revival",
                f"it is back after its stay was over, which {self.library}'s own tests and algorithms refuse; here it "
                "begins a second stay",
                "Leave it like that for rl_openness; for others, keep it without a flag while it is away, or give it a "
                "new name.",
                name,
            )

    def check_last(self, raw: Raw, elsewhere: str) -> None:
        """Who is truncated should be seen once more; `elsewhere`: what others do where it is not."""
        for name, flag in raw.truncated.items():
            if name != ALL and flag and name not in raw.observations:
                self.findings.note(
                    "truncated-without-observation",
                    f"it is truncated without a last observation: its value cannot go on, and {elsewhere}",
                    "Return its last observation in the step in which it is truncated.",
                    name,
                )


class ParallelRules(Rules):
    """PettingZoo: `agents` lists who is there; an episode is over when nobody is."""

    terminated_word, truncated_word, library = "terminations", "truncations", "PettingZoo"

    def check(self, episode: Episode, raw: Raw, *, reset: bool) -> None:
        """See `Rules.check`."""
        listed = list(self.foreign.env.agents)
        fault = self.findings.fault
        for name in sorted({name for name in listed if listed.count(name) > 1}, key=str):
            fault("listed-twice", "it is listed twice in `agents`", "List every agent once.", name)
        for name in [name for name in listed if name not in raw.observations]:
            fault(
                "listed-without-observation",
                "it is listed in `agents`, but there is no observation for it",
                "Return an observation for every agent in `agents`, or take it out of `agents` while it is away.",
                name,
            )
        allowed = {*listed, *episode.listed, *raw.done()}
        for name in [name for name in raw.observations if name not in allowed]:
            fault(
                "observation-not-listed",
                "there is an observation for it, but it is not listed in `agents`",
                "Put it into `agents` in the step in which it joins, or return no observation for it.",
                name,
            )
        for word, flags in ((self.terminated_word, raw.terminated), (self.truncated_word, raw.truncated)):
            if ALL in flags:
                fault(
                    "all-in-parallel",
                    f"{word} holds {ALL!r}, which is RLlib's way to say that an episode is over",
                    "Drop it: the episode of a ParallelEnv is over when `agents` is empty. (Or derive from RLlib's "
                    "MultiAgentEnv.)",
                )
        for name in [name for name in listed if name in raw.done()]:
            fault(
                "done-but-listed",
                "its stay is over by its flag, but it is still listed in `agents`",
                "Take an agent out of `agents` in the step in which it is terminated or truncated.",
                name,
            )
        if not reset:
            self._check_vanished(episode, raw, set(listed))
            self.check_last(raw, "PettingZoo's own test refuses it")
            for name in [name for name, flag in raw.terminated.items() if flag and name not in raw.observations]:
                self.findings.note(
                    "terminated-without-observation",
                    "it is terminated without a last observation, which PettingZoo's own test refuses",
                    "Return an observation for it in this step, too; its numbers change nothing here.",
                    name,
                )
            self.check_names(episode, raw)

    def lists_agents(self) -> bool:
        """See `Rules.lists_agents`."""
        listed = getattr(self.foreign.env, "agents", None)
        if isinstance(listed, (list, tuple)):
            return True
        text = f"`agents` is {short(listed)} instead of a list of names"
        self.findings.fault("agents-type", text, "Keep the names of those who are there in `self.agents`.")
        return False

    def _check_vanished(self, episode: Episode, raw: Raw, listed: set[Name]) -> None:
        for name in sorted(episode.listed - listed - raw.done(), key=str):
            self.findings.note(
                "vanished",
                "it is no longer in `agents`, and neither terminated nor truncated: it counts as away until it is back",
                "If it has left for good, set its flag in the step in which it leaves.",
                name,
            )

    def acting(self, raw: Raw) -> list[Name]:
        """See `Rules.acting`."""
        done = raw.done()
        return [name for name in self.foreign.env.agents if name in raw.observations and name not in done]

    def over(self, raw: Raw) -> bool:
        """See `Rules.over`."""
        return not set(self.foreign.env.agents) - raw.done()

    def known_now(self, episode: Episode, raw: Raw) -> set[Name]:
        """See `Rules.known_now`; some arrive and end in one step."""
        return episode.seen | episode.listed | set(self.foreign.env.agents) | (raw.done() & raw.observations.keys())


class RllibRules(Rules):
    """RLlib: who has an observation acts next; `__all__` says that an episode is over."""

    terminated_word, truncated_word, library = "terminateds", "truncateds", "RLlib"

    def check(self, episode: Episode, raw: Raw, *, reset: bool) -> None:
        """See `Rules.check`."""
        if reset:
            return
        if ALL not in raw.terminated:
            self.findings.fault(
                "all-missing",
                f"terminateds has no {ALL!r}",
                f"Return {ALL!r} in terminateds at every step: whether the episode is over for everyone. (Or derive "
                "from PettingZoo's ParallelEnv.)",
            )
        if ALL not in raw.truncated:
            self.findings.note(
                "all-missing-truncated",
                f"truncateds has no {ALL!r}, which counts as false",
                f"Return {ALL!r} in truncateds, too: code that follows RLlib's documentation to the letter needs it.",
            )
        if not self.over(raw):
            self.check_last(raw, "RLlib's own algorithms stop with an error")
        self.check_names(episode, raw)

    def acting(self, raw: Raw) -> list[Name]:
        """See `Rules.acting`."""
        done = raw.done()
        return [name for name in raw.observations if name not in done]

    def over(self, raw: Raw) -> bool:
        """See `Rules.over`; an environment without `__all__` is given the benefit of the doubt."""
        flags = (raw.terminated, raw.truncated)
        if any(ALL in each for each in flags):
            return any(bool(each.get(ALL, False)) for each in flags)
        return not self.acting(raw)

    def known_now(self, episode: Episode, raw: Raw) -> set[Name]:
        """See `Rules.known_now`."""
        return episode.seen | set(raw.observations)


def _names(names: set[Name]) -> str:
    some = sorted(map(str, names))
    return ", ".join(some[:8]) + (" ..." if len(some) > 8 else "") if some else "none"
