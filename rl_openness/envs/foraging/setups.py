"""How a user makes foraging worlds: the published one, changed by named fields."""

from __future__ import annotations

from typing import Any

from rl_openness.envs.base import Teammates
from rl_openness.envs.foraging.config import ForagingConfig
from rl_openness.envs.foraging.env import ForagingEnv
from rl_openness.envs.team_env import AtEnd, checked_config


def foraging_config(**fields: Any) -> ForagingConfig:
    """The published world with some fields changed. Raises UserError naming the field that is wrong."""
    return checked_config(ForagingConfig, "foraging", fields)


def make_foraging(
    num_copies: int = 1, *, teammates: Teammates | None = None, at_end: AtEnd = "reset", **fields: Any
) -> ForagingEnv:
    """B copies of a foraging world; `fields` are those of `ForagingConfig`.

    The published experiments train with `team_size=3` and evaluate with 3, 5 and 9 (for 9, `slots=9` too). Raises
    UserError for a wrong field, and for missing teammates unless `controlled="all"`.
    """
    return ForagingEnv(foraging_config(**fields), num_copies, teammates, at_end=at_end)
