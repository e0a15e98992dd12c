"""What a check found, as data; the command line prints it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from typing import Literal

Severity = Literal["fault", "note"]
_NAMED = 3
"""So many further agents of the same finding are named."""


@dataclass(frozen=True)
class Finding:
    """One thing that an environment does, at the first place where it did."""

    severity: Severity
    """A fault breaks a rule of the environment's own library or makes training wrong; a note is worth knowing."""
    kind: str
    """A fixed short name, for programs and tests."""
    text: str
    """What happened: a sentence without place, beginning with a small letter and without a full stop."""
    remedy: str
    """What to do: a sentence."""
    agent: str | None = None
    step: int | None = None
    """0 is the reset."""
    seed: int | None = None
    times: int = 1
    """How often it was found in all."""
    also: tuple[str, ...] = ()
    """A few further agents for which it was found."""


@dataclass(frozen=True)
class Report:
    """All findings, and how much was played to find them."""

    convention: str
    """`parallel` (PettingZoo), `rllib` or `native` (an `OpenVectorEnv`)."""
    episodes: int
    steps: int
    """Of a copy."""
    agents: int
    """Different ones."""
    events: dict[str, int]
    """`joins` after the reset, `leaves` before the episode's end, `absences` (went away without leaving)."""
    findings: tuple[Finding, ...]

    @property
    def faults(self) -> tuple[Finding, ...]:
        """What must be mended."""
        return tuple(each for each in self.findings if each.severity == "fault")

    @property
    def notes(self) -> tuple[Finding, ...]:
        """What is worth knowing."""
        return tuple(each for each in self.findings if each.severity == "note")


@dataclass
class Findings:
    """Collects findings: each kind once, with how often and for whom else it was found."""

    seed: int | None = None
    """Where the check is now."""
    step: int | None = None
    episodes: int = 0
    steps: int = 0
    agents: set[Hashable] = field(default_factory=set)
    events: Counter[str] = field(default_factory=Counter)
    _found: dict[str, Finding] = field(default_factory=dict)

    def fault(self, kind: str, text: str, remedy: str, agent: Hashable = None) -> None:
        """Something that must be mended."""
        self._add("fault", kind, text, remedy, agent)

    def note(self, kind: str, text: str, remedy: str, agent: Hashable = None) -> None:
        """Something worth knowing."""
        self._add("note", kind, text, remedy, agent)

    def _add(self, severity: Severity, kind: str, text: str, remedy: str, agent: Hashable) -> None:
        name = None if agent is None else str(agent)
        known = self._found.get(kind)
        if known is None:
            self._found[kind] = Finding(severity, kind, text, remedy, name, self.step, self.seed)
            return
        also = known.also
        if name is not None and name != known.agent and name not in also and len(also) < _NAMED:
            also = (*also, name)
        self._found[kind] = replace(known, times=known.times + 1, also=also)

    def any_fault(self) -> bool:
        """Whether there is one so far."""
        return any(each.severity == "fault" for each in self._found.values())

    def report(self, convention: str) -> Report:
        """Faults first, each in the order of their discovery."""
        found = sorted(self._found.values(), key=lambda each: each.severity != "fault")
        events = {name: self.events[name] for name in ("joins", "leaves", "absences")}
        return Report(convention, self.episodes, self.steps, len(self.agents), events, tuple(found))
