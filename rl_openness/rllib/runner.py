"""RLlib's view of the sampler: an `EnvRunner` that steps packed environments and returns `RolloutChunk`s."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import ray
from ray.rllib.core import COMPONENT_RL_MODULE, DEFAULT_MODULE_ID
from ray.rllib.env import INPUT_ENV_SPACES
from ray.rllib.env.env_runner import EnvRunner
from ray.rllib.utils.checkpoints import Checkpointable
from ray.rllib.utils.metrics import (
    EPISODE_LEN_MEAN,
    EPISODE_RETURN_MEAN,
    NUM_AGENT_STEPS_SAMPLED,
    NUM_AGENT_STEPS_SAMPLED_LIFETIME,
    NUM_ENV_STEPS_SAMPLED,
    NUM_ENV_STEPS_SAMPLED_LIFETIME,
    NUM_EPISODES,
    NUM_EPISODES_LIFETIME,
    WEIGHTS_SEQ_NO,
)

from rl_openness.envs.draws import child_seeds
from rl_openness.envs.registry import make_environment
from rl_openness.nn.acting import Decision
from rl_openness.rllib.chunk import RolloutChunk
from rl_openness.rllib.sampler import Sampler

COMPONENT_SAMPLER = "sampler"
TRAINING, EVALUATION = 0, 1
ROLE = "agents"


class _Explorer:
    """An RLModule as the sampler's decider; `env_steps` (of all runners) place it in a schedule of exploration."""

    def __init__(self, module: Any, env_steps: int) -> None:
        self.module, self.env_steps = module, env_steps

    def act(self, obs: Any, draws: Any, memory: Any = None, *, explore: bool) -> Decision:
        forward = self.module.forward_exploration if explore else self.module.forward_inference
        decision: Decision = forward({"obs": obs, "draws": draws, "memory": memory, "env_steps": self.env_steps})[
            "decision"
        ]
        return decision


class OpenEnvRunner(EnvRunner, Checkpointable):  # type: ignore[misc]
    """Steps B copies natively and hands over one chunk per `sample()`.

    The local runner of a group with remote ones has no environment. State is exact: `get_state` holds the environment,
    recurrent memory and running episodes; there is no random generator to save.
    """

    def __init__(self, *, config: Any, **kwargs: Any) -> None:
        super().__init__(config=config, **kwargs)
        self.worker_index: int = kwargs.get("worker_index") or 0
        self._weights_seq_no = 0
        self._sampler: Sampler | None = None
        self._env_steps = 0  # of all runners, as far as this one was told
        self._recreated = self.worker_index > 0 and ray.get_runtime_context().was_current_actor_reconstructed
        self.make_env()
        self.make_module()

    def _owns_env(self) -> bool:
        return self.worker_index > 0 or self.num_workers == 0

    def make_env(self) -> None:
        """Fresh copies of the configured environment, seeded from (seed, training or evaluation, worker, copy)."""
        if not self._owns_env():
            return
        copies = self.config.num_envs_per_env_runner
        self.env = make_environment(self.config.env, copies, self.config.env_config)
        self.env.restart_failed = self.config.restart_failed_sub_environments
        self._sampler = Sampler(
            self.env,
            window=self.config.memory_window,
            source=self.worker_index,
            agent_rewards=self.config.agent_rewards,
        )
        self._reseed()

    def _reseed(self, *path: int) -> None:
        assert self._sampler is not None
        role = EVALUATION if self.config.in_evaluation else TRAINING
        copies = self._sampler.env.num_copies
        self._sampler.restart(child_seeds(self.config.seed, role, self.worker_index, *path, count=copies))

    def make_module(self) -> None:
        """The acting half of the configured module."""
        spec = self.config.get_multi_rl_module_spec(spaces=self.get_spaces(), inference_only=True)
        self.module = spec.build()[DEFAULT_MODULE_ID].eval()

    def get_spaces(self) -> dict[str, tuple[gym.Space[Any], gym.Space[Any]]]:
        """Placeholders: sizes travel in the module's `env_spec`."""
        spaces = (self.config.observation_space, self.config.action_space)
        return {INPUT_ENV_SPACES: spaces, DEFAULT_MODULE_ID: spaces}

    def sample(
        self,
        *,
        num_timesteps: int | None = None,
        num_episodes: int | None = None,
        explore: bool | None = None,
        random_actions: bool = False,
        force_reset: bool = False,
        env_steps: int | None = None,
        **kwargs: Any,
    ) -> list[RolloutChunk]:
        """One chunk: a fragment (default), at least `num_timesteps` team-steps, or until `num_episodes` have ended.

        `env_steps` were sampled by all runners before, which places exploration in its schedule.
        """
        if self._sampler is None:
            raise ValueError(
                "the local runner has no environment while remote runners sample; to evaluate, ask for own runners: "
                "evaluation(evaluation_interval=... or evaluation_num_env_runners=...)"
            )
        if random_actions:
            raise ValueError("random_actions is not supported: evaluate the policy `random` instead")
        explore = self.config.explore if explore is None else explore
        self._env_steps = self._env_steps if env_steps is None else env_steps
        network = _Explorer(self.module, self._env_steps)
        if num_episodes == 0:
            return []
        if num_episodes is not None:
            return self._sample_episodes(network, num_episodes, explore)
        if force_reset:
            self._reseed()
        steps = self.config.get_rollout_fragment_length(self.worker_index)
        if num_timesteps is not None:
            steps = max(math.ceil(num_timesteps / self._sampler.env.num_copies), 1)
        chunk = self._sampler.collect(network, steps, explore=explore)
        self._log([chunk], len(self._sampler.finished_episodes()), self._sampler.recent_means())
        return [chunk] if chunk.num_copies else []

    def _sample_episodes(self, network: _Explorer, wanted: int, explore: bool) -> list[RolloutChunk]:
        """The first episode of each of `wanted` seeds, always the same ones; training episodes go on afterwards.

        Taking whichever episodes end first instead would favour short ones.
        """
        assert self._sampler is not None
        sampler, copies = self._sampler, self._sampler.env.num_copies
        before = None if self.config.in_evaluation else sampler.state()
        seeds = child_seeds(self.config.seed, EVALUATION, self.worker_index, count=-(-wanted // copies) * copies)
        chunks: list[RolloutChunk] = []
        episodes: list[dict[str, float]] = []
        for start in range(0, wanted, copies):
            sampler.restart(seeds[start : start + copies])
            first: dict[int, dict[str, float]] = {}
            needed = range(min(copies, wanted - start))
            while any(copy not in first for copy in needed):
                chunks.append(sampler.collect(network, 1, explore=explore))
                for copy, episode in sampler.finished_episodes():
                    first.setdefault(copy, episode)
            episodes += [first[copy] for copy in needed]
        if before is not None:
            sampler.set_state(before)
        means = {name: float(np.mean([episode[name] for episode in episodes])) for name in episodes[0]}
        self._log(chunks, wanted, means)
        return chunks

    def _log(self, chunks: list[RolloutChunk], num_episodes: int, means: Mapping[str, float]) -> None:
        env_steps = sum(chunk.env_steps() for chunk in chunks)
        agent_steps = sum(chunk.agent_steps() for chunk in chunks)
        log = self.metrics.log_value
        for key, lifetime, count in (
            (NUM_ENV_STEPS_SAMPLED, NUM_ENV_STEPS_SAMPLED_LIFETIME, env_steps),
            # RLlib wants a dictionary here; one role instead of a key per agent id.
            ((NUM_AGENT_STEPS_SAMPLED, ROLE), (NUM_AGENT_STEPS_SAMPLED_LIFETIME, ROLE), agent_steps),
            (NUM_EPISODES, NUM_EPISODES_LIFETIME, num_episodes),
        ):
            log(key, count, reduce="sum")
            log(lifetime, count, reduce="lifetime_sum")
        if self._sampler is not None and self._sampler.failures:
            log("failed_copies_lifetime", self._sampler.failures, reduce="lifetime_sum")
            self._sampler.failures = 0
        # Means over the last episodes, also of earlier iterations: RLlib's own window is emptied at every report.
        for name, value in means.items():
            log(
                {"return": EPISODE_RETURN_MEAN, "length": EPISODE_LEN_MEAN}.get(name, f"episode_{name}_mean"),
                value,
                window=1,
            )

    def get_metrics(self) -> Any:
        """What was logged since the last call."""
        return self.metrics.reduce()

    def get_state(
        self,
        components: str | Collection[str] | None = None,
        *,
        not_components: str | Collection[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Weights (component `rl_module`) and, of training runners, the sampler's exact state.

        Evaluation always starts from its own seeds, so there is nothing to keep; RLlib would also hand it the training
        runner's episodes.
        """
        state: dict[str, Any] = {}
        if self._check_component(COMPONENT_RL_MODULE, components, not_components):
            state[COMPONENT_RL_MODULE] = self.module.get_state(**kwargs)
            state[WEIGHTS_SEQ_NO] = self._weights_seq_no
        if self._keeps_episodes() and self._check_component(COMPONENT_SAMPLER, components, not_components):
            assert self._sampler is not None
            state[COMPONENT_SAMPLER] = self._sampler.state()
        return state

    def _keeps_episodes(self) -> bool:
        return self._sampler is not None and not self.config.in_evaluation

    def set_state(self, state: Mapping[str, Any] | ray.ObjectRef) -> None:
        """Inverse of `get_state`; older weights than the present ones are ignored, as RLlib expects."""
        if isinstance(state, ray.ObjectRef):
            state = ray.get(state)
        if COMPONENT_RL_MODULE in state:
            self._set_weights(state[COMPONENT_RL_MODULE], state.get(WEIGHTS_SEQ_NO, 0))
        if COMPONENT_SAMPLER in state and self._keeps_episodes():
            assert self._sampler is not None
            self._sampler.set_state(state[COMPONENT_SAMPLER])

    def _set_weights(self, weights: Any, seq_no: int) -> None:
        if self._recreated and self._sampler is not None and seq_no > 0:
            # A runner that came back must not play its predecessor's episodes again.
            self._reseed(seq_no)
            self._recreated = False
        if seq_no != 0 and self._weights_seq_no >= seq_no:
            return
        if isinstance(weights, ray.ObjectRef):
            weights = ray.get(weights)
        self.module.set_state(weights.get(DEFAULT_MODULE_ID, weights))
        self._weights_seq_no = seq_no or self._weights_seq_no

    def start_anew(self) -> None:
        """New episodes that this worker has not played before, where a checkpoint holds none for it."""
        if self._sampler is not None:
            self._reseed(self._weights_seq_no)

    def forget_weights_version(self) -> None:
        """Accept any weights next, also older ones (in-place restore)."""
        self._weights_seq_no = 0

    def get_checkpointable_components(self) -> list[tuple[str, Any]]:
        """The module, saved by itself."""
        return [(COMPONENT_RL_MODULE, self.module)]

    def get_ctor_args_and_kwargs(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """For RLlib's `from_checkpoint`."""
        return (), {"config": self.config}

    def assert_healthy(self) -> None:
        """RLlib's check after construction."""
        assert self.module is not None

    def stop(self) -> None:
        """Nothing to release."""
