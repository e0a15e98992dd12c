"""Every number of a foraging world, checked; the defaults are the reference's "Adhoc-Foraging-8x8-3f"."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator


class ForagingConfig(BaseModel):
    """A foraging world (specification of open foraging, part 1).

    Whatever passes these checks can always be laid out: each player that comes finds a free cell and at least one food
    fits on the grid, so nothing can fail at run time.
    """

    model_config = ConfigDict(extra="forbid")

    size: int = Field(default=8, ge=4, le=1000)
    """Rows and columns of the grid."""
    max_food: int = Field(default=3, ge=1, le=1000)
    """Foods at reset; fewer if no more fit, for foods keep a distance (they never share an adjacent cell)."""
    max_level: int = Field(default=2, ge=1, le=1000)
    """Greatest level of a player (inclusive); levels are uniform on 1..max_level."""
    max_steps: int = Field(default=50, ge=1, lt=2**31)
    """An episode that reaches this step is truncated."""
    slots: int = Field(default=5, ge=2, le=1000)
    """Agents there are, in the team or away. Slot 0 is the learner's (always in the team), the rest are teammates'."""
    team_size: int = Field(default=3, ge=2, le=1000)
    """Greatest number of agents in the team at once, the learner included; the team is full at reset."""
    open_process: Literal["reference", "paper"] = "reference"
    """How long teammates stay and are away. `reference`: counters as in the reference's code, which give stays of 11-20
    and absences of 16-25 steps (one more for the first ones); `paper`: stays of 15-25 and absences of 10-20 steps."""
    strict_collisions: bool = False
    """No player enters the cell of one that was itself blocked. Off, as in the reference, two may then share a cell."""
    spawn_everywhere: bool = False
    """Players may appear on the whole grid. Off, as in the reference, never in the last row and column."""
    controlled: Literal["first", "all"] = "first"
    """Whom the caller of `step` decides for: the learner (teammates decide for the others), or everyone (self-play)."""

    @property
    def spawn_size(self) -> int:
        """Rows and columns, from 0, in which players appear."""
        return self.size if self.spawn_everywhere else self.size - 1

    @model_validator(mode="after")
    def _team(self) -> Self:
        if self.team_size > self.slots:
            raise ValueError(f"team_size ({self.team_size}) must not exceed slots ({self.slots})")
        return self

    @model_validator(mode="after")
    def _room(self) -> Self:
        if self.spawn_size**2 < self.team_size + self.max_food:
            raise ValueError(
                f"size {self.size} is too small: {self.team_size} players and {self.max_food} foods need as many of "
                f"the {self.spawn_size}x{self.spawn_size} cells in which players appear"
            )
        if (self.size - 2) ** 2 <= self.team_size:
            raise ValueError(
                f"size {self.size} is too small: {self.team_size} players may take all {(self.size - 2) ** 2} cells "
                "off the border, where food grows"
            )
        return self
