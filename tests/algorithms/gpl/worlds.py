"""A world with a lesson for Q-learning among teammates."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rl_openness.envs.base import Column, EnvSpec, PackedObs, StepResult
from rl_openness.envs.ragged import pointer, segment_of_row
from tests.algorithms.worlds import _CountingEnv

KINDS = 3


class GuessingEnv(_CountingEnv):
    """Two steps an episode; the learner earns 1 for every mate that it plays the same action as.

    A mate always plays its own kind, which it shows when it is new and never again; another mate may join for the
    second step. So the learner must remember whom it saw, predict it, and follow the majority.
    """

    spec = EnvSpec("guessing", tuple(Column(f"kind_{i}") for i in range(KINDS)), num_actions=KINDS)

    def begin(self, copies: Sequence[int]) -> None:
        if not hasattr(self, "kinds"):
            self.kinds = [np.empty(0, dtype=np.int64) for _ in range(self.num_copies)]
            self.shown = [0] * self.num_copies
            self.carried = [0] * self.num_copies
            self.before = np.zeros(self.num_copies, dtype=np.int64)
        for copy in copies:
            rng = self.generator(copy, 0)
            self.kinds[copy] = rng.integers(0, KINDS, rng.integers(1, 3))
            self.shown[copy] = self.carried[copy] = 0

    def observe(self) -> PackedObs:
        sizes = np.array([1 + len(kinds) for kinds in self.kinds])
        ptr, starts = pointer(sizes), pointer(self.before)
        rows = np.zeros((ptr[-1], KINDS), dtype=np.float32)
        carry = np.full(ptr[-1], -1)
        for b, kinds in enumerate(self.kinds):
            new = np.arange(self.shown[b], len(kinds))
            rows[ptr[b] + 1 + new, kinds[new]] = 1.0
            kept = np.arange(self.carried[b])
            carry[ptr[b] + kept] = starts[b] + kept
        position = np.arange(ptr[-1]) - ptr[segment_of_row(ptr)]
        return PackedObs(
            agent_rows=rows,
            present=np.ones(ptr[-1], dtype=np.bool_),
            carry=carry,
            agent_id=position,
            agent_ptr=ptr,
            task_rows=np.empty((0, 0), dtype=np.float32),
            task_ptr=np.zeros(self.num_copies + 1, dtype=np.int64),
            pair_agent=np.empty(0, dtype=np.int64),
            pair_task=np.empty(0, dtype=np.int64),
            pair_rows=np.empty((0, 0), dtype=np.float32),
            controlled=position == 0,
        )

    def step(self, choices: np.ndarray) -> StepResult:
        self.before = np.array([1 + len(kinds) for kinds in self.kinds])
        mine = choices[pointer(self.before)[:-1]]
        labels = np.concatenate([[action, *kinds] for action, kinds in zip(mine, self.kinds, strict=True)])
        counts = [np.bincount(kinds, minlength=KINDS) for kinds in self.kinds]
        reward = np.array([count[action] for action, count in zip(mine, counts, strict=True)], dtype=np.float64)
        best = np.array([count.max() for count in counts])
        self.clock["step"] += 1
        over = self.clock["step"] == 2
        for b in np.flatnonzero(~over):
            self.shown[b], self.carried[b] = len(self.kinds[b]), 1 + len(self.kinds[b])
            rng = self.generator(b, 1)
            if rng.random() < 0.3:
                self.kinds[b] = np.append(self.kinds[b], rng.integers(0, KINDS))
        ended = np.flatnonzero(over)
        self.reset(copies=ended)
        return StepResult(
            team_reward=reward,
            agent_reward=np.zeros(len(labels)),
            terminated=over,
            truncated=np.zeros_like(over),
            ended=ended,
            final_obs=None,
            labels=labels.astype(np.int64),
            events={"best": best},
        )
