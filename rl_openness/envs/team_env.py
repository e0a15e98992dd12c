"""What worlds with teammates do alike: who is asked, what a step gives back, what is saved, which fields they have."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"
from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar, get_args

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ValidationError

from rl_openness.envs.base import EnvSpec, Int, OpenVectorEnv, PackedObs, StepResult, Teammates, whole_numbers
from rl_openness.envs.kernels import FLAGS
from rl_openness.envs.state import restore
from rl_openness.errors import UserError, nearest

AtEnd = Literal["reset", "stop"]
"""What becomes of a copy that ended: it starts anew at once, or stepping it is an error."""
Config = TypeVar("Config", bound=BaseModel)


class Played(NamedTuple):
    """What the kernels of a world made of a step of B copies with M members."""

    team_reward: NDArray[np.float64]  # [B]
    agent_reward: NDArray[np.float64]  # [M]
    terminated: NDArray[np.bool_]  # [B]
    truncated: NDArray[np.bool_]  # [B]
    events: Int  # [len(EVENTS), B]


class Remembers(Protocol):
    """Whoever has something to save."""

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Memory, as plain arrays."""

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Inverse of `get_state`."""


class TeamEnv(OpenVectorEnv):
    """B copies of a world whose teammates decide for all members but the learner (member 0).

    With `controlled` all the caller decides for everyone and there are no teammates. They are asked once per step for
    all copies. A world sets `_state`, a NamedTuple of arrays, and says how its kernels pack and play. Raises UserError
    if teammates are missing, or given where nobody asks them.
    """

    EVENTS: ClassVar[tuple[str, ...]]
    NO_OP_ACTION: ClassVar[tuple[int, str]]
    """The action that no-op is played as, and what messages call it."""
    _state: Any

    def __init__(
        self, spec: EnvSpec, num_copies: int, teammates: Teammates | None, *, controlled: str, at_end: AtEnd
    ) -> None:
        if np.ndim(num_copies) or whole_numbers(num_copies, "num_copies") < 1:
            raise UserError(f"num_copies must be a whole number of at least 1, not {num_copies!r}")
        if at_end not in get_args(AtEnd):
            raise UserError(f"at_end must be one of {', '.join(get_args(AtEnd))}, not {at_end!r}")
        if controlled == "first" and teammates is None:
            raise UserError(f"{spec.name} needs teammates for the agents besides the learner (or controlled = all)")
        if controlled == "all" and teammates is not None:
            raise UserError(f"{spec.name} with controlled = all asks no teammates: give none")
        self.spec, self.num_copies, self.at_end, self.teammates = spec, num_copies, at_end, teammates
        self._all = np.arange(num_copies, dtype=np.int64)
        self._obs: PackedObs | None = None

    @property
    def num_types(self) -> int:
        """Types of teammates; 0 where there are none."""
        return 0 if self.teammates is None else self.teammates.num_types

    @abstractmethod
    def _pack(self, copies: Int) -> PackedObs:
        """The observation of some copies."""

    @abstractmethod
    def _play(self, obs: PackedObs, labels: Int) -> Played:
        """One step with the actions [M] of all members, which are legal. Raises ValueError before anything changes."""

    @abstractmethod
    def _ended(self) -> NDArray[np.bool_]:
        """[B] copies whose episode is over, which stepping leaves so only with `at_end` stop."""

    @abstractmethod
    def _limits(self) -> Mapping[str, tuple[ArrayLike, ArrayLike]]:
        """Smallest and largest values of the state, see `restore`."""

    def _deciders(self) -> list[tuple[str, Remembers]]:
        """Who remembers something, and what the names of their arrays start with in `get_state`."""
        return [] if self.teammates is None else [("teammates.", self.teammates)]

    def observe(self) -> PackedObs:
        """The observation of all copies now (the same object until the next step or reset)."""
        if self._obs is None:
            self._obs = self._pack(self._all)
        return self._obs

    def step(self, choices: Int) -> StepResult:
        """See `OpenVectorEnv.step`: 0 to A - 1 or `NO_OP` for controlled members, `NO_OP` for the others.

        Raises ValueError too if a teammate's action is none of these.
        """
        obs = self.observe()
        choices = whole_numbers(choices, "choices")
        if choices.shape != obs.present.shape:
            raise ValueError(f"step needs {len(obs.present)} choices, one per member, got shape {choices.shape}")
        if self.at_end == "stop" and self._ended().any():
            raise ValueError(f"copy {int(np.flatnonzero(self._ended())[0])} has ended: reset it before the next step")
        labels = self._labels(obs, choices)
        with np.errstate(over="ignore"):  # the hash wraps, which NumPy reports when the JIT is off
            played = self._play(obs, labels)
        self._obs = None
        return self._result(played, labels)

    def _labels(self, obs: PackedObs, choices: Int) -> Int:
        """[M] what every member chose."""
        most, (none, word) = int(self.spec.num_actions or 0) - 1, self.NO_OP_ACTION
        controlled = np.ones(len(choices), dtype=np.bool_) if obs.controlled is None else obs.controlled
        legal = f"-1 ({word}) to {most}"
        bad = first_illegal(controlled, choices, most)
        if bad >= 0:
            legal = legal if controlled[bad] else "-1 only (teammates decide for it)"
            raise ValueError(f"{_where(obs, bad)}: choice {choices[bad]} is not legal; legal: {legal}")
        others = choices
        if self.teammates is not None:
            others = whole_numbers(self.teammates.act(obs, self.draws()), "the teammates' actions")
            if others.shape != choices.shape:
                raise ValueError(f"teammates must give {len(choices)} actions, one per member, got {others.shape}")
        labels = np.empty_like(choices)
        bad = merge_choices(controlled, choices, others, most, none, labels)
        if bad >= 0:
            raise ValueError(f"{_where(obs, bad)}: its teammate policy chose {others[bad]}; legal: {legal}")
        return labels

    def _result(self, played: Played, labels: Int) -> StepResult:
        ended = np.flatnonzero(played.terminated | played.truncated)
        final_obs = None
        if len(ended):
            final_obs = self._pack(ended)
            if self.at_end == "reset":
                self.reset(copies=ended)
        return StepResult(
            team_reward=played.team_reward,
            agent_reward=played.agent_reward,
            terminated=played.terminated,
            truncated=played.truncated,
            ended=ended,
            final_obs=final_obs,
            labels=labels,
            events={name: played.events[i] for i, name in enumerate(self.EVENTS)},
        )

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Copies of all state arrays; the memory of whoever decides with `teammates.` and the like before its names."""
        state = {name: array.copy() for name, array in self._state._asdict().items()}
        for prefix, policy in self._deciders():
            state |= {prefix + name: array for name, array in policy.get_state().items()}
        return state

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Inverse of `get_state`; nothing changes if anything does not fit.

        The world's own arrays are checked before any is written. Memories are checked by whose they are, so that what
        was written before one is refused is taken back.
        """
        before = self.get_state()
        try:
            self._take(state)
        except Exception:
            self._take(before)
            raise

    def _take(self, state: Mapping[str, NDArray[Any]]) -> None:
        restore(self._state._asdict(), state, self._limits())
        for prefix, policy in self._deciders():
            own = {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
            policy.set_state(own)
        self._obs = None


def _where(obs: PackedObs, member: int) -> str:
    return f"copy {int(obs.agent_copy[member])}, agent {obs.agent_id[member]}"


@njit(**FLAGS)
def first_illegal(controlled, choices, most):
    """Row of the first choice that is none (-1..most for controlled members, -1 for others); -1 if all are legal."""
    for m in range(len(choices)):
        if choices[m] < -1 or choices[m] > (most if controlled[m] else -1):
            return m
    return -1


@njit(**FLAGS)
def merge_choices(controlled, choices, others, most, none, labels):
    """Fill `labels` [M] with what each member chose, no-op as `none`; return the row of an illegal one, or -1."""
    for m in range(len(labels)):
        choice = choices[m] if controlled[m] else others[m]
        if choice < -1 or choice > most:
            return m
        labels[m] = none if choice < 0 else choice
    return -1


def checked_config(model: type[Config], world: str, fields: Mapping[str, Any]) -> Config:
    """A world's configuration of these fields. Raises UserError naming the field that is wrong."""
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        problem = error.errors()[0]
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        raise UserError(f"{world} has no field {where!r}{nearest(where, model.model_fields)}")
    message = problem["msg"].removeprefix("Value error, ")
    raise UserError(f"{world} field {where!r}: {message}" if where else f"{world}: {message}")
