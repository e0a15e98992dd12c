"""Three iterations, a checkpoint and three more are six iterations, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from rl_openness.policies.card import PolicyCard
from rl_openness.rllib.checkpoint import restore_checkpoint, save_checkpoint


def weights(algorithm: Any) -> dict[str, torch.Tensor]:
    """A copy of all weights of the learner."""
    return {name: value.clone() for name, value in algorithm.core_module().state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    """Bit-equal."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def card_of(algorithm: Any, method: str) -> PolicyCard:
    """What a run writes beside its weights."""
    config = algorithm.config
    return PolicyCard(method, config.settings().model_dump(), config.env_spec(), config.env, config.env_config, 0, 3)


def assert_continues_exactly(config: Any, method: str, folder: Path) -> None:
    """In a new algorithm that did something else before, and in place."""
    straight = config.copy(copy_frozen=False).build_algo()
    _train(straight, 3)
    save_checkpoint(straight, folder / "saved", card_of(straight, method))
    _train(straight, 3)
    other = config.copy(copy_frozen=False).build_algo()
    _train(other, 1)
    restore_checkpoint(other, folder / "saved")
    assert _train(other, 3)["training_iteration"] == 6
    assert same(weights(straight), weights(other))
    restore_checkpoint(straight, folder / "saved")
    _train(straight, 3)
    assert same(weights(straight), weights(other))
    straight.stop()
    other.stop()


def _train(algorithm: Any, iterations: int) -> Any:
    return [algorithm.train() for _ in range(iterations)][-1]
