"""Whole episodes of a policy, one per seed: what every evaluation is counted from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rl_openness.envs.base import NO_OP, Bool, EnvSpec, Int, OpenVectorEnv, PackedObs, StepResult
from rl_openness.errors import RunFailedError
from rl_openness.policies.base import Policy

EPISODE_COLUMNS = ("seed", "return", "length", "agent_steps", "absent_steps", "fights", "noops")
"""Columns that every table of episodes has (the last two where agents choose tasks); others are the world's events."""

MAX_STEPS = 100_000
"""An episode that is longer is taken for one that never ends."""
Sums = dict[str, NDArray[np.float64] | Int]


def play_episodes(env: OpenVectorEnv, policy: Policy, seeds: Sequence[int] | Int) -> pd.DataFrame:
    """Play the first episode of every seed and return one row per seed, in the order given.

    `env` must reset ended copies by itself; its number of copies decides only how many episodes run at once, never a
    result. Columns: `seed`; `return`, the team reward summed over the steps (once, not per agent); `length` in steps;
    `agent_steps`, the number of decisions of all members, away ones included, of which `fights` chose something,
    `noops` chose nothing and `absent_steps` were made by away members; and the sum of every event of `StepResult`
    (`fights` is always the count of decisions). Where agents have a fixed set of actions there is no `fights` and no
    `noops`. Raises ValueError without seeds.
    """
    seeds = np.asarray(seeds, dtype=np.int64)
    if seeds.ndim != 1 or not len(seeds):
        raise ValueError(f"play_episodes needs a list of at least one seed, got shape {seeds.shape}")
    batches = [pd.DataFrame(_play_batch(env, policy, batch)) for batch in _batches(seeds, env.num_copies)]
    return pd.concat(batches, ignore_index=True)


def _batches(seeds: Int, size: int) -> Iterator[Int]:
    for start in range(0, len(seeds), size):
        yield seeds[start : start + size]


def _play_batch(env: OpenVectorEnv, policy: Policy, seeds: Int) -> Sums:
    """Sums [len(seeds)] of at most `num_copies` episodes; copies without a seed of their own play along unseen."""
    spare = np.full(env.num_copies - len(seeds), seeds[-1], dtype=np.int64)
    env.reset(np.concatenate([seeds, spare]))
    running = np.arange(env.num_copies) < len(seeds)
    sums: Sums = {}
    for step in count():
        if not running.any():
            break
        if step == MAX_STEPS:
            raise RunFailedError(
                f"an episode of {env.spec.name} with seed {seeds[np.flatnonzero(running)[0]]} has not ended after "
                f"{MAX_STEPS:,} steps: give the environment a limit (options.bridge.max_steps where it is bridged)"
            )
        obs = env.observe()
        choices = policy.act(obs, env.draws())
        result = env.step(choices)
        for name, amount in count_step(env.spec, obs, choices, result).items():
            counted = np.where(running, amount, 0)
            sums[name] = sums[name] + counted if name in sums else counted
        running[result.ended] = False
    return {"seed": seeds, **{name: total[: len(seeds)] for name, total in sums.items()}}


def count_step(spec: EnvSpec, obs: PackedObs, choices: Int, result: StepResult) -> Sums:
    """What one step adds to each copy [B]."""
    copy = obs.agent_copy

    def members(which: Bool) -> Int:
        return np.bincount(copy[which], minlength=obs.num_copies)

    own: Sums = {
        "return": result.team_reward,
        "length": np.ones(obs.num_copies, dtype=np.int64),
        "agent_steps": np.diff(obs.agent_ptr),
        "absent_steps": members(~obs.present),
    }
    if spec.num_actions is None:  # who chooses among tasks fights for one, or does nothing
        own |= {"fights": members(choices != NO_OP), "noops": members(choices == NO_OP)}
    return own | {name: count for name, count in result.events.items() if name not in own}
