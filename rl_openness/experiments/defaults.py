"""A training without a YAML file: what is sensible for a world, from the world itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from rl_openness.algorithms.registry import find_method
from rl_openness.envs.adapters.bridge import BridgedEnv
from rl_openness.envs.registry import make_environment
from rl_openness.errors import UserError
from rl_openness.experiments.keys import ConfigError
from rl_openness.experiments.worlds import EnvironmentNameError, check_options

ENV_STEPS = 200_000
_FEW_COPIES = {"num_envs_per_env_runner": 16, "train_batch_size_per_learner": 1024}
"""Of an environment whose copies are stepped one after another: many would make fragments of few steps."""


def default_experiment(environment: str, options: Mapping[str, Any], algorithm: str | None) -> dict[str, Any]:
    """Keys of an experiment on an environment that only has a name, options, and perhaps an algorithm.

    Agents that choose among tasks learn by PLATO, those with a fixed set of actions by MAPPO. The environment is made
    once to see which. Raises UserError for an environment or options that are wrong.
    """
    try:
        env = make_environment(environment, 1, check_options(environment, options))
    except EnvironmentNameError:
        raise
    except ConfigError as error:
        where = ".".join(error.path[1:]) or error.path[0]
        raise UserError(f"environment {environment!r}: {where}: {error.text}") from None
    if algorithm is None:
        algorithm = "plato" if env.spec.num_actions is None else "mappo"
    keys: dict[str, Any] = {
        "name": run_name(environment, algorithm),
        "algorithm": algorithm,
        "environment.name": environment,
        "run.env_steps": ENV_STEPS,
    }
    if isinstance(env, BridgedEnv):
        env.close()
        fields = find_method(algorithm).settings.model_fields
        keys |= {f"settings.{name}": value for name, value in _FEW_COPIES.items() if name in fields}
    return keys


def run_name(environment: str, algorithm: str) -> str:
    """E.g. `plato-walkers` for `walkers.env:make_env`: letters, digits and `.`, `_`, `-`."""
    module, _, _ = environment.partition(":")
    parts = (find.partition(":")[0].partition(".")[0] for find in (algorithm, module))
    return re.sub(r"[^A-Za-z0-9._-]+", "-", "-".join(parts)).strip("._-")
