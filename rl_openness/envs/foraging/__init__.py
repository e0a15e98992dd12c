"""Open Level-Based Foraging: players of different levels lift foods together; teammates leave and others join."""

from rl_openness.envs.foraging.config import ForagingConfig
from rl_openness.envs.foraging.env import ForagingEnv
from rl_openness.envs.foraging.setups import foraging_config, make_foraging

__all__ = ["ForagingConfig", "ForagingEnv", "foraging_config", "make_foraging"]
