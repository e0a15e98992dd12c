"""The reserved group `bridge` among an environment's options: what a configuration may say about the bridge."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rl_openness.envs.adapters.bridge import BridgedEnv, bridge
from rl_openness.envs.adapters.foreign import Convention
from rl_openness.envs.adapters.mapping import ObservationMapping
from rl_openness.errors import UserError, nearest

BRIDGE = "bridge"
"""The reserved name among an environment's options."""


class BridgeOptions(BaseModel):
    """Arguments of `bridge` that can be written in YAML."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    mapping: ObservationMapping = ObservationMapping()
    """What the observations mean."""
    agents: str | tuple[str, ...] | None = None
    """Names of agents that it may have, or a regular expression for further ones; null = what it declares."""
    max_steps: int | None = Field(None, ge=1)
    """Steps after which an episode is truncated; null = it ends by itself."""
    convention: Convention = "auto"
    """`parallel` (PettingZoo) or `rllib`, where its class does not tell."""
    agent_returns: bool = False
    """Also count what every agent earns by itself, as a metric for each name."""

    def bridged(self, make: Callable[[], Any], num_copies: int, name: str) -> BridgedEnv:
        """Copies of what `make()` gives."""
        return bridge(
            make,
            num_copies,
            mapping=self.mapping,
            agents=self.agents,
            max_steps=self.max_steps,
            convention=self.convention,
            name=name,
            agent_returns=self.agent_returns,
        )


def bridge_options(given: Mapping[str, Any]) -> BridgeOptions:
    """The group, checked. Raises UserError naming the key that is wrong."""
    try:
        return BridgeOptions.model_validate(given)
    except ValidationError as error:
        problem = error.errors()[0]
        path = [str(part) for part in problem["loc"]]
        if path[:1] == ["agents"]:  # behind it stand the types that are tried one after another
            raise UserError(f"{BRIDGE}.agents: a pattern or a list of names, not {given['agents']!r:.80}") from None
        where = ".".join([BRIDGE, *path])
        if problem["type"] != "extra_forbidden":
            raise UserError(f"{where}: {problem['msg']}, not {problem['input']!r}") from None
        group: type[BaseModel] = ObservationMapping if path[:-1] == ["mapping"] else BridgeOptions
        raise UserError(f"{where}: unknown key{nearest(path[-1], group.model_fields)}") from None
