"""Small environments for tests: one where everything that may happen happens, and two with a lesson to learn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rl_openness.envs.base import NO_OP, Column, EnvSpec, OpenVectorEnv, PackedObs, StepResult, concatenate
from rl_openness.envs.draws import Keys, child_seeds, step_keys
from rl_openness.envs.ragged import pointer, segment_of_row
from tests.nn.builders import SPEC

EMPTY = np.empty(0, dtype=np.int64)


class _CountingEnv(OpenVectorEnv):
    """Seed, episode and step of every copy; the rest of the world is a function of them."""

    def __init__(self, num_copies: int) -> None:
        self.num_copies = num_copies
        self.clock = {name: np.zeros(num_copies, dtype=np.int64) for name in ("seed", "episode", "step")}
        self.reset(child_seeds(0, count=num_copies))

    def reset(self, seeds: Any = None, copies: Any = None) -> None:
        rows = np.arange(self.num_copies) if copies is None else np.asarray(copies)
        if seeds is None:
            self.clock["episode"][rows] += 1
        else:
            self.clock["seed"][rows], self.clock["episode"][rows] = seeds, 0
        self.clock["step"][rows] = 0
        self.begin(rows)

    def begin(self, copies: np.ndarray) -> None:
        """Set up new episodes."""

    def generator(self, copy: int, stream: int) -> np.random.Generator:
        return np.random.default_rng([int(array[copy]) for array in self.clock.values()] + [stream])

    def decision_keys(self) -> Keys:
        return step_keys(*self.clock.values())

    def get_state(self) -> dict[str, np.ndarray]:
        return {name: array.copy() for name, array in self.clock.items()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        for name, array in self.clock.items():
            array[...] = state[name]


class MotleyEnv(_CountingEnv):
    """Members join, leave for good, go away and come back; tasks come and go; a copy may be empty; an episode ends by
    termination, truncation or both at once, and what follows depends on what was chosen.

    `ended` comes in no particular order. `ghosts`: members of every copy that are always away. `coarse`: few distinct
    rows. `see`: probability that an agent observes another.
    """

    SLOTS = 5

    def __init__(
        self,
        num_copies: int,
        *,
        horizon: int = 6,
        ghosts: int = 0,
        coarse: bool = False,
        see: float | None = None,
        stop: float = 0.08,
    ) -> None:
        self.spec = SPEC
        self.horizon, self.ghosts, self.coarse, self.see, self.stop = horizon, ghosts, coarse, see, stop
        self.agent = np.full((num_copies, self.SLOTS), -1)
        self.newest = np.zeros(num_copies, dtype=np.int64)
        self.before = np.full((num_copies, self.SLOTS + ghosts), -1)
        self.score = np.zeros(num_copies)
        super().__init__(num_copies)

    def begin(self, copies: np.ndarray) -> None:
        for b in copies:
            count = self.generator(b, 0).integers(0, self.SLOTS)
            self.agent[b] = np.where(np.arange(self.SLOTS) < count, np.arange(self.SLOTS), -1)
            self.newest[b] = count
        self.before[copies] = -1
        self.score[copies] = 0.0

    def _copy(self, b: int) -> PackedObs:
        rng = self.generator(b, 1)
        rows, here = rng.normal(size=(self.SLOTS, 5)), rng.random(self.SLOTS) < 0.7
        tasks = rng.normal(size=(rng.integers(0, 4), 4))
        open_, pair_rows = rng.random((self.SLOTS, len(tasks))) < 0.6, rng.normal(size=(self.SLOTS, len(tasks), 4))
        sees = rng.random((self.SLOTS, self.SLOTS)) < (self.see or 0.0)
        if self.coarse:  # one whole number a row
            rows, tasks, pair_rows = (np.repeat(x[..., :1].round(), x.shape[-1], -1) for x in (rows, tasks, pair_rows))
        rows[:, 2] += self.score[b].round() if self.coarse else self.score[b]
        member = self.agent[b] >= 0
        ghosts = np.zeros(self.ghosts, dtype=bool)
        present = np.concatenate([here[member], ghosts])
        pair_agent, pair_task = np.nonzero(open_[member] & here[member, None])
        see = np.eye(len(present), dtype=bool)
        see[: member.sum(), : member.sum()] |= sees[member][:, member]
        ids = np.concatenate([self.agent[b][member], 100 + np.arange(self.ghosts)])
        return PackedObs(
            agent_rows=np.concatenate([rows[member], np.ones((self.ghosts, 5))]).astype(np.float32),
            present=present,
            carry=self.before[b][np.concatenate([member, ~ghosts])],
            agent_id=ids,
            agent_ptr=np.array([0, len(present)]),
            task_rows=tasks.astype(np.float32),
            task_ptr=np.array([0, len(tasks)]),
            pair_agent=pair_agent,
            pair_task=pair_task,
            pair_rows=pair_rows[member][pair_agent, pair_task].astype(np.float32),
            see_ptr=None if self.see is None else pointer(see.sum(1)),
            see_agent=None if self.see is None else np.nonzero(see)[1],
        )

    def observe(self) -> PackedObs:
        return concatenate([self._copy(b) for b in range(self.num_copies)])

    def step(self, choices: np.ndarray) -> StepResult:
        obs = self.observe()
        count = np.diff(obs.pair_ptr)
        if choices.shape != count.shape or (choices < NO_OP).any() or (choices >= count).any():
            raise ValueError("illegal choice")
        rngs = [self.generator(b, 2) for b in range(self.num_copies)]
        noise = np.array([rng.normal() for rng in rngs])
        moves = np.bincount(obs.agent_copy, choices + 1, minlength=self.num_copies)
        terminated = np.array([rng.random() < self.stop for rng in rngs])
        truncated = self.clock["step"] + 1 >= self.horizon
        for b, rng in enumerate(rngs):
            self._roll(b, rng, np.flatnonzero(obs.agent_copy == b))
        self.clock["step"] += 1
        self.score += 0.1 * moves
        ended = np.flatnonzero(terminated | truncated)[::-1]
        final = self.observe().select(ended) if len(ended) else None
        if len(ended):
            self.reset(copies=ended)
        events = {"moves": moves.astype(np.int64)}
        if len(ended) % 2:
            events["odd"] = np.ones(self.num_copies, dtype=np.int64)  # not in every result
        return StepResult(noise + moves, choices.astype(float), terminated, truncated, ended, final, events=events)

    def _roll(self, b: int, rng: np.random.Generator, rows: np.ndarray) -> None:
        """Who was here remembers its row; one may leave for good, one may join."""
        slots = np.flatnonzero(self.agent[b] >= 0)
        self.before[b] = -1
        self.before[b, slots] = rows[: len(slots)]
        self.before[b, self.SLOTS :] = rows[len(slots) :]
        leaves, joins, where = rng.random() < 0.25, rng.random() < 0.35, rng.integers(0, self.SLOTS, size=2)
        if leaves:
            self.agent[b, where[0]] = -1
        if joins and self.agent[b, where[1]] < 0:
            self.agent[b, where[1]] = self.newest[b]
            self.before[b, where[1]] = -1
            self.newest[b] += 1

    def get_state(self) -> dict[str, np.ndarray]:
        mine = {"agent": self.agent, "newest": self.newest, "before": self.before, "score": self.score}
        return super().get_state() | {name: array.copy() for name, array in mine.items()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        super().set_state(state)
        for name in ("agent", "newest", "before", "score"):
            getattr(self, name)[...] = state[name]


def lesson_spec(name: str) -> EnvSpec:
    return EnvSpec(
        name=name,
        agent_columns=(Column("mark", visible="self"),),
        task_columns=(Column("mark"),),
        pair_columns=(),
    )


def lesson_obs(
    marks: Sequence[np.ndarray], present: Sequence[np.ndarray], tasks: Sequence[np.ndarray], carry: np.ndarray
) -> PackedObs:
    """Copies of marked agents and tasks; every present agent may choose every task."""
    agent_ptr, task_ptr = (pointer(np.array([len(x) for x in column])) for column in (marks, tasks))
    here = np.concatenate([EMPTY, *present]).astype(bool)
    open_ = (segment_of_row(agent_ptr)[:, None] == segment_of_row(task_ptr)) & here[:, None]
    pair_agent, pair_task = np.nonzero(open_)
    return PackedObs(
        agent_rows=np.concatenate([EMPTY, *marks]).astype(np.float32)[:, None],
        present=here,
        carry=carry,
        agent_id=np.arange(agent_ptr[-1]) - agent_ptr[segment_of_row(agent_ptr)],
        agent_ptr=agent_ptr,
        task_rows=np.concatenate([EMPTY, *tasks]).astype(np.float32)[:, None],
        task_ptr=task_ptr,
        pair_agent=pair_agent,
        pair_task=pair_task,
        pair_rows=np.empty((len(pair_agent), 0), dtype=np.float32),
    )


class _LessonEnv(_CountingEnv):
    """Reward of the last step: the share of agents that chose a task with their own mark of the first step."""

    steps: int

    def step(self, choices: np.ndarray) -> StepResult:
        obs = self.observe()
        last = self.clock["step"] == self.steps - 1
        wanted = np.concatenate([self.marks(b) for b in range(self.num_copies)])
        chosen = obs.pair_ptr[:-1] + choices
        right = (choices >= 0) & last[obs.agent_copy]
        right[right] = obs.task_rows[obs.pair_task[chosen[right]], 0] == wanted[right]
        agents = np.diff(obs.agent_ptr)
        share = np.bincount(obs.agent_copy, right, minlength=self.num_copies) / agents
        self.clock["step"] += 1
        ended = np.flatnonzero(last)
        final = None
        if len(ended):
            self.clock["step"][ended] -= 1  # nothing to see after the end: the last state again
            final = self.observe().select(ended)
            self.reset(copies=ended)
        never = np.zeros(self.num_copies, dtype=bool)
        return StepResult(share, right.astype(float), last, never, ended, final)

    def marks(self, b: int) -> np.ndarray:
        raise NotImplementedError


class IdentityEnv(_LessonEnv):
    """One step: 1 to 4 agents marked -1 or 1, a task for each mark and 0 to 2 tasks marked 0, in random order."""

    steps = 1

    def __init__(self, num_copies: int) -> None:
        self.spec = lesson_spec("identity")
        super().__init__(num_copies)

    def marks(self, b: int) -> np.ndarray:
        rng = self.generator(b, 0)
        return rng.choice([-1.0, 1.0], size=rng.integers(1, 5))

    def observe(self) -> PackedObs:
        copies = range(self.num_copies)
        marks = [self.marks(b) for b in copies]
        rngs = [self.generator(b, 1) for b in copies]
        tasks = [rng.permutation([-1.0, 1.0, *[0.0] * rng.integers(0, 3)]) for rng in rngs]
        here = [np.ones(len(m), dtype=bool) for m in marks]
        return lesson_obs(marks, here, tasks, np.full(sum(map(len, marks)), -1))


class CueEnv(_LessonEnv):
    """At first each of 1 or 2 agents sees its mark, with nothing to choose; then it is away; then it must choose the
    task with that mark while its own row shows 0.
    """

    steps = 4

    def __init__(self, num_copies: int) -> None:
        self.spec = lesson_spec("cue")
        super().__init__(num_copies)

    def _start(self, b: int) -> np.random.Generator:
        return np.random.default_rng([int(self.clock["seed"][b]), int(self.clock["episode"][b])])

    def marks(self, b: int) -> np.ndarray:
        rng = self._start(b)
        return rng.choice([-1.0, 1.0], size=rng.integers(1, 3))

    def observe(self) -> PackedObs:
        step = self.clock["step"]
        marks = [self.marks(b) for b in range(self.num_copies)]
        shown = [m if step[b] == 0 else np.zeros(len(m)) for b, m in enumerate(marks)]
        here = [np.full(len(m), step[b] in (0, self.steps - 1)) for b, m in enumerate(marks)]
        tasks = [
            self.generator(b, 1).permutation([-1.0, 1.0]) if step[b] == self.steps - 1 else np.empty(0)
            for b in range(self.num_copies)
        ]
        # The number of agents changes from episode to episode only, so a row keeps its place within an episode, but
        # moves when another copy begins anew: `carry` follows the copies' old offsets.
        sizes = np.array([len(m) for m in marks])
        old = self.offsets if hasattr(self, "offsets") else None
        within = np.arange(sizes.sum()) - np.repeat(pointer(sizes)[:-1], sizes)
        fresh = np.repeat(step == 0, sizes)
        carry = np.full(sizes.sum(), -1) if old is None else np.where(fresh, -1, np.repeat(old, sizes) + within)
        return lesson_obs(shown, here, tasks, carry)

    def step(self, choices: np.ndarray) -> StepResult:
        offsets = self.observe().agent_ptr[:-1].copy()
        result = super().step(choices)
        self.offsets = offsets
        return result
