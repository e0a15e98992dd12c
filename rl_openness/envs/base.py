"""What every environment of this package speaks: packed observations, step results, and the environment protocol.

Nothing here is bounded by a number of agents or tasks. One time step of B environment copies is one `PackedObs`; all
matrices are ragged, rows of copy b are `ptr[b] : ptr[b + 1]`. Three different things are never mixed: an agent is
*away* (`present` is false, it may come back), an episode *terminated*, an episode was *truncated*.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from rl_openness.envs.draws import DecisionDraws, Keys
from rl_openness.envs.ragged import gather_segments, pointer, segment_of_row

Float = NDArray[np.float32]
Int = NDArray[np.int64]
Bool = NDArray[np.bool_]

NO_OP = -1
"""The choice that is always legal."""

Visibility = Literal["all", "self", "critic"]


@dataclass(frozen=True)
class Column:
    """One column of a row matrix.

    `scale` multiplies the raw number before it reaches a network (a fixed constant, never the size of a grid, so that a
    cell keeps its meaning on a larger grid). `axis` marks a coordinate (or, in pair rows, a relative offset).
    `visible`: `all` = every agent sees it of everyone, `self` = only of itself, `critic` = no agent sees it.
    """

    name: str
    scale: float = 1.0
    axis: Literal["y", "x"] | None = None
    visible: Visibility = "all"


@dataclass(frozen=True)
class EnvSpec:
    """Names and meaning of the columns of a `PackedObs`, and the facts a learner needs about an environment.

    `num_actions` is None where agents choose among tasks (pairs), else the size of the fixed action set.
    `horizon` is the number of steps after which an episode is truncated (None = never). `task_slots` is the greatest
    number of tasks where there is one, for models that read tasks as a vector of fixed length (GPL, CIAO); free slots
    then hold `empty_task`, a row of raw numbers.
    """

    name: str
    agent_columns: tuple[Column, ...]
    task_columns: tuple[Column, ...] = ()
    pair_columns: tuple[Column, ...] = ()
    num_actions: int | None = None
    horizon: int | None = None
    task_slots: int | None = None
    empty_task: tuple[float, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data, see `from_json`."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EnvSpec:
        """Inverse of `to_json`."""
        known = {**data, "empty_task": tuple(data.get("empty_task", ()))}
        for key in ("agent_columns", "task_columns", "pair_columns"):
            known[key] = tuple(Column(**column) for column in data[key])
        return cls(**known)

    def mismatch(self, other: EnvSpec) -> str | None:
        """Why a network made for this spec cannot act in `other`, in words; None if it can."""
        for key in ("agent_columns", "task_columns", "pair_columns"):
            mine = {column.name: column.visible for column in getattr(self, key)}
            theirs = {column.name: column.visible for column in getattr(other, key)}
            what = key.replace("_", " ")
            for here, names in (("missing", mine.keys() - theirs.keys()), ("new", theirs.keys() - mine.keys())):
                if names:
                    return f"{what} {', '.join(sorted(names))} {'is' if len(names) == 1 else 'are'} {here} there"
            if list(mine.items()) != list(theirs.items()):
                return f"{what} have another order or visibility there"
        for key in ("num_actions", "task_slots"):
            if getattr(self, key) != getattr(other, key):
                return f"{key} is {getattr(other, key)} there, not {getattr(self, key)}"
        return None


@dataclass(frozen=True)
class PackedObs:
    """One time step of B copies (shapes: M members, X tasks, P pairs, all summed over the copies).

    Members are all agents of the running episode, present or away. Away members decide nothing and are invisible to the
    models' sets, but keep their row so that recurrent state can be held and metrics can count them.
    Pairs say which present agent may choose which task; they are sorted by agent, then by task. No-op is implicit and
    always legal. A member's choice j >= 0 stands for its j-th pair (or action j of a fixed set), `NO_OP` for no-op.
    """

    agent_rows: Float
    """[M, f_N] raw numbers, columns named by `EnvSpec.agent_columns`."""
    present: Bool
    """[M] in the system now."""
    carry: Int
    """[M] the same member's row in the previous observation of all copies; -1 = new in the episode."""
    agent_id: Int
    """[M] identity within the episode."""
    agent_ptr: Int
    """[B + 1]"""
    task_rows: Float
    """[X, f_X]"""
    task_ptr: Int
    """[B + 1]"""
    pair_agent: Int
    """[P] row of `agent_rows`, non-decreasing."""
    pair_task: Int
    """[P] row of `task_rows`."""
    pair_rows: Float
    """[P, f_P] features of the pair."""
    action_mask: Bool | None = None
    """[M, A] where the action set is fixed: which actions do something here; others are played as the no-op action."""
    controlled: Bool | None = None
    """[M] members that the caller of `step` decides for (None = all); its teammates decide for the others."""
    see_ptr: Int | None = None
    """[M + 1] CSR over members: whom each observes; None = all present members of the copy."""
    see_agent: Int | None = None
    """[sum] rows of `agent_rows` for `see_ptr`."""

    @property
    def num_copies(self) -> int:
        """B, the number of copies."""
        return len(self.agent_ptr) - 1

    @property
    def agent_copy(self) -> Int:
        """[M] copy of each member."""
        return segment_of_row(self.agent_ptr)

    @property
    def pair_ptr(self) -> Int:
        """[M + 1] CSR offsets of each member's pairs."""
        return pointer(np.bincount(self.pair_agent, minlength=len(self.present)))

    def select(self, copies: Int) -> PackedObs:
        """The observation of some copies, in the given order; `carry` keeps naming rows of the full batch."""
        members, agent_ptr = gather_segments(self.agent_ptr, copies)
        tasks, task_ptr = gather_segments(self.task_ptr, copies)
        pairs, pair_ptr = gather_segments(self.pair_ptr, members)
        task_shift = np.repeat(self.task_ptr[copies] - task_ptr[:-1], np.diff(agent_ptr))
        see_ptr = see_agent = None
        if self.see_ptr is not None and self.see_agent is not None:
            seen, see_ptr = gather_segments(self.see_ptr, members)
            shift = np.repeat(self.agent_ptr[copies] - agent_ptr[:-1], np.diff(agent_ptr))
            see_agent = self.see_agent[seen] - np.repeat(shift, np.diff(see_ptr))
        return PackedObs(
            agent_rows=self.agent_rows[members],
            present=self.present[members],
            carry=self.carry[members],
            agent_id=self.agent_id[members],
            agent_ptr=agent_ptr,
            task_rows=self.task_rows[tasks],
            task_ptr=task_ptr,
            pair_agent=segment_of_row(pair_ptr),
            pair_task=self.pair_task[pairs] - np.repeat(task_shift, np.diff(pair_ptr)),
            pair_rows=self.pair_rows[pairs],
            action_mask=None if self.action_mask is None else self.action_mask[members],
            controlled=None if self.controlled is None else self.controlled[members],
            see_ptr=see_ptr,
            see_agent=see_agent,
        )


def whole_numbers(values: Any, name: str) -> Int:
    """`values` as a contiguous int64 array. Raises ValueError for anything but whole numbers (0.7, masks, texts)."""
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(array.shape, dtype=np.int64)
    if array.dtype.kind not in "iu" or (array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max):
        found = f"an array of {array.dtype}" if array.dtype != object else repr(values)[:80]
        raise ValueError(f"{name} must be whole numbers (int64), found {found}")
    return np.ascontiguousarray(array, dtype=np.int64)


def concatenate(parts: Sequence[PackedObs]) -> PackedObs:
    """Several observations as one, copies one after another; `carry` is taken over as it is."""
    agents = pointer(np.array([len(part.present) for part in parts]))
    tasks = pointer(np.array([len(part.task_rows) for part in parts]))

    def joined(name: str, offsets: Int | None = None) -> Any:
        arrays = [getattr(part, name) for part in parts]
        if any(array is None for array in arrays):
            return None
        return np.concatenate(arrays if offsets is None else [a + o for a, o in zip(arrays, offsets, strict=False)])

    def joined_ptr(name: str) -> Any:
        if getattr(parts[0], name) is None:
            return None
        return pointer(np.concatenate([np.diff(getattr(part, name)) for part in parts]))

    plain = {name: joined(name) for name in ("agent_rows", "present", "carry", "agent_id", "task_rows", "pair_rows")}
    return PackedObs(
        **plain,
        agent_ptr=joined_ptr("agent_ptr"),
        task_ptr=joined_ptr("task_ptr"),
        pair_agent=joined("pair_agent", agents),
        pair_task=joined("pair_task", tasks),
        action_mask=joined("action_mask"),
        controlled=joined("controlled"),
        see_ptr=joined_ptr("see_ptr"),
        see_agent=joined("see_agent", agents),
    )


@dataclass(frozen=True)
class StepResult:
    """What one step of B copies gave.

    `agent_reward` has one number per member row of the observation the choices were made on. `final_obs` holds the last
    observation of the copies in `ended` (in that order), taken before an automatic reset; `labels` [M] are the actions
    that all members chose, before any became a no-op (None where the caller decides for everyone); `events` are counts
    per copy. `parted` [B] holds the last observations of agents that a limit of time took away while their episode went
    on, beside the agents that stayed (None if there are none): values of such agents go on from there. `failed` are
    copies whose environment raised (see `OpenVectorEnv.restart_failed`): they began anew, and nothing of their last
    episode counts.
    """

    team_reward: NDArray[np.float64]
    agent_reward: NDArray[np.float64]
    terminated: Bool
    truncated: Bool
    ended: Int
    final_obs: PackedObs | None
    labels: Int | None = None
    events: dict[str, Int] = field(default_factory=dict)
    parted: PackedObs | None = None
    failed: Int | None = None


class Teammates(Protocol):
    """Whoever decides for the members that the caller of `step` does not control (see `policies.population`).

    Each such member has a type, 0 to `num_types` - 1, which the environment draws when it joins and shows in the column
    `type` (hidden from networks; -1 = controlled).
    """

    num_types: int

    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> Int:
        """Actions int64 [M]; those of controlled members are not read."""

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Memory, as plain arrays."""

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Inverse of `get_state`."""


class OpenVectorEnv(ABC):
    """B copies of an environment whose agents and tasks come and go, stepped together.

    A copy's results never depend on another copy. Randomness is counter-based (`envs.draws`): an episode is a function
    of (seed, episode number) and of the choices.
    """

    spec: EnvSpec
    num_copies: int
    restart_failed: bool = False
    """Whether a copy of a foreign environment that raises begins anew, instead of ending everything."""

    anew: Bool | None = None
    """[B] copies that the last `set_state` could not bring back, and began anew (foreign environments only)."""

    @abstractmethod
    def reset(self, seeds: Int | Sequence[int] | None = None, copies: Int | None = None) -> None:
        """Start the named copies (default all) anew; `seeds` [len(copies)] start their episode count at 0.

        Without seeds each copy keeps its seed and goes on to its next episode.
        """

    @abstractmethod
    def observe(self) -> PackedObs:
        """The observation of all copies now."""

    @abstractmethod
    def step(self, choices: Int) -> StepResult:
        """Play one step; `choices` is int [M], one per member of the last observation (`NO_OP` for away members).

        Members that are not controlled get `NO_OP` too: the environment asks its teammates for their actions.
        Raises ValueError, naming copy, agent, choice and legal range, and changes nothing, if a choice is not legal.
        Copies that ended are reset automatically unless the environment was told otherwise.
        """

    @abstractmethod
    def decision_keys(self) -> Keys:
        """uint64 [B]: keys of the current (seed, episode, step), for a policy's own draws."""

    @abstractmethod
    def get_state(self) -> dict[str, NDArray[Any]]:
        """Everything that `set_state` needs to go on exactly, as plain arrays."""

    @abstractmethod
    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Inverse of `get_state`. Raises ValueError if the arrays do not fit this environment."""

    def draws(self) -> DecisionDraws:
        """The current step's random numbers for a policy."""
        return DecisionDraws(self.decision_keys())
