"""Small foraging worlds and players for tests."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from rl_openness.envs.base import NO_OP, Int, PackedObs, StepResult
from rl_openness.envs.draws import DecisionDraws
from rl_openness.envs.foraging import ForagingConfig, ForagingEnv, foraging_config, make_foraging
from rl_openness.envs.foraging.view import foraging_spec
from rl_openness.policies.foraging import foraging_rules
from rl_openness.policies.population import Population


class Idle:
    """Teammates that do nothing."""

    num_types = 3

    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> Int:
        return np.full(len(obs.present), NO_OP)

    def get_state(self) -> dict[str, np.ndarray]:
        return {}

    def set_state(self, state: object) -> None:
        pass


class Remembering:
    """Recurrent teammates: each walks through the actions from where it is now in the count of its own steps."""

    num_types = 2

    def __init__(self) -> None:
        self.age = np.zeros(0, dtype=np.int64)

    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> Int:
        self.age = np.where(obs.carry >= 0, self.age[obs.carry] + 1, 0) if len(self.age) else 0 * obs.carry
        return (self.age + obs.agent_id) % 6

    def get_state(self) -> dict[str, np.ndarray]:
        return {"age": self.age.copy()}

    def set_state(self, state: Any) -> None:
        self.age = state["age"].copy()


def population(config: ForagingConfig | None = None) -> Population:
    """H1 to H8."""
    return Population(list(foraging_rules().values()), foraging_spec(config or ForagingConfig()))


def make(copies: int, **fields: Any) -> ForagingEnv:
    """Copies of a world with H1 to H8 as teammates (none in self-play)."""
    config = foraging_config(**fields)
    return make_foraging(copies, teammates=population(config) if config.controlled == "first" else None, **fields)


def random_choices(env: ForagingEnv, obs: PackedObs) -> Int:
    """Uniform over all actions and no-op for controlled members, the rest left to the teammates."""
    draw = env.draws().uniform(obs.agent_copy, obs.agent_id, 9)
    choices = (draw * 7).astype(np.int64) - 1
    return choices if obs.controlled is None else np.where(obs.controlled, choices, NO_OP)


def play(env: ForagingEnv, count: int) -> Iterator[tuple[PackedObs, StepResult]]:
    """Steps with random choices that depend on the seeds alone."""
    for _ in range(count):
        obs = env.observe()
        yield obs, env.step(random_choices(env, obs))
