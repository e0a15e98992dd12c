"""Teams by name, observations and windows made of them, and networks with large random weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from rl_openness.algorithms.gpl.graph import TeamGraph, learners_of, team_graph
from rl_openness.algorithms.gpl.network import GplNetwork
from rl_openness.algorithms.gpl.settings import GplSettings
from rl_openness.envs.base import Column, EnvSpec, PackedObs
from rl_openness.envs.draws import DecisionDraws
from rl_openness.envs.ragged import pointer
from rl_openness.rllib.chunk import RolloutChunk, join_steps
from tests.nn.builders import randomise

ACTIONS = 4
SPEC = EnvSpec(
    name="teams",
    agent_columns=(Column("y", 0.5), Column("x", 0.25), Column("type", 3.0, visible="critic")),
    task_columns=(Column("y", 0.5), Column("level", 2.0), Column("secret", visible="critic")),
    num_actions=ACTIONS,
    task_slots=3,
    empty_task=(-1.0, 0.5, 7.0),
)
SMALL = {
    "encoder_hidden": 7,
    "recurrent_hidden": 6,
    "type_width": 5,
    "utility_hidden": 8,
    "agent_model_hidden": 4,
    "agent_head_hidden": 3,
    "rank": 2,
}
LEARNER = "L"


def settings_of(**changes: Any) -> GplSettings:
    return GplSettings(**{**SMALL, **changes})


def network(seed: int = 0, spec: EnvSpec = SPEC, **changes: Any) -> GplNetwork:
    return randomise(GplNetwork(spec, settings_of(**changes)), seed, spread=0.5)


def observation(
    teams: Sequence[str],
    before: Sequence[str] | None = None,
    *,
    time: int = 0,
    seed: int = 0,
    away: str = "",
    controlled: str | None = LEARNER,
) -> PackedObs:
    """Copies with one member per letter; an agent's row depends on its letter, copy, time and `seed` alone.

    `before` are the teams one step earlier: members are carried over from them by letter. Small letters after "|" are
    tasks, at most 3. `away`: letters of members that are away. `controlled`: letters, None = all.
    """
    members, tasks = zip(*(team.partition("|")[::2] for team in teams), strict=True)
    rows, carry, task_rows, start = [], [], [], 0
    for copy, (team, foods) in enumerate(zip(members, tasks, strict=True)):
        old = before[copy].partition("|")[0] if before is not None else ""
        rows += [_row(3, copy, time, seed, ord(letter)) for letter in team]
        task_rows += [_row(3, copy, time, seed, ord(letter)) for letter in foods]
        carry += [start + old.index(letter) if letter in old else -1 for letter in team]
        start += len(old)
    letters = "".join(members)
    return PackedObs(
        agent_rows=np.array(rows, dtype=np.float32).reshape(-1, 3),
        present=np.array([letter not in away for letter in letters], dtype=np.bool_),
        carry=np.array(carry, dtype=np.int64),
        agent_id=np.array([ord(letter) for letter in letters], dtype=np.int64),
        agent_ptr=pointer(np.array([len(team) for team in members])),
        task_rows=np.array(task_rows, dtype=np.float32).reshape(-1, 3),
        task_ptr=pointer(np.array([len(foods) for foods in tasks])),
        pair_agent=np.empty(0, dtype=np.int64),
        pair_task=np.empty(0, dtype=np.int64),
        pair_rows=np.empty((0, 0), dtype=np.float32),
        controlled=None
        if controlled is None
        else np.array([letter in controlled for letter in letters], dtype=np.bool_),
    )


def _row(width: int, *key: int) -> list[float]:
    return np.random.default_rng(key).normal(size=width).tolist()


def draws(copies: int, seed: int = 1) -> DecisionDraws:
    return DecisionDraws(np.random.default_rng(seed).integers(0, 2**63, copies).astype(np.uint64))


def graph_of(obs: PackedObs, *, star: bool = False) -> TeamGraph:
    """Without away members."""
    sizes = np.diff(obs.agent_ptr)
    return team_graph(sizes, learners_of(sizes, obs.controlled), complete=not star)


class Film:
    """Teams of several copies through time: `steps[t][b]`; `ends` = (t, b) after which an episode ends.

    `kind`: "terminated" or "truncated" for all ends. `last[(t, b)]` is the team of the last observation then; the
    team of steps[t + 1][b] begins a new episode.
    """

    def __init__(
        self,
        steps: Sequence[Sequence[str]],
        ends: Sequence[tuple[int, int]] = (),
        *,
        kind: str = "terminated",
        last: dict[tuple[int, int], str] | None = None,
        away: str | dict[int, str] = "",
        seed: int = 0,
    ) -> None:
        self.steps, self.ends, self.kind, self.last = steps, set(ends), kind, last or {}
        self.away_at, self.seed = away, seed
        self.rng = np.random.default_rng(seed)

    def away(self, t: int) -> str:
        """Letters of members that are away at step t."""
        return self.away_at if isinstance(self.away_at, str) else self.away_at.get(t, "")

    def obs(self, t: int) -> PackedObs:
        before = None
        if t > 0:
            before = ["" if (t - 1, b) in self.ends else team for b, team in enumerate(self.steps[t - 1])]
            before = [self._same_length(team, self.steps[t - 1][b]) for b, team in enumerate(before)]
        return observation(self.steps[t], before, time=t, seed=self.seed, away=self.away(t))

    @staticmethod
    def _same_length(team: str, old: str) -> str:
        """An ended copy's members still count as rows of the step before."""
        return team or "#" * len(old.partition("|")[0])

    def chunk(self, start: int, stop: int, memory: np.ndarray | None) -> RolloutChunk:
        """Steps start to stop - 1, followed by the observation of step stop; random rewards and actions."""
        copies = len(self.steps[0])
        obs = join_steps([self.obs(t) for t in range(start, stop)])
        rng = np.random.default_rng((self.seed, start))
        over = np.array([[(t, b) in self.ends for b in range(copies)] for t in range(start, stop)])
        truncated = over if self.kind == "truncated" else np.zeros_like(over)
        final, final_step = self._final(start, stop)
        return RolloutChunk(
            num_steps=stop - start,
            num_copies=copies,
            obs=obs,
            choices=np.where(obs.present, rng.integers(0, ACTIONS, len(obs.present)), -1),
            log_probs=np.zeros(len(obs.present), dtype=np.float32),
            team_reward=rng.normal(size=over.shape),
            terminated=over & ~truncated,
            truncated=truncated,
            boot=self.obs(stop),
            final=final,
            final_step=final_step,
            window=stop - start,
            memory=memory,
            begins=np.full(copies, start, dtype=np.uint64),
            goes_on=np.full(copies, stop, dtype=np.uint64),
        )

    def _final(self, start: int, stop: int) -> tuple[PackedObs | None, np.ndarray]:
        ends = sorted((t, b) for t, b in self.ends if start <= t < stop)
        if self.kind == "terminated" or not ends:
            return None, np.empty(0, dtype=np.int64)
        copies = len(self.steps[0])
        teams = [self.last.get((t, b), self.steps[t][b]) for t, b in ends]
        final = observation(teams, time=100 + start, seed=self.seed)
        return final, np.array([(t - start) * copies + b for t, b in ends])

    def memories(self, net: GplNetwork) -> list[torch.Tensor]:
        """What enters each step when `net` acts through the film from its start."""
        memory, entered = None, []
        for t in range(len(self.steps)):
            decision = net.act(self.obs(t), None, memory, explore=False)
            memory = decision.memory
            entered.append(decision.memory_in)
        return entered
