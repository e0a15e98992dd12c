"""RLlib's `Algorithm` for packed methods: one training step, and checkpoints that continue exactly."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import ray
import torch
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.core import COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.utils.metrics import (
    ENV_RUNNER_RESULTS,
    ENV_RUNNER_SAMPLING_TIMER,
    LEARNER_RESULTS,
    LEARNER_UPDATE_TIMER,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    SYNCH_WORKER_WEIGHTS_TIMER,
    TIMERS,
)

from rl_openness.errors import RunFailedError
from rl_openness.rllib.chunk import RolloutChunk
from rl_openness.rllib.data import RolloutData

REMOTE_RUNNERS = "remote_runners"
MAX_EMPTY_ITERATIONS = 3


class OpenAlgorithm(Algorithm):  # type: ignore[misc]
    """Sample, update, hand out weights. Methods differ in their learner and module only."""

    _empty_iterations = 0
    _weights_of: tuple[Any, Any] | None = None

    def _setup_logdir(self) -> None:
        """Outside Tune nothing is logged: an empty temporary folder, where RLlib leaves one in the home directory."""
        if self._storage:
            super()._setup_logdir()
        else:
            self._logdir = tempfile.mkdtemp(prefix="rl_openness-")

    def cleanup(self) -> None:
        """As RLlib; also takes the empty folder away."""
        super().cleanup()
        if not self._storage:
            with contextlib.suppress(OSError):  # gone already, or somebody put something there
                os.rmdir(self._logdir)

    def training_step(self) -> None:
        """One iteration: as many times as the method says, sample and update."""
        sampled = self.metrics.peek((ENV_RUNNER_RESULTS, NUM_ENV_STEPS_SAMPLED_LIFETIME), default=0)
        for _ in range(self.config.updates_per_iteration):
            with self.metrics.log_time((TIMERS, ENV_RUNNER_SAMPLING_TIMER)):
                chunks = self._sample(sampled)
            if not chunks:
                self._count_empty_iteration()
                continue
            self._empty_iterations = 0
            sampled += sum(chunk.env_steps() for chunk in chunks)
            with self.metrics.log_time((TIMERS, LEARNER_UPDATE_TIMER)):
                self._learn(chunks, sampled)
            with self.metrics.log_time((TIMERS, SYNCH_WORKER_WEIGHTS_TIMER)):
                self._hand_out_weights()
        self._gather_local_metrics()

    def _samples_here(self) -> bool:
        return bool(self.env_runner_group.num_remote_env_runners() == 0)

    def _sample(self, sampled: int) -> list[RolloutChunk]:
        """`train_batch_size_per_learner` team-steps for each learner; none if all runners are away.

        RLlib's `synchronous_parallel_sample`, which cannot tell runners how many env steps were `sampled` before, and
        asks those that are there again while others are away, which a method may not want (`fills_batches`).
        """
        chunks: list[RolloutChunk] = []
        if self._samples_here():
            return list(self.env_runner.sample(env_steps=sampled))  # one fragment, see `OpenConfig.validate`
        group, wanted = self.env_runner_group, self.config.total_train_batch_size
        while sum(chunk.env_steps() for chunk in chunks) < wanted:
            answers = group.foreach_env_runner(
                lambda runner: (runner.sample(env_steps=sampled), runner.get_metrics()),
                local_env_runner=False,
                timeout_seconds=self.config.sample_timeout_s,
            )
            for sample, metrics in answers:
                chunks += sample
                self.metrics.aggregate([metrics], key=ENV_RUNNER_RESULTS)
            if not answers or not self.config.fills_batches or group.num_healthy_remote_workers() == 0:
                break
        return chunks

    def _learn(self, chunks: list[RolloutChunk], sampled: int) -> None:
        """One update; `sampled` env steps were taken so far."""
        timesteps = {NUM_ENV_STEPS_SAMPLED_LIFETIME: sampled}
        if self.learner_group.is_local:
            data = RolloutData(chunks=chunks)
            self.learner_group.update(training_data=data, timesteps=timesteps, _no_metrics_reduce=True)
            return
        # Owned by this process, so that a runner's death cannot take its chunk along.
        data = RolloutData(chunks=[ray.put(chunk) for chunk in chunks])
        learned = self.learner_group.update(training_data=data, timesteps=timesteps)
        self.metrics.aggregate(learned, key=LEARNER_RESULTS)

    def _gather_local_metrics(self) -> None:
        """What runner and learner of this process have logged, once an iteration: RLlib reduces a value in 40 us."""
        if self._samples_here():
            self.metrics.aggregate([self.env_runner.get_metrics()], key=ENV_RUNNER_RESULTS)
        if self.learner_group.is_local:
            self.metrics.aggregate([self.learner_group._learner.metrics.reduce()], key=LEARNER_RESULTS)

    def _count_empty_iteration(self) -> None:
        """All runners are away; RLlib restarts them. An error in the environment would repeat itself for ever."""
        self._empty_iterations += 1
        if self._empty_iterations >= MAX_EMPTY_ITERATIONS:
            raise RunFailedError(
                f"no runner returned a rollout in {self._empty_iterations} iterations; the reason is in the runners' "
                "logs (Ray's session folder), or train with run.num_env_runners=0 to see it here"
            )

    def _hand_out_weights(self) -> None:
        if self.learner_group.is_local and self._samples_here():
            # In one process: copy in place instead of RLlib's way through NumPy and the object store.
            with torch.no_grad():
                torch._foreach_copy_(*self._local_weights())
            return
        self.env_runner_group.sync_weights(from_worker_or_learner_group=self.learner_group, inference_only=True)

    def _local_weights(self) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The runner's tensors and the learner's of the same name; listing them takes longer than copying them."""
        modules = self.env_runner.module, self.learner_group._learner.core
        if self._weights_of != modules:
            mine, theirs = (module.state_dict() for module in modules)
            self._weights = list(mine.values()), [theirs[name] for name in mine]
            self._weights_of = modules
        return self._weights

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """RLlib's state and, what RLlib leaves out, the samplers of remote runners by worker index."""
        state: dict[str, Any] = super().get_state(components, not_components=not_components, **kwargs)
        if self.env_runner_group.num_remote_env_runners() > 0 and self._check_component(
            REMOTE_RUNNERS, components, not_components
        ):
            # The last weights are sent without waiting; this call queues behind them.
            states = self.env_runner_group.foreach_env_runner(
                lambda runner: (str(runner.worker_index), runner.get_state(not_components=COMPONENT_RL_MODULE)),
                local_env_runner=False,
            )
            state[REMOTE_RUNNERS] = dict(states)
        return state

    def set_state(self, state: Mapping[str, Any]) -> None:
        """Inverse of `get_state`. Runners that the state does not know (they are more, or one was away) start anew."""
        super().set_state(state)
        if REMOTE_RUNNERS not in state:
            return
        states = ray.put(state[REMOTE_RUNNERS])

        def restore(runner: Any) -> None:
            own = ray.get(states).get(str(runner.worker_index))
            if own is None:
                runner.start_anew()
            else:
                runner.set_state(own)

        self.env_runner_group.foreach_env_runner(restore, local_env_runner=False)

    def restore_from_path(self, path: str | Path, *args: Any, **kwargs: Any) -> None:
        """As RLlib, but also an *older* checkpoint replaces the weights of runners and learners in place."""
        self._forget_weights_version()
        super().restore_from_path(path, *args, **kwargs)

    def restore_state(self, state: Mapping[str, Any]) -> None:
        """`set_state`, whatever this algorithm did before."""
        self._forget_weights_version()
        self.set_state(state)

    def _forget_weights_version(self) -> None:
        self.learner_group.foreach_learner(lambda learner: learner.forget_weights_version())
        for group in (self.env_runner_group, self.eval_env_runner_group):
            if group is not None:
                group.foreach_env_runner(lambda runner: runner.forget_weights_version())

    def core_module(self) -> Any:
        """The learner's module, on this process (a copy of the weights if learners are remote)."""
        if self.learner_group.is_local:
            return self.learner_group._learner.core
        spec = self.config.get_multi_rl_module_spec(spaces=self.spaces, inference_only=False)
        module = spec.build()[DEFAULT_MODULE_ID]
        module.set_state(self.learner_group.get_weights()[DEFAULT_MODULE_ID])
        return module
