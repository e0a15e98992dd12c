"""RLlib's `AlgorithmConfig` for packed methods: every field of a method's settings is an attribute and an argument."""

from __future__ import annotations

import inspect
import logging
import secrets
from collections.abc import Mapping
from typing import Any, ClassVar, Self

import gymnasium as gym
from pydantic import BaseModel, ValidationError
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig, NotProvided
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from rl_openness.envs.base import EnvSpec
from rl_openness.envs.registry import make_environment
from rl_openness.errors import UserError, nearest
from rl_openness.rllib.runner import OpenEnvRunner


class _SilenceNewStackNotice(logging.Filter):
    """Every custom algorithm gets RLlib's notice that it runs on the new API stack; users cannot act on it."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "on the new API stack" not in record.getMessage()


logging.getLogger("ray.rllib.algorithms.algorithm_config").addFilter(_SilenceNewStackNotice())


class OpenConfig(AlgorithmConfig):  # type: ignore[misc]
    """What the configurations of all methods share; a method names its settings, variants, module and learner.

    `variant` picks a named set of defaults. Set fields by `training(...)` or by RLlib's own methods.
    """

    method: ClassVar[str]
    """What messages call it."""
    settings_class: ClassVar[type[BaseModel]]
    variants: ClassVar[Mapping[str, Mapping[str, Any]]]
    module_class: ClassVar[type]
    learner_class: ClassVar[type]
    fills_batches: ClassVar[bool] = True
    """Whether runners sample for others that are away; else a batch is one chunk of each that answers."""

    def __init__(self, algo_class: type, *, variant: str) -> None:
        super().__init__(algo_class=algo_class)
        if variant not in self.variants:
            raise UserError(f"unknown variant {variant!r}{nearest(variant, self.variants)}")
        self.exploration_config: dict[str, Any] = {}
        self.env_runner_cls = OpenEnvRunner
        self.num_env_runners = 0
        self.num_learners = 0
        self.rollout_fragment_length = "auto"
        self.explore = True
        self.evaluation_config = {"explore": False}
        self.observation_space = gym.spaces.Box(-1.0, 1.0, (1,))
        self.action_space: gym.Space[Any] = gym.spaces.Discrete(1)
        self.broadcast_env_runner_states = self.merge_env_runner_states = False
        self._dont_auto_sync_env_runner_states = True  # there are no connector states to merge
        self.updates_per_iteration = 1
        for name, value in self.settings_class(**self.variants[variant]).model_dump().items():
            setattr(self, name, value)

    def training(self, **kwargs: Any) -> Self:
        """Set any field of the method's settings (values or Tune search spaces), or RLlib's own training options."""
        fields = self.settings_class.model_fields
        for name in [name for name in kwargs if name in fields]:
            value = kwargs.pop(name)
            if isinstance(value, (int, float)) and value == -1:  # RLlib drops attributes of this value in silence
                raise UserError(f"{self.method} setting {name!r} cannot be -1")
            if value is not NotProvided:
                setattr(self, name, value)
        known = inspect.signature(super().training).parameters
        for unknown in set(kwargs) - set(known):
            raise UserError(f"{self.method} has no setting {unknown!r}{nearest(unknown, [*fields, *known])}")
        super().training(**kwargs)
        return self

    def settings(self) -> Any:
        """The method's settings, checked. Raises UserError naming the field."""
        try:
            return self.settings_class(**{name: getattr(self, name) for name in self.settings_class.model_fields})
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(str(part) for part in problem["loc"])
            reason = problem["msg"].removeprefix("Value error, ")
            raise UserError(f"{self.method} setting {where!r}: {reason}") from None

    @property
    def memory_window(self) -> int:
        """Steps between those at which a rollout stores the memory of recurrent policies."""
        window: int = self.max_seq_len
        return window

    @property
    def agent_rewards(self) -> bool:
        """Whether rollouts hold every member's own rewards; most methods learn from the team's alone."""
        return False

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """One module for all agents."""
        return RLModuleSpec(module_class=self.module_class)

    def get_default_learner_class(self) -> type:
        """The learner of this method."""
        return self.learner_class

    @property
    def _model_config_auto_includes(self) -> dict[str, Any]:
        includes: dict[str, Any] = super()._model_config_auto_includes | {
            "env_spec": self.env_spec().to_json(),
            "settings": self.settings().model_dump(),
        }
        return includes

    def validate(self) -> None:
        """RLlib's checks, the method's, and a reason for each RLlib option that has no meaning here."""
        seed: int | None = self.get("seed")
        if seed is None:
            self.debugging(seed=secrets.randbits(31))  # drawn here, so that it is known and a resumed run has the same
        elif seed < 0:
            self._value_error(f"seed must not be negative, not {seed}")
        super().validate()
        self.settings()
        if self.in_evaluation:
            return
        for name in ("num_env_runners", "num_learners"):
            if getattr(self, name) < 0:
                self._value_error(f"{name} must not be negative, not {getattr(self, name)}")
        self.check_method()
        self._reject_foreign_options()

    def check_method(self) -> None:
        """The method's own conditions on environment and sizes; report by `_value_error`."""

    def env_spec(self) -> EnvSpec:
        """Of the configured environment."""
        return make_environment(self.env, 1, self.env_config).spec

    def _reject_foreign_options(self) -> None:
        fragment = self.total_train_batch_size // (self.num_envs_per_env_runner * max(self.num_env_runners, 1))
        for wrong, reason in (
            (not isinstance(self.env, str), "environment(...) takes a registered name such as 'wildfire'"),
            (self.is_multi_agent, "multi_agent(...): all agents share one module, there is nothing to map"),
            (self.count_steps_by != "env_steps", "count_steps_by: steps are steps of the team"),
            (self.batch_mode != "truncate_episodes", "batch_mode: fragments have a fixed number of steps"),
            (
                self.rollout_fragment_length not in ("auto", fragment),
                f"rollout_fragment_length: follows from batch size, copies and runners ({fragment})",
            ),
            (self._env_to_module_connector is not None, "env_to_module_connector: there is no connector pipeline"),
            (self._module_to_env_connector is not None, "module_to_env_connector: there is no connector pipeline"),
            (self._learner_connector is not None, "learner_connector: there is no connector pipeline"),
            (self.train_batch_size != 32, "train_batch_size: say train_batch_size_per_learner"),
            (self.grad_clip_by != "global_norm", "grad_clip_by: gradients are clipped by their norm"),
            (self.torch_compile_learner, "torch_compile_learner: minibatches are ragged"),
            (self._model_config not in (None, {}), "rl_module(model_config=...): say training(...)"),
            (self.num_gpus_per_learner > 0, "num_gpus_per_learner: inputs are prepared on the CPU"),
            (self.num_aggregator_actors_per_learner > 0, "num_aggregator_actors_per_learner: chunks are ready as is"),
        ):
            if wrong:
                self._value_error(f"{self.algo_class.__name__} does not take this option. {reason}")
