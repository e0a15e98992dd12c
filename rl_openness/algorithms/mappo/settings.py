"""Settings of MAPPO and of its networks: the only truth, from which RLlib's configuration and YAML derive.

Fields that RLlib knows keep RLlib's names. Defaults and their sources: specification `plato.md`, section 5.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from rl_openness.algorithms.schedules import Schedule
from rl_openness.algorithms.settings import MethodSettings

Positive = Annotated[float, Field(gt=0.0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Statistic = Literal["mean", "std", "min", "max", "sum", "median", "count"]


class MappoSettings(MethodSettings):
    """Clipped policy optimisation with a centralised critic, one set of weights for all agents."""

    num_envs_per_env_runner: int = Field(64, ge=1)
    """Copies of the environment that one runner steps together."""
    train_batch_size_per_learner: int = Field(1024, ge=1)
    """Team-steps (steps of the environment) per update and learner."""
    minibatch_size: int = Field(256, ge=1)
    """Team-steps per gradient step."""
    num_epochs: int = Field(10, ge=1)
    lr: Schedule = 5e-4
    """Adam's learning rate."""
    adam_epsilon: Positive = 1e-5
    gamma: Fraction = 0.99
    lambda_: Fraction = 0.95
    clip_param: Positive = 0.2
    """Range of the probability ratio, and of a value's move in normalised space."""
    vf_loss_coeff: float = Field(1.0, ge=0.0)
    huber_delta: Positive = 10.0
    entropy_coeff: Schedule = 0.01
    grad_clip: Positive | None = 10.0
    """Largest gradient norm, of the actor and of the critic apart; null = no clipping."""
    value_norm: bool = True
    """Learn values of normalised targets (running mean and standard deviation)."""
    horizon_as_terminal: bool = False
    """Treat the time limit as an end of the world instead of bootstrapping from the last state."""

    @model_validator(mode="after")
    def _sizes(self) -> Self:
        if self.lr == 0.0:
            raise ValueError("lr must be greater than 0")
        if self.minibatch_size > self.train_batch_size_per_learner:
            raise ValueError(
                f"minibatch_size ({self.minibatch_size}) must not exceed train_batch_size_per_learner "
                f"({self.train_batch_size_per_learner})"
            )
        return self


def unequal_shares(settings: MappoSettings, num_env_runners: int, num_learners: int) -> str | None:
    """Why steps cannot be shared out equally among copies, runners and learners; None if they can."""
    copies, learners = settings.num_envs_per_env_runner, max(num_learners, 1)
    total, per_step = settings.train_batch_size_per_learner * learners, copies * max(num_env_runners, 1)
    if total % per_step:
        return (
            f"train_batch_size_per_learner x num_learners ({total}) must be a multiple of num_envs_per_env_runner x "
            f"num_env_runners ({per_step}): all copies take equally many steps"
        )
    if copies % learners:
        return (
            f"num_envs_per_env_runner ({copies}) must be a multiple of num_learners ({learners}): each learner takes "
            "an equal share of the copies"
        )
    return None


class PlatoSettings(MappoSettings):
    """PLATO: a pointer actor (query over the team, keys over the tasks) and a graph-convolutional critic."""

    deduplicate: bool = False
    """Run row-wise networks once per distinct row of a rollout: exact, and much cheaper where few rows are distinct."""
    max_seq_len: int = Field(20, ge=1)
    """Steps of a training window where the policy has memory; a fragment (batch / copies / runners) ends one too."""
    hidden: int = Field(64, ge=1, le=65_536)
    query: Literal["stats", "agent_pointer"] = "stats"
    """How an agent sums up its team: statistics of the rows, or attention over them (paper, Lemma 3)."""
    query_include_self: bool = True
    """Statistics only: append the agent's own row. The paper's strict form does not."""
    stats: Annotated[tuple[Statistic, ...], Field(min_length=1)] = ("mean", "std", "min", "max")
    frame: Literal["absolute", "relative", "both"] = "both"
    task_extras: bool = True
    """Append features of the agent-task pair that are not coordinates (power deficit) to a task's row."""
    encoder: Literal["mlp", "lstm"] = "mlp"
    """`lstm`: memory on the query path; keys stay memoryless."""
    absent_state: Literal["update", "hold", "reset"] = "update"
    """LSTM only: what an away agent's state does."""
    scorer: Literal["additive", "dot"] = "additive"
    dot_scaled: bool = True
    """Dot scorer only: divide by the square root of `hidden`."""
    noop: Literal["feature_row", "learned_key", "zeros"] = "feature_row"
    """The no-op's key: a learned task row through the key encoder, a learned key, or the encoding of a zero row."""
    critic_edges: Literal["complete", "actions"] = "complete"
    gcn_norm: Literal["sym_selfloop", "sym", "mean"] = "sym_selfloop"
    gcn_layers: int = Field(2, ge=1, le=100)

    @model_validator(mode="after")
    def _no_memory(self) -> Self:
        if self.encoder == "mlp" and self.absent_state != "update":
            raise ValueError(f"absent_state = {self.absent_state} needs encoder = lstm")
        return self


Clock = Literal["environment", "agent"]


class ActionsSettings(MappoSettings):
    """MAPPO where agents have a fixed set of actions: one actor and one critic for all, a value for each agent."""

    rewards: Literal["own", "team"] = "own"
    """What an agent learns from: its own rewards, or those of its team."""
    clock: Clock = "environment"
    """Whose time discounts: the environment's, in which an absence is as long as it lasts, or the agent's own, which
    stands still while it is away."""
    hidden: int = Field(32, ge=1, le=65_536)
    """Width of the encoders of tasks and of other agents; the layer behind them has twice as many units."""


MAPPO_VARIANTS: dict[str, dict[str, Any]] = {"mappo": {}}
"""Named sets of defaults."""

PLATO_VARIANTS: dict[str, dict[str, Any]] = {
    "plato": {},
    "plato-strict": {"query_include_self": False, "frame": "absolute", "task_extras": False},
}
"""Named sets of defaults; `plato-strict` is the form of the paper."""
