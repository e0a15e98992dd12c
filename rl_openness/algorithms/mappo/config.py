"""PLATO and MAPPO as RLlib algorithms: `PLATOConfig().environment("wildfire", env_config={"setup": "3x3/S3"})`."""

from __future__ import annotations

import logging

from rl_openness.algorithms.mappo.learner import ActionsLearner, MappoLearner
from rl_openness.algorithms.mappo.module import ActionsModule, PlatoModule
from rl_openness.algorithms.mappo.settings import (
    MAPPO_VARIANTS,
    PLATO_VARIANTS,
    ActionsSettings,
    PlatoSettings,
    unequal_shares,
)
from rl_openness.rllib.algorithm import OpenAlgorithm
from rl_openness.rllib.config import OpenConfig

logger = logging.getLogger(__name__)


class PLATO(OpenAlgorithm):
    """Pointer actor, graph critic, MAPPO."""

    @classmethod
    def get_default_config(cls) -> PLATOConfig:
        """Used by `tune.Tuner(PLATO, ...)`."""
        return PLATOConfig()


class PLATOConfig(OpenConfig):
    """An attribute for every field of `PlatoSettings`; set them by `training(...)` or RLlib's own methods.

    `variant` picks a named set of defaults (`plato`, or `plato-strict`, the paper's form).
    """

    method = "PLATO"
    settings_class = PlatoSettings
    variants = PLATO_VARIANTS
    module_class = PlatoModule
    learner_class = MappoLearner

    def __init__(self, algo_class: type | None = None, *, variant: str = "plato") -> None:
        super().__init__(algo_class or PLATO, variant=variant)

    def check_method(self) -> None:
        """Tasks to choose among, and equal shares of the steps."""
        spec = self.env_spec()
        if spec.num_actions is not None or not spec.task_columns:
            self._value_error(f"PLATO chooses among tasks, and {spec.name!r} has none")
        hidden = [column.name for column in spec.agent_columns if column.visible == "self"]
        if hidden and not self.query_include_self and self.query == "stats":
            logger.warning("agents do not see their own %s: query_include_self is off", ", ".join(hidden))
        problem = unequal_shares(self.settings(), self.num_env_runners, self.num_learners)
        if problem is not None:
            self._value_error(problem)


class MAPPO(OpenAlgorithm):
    """Clipped policy optimisation of agents with a fixed set of actions, which share their weights."""

    @classmethod
    def get_default_config(cls) -> MAPPOConfig:
        """Used by `tune.Tuner(MAPPO, ...)`."""
        return MAPPOConfig()


class MAPPOConfig(OpenConfig):
    """An attribute for every field of `ActionsSettings`; set them by `training(...)` or RLlib's own methods.

    It learns for every agent that the environment lets it control: with `controlled="all"` the whole team.
    """

    method = "MAPPO"
    settings_class = ActionsSettings
    variants = MAPPO_VARIANTS
    module_class = ActionsModule
    learner_class = ActionsLearner

    def __init__(self, algo_class: type | None = None, *, variant: str = "mappo") -> None:
        super().__init__(algo_class or MAPPO, variant=variant)

    @property
    def memory_window(self) -> int:
        """There is no memory to store."""
        return 1

    @property
    def agent_rewards(self) -> bool:
        """Only where agents learn from their own."""
        own: bool = self.rewards == "own"
        return own

    def check_method(self) -> None:
        """A fixed action set, and equal shares of the steps."""
        spec = self.env_spec()
        if spec.num_actions is None:
            self._value_error(
                f"MAPPO needs a fixed set of actions, and agents of {spec.name!r} choose tasks: see PLATO"
            )
        problem = unequal_shares(self.settings(), self.num_env_runners, self.num_learners)
        if problem is not None:
            self._value_error(problem)
