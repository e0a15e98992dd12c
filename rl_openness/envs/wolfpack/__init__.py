"""The open Wolfpack domain: predators that come and go hunt prey together; alone beside a prey costs."""

from rl_openness.envs.wolfpack.config import WolfpackConfig
from rl_openness.envs.wolfpack.env import WolfpackEnv, make_wolfpack, wolfpack_config
from rl_openness.envs.wolfpack.prey import PreyPolicy, PreyView

__all__ = ["PreyPolicy", "PreyView", "WolfpackConfig", "WolfpackEnv", "make_wolfpack", "wolfpack_config"]
