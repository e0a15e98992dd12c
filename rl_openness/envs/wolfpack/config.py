"""Every number of a Wolfpack world, checked; the defaults are the reference's (specification part 2)."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
Steps = Annotated[int, Field(ge=1)]


class WolfpackConfig(BaseModel):
    """A Wolfpack world: a square grid, prey that run on their own, and a team of predators that changes."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    size: int = Field(default=10, ge=2)
    """Rows and columns of the grid."""
    num_prey: int = Field(default=2, ge=1)
    """Prey; a caught one comes back in the next step, so there are always as many."""
    max_steps: Steps = 200
    """Every episode is truncated after this many steps; none ends earlier."""
    slots: int = Field(default=5, ge=2)
    """Agents that the reference's padded observation has room for; nothing here is padded. With `open_process` paper,
    `slots` - 1 is the number of teammates that take turns."""
    team_size: int = Field(default=3, ge=2)
    """Most predators at a time, the learner included."""
    start_size: int = Field(default=3, ge=1)
    """Predators at every reset, the learner included (the reference: 3, whatever the maximum)."""
    open_process: Literal["reference", "paper"] = "reference"
    """`reference`: events of leaving and joining come with fixed probabilities. `paper`: stays and absences of drawn
    length, and a queue for coming back."""
    leave_probability: Probability = 0.05
    """`reference`: of a leaving event in a step."""
    join_probability: Probability = 0.05
    """`reference`: of a joining event in a step."""
    pair_probability: Probability = 0.3
    """`reference`: that an event concerns two agents, not one."""
    min_age: int = Field(default=25, ge=0)
    """`reference`: a teammate may leave once it has been there for more steps than this."""
    stay: tuple[Steps, Steps] = (25, 35)
    """`paper`: shortest and longest stay in steps."""
    absence: tuple[Steps, Steps] = (15, 25)
    """`paper`: shortest and longest absence in steps, before queueing for room."""
    capture_reward: float = 2.0
    """What each captor of a prey gets, times the number of captors."""
    close_penalty: float = 0.5
    """What a predator loses that stands next to a prey alone."""
    approach_reward: float = 0.01
    """Per cell that a predator gets closer to its nearest prey."""
    prey: str = "evader"
    """Who moves the prey: `evader` (as the reference's were recorded to run) or `random`, see `prey.WEIGHTS`. Worlds
    made by name (`make_environment`, configurations) also know `dqn`, trained to get away, and the path of an own
    trained prey (`policies.prey`)."""
    controlled: Literal["first", "all"] = "first"
    """Whom the caller of `step` decides for: the learner (member 0), or everyone (self-play)."""

    @model_validator(mode="after")
    def _team(self) -> Self:
        if self.team_size > self.slots:
            raise ValueError(f"team_size ({self.team_size}) must not exceed slots ({self.slots})")
        if self.start_size > self.team_size:
            raise ValueError(f"start_size ({self.start_size}) must not exceed team_size ({self.team_size})")
        cells, needed = self.size * self.size, self.team_size + 2 * self.num_prey
        if cells < needed:
            raise ValueError(
                f"size {self.size} gives {cells} cells, but team_size {self.team_size} and num_prey {self.num_prey} "
                f"need {needed}: a caught prey comes back to a cell that holds neither predator nor prey"
            )
        for name, (low, high) in (("stay", self.stay), ("absence", self.absence)):
            if low > high:
                raise ValueError(f"{name} must be (shortest, longest), found ({low}, {high})")
        return self
