"""MAPPO's networks as RLModules."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from rl_openness.algorithms.mappo.actions_update import MemberBatch, evaluate_members
from rl_openness.algorithms.mappo.networks.actions import ActionsNetwork
from rl_openness.algorithms.mappo.networks.plato import PlatoNetwork
from rl_openness.algorithms.mappo.settings import ActionsSettings, PlatoSettings
from rl_openness.algorithms.mappo.update import Minibatch, evaluate
from rl_openness.envs.base import EnvSpec
from rl_openness.rllib.module import OpenModule


class MappoModule(OpenModule):
    """Actor, and critic for training. `model_config` carries `env_spec` (columns) and `settings` (the method's)."""

    def setup(self) -> None:
        """Build the networks; on runners without the critic."""
        spec = EnvSpec.from_json(self.model_config["env_spec"])
        self.network = self.make_network(spec, self.model_config["settings"], with_critic=not self.inference_only)

    @abstractmethod
    def make_network(self, spec: EnvSpec, settings: Mapping[str, Any], *, with_critic: bool) -> Any:
        """A network with attributes `actor` and `critic`."""

    @property
    def actor(self) -> Any:
        """What acting needs."""
        return self.network.actor

    def get_non_inference_attributes(self) -> list[str]:
        """What acting does not need."""
        return ["network.critic"]

    def _forward_exploration(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {"decision": self.actor.act(batch["obs"], batch["draws"], batch["memory"], explore=True)}

    def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {"decision": self.actor.act(batch["obs"], batch["draws"], batch["memory"], explore=False)}


class PlatoModule(MappoModule):
    """PLATO's networks."""

    def make_network(self, spec: EnvSpec, settings: Mapping[str, Any], *, with_critic: bool) -> PlatoNetwork:
        """See `MappoModule`."""
        return PlatoNetwork(spec, PlatoSettings(**settings), with_critic=with_critic)

    def _forward_train(self, batch: Minibatch, **kwargs: Any) -> dict[str, Any]:
        """Through here, and not around it, so that gradients of several learners are averaged."""
        return {"outputs": evaluate(self.network, batch)}


class ActionsModule(MappoModule):
    """Networks for a fixed set of actions."""

    def make_network(self, spec: EnvSpec, settings: Mapping[str, Any], *, with_critic: bool) -> ActionsNetwork:
        """See `MappoModule`."""
        return ActionsNetwork(spec, ActionsSettings(**settings), with_critic=with_critic)

    def _forward_train(self, batch: MemberBatch, **kwargs: Any) -> dict[str, Any]:
        return {"outputs": evaluate_members(self.network, batch)}
