"""GPL and CIAO as RLlib algorithms: `CIAOConfig(variant="ciao-c").environment("wolfpack", env_config={...})`."""

from __future__ import annotations

from typing import Any, Self

from ray.rllib.algorithms.algorithm_config import NotProvided

from rl_openness.algorithms.gpl.learner import GplLearner
from rl_openness.algorithms.gpl.module import GplModule
from rl_openness.algorithms.gpl.settings import GPL_VARIANTS, GplSettings
from rl_openness.errors import UserError
from rl_openness.rllib.algorithm import OpenAlgorithm
from rl_openness.rllib.config import OpenConfig

_FIXED = {
    "train_batch_size_per_learner": "it is update_every x num_envs_per_env_runner x runners: set these",
    "minibatch_size": "every window of update_every steps is learnt from as a whole: set update_every or "
    "num_envs_per_env_runner",
    "num_epochs": "every window is learnt from once: a smaller update_every gives more updates in the same steps",
}
"""RLlib's training options that follow from the method, and what to set instead."""


class GPL(OpenAlgorithm):
    """Graph-based policy learning: Q-learning of one agent among teammates that it does not control."""

    @classmethod
    def get_default_config(cls) -> GPLConfig:
        """Used by `tune.Tuner(GPL, ...)`."""
        return GPLConfig()


class CIAO(GPL):
    """GPL with ranges on the utilities and a regulariser, after the CIAO paper."""

    @classmethod
    def get_default_config(cls) -> GPLConfig:
        """Used by `tune.Tuner(CIAO, ...)`."""
        return CIAOConfig()


class GPLConfig(OpenConfig):
    """An attribute for every field of `GplSettings`; `variant` is one of `GPL_VARIANTS`.

    The learner is the first member of each team, and it learns from the environment's team reward. In a world with
    teammates that is its own reward; with `controlled="all"` (self-play: every member acts by the same network) it is
    the sum of everybody's rewards.
    """

    method = "GPL"
    settings_class = GplSettings
    variants = GPL_VARIANTS
    module_class = GplModule
    learner_class = GplLearner
    fills_batches = False  # two windows of one runner would have to be learned from one after the other

    def __init__(self, algo_class: type | None = None, *, variant: str = "gpl") -> None:
        super().__init__(algo_class or GPL, variant=variant)

    def training(self, **kwargs: Any) -> Self:
        """As for all methods. Raises UserError for options of RLlib's that GPL derives from others."""
        for name, reason in _FIXED.items():
            if kwargs.get(name, NotProvided) is not NotProvided:
                raise UserError(f"{self.method} takes no {name}: {reason}")
        return super().training(**kwargs)

    @property
    def memory_window(self) -> int:
        """Memory is stored where a window begins."""
        window: int = self.update_every
        return window

    def validate(self) -> None:
        """Also derives RLlib's batch size: a window of all copies of all runners."""
        self.train_batch_size_per_learner = (
            self.update_every * self.num_envs_per_env_runner * max(self.num_env_runners, 1)
        )
        super().validate()

    def check_method(self) -> None:
        """A fixed action set, tasks that fit a vector, and one learner."""
        spec = self.env_spec()
        if spec.num_actions is None:
            self._value_error(f"{self.method} needs a fixed set of actions, and agents of {spec.name!r} choose tasks")
        if spec.task_columns and spec.task_slots is None:
            self._value_error(
                f"{self.method} reads tasks as a vector of fixed length; {spec.name!r} has no bound on them"
            )
        if self.num_learners > 1:
            self._value_error(
                f"{self.method} learns with one learner (num_learners 0 or 1): the target network's memory runs "
                "through all windows of a runner; use several seeds side by side instead"
            )


class CIAOConfig(GPLConfig):
    """GPL's configuration with CIAO-C's defaults (`variant`: also `ciao-s` and the ablations)."""

    method = "CIAO"

    def __init__(self, algo_class: type | None = None, *, variant: str = "ciao-c") -> None:
        super().__init__(algo_class or CIAO, variant=variant)
