"""RLlib's learner for packed rollouts: minibatches, loss and groups of parameters come from the method."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np
import torch
from ray.rllib.core import COMPONENT_OPTIMIZER, DEFAULT_MODULE_ID
from ray.rllib.core.learner.torch.torch_learner import TorchLearner

from rl_openness.rllib.chunk import RolloutChunk
from rl_openness.rllib.data import ModuleMinibatch, RolloutData


class PackedTorchLearner(TorchLearner):  # type: ignore[misc]
    """Turns `RolloutData` into the method's minibatches.

    Shuffling is counter-based on (seed, learner, number of the update), so resuming needs no generator state.
    """

    @abstractmethod
    def minibatches(self, chunks: Sequence[RolloutChunk], rng: np.random.Generator) -> Iterator[Sized]:
        """All minibatches of one update; the length of each is its number of team-steps."""

    @property
    def core(self) -> Any:
        """The bare module (without RLlib's wrapper for distributed training)."""
        return self.module[DEFAULT_MODULE_ID].unwrapped()

    def _create_iterator_if_necessary(self, *, training_data: RolloutData, **kwargs: Any) -> Iterator[ModuleMinibatch]:
        key = [self.config.seed, self._learner_index, self._weights_seq_no]
        for batch in self.minibatches(training_data.chunks, np.random.default_rng(key)):
            yield ModuleMinibatch(batch)

    @abstractmethod
    def gradient_groups(self) -> dict[str, list[torch.nn.Parameter]]:
        """Parameters whose gradients are clipped together, by the name under which the norm is logged."""

    def _update(self, batch: dict[str, Any], **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        """One gradient step: RLlib's forward, loss, backward, clip, apply without its dictionaries of gradients.

        Their bookkeeping (a hash per parameter, two finite checks per gradient) costs a tenth of a minibatch. A step
        whose gradients are not finite is left out and counted.
        """
        minibatch = batch[DEFAULT_MODULE_ID]
        outputs = self.module[DEFAULT_MODULE_ID].forward_train(minibatch)
        loss = self.compute_loss_for_module(
            module_id=DEFAULT_MODULE_ID, config=self.config, batch=minibatch, fwd_out=outputs
        )
        (optimizer,) = self._optimizer_parameters
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        limit = self.config.grad_clip or float("inf")
        norms = {
            name: torch.nn.utils.clip_grad_norm_(parameters, limit)
            for name, parameters in self.gradient_groups().items()
        }
        if all(torch.isfinite(norm) for norm in norms.values()):
            optimizer.step()
        else:
            self._skipped_steps += 1
        self._last_norms = norms
        return outputs, {DEFAULT_MODULE_ID: loss.detach()}, {}

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Counts the gradient steps that this update leaves out."""
        super().before_gradient_based_update(timesteps=timesteps)
        self._skipped_steps = 0

    def after_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Logs the last minibatch's gradient norms, and how many steps were left out."""
        for name, norm in self._last_norms.items():
            self.metrics.log_value((DEFAULT_MODULE_ID, f"{name}_grad_norm"), norm, window=1)
        self.metrics.log_value((DEFAULT_MODULE_ID, "skipped_steps"), self._skipped_steps, window=1)
        super().after_gradient_based_update(timesteps=timesteps)

    def _log_steps_trained_metrics(self, batch: ModuleMinibatch) -> None:
        """Left out: RLlib's eight counters per minibatch cost more than they tell."""

    def _set_slicing_by_batch_id(self, batch: Any, *, value: bool) -> Any:
        """Packed minibatches are never sliced by RLlib."""
        return batch

    def configure_optimizers_for_module(self, module_id: str, config: Any = None) -> None:
        """Fused Adam with the configured epsilon; the method sets its learning rate before every update."""
        parameters = [each for each in self.get_parameters(self.module[module_id]) if each.requires_grad]
        optimizer = torch.optim.Adam(parameters, eps=config.adam_epsilon, fused=True)
        self.register_optimizer(module_id=module_id, optimizer=optimizer, params=parameters)

    def set_learning_rate(self, value: float) -> None:
        """From the next gradient step on."""
        for optimizer in self._optimizer_parameters:
            self._set_optimizer_lr(optimizer, value)

    def set_state(self, state: Mapping[str, Any]) -> None:
        """As RLlib, but the moments are this learner's own."""
        super().set_state(state)
        if COMPONENT_OPTIMIZER not in state:
            return
        for optimizer in self._optimizer_parameters:
            # RLlib keeps the arrays it was given, and several learners of one machine are given the same memory.
            for parameter, moments in optimizer.state.items():
                moments.update({name: tensor.clone() for name, tensor in moments.items()})
                for name in ("exp_avg", "exp_avg_sq"):  # fused Adam would read past the end of a short one
                    if moments[name].shape != parameter.shape or moments[name].dtype != parameter.dtype:
                        raise ValueError(f"the optimizer's {name} does not fit a parameter of {tuple(parameter.shape)}")

    def forget_weights_version(self) -> None:
        """Accept any weights next, also older ones (in-place restore)."""
        self._weights_seq_no = 0
