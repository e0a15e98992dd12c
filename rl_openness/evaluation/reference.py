"""The evaluations of the GPL and CIAO papers' code as coded, to compare with published curves like for like.

Foraging's stops when the first of 16 copies has finished its fifth episode and averages all episodes finished by then,
which favours short (successful) ones; Wolfpack's plays the same 16 starts five times. Specification `gpl_ciao.md`, part
(b). For everything else use `evaluation.rollout`.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from rl_openness.envs.base import OpenVectorEnv
from rl_openness.evaluation.rollout import Sums, count_step
from rl_openness.policies.base import Policy

COPIES = 16
FORAGING_SEED, FORAGING_EPISODES = 2500, 5
WOLFPACK_SEED, WOLFPACK_ROUNDS = 2000, 5


def play_reference(env: OpenVectorEnv, policy: Policy) -> pd.DataFrame:
    """A row per episode that counts, with the columns of `play_episodes`.

    `env` has 16 copies and resets them by itself. Raises ValueError for another environment or number of copies.
    """
    if env.num_copies != COPIES or env.spec.name not in ("foraging", "wolfpack"):
        raise ValueError(f"the reference's protocol is for {COPIES} copies of foraging or wolfpack")
    if env.spec.name == "foraging":
        return _play(env, policy, FORAGING_SEED, FORAGING_EPISODES)
    # Its rounds differ in unseeded draws of teammates alone. Ours are part of the seed, so a round has other seeds:
    # 80 episodes of distinct starts instead of 16 starts five times.
    rounds = [_play(env, policy, WOLFPACK_SEED + COPIES * number, 1) for number in range(WOLFPACK_ROUNDS)]
    return pd.concat(rounds, ignore_index=True)


def _play(env: OpenVectorEnv, policy: Policy, first_seed: int, episodes: int) -> pd.DataFrame:
    """Until some copy has finished that many episodes; all episodes finished by then."""
    seeds = first_seed + np.arange(COPIES)
    env.reset(seeds)
    finished = np.zeros(COPIES, dtype=np.int64)
    sums: Sums = {}
    rows = []
    while finished.max() < episodes:
        obs = env.observe()
        choices = policy.act(obs, env.draws())
        result = env.step(choices)
        for name, amount in count_step(env.spec, obs, choices, result).items():
            sums[name] = sums.get(name, 0) + amount
        for copy in result.ended:
            rows.append({"seed": seeds[copy], **{name: total[copy] for name, total in sums.items()}})
            for total in sums.values():
                total[copy] = 0
        finished[result.ended] += 1
    return pd.DataFrame(rows)
