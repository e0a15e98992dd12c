"""Random legal choices in any environment."""

from __future__ import annotations

import numpy as np

from rl_openness.envs.base import NO_OP, Int, PackedObs
from rl_openness.envs.draws import DecisionDraws


def random_choices(obs: PackedObs, num_actions: int | None, draws: DecisionDraws) -> Int:
    """int64 [M]: uniform among a member's pairs and no-op, or among the actions that its mask allows; else no-op.

    A function of the copy's draws, its members' identities and what they may do, whatever the batch.
    """
    deciding = obs.present if obs.controlled is None else obs.present & obs.controlled
    share = draws.uniform(obs.agent_copy, obs.agent_id)
    choices = np.full(len(obs.present), NO_OP, dtype=np.int64)
    if num_actions is None:
        return np.where(deciding, (share * (np.diff(obs.pair_ptr) + 1)).astype(np.int64) - 1, NO_OP)
    if obs.action_mask is None:
        return np.where(deciding, (share * num_actions).astype(np.int64), NO_OP)
    counts = obs.action_mask.sum(axis=1)
    nth = (share * counts).astype(np.int64)
    member = deciding & (counts > 0)
    choices[member] = np.argmax(np.cumsum(obs.action_mask, axis=1) > nth[:, None], axis=1)[member]
    return choices
