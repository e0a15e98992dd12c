"""Settings of GPL and CIAO: the only truth, from which RLlib's configuration and YAML derive.

Fields that RLlib knows keep RLlib's names. Defaults are GPL's as its authors ran it; CIAO and the ablations of both
papers are `GPL_VARIANTS`. Sources: specification `gpl_ciao.md`, sections (a), (b) and (d).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from rl_openness.algorithms.schedules import Schedule
from rl_openness.algorithms.settings import MethodSettings

Positive = Annotated[float, Field(gt=0.0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Width = Annotated[int, Field(ge=1)]

Graph = Literal["complete", "star"]
Range = Literal["free", "pos", "neg", "zero"]
PairRange = Literal["free", "pos", "neg"]
Composition = Literal["bmm", "avg"]
Transitions = Literal["all", "no_joins_set", "no_joins_size"]
Reduction = Literal["node_mean", "paper_sum"]

EXPLORATION: tuple[tuple[int, float], ...] = ((0, 1.0), (4_800_000, 0.05))
"""The authors' 1 - 0.95 segment / 1500, with 200 vector steps of 16 copies a segment."""


class GplSettings(MethodSettings):
    """Joint action values as a sum over a graph of the team, an agent model of the teammates, and online Q-learning."""

    # The coordination graph and its factors
    graph: Graph = "complete"
    """`complete`: a pairwise utility for every two agents; `star`: only for the learner and each teammate (CIAO-S)."""
    pair_range: PairRange = "free"
    """Pairwise utilities as they are, non-negative (`pos`: their absolute values) or non-positive (`neg`)."""
    individual_range: Range = "free"
    """The same for individual utilities; `zero` leaves them out."""
    pair_comp: Composition = "bmm"
    """Pairwise table of two factors: `bmm` = product of two A x rank matrices, `avg` = mean of two A x A matrices."""
    rank: int = Field(5, ge=1)
    """Columns of the factors of `bmm`."""
    pair_factor: Literal["edge", "node"] = "edge"
    """`edge`: a factor reads both agents and the learner (the authors' code); `node`: one agent and the learner."""

    # The loss
    regularizer_weight: float = Field(0.0, ge=0.0)
    """Weight of CIAO's regulariser on individual utilities."""
    reg_reduction: Reduction = "node_mean"
    """Complete graph: mean over all agents of the batch (code), or mean over team-steps of sums over teammates."""
    transitions: Transitions = "all"
    """Team-steps that Q and the regulariser learn from: all, those where nobody joins, or where no team grows."""
    reward_shift: float = Field(0.0, ge=0.0)
    """Added to every reward in the targets, e.g. to make them non-negative; reported returns stay as they are."""
    agent_model_weight: float = Field(1.0, ge=0.0)
    """Weight of the agent model's cross-entropy."""
    gamma: Fraction = 0.99
    horizon_as_terminal: bool = True
    """Treat the time limit as an end of the world instead of bootstrapping from the last state."""

    # Sizes
    encoder_hidden: Width = 100
    """Both layers in front of the recurrent cell."""
    seq_model: Literal["lstm", "gru"] = "lstm"
    """Recurrent cell that infers a teammate's type."""
    recurrent_hidden: Width = 100
    type_width: Width = 70
    """theta, the inferred type; also the width of the agent model's messages and nodes."""
    utility_hidden: Width = 60
    """Both layers of the individual and of the pairwise utilities."""
    agent_model_hidden: Width = 30
    agent_head_hidden: Width = 20

    # Learning
    num_envs_per_env_runner: int = Field(16, ge=1)
    """Copies of the environment that one runner steps together."""
    update_every: int = Field(4, ge=1)
    """Steps of all copies between two gradient steps; memory is differentiated through them and no further."""
    updates_per_iteration: int = Field(64, ge=1)
    """Windows, with an update each, between two reports."""
    lr: Schedule = 2.5e-4
    """Adam's learning rate."""
    adam_epsilon: Positive = 1e-8
    grad_clip: Positive | None = None
    """Largest gradient norm; null = no clipping."""
    tau: Annotated[float, Field(gt=0.0, le=1.0)] = 1e-3
    """Share of the online network that enters the target network at every update (its agent model is copied)."""
    epsilon: Schedule = EXPLORATION
    """Probability that the learner's action is drawn uniformly from all actions."""

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.lr == 0.0:
            raise ValueError("lr must be greater than 0")
        if self.pair_factor == "node" and self.pair_comp == "avg":
            raise ValueError("pair_factor = node needs pair_comp = bmm: a mean of per-agent tables is no pair's own")
        points = [self.epsilon] if isinstance(self.epsilon, float) else [value for _, value in self.epsilon]
        if max(points) > 1.0:
            raise ValueError(f"epsilon is a probability, at most 1, not {max(points)}")
        return self


_CIAO: dict[str, Any] = {"pair_range": "pos", "individual_range": "pos", "regularizer_weight": 0.5}
_ABLATIONS: dict[str, dict[str, Any]] = {
    "": {},
    "-np": {"pair_range": "neg"},
    "-fi": {"individual_range": "free"},
    "-zi": {"individual_range": "zero"},
    "-ni": {"individual_range": "neg"},
    "-nr": {"regularizer_weight": 0.0},
    "-va": {"transitions": "no_joins_set"},
}

GPL_VARIANTS: dict[str, dict[str, Any]] = {"gpl": {}} | {
    f"ciao-{letter}{suffix}": {"graph": graph, **_CIAO, **changes}
    for letter, graph in (("s", "star"), ("c", "complete"))
    for suffix, changes in _ABLATIONS.items()
}
"""Named sets of defaults, by the papers' names: GPL, CIAO-S, CIAO-C, and the ablations of CIAO."""
