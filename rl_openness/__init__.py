"""Training for open multi-agent systems: agents and tasks appear and disappear while the system runs."""

from rl_openness.version import __version__

__all__ = ["__version__"]
