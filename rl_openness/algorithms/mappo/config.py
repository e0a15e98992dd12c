"""PLATO as an RLlib algorithm: `PLATOConfig().environment("wildfire", env_config={"setup": "3x3/S3"}).build_algo()`."""

from __future__ import annotations

import inspect
import logging
import secrets
from typing import Any

import gymnasium as gym
from pydantic import ValidationError
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig, NotProvided
from ray.rllib.core.rl_module.rl_module import RLModuleSpec

from rl_openness.algorithms.mappo.learner import MappoLearner
from rl_openness.algorithms.mappo.module import PlatoModule
from rl_openness.algorithms.mappo.settings import PLATO_VARIANTS, PlatoSettings, unequal_shares
from rl_openness.envs.base import EnvSpec
from rl_openness.envs.registry import make_environment
from rl_openness.errors import UserError, nearest
from rl_openness.rllib.algorithm import OpenAlgorithm
from rl_openness.rllib.runner import OpenEnvRunner

logger = logging.getLogger(__name__)


class PLATO(OpenAlgorithm):
    """Pointer actor, graph critic, MAPPO."""

    @classmethod
    def get_default_config(cls) -> PLATOConfig:
        """Used by `tune.Tuner(PLATO, ...)`."""
        return PLATOConfig()


class _SilenceNewStackNotice(logging.Filter):
    """Every custom algorithm gets RLlib's notice that it runs on the new API stack; users cannot act on it."""

    def filter(self, record: logging.LogRecord) -> bool:
        return "on the new API stack" not in record.getMessage()


logging.getLogger("ray.rllib.algorithms.algorithm_config").addFilter(_SilenceNewStackNotice())


class PLATOConfig(AlgorithmConfig):  # type: ignore[misc]
    """An attribute for every field of `PlatoSettings`; set them by `training(...)` or RLlib's own methods.

    `variant` picks a named set of defaults (`plato`, or `plato-strict`, the paper's form).
    """

    def __init__(self, algo_class: type | None = None, *, variant: str = "plato") -> None:
        super().__init__(algo_class=algo_class or PLATO)
        if variant not in PLATO_VARIANTS:
            raise UserError(f"unknown variant {variant!r}{nearest(variant, PLATO_VARIANTS)}")
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
        for name, value in PlatoSettings(**PLATO_VARIANTS[variant]).model_dump().items():
            setattr(self, name, value)

    def training(self, **kwargs: Any) -> PLATOConfig:
        """Set any field of `PlatoSettings` (values or Tune search spaces), or RLlib's own training options."""
        for name in [name for name in kwargs if name in PlatoSettings.model_fields]:
            value = kwargs.pop(name)
            if isinstance(value, (int, float)) and value == -1:  # RLlib drops attributes of this value in silence
                raise UserError(f"PLATO setting {name!r} cannot be -1")
            if value is not NotProvided:
                setattr(self, name, value)
        known = inspect.signature(super().training).parameters
        for unknown in set(kwargs) - set(known):
            raise UserError(
                f"PLATO has no setting {unknown!r}{nearest(unknown, [*PlatoSettings.model_fields, *known])}"
            )
        super().training(**kwargs)
        return self

    def settings(self) -> PlatoSettings:
        """The method's settings, checked. Raises UserError naming the field."""
        try:
            return PlatoSettings(**{name: getattr(self, name) for name in PlatoSettings.model_fields})
        except ValidationError as error:
            problem = error.errors()[0]
            where = ".".join(str(part) for part in problem["loc"])
            raise UserError(f"PLATO setting {where!r}: {problem['msg'].removeprefix('Value error, ')}") from None

    def get_default_rl_module_spec(self) -> RLModuleSpec:
        """One module for all agents."""
        return RLModuleSpec(module_class=PlatoModule)

    def get_default_learner_class(self) -> type:
        """The learner of this method."""
        return MappoLearner

    @property
    def _model_config_auto_includes(self) -> dict[str, Any]:
        spec = self._env_spec()
        includes: dict[str, Any] = super()._model_config_auto_includes | {
            "env_spec": spec.to_json(),
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
        self._check_environment()
        for name in ("num_env_runners", "num_learners"):
            if getattr(self, name) < 0:
                self._value_error(f"{name} must not be negative, not {getattr(self, name)}")
        self._reject_foreign_options()
        problem = unequal_shares(self.settings(), self.num_env_runners, self.num_learners)
        if problem is not None:
            self._value_error(problem)

    def _check_environment(self) -> None:
        spec = self._env_spec()
        if spec.num_actions is not None or not spec.task_columns:
            self._value_error(f"PLATO chooses among tasks, and {spec.name!r} has none")
        hidden = [column.name for column in spec.agent_columns if column.visible == "self"]
        if hidden and not self.query_include_self and self.query == "stats":
            logger.warning("agents do not see their own %s: query_include_self is off", ", ".join(hidden))

    def _env_spec(self) -> EnvSpec:
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
