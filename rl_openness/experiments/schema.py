"""An experiment: the only truth about what a YAML file may say, and every check that needs neither Ray nor torch."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from rl_openness.algorithms.mappo.settings import MappoSettings, unequal_shares
from rl_openness.algorithms.registry import bundled_methods, find_method
from rl_openness.envs.wildfire.config import WildfireConfig
from rl_openness.errors import UserError
from rl_openness.experiments.keys import ConfigError, checked, leaf_keys
from rl_openness.experiments.worlds import (
    WildfireOptions,
    check_options,
    check_rule,
    check_setups,
    evaluation_options,
    find_world,
    rule_names,
    usual_evaluation,
)


def _no_bool(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"must be a number, not {value!r}")
    return value


Integer = Annotated[int, BeforeValidator(_no_bool)]
Steps = Annotated[Integer, Field(ge=1)]
Seed = Annotated[Integer, Field(ge=0, lt=2**31)]


class _Group(BaseModel):
    model_config = ConfigDict(extra="forbid")


def _or_nothing(value: Any) -> Any:
    """A key without a value (`settings:` and then only comments) is an empty group."""
    return {} if value is None else value


class EnvironmentSettings(_Group):
    """Which world to train on."""

    name: str = "wildfire"
    options: Annotated[dict[str, Any], BeforeValidator(_or_nothing)] = {}
    """Arguments of the environment, for Wildfire see `worlds.WildfireOptions`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.options = check_options(self.name, self.options)
        return self


class RunSettings(_Group):
    """How long, where and from which seed."""

    env_steps: Steps = 1_000_000
    """Steps of the environment (of the whole team) to train for; whole iterations, so the last one may go beyond."""
    seed: Seed = 0
    """Of weights, episodes, exploration and the order of minibatches."""
    num_env_runners: Integer = Field(0, ge=0)
    """Processes that collect episodes; 0 = the training process does it itself."""
    num_learners: Integer = Field(0, ge=0)
    """Processes that compute updates; 0 = the training process does it itself."""
    checkpoint_every: Steps = 100_000
    """Steps of the environment between checkpoints, rounded up to whole iterations; there is always one at the end."""
    checkpoints_kept: Integer = Field(3, ge=1)
    """Newest checkpoints to keep."""


class EvaluationSettings(_Group):
    """What follows the training: whole episodes of the final policy (best option, no sampling), beside rules."""

    first_seed: Seed = 200
    episodes: Integer = Field(50, ge=1)
    """Episodes per policy and setup, of seeds `first_seed`, `first_seed` + 1 and so on. What is left out is as usual
    for the environment (`worlds.usual_evaluation`): in foraging and Wolfpack 80 episodes of seeds 2500 on."""
    setups: list[str] | None = None
    """Shipped setups to play on, unchanged; null = the world of the training."""
    team_sizes: list[Steps] | None = None
    """Greatest numbers of agents to play with; null = as in training. Below Wolfpack's `start_size` as many start."""
    rules: list[str] | None = None
    """Policies by name to compare with; null = all hand-written ones that the environment has."""


class TrackingSettings(_Group):
    """Whether and where MLflow records the run."""

    mlflow: bool = True
    uri: str | None = None
    """Store; null = $MLFLOW_TRACKING_URI if set, else the SQLite file `mlflow.db` beside the folder of the runs."""
    experiment: str = Field("rl-openness", min_length=1)
    """MLflow's name for a group of runs."""


class ExperimentSettings(_Group):
    """A whole experiment. Checked in full on creation; `settings` and `environment.options` are then spelt out."""

    name: str = Field(max_length=100)
    """Name of the run and of its folder: letters, digits, and `.`, `_`, `-` inside."""
    algorithm: str = "plato"
    """A method, see `rl-openness list algorithms`."""
    environment: EnvironmentSettings = EnvironmentSettings()
    settings: dict[str, Any] = {}
    """Fields of the method's settings."""
    run: RunSettings = RunSettings()
    evaluation: EvaluationSettings = EvaluationSettings()
    tracking: TrackingSettings = TrackingSettings()

    @field_validator("environment", "settings", "run", "evaluation", "tracking", mode="before")
    @classmethod
    def _empty_group(cls, value: Any) -> Any:
        return _or_nothing(value)

    @field_validator("name")
    @classmethod
    def _plain(cls, name: str) -> str:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
            raise ValueError(f"must begin with a letter or digit and go on with these or . _ -, not {name!r}")
        return name

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            method = find_method(self.algorithm)
        except UserError as error:
            raise ConfigError(("algorithm",), str(error)) from None
        settings = checked(method.settings, {**method.defaults, **self.settings}, ("settings",))
        self.settings = settings.model_dump(mode="json")
        if isinstance(settings, MappoSettings):
            problem = unequal_shares(settings, self.run.num_env_runners, self.run.num_learners)
            if problem is not None:
                raise ConfigError(("settings",), problem)
        self._check_evaluation()
        return self

    def _check_evaluation(self) -> None:
        environment, evaluation = self.environment.name, self.evaluation
        usual = dict(zip(("first_seed", "episodes"), usual_evaluation(environment), strict=True))
        for key in usual.keys() - evaluation.model_fields_set:
            setattr(evaluation, key, usual[key])
        if evaluation.rules is None:
            evaluation.rules = rule_names(environment)
        try:
            for rule in evaluation.rules:
                check_rule(environment, rule, self.environment.options)
        except UserError as error:
            raise ConfigError(("evaluation", "rules"), str(error)) from None
        try:
            check_setups(environment, evaluation.setups or [])
        except UserError as error:
            raise ConfigError(("evaluation", "setups"), str(error)) from None
        sizes: Sequence[int | None] = evaluation.team_sizes or [None]
        for team_size in sizes:
            try:
                for options in evaluation_options(environment, self.environment.options, evaluation.setups, team_size):
                    find_world(environment, options)
            except UserError as error:
                raise ConfigError(("evaluation", "team_sizes"), f"{team_size}: {error}") from None


def all_keys() -> list[str]:
    """Every key that an experiment on Wildfire may set, with dots."""
    settings = {key for method in bundled_methods() for key in leaf_keys(method.settings, "settings.")}
    world = leaf_keys(WildfireConfig, "environment.options.overrides.")
    return [*leaf_keys(ExperimentSettings), *settings, *leaf_keys(WildfireOptions, "environment.options."), *world]
