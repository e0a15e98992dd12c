"""A learned teammate from self-play: a training in which one network decides for the whole team."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_openness.errors import StoppedError
from rl_openness.experiments.schema import ExperimentSettings
from rl_openness.experiments.teammates import Request
from rl_openness.experiments.train import train


def learn_in_self_play(
    request: Request,
    environment: str,
    options: Mapping[str, Any],
    algorithm: str,
    settings: Mapping[str, Any],
    rule: str,
) -> Path:
    """Train by the settings of a method, and return the folder of the policy (see `teammates.Recipe`).

    `rule` plays the one episode of the evaluation that every training ends with. Raises StoppedError.
    """
    data = {
        "name": "self-play",
        "algorithm": algorithm,
        "environment": {"name": environment, "options": {"controlled": "all", **options}},
        "settings": dict(settings),
        "run": {"env_steps": request.env_steps, "seed": request.seed, "checkpoint_every": request.env_steps},
        "evaluation": {"episodes": 1, "rules": [rule]},
        "tracking": {"mlflow": False},
    }
    experiment = ExperimentSettings.model_validate(data)
    outcome = train(experiment, request.folder / "run", report=request.report, say=request.say)
    if outcome.evaluation is None:
        raise StoppedError("stopped before the training was done; nothing was kept")
    return outcome.checkpoint / "policy"
