"""The bare network cost of GPL and CIAO on prepared tensors: env steps per CPU second of one core.

One update is what training does for 4 steps of 16 copies: 4 times acting, the target's pass, the online pass, its
gradient, Adam and the target's update, by this package's networks. No environment, no indices, no observations: all
that is made beforehand. Team sizes are those of foraging with at most 3 agents.

    python benchmarks/_gpl_floor.py [variant] [seconds]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from rl_openness.algorithms.gpl.graph import TeamGraph, team_graph
from rl_openness.algorithms.gpl.network import GplNetwork
from rl_openness.algorithms.gpl.settings import GPL_VARIANTS, GplSettings
from rl_openness.algorithms.gpl.timeline import Passage, Timeline
from rl_openness.algorithms.gpl.update import Batch, evaluate, gpl_loss, prepare, soft_update
from rl_openness.envs.base import Column, EnvSpec, PackedObs
from rl_openness.envs.ragged import pointer
from rl_openness.rllib.chunk import RolloutChunk, join_steps

STEPS, COPIES, FOODS, ACTIONS = 4, 16, 3, 6
STAYS = {2: 0.90, 3: 0.93}
"""Chance that a team of that size keeps it for a step: 2.6 agents in the mean, and 4 % of the steps grow."""
SPEC = EnvSpec(
    name="foraging",
    agent_columns=(Column("y"), Column("x"), Column("level"), Column("type", visible="critic")),
    task_columns=(Column("y"), Column("x"), Column("level")),
    num_actions=ACTIONS,
    task_slots=FOODS,
    empty_task=(-1.0, -1.0, 0.0),
)


class Teams:
    """Observations of teams of 2 and 3 agents at random places, whose last agent leaves and joins."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.sizes = self.rng.choice([2, 3], COPIES, p=[0.4, 0.6])
        self.carried = np.zeros(COPIES, dtype=np.int64)

    def observe(self) -> PackedObs:
        rng, sizes, before = self.rng, self.sizes, self.carried
        ptr, members = pointer(sizes), int(sizes.sum())
        position = np.arange(members) - np.repeat(ptr[:-1], sizes)
        started = pointer(before)[:-1]
        carry = np.where(position < np.repeat(before, sizes), np.repeat(started, sizes) + position, -1)
        foods = rng.integers(1, FOODS + 1, COPIES)
        obs = PackedObs(
            agent_rows=rng.integers(0, 8, (members, 4)).astype(np.float32),
            present=np.ones(members, dtype=np.bool_),
            carry=carry,
            agent_id=position,
            agent_ptr=ptr,
            task_rows=rng.integers(0, 8, (int(foods.sum()), 3)).astype(np.float32),
            task_ptr=pointer(foods),
            pair_agent=np.empty(0, dtype=np.int64),
            pair_task=np.empty(0, dtype=np.int64),
            pair_rows=np.empty((0, 0), dtype=np.float32),
            controlled=position == 0,
        )
        stays = rng.random(COPIES) < np.where(sizes == 3, STAYS[3], STAYS[2])
        self.carried = sizes
        self.sizes = np.where(stays, sizes, 5 - sizes)
        return obs


@dataclass(frozen=True)
class Window:
    """All that one update reads, ready: what remains is arithmetic on tensors."""

    acting: list[tuple[torch.Tensor, torch.Tensor, TeamGraph]]
    """Inputs, memory and graph of each step."""
    batch: Batch
    following: Passage


class Floor:
    """The pieces of an update, each callable alone; the data of a few windows are made beforehand and used in turn."""

    def __init__(self, variant: str, windows: int = 16) -> None:
        torch.manual_seed(0)
        self.settings = GplSettings(**GPL_VARIANTS[variant])
        self.online, self.target = (GplNetwork(SPEC, self.settings) for _ in range(2))
        self.target.load_state_dict(self.online.state_dict())
        self.optimizer = torch.optim.Adam(self.online.parameters(), lr=2.5e-4, fused=True)
        teams, rng = Teams(0), np.random.default_rng(1)
        self.labels = rng.integers(0, ACTIONS, 3 * COPIES * STEPS)
        observed = [teams.observe() for _ in range(windows * STEPS + 1)]
        self.windows = [
            self.window(observed[at : at + STEPS], observed[at + STEPS]) for at in range(0, windows * STEPS, STEPS)
        ]
        self.number = 0
        """The window that comes next."""

    def window(self, steps: list[PackedObs], after: PackedObs) -> Window:
        acting = []
        for obs in steps:
            rows = torch.from_numpy(self.online.inputs(obs))
            graph = team_graph(np.diff(obs.agent_ptr), obs.agent_ptr[:-1], complete=self.settings.graph == "complete")
            acting.append((rows, self.memory(len(rows)), graph))
        chunk = self.chunk(steps, after, self.memory(len(steps[0].present)))
        batch, _ = prepare([chunk], self.target, None)
        line = Timeline.of(chunk, self.target.inputs, with_final=False)
        return Window(acting, batch, Passage.of(line.following(), self.memory(line.first[0]), self.target))

    def memory(self, rows: int) -> torch.Tensor:
        return 0.1 * torch.randn(rows, self.online.memory_width)

    def chunk(self, steps: list[PackedObs], after: PackedObs, memory: torch.Tensor) -> RolloutChunk:
        obs = join_steps(steps)
        nothing = np.zeros((STEPS, COPIES), dtype=np.bool_)
        return RolloutChunk(
            num_steps=STEPS,
            num_copies=COPIES,
            obs=obs,
            choices=self.labels[: len(obs.present)],
            log_probs=np.zeros(len(obs.present), dtype=np.float32),
            team_reward=np.zeros((STEPS, COPIES)),
            terminated=nothing,
            truncated=nothing,
            boot=after,
            final=None,
            final_step=np.empty(0, dtype=np.int64),
            window=STEPS,
            memory=memory.numpy(),
            begins=np.zeros(COPIES, dtype=np.uint64),
            goes_on=np.zeros(COPIES, dtype=np.uint64),
        )

    def update(self, timed: Callable[[str], None]) -> None:
        window, self.number = self.windows[self.number], (self.number + 1) % len(self.windows)
        with torch.no_grad():
            for rows, memory, graph in window.acting:
                theta, _ = self.online.types(rows, memory, (len(rows),))
                self.online.preferences(theta, graph).argmax(1)
            timed("act 4x")
            following = window.following
            theta, _ = self.target.types(following.inputs, following.memory, following.block_sizes)
            self.target.learner_values(theta, following.graph).amax(1)
            timed("target")
        batch = window.batch
        outputs = evaluate(self.online, batch.passage, batch.actions)
        loss, _ = gpl_loss(batch, outputs, self.settings)
        timed("online and loss")
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        timed("gradient")
        self.optimizer.step()
        timed("Adam")
        soft_update(self.target, self.online, self.settings.tau)
        timed("soft update")


def measure(variant: str, seconds: float) -> dict[str, float]:
    """Milliseconds of CPU time an update by piece (medians), and env steps per CPU second."""
    floor = Floor(variant)
    spent: dict[str, list[float]] = {}
    last = 0.0

    def timed(name: str) -> None:
        nonlocal last
        now = time.process_time()
        spent.setdefault(name, []).append(1e3 * (now - last))
        last = now

    for _ in range(20):
        floor.update(timed)
    spent.clear()
    end = time.process_time() + seconds
    while time.process_time() < end:
        last = time.process_time()
        floor.update(timed)
    pieces = {name: float(np.median(times)) for name, times in spent.items()}
    total = np.array(list(spent.values())).sum(0)
    return pieces | {
        "update": float(np.median(total)),
        "env steps per CPU second": STEPS * COPIES / (1e-3 * float(np.median(total))),
        "the same, best tenth": STEPS * COPIES / (1e-3 * float(np.quantile(total, 0.1))),
    }


def main() -> None:
    torch.set_num_threads(1)
    variants = [sys.argv[1]] if len(sys.argv) > 1 else ["gpl", "ciao-c", "ciao-s"]
    for variant in variants:
        print(variant)
        for name, value in measure(variant, float(sys.argv[2]) if len(sys.argv) > 2 else 5.0).items():
            print(f"  {name:<26} {value:8.2f}")


if __name__ == "__main__":
    main()
