"""The arrays of a Wolfpack state: their shapes and ranges."""

from __future__ import annotations

import numpy as np

from rl_openness.envs.wolfpack.config import WolfpackConfig
from rl_openness.envs.wolfpack.rules import State


def empty_state(config: WolfpackConfig, copies: int) -> State:
    """Arrays of the right shapes, all zero."""
    shapes = {
        **dict.fromkeys(("members", "before", "next_id", "absent", "step", "episode", "seed"), (copies,)),
        **dict.fromkeys(("prey_row", "prey_col", "facing", "alive"), (copies, config.num_prey)),
        "back": (copies, config.slots - 1),
    }
    team = (copies, config.team_size)
    return State(
        **{
            name: np.zeros(shapes.get(name, team), dtype=np.bool_ if name == "alive" else np.int64)
            for name in State._fields
        }
    )


def state_limits(config: WolfpackConfig, num_types: int) -> dict[str, tuple[int, int]]:
    """Smallest and largest value of state arrays; kernels use some of them as indices."""
    cell = (0, config.size - 1)
    return {
        **dict.fromkeys(("row", "col", "prey_row", "prey_col"), cell),
        "members": (1, config.team_size),
        "before": (0, config.team_size),
        "carry": (-1, config.team_size - 1),
        "type": (-1, max(num_types - 1, 0)),
        "absent": (0, config.slots - 1),
        "facing": (0, 3),
        "alive": (0, 1),
        "step": (0, config.max_steps),
        "seed": (-(2**63), 2**63 - 1),
    }
