"""The arrays of a foraging state: making them, and what values they may have."""

from __future__ import annotations

from typing import Any

import numpy as np

from rl_openness.envs.foraging.config import ForagingConfig
from rl_openness.envs.foraging.rules import State
from rl_openness.envs.state import BIG


def empty_state(copies: int, slots: int, foods: int) -> State:
    """All zeros, to be filled by `team.start_teams`."""
    shapes = {"member": (slots, 7), "span": (slots,), "food": (foods, 3)}
    return State(**{name: np.zeros((copies, *shapes.get(name, ())), dtype=np.int64) for name in State._fields})


def state_limits(config: ForagingConfig, num_types: int) -> dict[str, tuple[Any, Any]]:
    """Limits for `envs.state.restore`; those of `member` and `food` are by column."""
    last_cell, last_slot, last_type = config.size - 1, config.slots - 1, max(num_types - 1, 0)
    return {
        "member": ([0, 0, 0, 0, -1, 0, -1], [last_cell, last_cell, BIG, last_slot, last_type, BIG, last_slot]),
        "num_members": (1, config.slots),
        "span": (-BIG, BIG),
        "food": ([0, 0, 0], [last_cell, last_cell, BIG]),
        "num_foods": (0, config.max_food),
        "step": (0, config.max_steps),
        "seed": (-(2**63), 2**63 - 1),
    }
