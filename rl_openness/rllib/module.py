"""What the RLModules of all methods share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import torch
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI
from ray.rllib.core.rl_module.torch import TorchRLModule


class OpenModule(TorchRLModule, InferenceOnlyAPI):  # type: ignore[misc]
    """`model_config` carries `env_spec` (columns) and `settings` (the method's)."""

    def train(self, mode: bool = True) -> Self:
        """As torch, but free where nothing changes: RLlib switches modes around every forward pass."""
        return self if self.training == mode else super().train(mode)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """As RLlib, but numbers keep their precision (it would make the value statistics float32)."""
        weights = {name: torch.from_numpy(np.array(value)) for name, value in state.items()}
        missing = self.load_state_dict(weights, strict=False).missing_keys
        if missing:
            raise ValueError(f"the saved state lacks {', '.join(missing)}")
