"""GPL's networks as an RLModule: the online network, which also acts, and the target network beside it."""

from __future__ import annotations

from typing import Any

from ray.rllib.core.rl_module.apis import TargetNetworkAPI

from rl_openness.algorithms.gpl.network import GplNetwork
from rl_openness.algorithms.gpl.settings import GplSettings
from rl_openness.algorithms.gpl.update import Batch, evaluate
from rl_openness.algorithms.schedules import value_at
from rl_openness.envs.base import EnvSpec
from rl_openness.rllib.module import OpenModule


class GplModule(OpenModule, TargetNetworkAPI):  # type: ignore[misc]
    """`model_config` carries `env_spec` (columns) and `settings` (the method's)."""

    def setup(self) -> None:
        """Build the networks; on runners without the target."""
        self.settings = GplSettings(**self.model_config["settings"])
        self.network = GplNetwork(EnvSpec.from_json(self.model_config["env_spec"]), self.settings)
        if not self.inference_only:
            self.target = GplNetwork(self.network.spec, self.settings).requires_grad_(False)
            self.make_target_networks()

    @property
    def actor(self) -> GplNetwork:
        """What acting needs."""
        return self.network

    def make_target_networks(self) -> None:
        """Start the target as a copy of the online network."""
        self.target.load_state_dict(self.network.state_dict())

    def get_target_network_pairs(self) -> list[tuple[GplNetwork, GplNetwork]]:
        """(online, target); moved by `update.soft_update`."""
        return [(self.network, self.target)]

    def get_non_inference_attributes(self) -> list[str]:
        """What acting does not need."""
        return ["target"]

    def _forward_exploration(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        epsilon = value_at(self.settings.epsilon, batch["env_steps"])
        arguments = (batch["obs"], batch["draws"], batch["memory"])
        return {"decision": self.network.act(*arguments, explore=True, epsilon=epsilon)}

    def _forward_inference(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {"decision": self.network.act(batch["obs"], batch["draws"], batch["memory"], explore=False)}

    def _forward_train(self, batch: Batch, **kwargs: Any) -> dict[str, Any]:
        return {"outputs": evaluate(self.network, batch.passage, batch.actions)}

    def forward_target(self, batch: Batch, **kwargs: Any) -> dict[str, Any]:
        """For RLlib's protocol; training evaluates the target while it prepares a batch (`update.prepare`)."""
        return {"outputs": evaluate(self.target, batch.passage, batch.actions)}
