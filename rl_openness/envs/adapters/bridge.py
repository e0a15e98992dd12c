"""Foreign environments as one `OpenVectorEnv`: copies of a PettingZoo `ParallelEnv` or an RLlib `MultiAgentEnv`.

    env = bridge(lambda: MyEnv(), num_copies=8, mapping=ObservationMapping(tasks="fires"))

Agents may join, leave, return, die at their first step, arrive dead, vanish without a flag, or all be away for a while.
"""

from __future__ import annotations

import logging
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_openness.envs.adapters.copy import EVENTS, Copy, EnvironmentFailedError, Member, Played
from rl_openness.envs.adapters.foreign import Convention, ConventionError, Foreign, Name, made, make_foreign
from rl_openness.envs.adapters.mapping import ObservationMapping, Reader
from rl_openness.envs.base import NO_OP, EnvSpec, Int, OpenVectorEnv, PackedObs, StepResult, whole_numbers
from rl_openness.envs.draws import Keys, child_seeds, step_keys
from rl_openness.envs.ragged import pointer
from rl_openness.envs.state import begin_episodes
from rl_openness.errors import UserError

_LOG = logging.getLogger(__name__)
STATE = ("seed", "episode", "steps", "step_sizes", "choices", "carry", "members", "digest")


def bridge(
    make_env: Callable[[], Any],
    num_copies: int = 1,
    *,
    mapping: ObservationMapping | None = None,
    agents: str | Sequence[str] | None = None,
    max_steps: int | None = None,
    convention: Convention = "auto",
    over: Callable[[Any], bool] | None = None,
    name: str | None = None,
    agent_returns: bool = False,
) -> BridgedEnv:
    """B copies of a foreign environment.

    `make_env()` gives one. `mapping` says what its observations mean. `agents`: names that it may have, or a regular
    expression that further names match (None: what it declares). Episodes are truncated after `max_steps`, if given.
    `convention`: `parallel` or `rllib` where the classes do not tell. `over(env)` says when an episode has ended of a
    `ParallelEnv` whose agents may all be away. `agent_returns` also counts what every agent earns by itself, as a
    metric for each name. Raises UserError, naming what is wrong, for an environment that cannot be bridged.
    """
    _check_count("num_copies", num_copies)
    if max_steps is not None:
        _check_count("max_steps", max_steps)
    if isinstance(agents, str):
        _check_pattern(agents)
    probe = make_foreign(made(make_env), convention, over)
    label = name or probe.label
    reader = Reader(mapping or ObservationMapping(), _declared(probe, agents, label))
    pattern = agents if isinstance(agents, str) else None

    def make() -> Foreign:
        foreign = make_foreign(made(make_env), convention, over)
        if any(copy.plays(foreign.env) for copy in copies):
            raise UserError(f"environment {label}: what makes it gave the same object twice; make a new one every time")
        return foreign

    copies = [
        Copy(make, reader, index=index, label=label, pattern=pattern, max_steps=max_steps)
        for index in range(num_copies)
    ]
    copies[0].adopt(probe)
    return BridgedEnv(copies, reader, label, max_steps, agent_returns=agent_returns)


def _check_count(name: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise UserError(f"{name} must be a whole number of at least 1, not {value!r}")


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise UserError(f"agents: {pattern!r} is no regular expression: {error}") from None


def _declared(foreign: Foreign, agents: str | Sequence[str] | None, label: str) -> dict[Any, Any]:
    """Spaces of the agents that are known beforehand."""
    names: list[Name] = [] if agents is None or isinstance(agents, str) else list(agents)
    try:
        names = names or foreign.declared() or list(foreign.reset(0).observations)
        return {name: foreign.spaces(name) for name in names}
    except ConventionError as error:
        raise UserError(f"environment {label}: {error}") from None
    except Exception as error:  # a user's code
        raise UserError(f"environment {label} raised {type(error).__name__}: {error}") from error


class BridgedEnv(OpenVectorEnv):
    """Copies of a foreign environment, stepped one after another; see `bridge`.

    With `restart_failed` a copy whose environment raises begins a new episode in a new environment, and the step result
    names it in `failed`; otherwise `EnvironmentFailedError` is raised.
    """

    def __init__(
        self, copies: list[Copy], reader: Reader, label: str, max_steps: int | None, *, agent_returns: bool = False
    ) -> None:
        self.spec = EnvSpec(
            name=label,
            agent_columns=reader.agent_columns,
            task_columns=reader.task_columns,
            pair_columns=reader.pair_columns,
            num_actions=reader.num_actions,
            horizon=max_steps,
        )
        self.num_copies = len(copies)
        self._copies, self._reader, self._agent_returns = copies, reader, agent_returns
        self._seed = child_seeds(0, count=len(copies))
        self._episode = np.full(len(copies), -1, dtype=np.int64)
        self._obs: PackedObs | None = None
        self._begun = False
        self._fault: EnvironmentFailedError | None = None

    def reset(self, seeds: Int | Sequence[int] | None = None, copies: Int | None = None) -> None:
        """See `OpenVectorEnv.reset`."""
        rows = begin_episodes(self._seed, self._episode, seeds, copies)
        if not self._begun and len(rows) < self.num_copies:
            raise ValueError("the first reset begins all copies")
        if self._fault is not None and len(rows) < self.num_copies:
            raise ValueError(f"after a failure reset all copies, for some have played the step ({self._fault})")
        for b in rows:
            self._begin(int(b))
        self._begun, self._obs, self._fault = True, None, None

    def _begin(self, b: int) -> None:
        """The present episode of a copy; with `restart_failed` its environment gets a second chance."""
        try:
            self._copies[b].begin(self._foreign_seed(b))
        except EnvironmentFailedError as fault:
            if not self.restart_failed:
                raise
            _LOG.warning("%s; it is made anew", fault)
            self._copies[b].renew()
            self._episode[b] += 1
            self._copies[b].begin(self._foreign_seed(b))

    def _foreign_seed(self, b: int) -> int:
        """31 bits, which every generator takes."""
        return int(child_seeds(int(self._seed[b]), int(self._episode[b]), count=1)[0] % 2**31)

    def observe(self) -> PackedObs:
        """The observation of all copies now."""
        if not self._begun:
            self.reset()
        if self._obs is None:
            self._obs = self._pack([copy.members for copy in self._copies])
            for row, member in enumerate(m for copy in self._copies for m in copy.members):
                member.row = row
        return self._obs

    def decision_keys(self) -> Keys:
        """uint64 [B] keys of the current step."""
        steps = np.array([copy.steps for copy in self._copies], dtype=np.int64)
        return step_keys(self._seed, self._episode, steps)

    def step(self, choices: Int) -> StepResult:
        """See `OpenVectorEnv.step`. An action of a fixed set that does nothing is played as the mapping's no-op.

        Raises EnvironmentFailedError, and after one RuntimeError until all copies are reset.
        """
        if self._fault is not None:
            raise RuntimeError(f"a copy has failed: reset all copies before stepping on ({self._fault})")
        obs = self.observe()
        choices = self._check(choices, obs)
        played: list[Played | None] = []
        for copy, start, stop in zip(self._copies, obs.agent_ptr[:-1], obs.agent_ptr[1:], strict=True):
            try:
                played.append(copy.play(choices[start:stop].tolist()))
            except EnvironmentFailedError as fault:
                if not self.restart_failed:
                    self._fault = fault
                    raise
                _LOG.warning("%s; the copy begins anew and its fragment is dropped", fault)
                copy.renew()
                played.append(None)
        result = self._result(obs, played)
        again = np.concatenate([result.ended, result.failed if result.failed is not None else result.ended[:0]])
        self._episode[again] += 1
        for b in again:
            self._begin(int(b))
        self._obs = None
        return result

    def _check(self, given: Any, obs: PackedObs) -> Int:
        choices: Int = whole_numbers(given, "choices")
        if choices.shape != obs.present.shape:
            raise ValueError(f"step needs {len(obs.present)} choices, one per member, got shape {choices.shape}")
        limit = np.diff(obs.pair_ptr) if self.spec.num_actions is None else np.full(len(choices), self.spec.num_actions)
        wrong = np.flatnonzero((choices < NO_OP) | (choices >= np.where(obs.present, limit, 0)))
        if len(wrong):
            row = int(wrong[0])
            b = int(obs.agent_copy[row])
            name = self._copies[b].members[row - int(obs.agent_ptr[b])].name
            last = int(limit[row]) - 1 if obs.present[row] else NO_OP
            raise ValueError(f"copy {b}, agent {name!r}: choice {choices[row]} must lie in {NO_OP} to {last}")
        return choices

    def _result(self, obs: PackedObs, played: list[Played | None]) -> StepResult:
        failed = np.array([b for b, each in enumerate(played) if each is None], dtype=np.int64)
        ended = np.array([b for b, p in enumerate(played) if p is not None and p.final is not None], dtype=np.int64)
        team, own = np.zeros(self.num_copies), np.zeros(len(obs.present))
        terminated, truncated = np.zeros((2, self.num_copies), dtype=np.bool_)
        events: dict[str, Any] = {name: np.zeros(self.num_copies, dtype=np.int64) for name in EVENTS}
        for b, each in enumerate(played):
            if each is None:
                terminated[b] = True  # nothing after it counts for what was before
                continue
            team[b] = each.team
            own[obs.agent_ptr[b] : obs.agent_ptr[b + 1]] = each.rewards
            terminated[b], truncated[b] = each.final is not None and not each.cut, each.cut
            for name, count in each.events.items():
                events[name][b] = count
        if self._agent_returns:
            for agent in self._reader.kind_of:
                earned = [each.by_name.get(agent, 0.0) if each is not None else 0.0 for each in played]
                events[f"return_of_{agent}"] = np.array(earned)
        finals = [each.final for each in played if each is not None and each.final is not None]
        return StepResult(
            team_reward=team,
            agent_reward=own,
            terminated=terminated,
            truncated=truncated,
            ended=ended,
            final_obs=self._pack(finals, carry=False) if finals else None,
            events=events,
            parted=self._parted(played),
            failed=failed if len(failed) else None,
        )

    def _parted(self, played: list[Played | None]) -> PackedObs | None:
        teams = [(each.parted or []) if each is not None else [] for each in played]
        return self._pack(teams, carry=False) if any(teams) else None

    def _pack(self, copies: Sequence[Sequence[Member]], *, carry: bool = True) -> PackedObs:
        """Members of some copies as one observation."""
        members = [member for copy in copies for member in copy]
        agent_ptr = pointer(np.array([len(copy) for copy in copies], dtype=np.int64))
        width = len(self.spec.agent_columns)
        rows = [member.reading.row for member in members]
        mask = None
        if self.spec.num_actions is not None and any(m.reading.mask is not None for m in members):
            full = np.ones(self.spec.num_actions, dtype=np.bool_)
            mask = np.array([full if m.reading.mask is None else m.reading.mask for m in members])
        tasks = [_tasks(copy) for copy in copies]
        pair_agent, pair_task, pair_rows = self._pairs(copies, tasks)
        return PackedObs(
            agent_rows=np.array(rows, dtype=np.float32).reshape(len(members), width),
            present=np.array([member.present for member in members], dtype=np.bool_),
            carry=np.array([member.row if carry else -1 for member in members], dtype=np.int64),
            agent_id=np.array([member.number for member in members], dtype=np.int64),
            agent_ptr=agent_ptr,
            task_rows=_stack([row for each in tasks for row in each.values()], len(self.spec.task_columns)),
            task_ptr=pointer(np.array([len(each) for each in tasks], dtype=np.int64)),
            pair_agent=pair_agent,
            pair_task=pair_task,
            pair_rows=pair_rows,
            action_mask=mask,
        )

    def _pairs(
        self, copies: Sequence[Sequence[Member]], tasks: Sequence[Mapping[int, Any]]
    ) -> tuple[Int, Int, NDArray[np.float32]]:
        """Who may choose which task."""
        agents: list[Int] = []
        chosen: list[Int] = []
        rows: list[Any] = []
        row = first = 0
        for copy, known in zip(copies, tasks, strict=True):
            place = {slot: first + number for number, slot in enumerate(known)}
            for member in copy:
                reading = member.reading
                if member.present and reading.slot is not None and reading.legal is not None:
                    slots = reading.slot[reading.legal]
                    agents.append(np.full(len(slots), row, dtype=np.int64))
                    chosen.append(np.array([place[int(slot)] for slot in slots], dtype=np.int64))
                    rows.extend(reading.pairs[reading.legal] if reading.pairs is not None else ())
                row += 1
            first += len(known)
        empty = np.empty(0, dtype=np.int64)
        return (
            np.concatenate([empty, *agents]),
            np.concatenate([empty, *chosen]),
            _stack(rows, len(self.spec.pair_columns)),
        )

    def close(self) -> None:
        """Release the environments."""
        for copy in self._copies:
            copy.renew()

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Seeds and everything that was chosen since: foreign environments are brought back by playing it again."""
        obs = self.observe()
        histories = [copy.history for copy in self._copies]
        steps = [choices for history in histories for choices in history]
        return {
            "seed": self._seed.copy(),
            "episode": self._episode.copy(),
            "steps": np.array([len(history) for history in histories], dtype=np.int64),
            "step_sizes": np.array([len(choices) for choices in steps], dtype=np.int64),
            "choices": np.concatenate([np.empty(0, dtype=np.int64), *steps]),
            "carry": obs.carry.copy(),
            "members": np.diff(obs.agent_ptr),
            "digest": self._digests(obs),
        }

    def _digests(self, obs: PackedObs) -> NDArray[np.int64]:
        """[B] what every copy observes, and who, as a number."""
        cuts, task_cuts = obs.agent_ptr[1:-1], obs.task_ptr[1:-1]
        parts = [np.split(array, cuts) for array in (obs.agent_rows, obs.agent_id, obs.present)]
        parts.append(np.split(obs.task_rows, task_cuts))
        whole = [b"".join(array.tobytes() for array in copy) for copy in zip(*parts, strict=True)]
        names = [repr([member.name for member in copy.members]).encode() for copy in self._copies]
        return np.array([zlib.crc32(text + who) for text, who in zip(whole, names, strict=True)], dtype=np.int64)

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Inverse of `get_state`: the same seeds and choices again, then the observations are compared.

        A copy that does not come back the same (an environment that ignores its seed) begins a new episode instead,
        with a warning; `anew` [B] tells which.
        """
        whole = _checked_state(state, self.num_copies)
        self._seed, self._episode = whole["seed"].copy(), whole["episode"].copy()
        cuts = np.split(whole["choices"], np.cumsum(whole["step_sizes"])[:-1]) if len(whole["step_sizes"]) else []
        histories = iter(cuts)
        lost = np.zeros(self.num_copies, dtype=np.bool_)
        for b, copy in enumerate(self._copies):
            steps = [next(histories) for _ in range(int(whole["steps"][b]))]
            lost[b] = not self._replayed(b, copy, steps, int(whole["members"][b]))
        self._obs = None
        self._accept(whole, lost)

    def _replayed(self, b: int, copy: Copy, steps: list[Int], members: int) -> bool:
        self._begin(b)
        for choices in steps:
            if len(choices) != len(copy.members) or copy.play(choices.tolist()).final is not None:
                return False
        return len(copy.members) == members

    def _accept(self, state: Mapping[str, Int], lost: NDArray[np.bool_]) -> None:
        """Compare what is observed now, and link the members to the rows they had."""
        obs = self._pack([copy.members for copy in self._copies])
        lost |= self._digests(obs) != state["digest"]
        carries = np.split(state["carry"], np.cumsum(state["members"])[:-1])
        for b, copy in enumerate(self._copies):
            if lost[b]:
                _LOG.warning("copy %d of %s cannot be repeated from its seed: a new episode begins", b, self.spec.name)
                self._episode[b] += 1
                self._begin(b)
            else:
                for member, row in zip(copy.members, carries[b], strict=True):
                    member.row = int(row)
        self.anew, self._begun = lost, True
        self._obs = self._fault = None


def _checked_state(state: Mapping[str, Any], num_copies: int) -> dict[str, Int]:
    """The arrays of a state. Raises ValueError, naming the array, if they do not belong together."""
    missing = [name for name in STATE if name not in state]
    if missing:
        raise ValueError(f"the state has no {missing[0]!r}: it is not one of a bridged environment")
    whole = {name: whole_numbers(state[name], name) for name in STATE}
    for name in ("seed", "episode", "steps", "members", "digest"):
        if whole[name].shape != (num_copies,):
            raise ValueError(f"the state's {name!r} has shape {whole[name].shape}, but there are {num_copies} copies")
    for counts, name in (("steps", "step_sizes"), ("step_sizes", "choices"), ("members", "carry")):
        if (whole[counts] < 0).any() or whole[name].shape != (whole[counts].sum(),):
            raise ValueError(f"the state's {name!r} has shape {whole[name].shape}, which its {counts!r} contradict")
    return whole


def _tasks(members: Sequence[Member]) -> dict[int, Any]:
    """Task rows of a copy by their places, from whoever sees them first."""
    found: dict[int, Any] = {}
    for member in members:
        if member.present and member.reading.slot is not None and member.reading.tasks is not None:
            for slot, row in zip(member.reading.slot.tolist(), member.reading.tasks, strict=True):
                found.setdefault(slot, row)
    return dict(sorted(found.items()))


def _stack(rows: list[Any], width: int) -> NDArray[np.float32]:
    return np.array(rows, dtype=np.float32).reshape(len(rows), width)
