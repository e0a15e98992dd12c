"""The Wildfire domain: burning cells are tasks, firefighters leave when they run dry and come back refilled."""

from rl_openness.envs.wildfire.config import WildfireConfig
from rl_openness.envs.wildfire.env import WildfireEnv
from rl_openness.envs.wildfire.setups import make_wildfire, setup_names, wildfire_config

__all__ = ["WildfireConfig", "WildfireEnv", "make_wildfire", "setup_names", "wildfire_config"]
