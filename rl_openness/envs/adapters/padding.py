"""Packed observations of one copy as padded arrays and Gymnasium spaces, for PettingZoo's and RLlib's views.

Every observation is a dictionary of float32 arrays. Rows are multiplied by `Column.scale`; unused slots are 0, and so
is a NaN (something nobody knows). Parts that would have no entry are left out:

| key | shape | |
|---|---|---|
| self | [f] | the agent's own row: all columns an agent may know of itself |
| present | [1] | 1 = it is there; 0 = it is away, and can only choose the no-op |
| team, team_mask | [max_agents, f], [max_agents] | present agents it sees (itself among them), by place |
| tasks, task_mask | [max_tasks, f], [max_tasks] | tasks that exist now, in the environment's order |
| pairs | [max_tasks, f] | features of (agent, task) where the agent may choose the task |
| action_mask | [actions] | what it may choose |
| state_agents, state_present, state_tasks | as team, team_mask, tasks | `with_state`: all columns, for a critic |

An action is a task slot (or an action of a fixed set); the last one is the no-op.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np

from rl_openness.envs.base import NO_OP, Column, EnvSpec, Float, Int, OpenVectorEnv, PackedObs
from rl_openness.envs.foraging.config import ForagingConfig
from rl_openness.envs.wildfire.config import WildfireConfig
from rl_openness.envs.wolfpack.config import WolfpackConfig
from rl_openness.errors import UserError

AgentObs = dict[str, Float]
GONE = -1
"""In place of a row: a member that is no more."""
ILLEGAL = NO_OP - 1
"""In place of a choice: there is none of that number."""
_MASKS = ("present", "team_mask", "task_mask", "action_mask", "state_present")


def known_bounds(env: OpenVectorEnv) -> tuple[int, int | None]:
    """(places, tasks) that an environment never needs more of; its members now, and None, where it does not say."""
    config = getattr(env, "config", None)
    if isinstance(config, WildfireConfig):
        return config.num_agents, int(np.count_nonzero(config.fire.fire_types))
    if isinstance(config, ForagingConfig | WolfpackConfig):
        return config.slots, env.spec.task_slots
    return int(env.observe().agent_id.max(initial=-1)) + 1, env.spec.task_slots


@dataclass(frozen=True)
class Shown:
    """Which columns of a row matrix are shown, and their scales."""

    index: list[int]
    scale: Float

    @classmethod
    def of(cls, columns: Sequence[Column], *visible: str) -> Shown:
        """The columns with one of these visibilities."""
        index = [i for i, column in enumerate(columns) if column.visible in visible]
        return cls(index, np.array([columns[i].scale for i in index], dtype=np.float32))

    def __len__(self) -> int:
        return len(self.index)

    def __call__(self, rows: Float) -> Float:
        """These columns of the rows, scaled and without NaN."""
        picked: Float = rows[:, self.index] * self.scale
        picked[np.isnan(picked)] = 0.0
        return picked


class Padding:
    """Pads observations to `max_agents` places and `max_tasks` tasks."""

    def __init__(self, spec: EnvSpec, max_agents: int, max_tasks: int, *, with_state: bool) -> None:
        self.spec, self.max_agents, self.max_tasks, self.with_state = spec, max_agents, max_tasks, with_state
        self.no_op: int = max_tasks if spec.num_actions is None else spec.num_actions
        self._own = Shown.of(spec.agent_columns, "all", "self")
        self._team = Shown.of(spec.agent_columns, "all")
        self._tasks = Shown.of(spec.task_columns, "all")
        self._pairs = Shown.of(spec.pair_columns, "all", "self")
        self._all_agents = Shown.of(spec.agent_columns, "all", "self", "critic")
        self._all_tasks = Shown.of(spec.task_columns, "all", "self", "critic")
        self.no_choice: Int = np.full(self.no_op + 1, ILLEGAL, dtype=np.int64)
        """The choices of an agent that can do nothing, see `choices`."""
        self.no_choice[self.no_op] = NO_OP
        self.space = self._make_space()
        """Of every observation."""

    def _make_space(self) -> gym.spaces.Dict:
        a, x = self.max_agents, self.max_tasks
        shapes: dict[str, tuple[int, ...]] = {
            "self": (len(self._own),),
            "present": (1,),
            "team": (a, len(self._team)),
            "team_mask": (a,),
            "tasks": (x, len(self._tasks)),
            "task_mask": (x,),
            "pairs": (x, len(self._pairs)),
            "action_mask": (self.no_op + 1,),
        }
        if self.with_state:
            shapes |= {"state_agents": (a, len(self._all_agents)), "state_present": (a,)}
            shapes |= {"state_tasks": (x, len(self._all_tasks))}
        return gym.spaces.Dict(
            {
                key: gym.spaces.Box(*((0.0, 1.0) if key in _MASKS else (-np.inf, np.inf)), shape, np.float32)
                for key, shape in shapes.items()
                if 0 not in shape
            }
        )

    def check(self, obs: PackedObs) -> None:
        """Raises UserError if there are more tasks than room."""
        if len(obs.task_rows) > self.max_tasks:
            raise UserError(
                f"there are {len(obs.task_rows)} tasks, but this view was made for max_tasks={self.max_tasks}: "
                "make it larger"
            )

    def choices(self, obs: PackedObs) -> Int:
        """[M, actions]: the environment's name for every action of every member, `ILLEGAL` where there is none."""
        choices = np.tile(self.no_choice, (len(obs.present), 1))
        if self.spec.num_actions is None:
            number = np.arange(len(obs.pair_agent)) - obs.pair_ptr[obs.pair_agent]
            choices[obs.pair_agent, obs.pair_task] = number
        else:
            actions = np.arange(self.no_op)
            allowed = obs.present[:, None] if obs.action_mask is None else obs.action_mask & obs.present[:, None]
            choices[:, : self.no_op] = np.where(allowed, actions, ILLEGAL)
        return choices

    def observations(self, obs: PackedObs, place: Int, choices: Int, rows: Mapping[str, int]) -> dict[str, AgentObs]:
        """Of the named rows; `place` [M]. Who is `GONE` sees what is the same for all, and nothing of its own."""
        common, own = self._common(obs, place), self._per_member(obs, place, choices)
        gone = self.blank() if GONE in rows.values() else {}
        return {
            name: {key: part.copy() for key, part in common.items() if part.size}
            | {key: gone[key] if row == GONE else table[row] for key, table in own.items() if 0 not in table.shape[1:]}
            for name, row in rows.items()
        }

    def blank(self) -> AgentObs:
        """All zero; only the no-op is legal."""
        parts = {key: np.zeros(box.shape, dtype=np.float32) for key, box in self.space.items() if box.shape}
        parts["action_mask"][self.no_op] = 1.0
        return parts

    def state(self, obs: PackedObs, place: Int) -> Float:
        """All that is true now, for a critic: [max_agents, 1 + f] and [max_tasks, 1 + f], flattened one after another.

        The first column says whether the slot is taken (by a present agent); then come all columns, scaled.
        """
        present = place[obs.present]
        agents = np.column_stack(
            [
                self._mask(present, self.max_agents),
                self._by_place(self._all_agents(obs.agent_rows[obs.present]), present),
            ]
        )
        number = np.arange(len(obs.task_rows))
        tasks = np.column_stack(
            [self._mask(number, self.max_tasks), self._padded(self._all_tasks(obs.task_rows), self.max_tasks)]
        )
        return np.concatenate([agents.ravel(), tasks.ravel()])

    def _common(self, obs: PackedObs, place: Int) -> dict[str, Float]:
        """What is the same for all agents."""
        parts = {
            "tasks": self._padded(self._tasks(obs.task_rows), self.max_tasks),
            "task_mask": self._mask(np.arange(len(obs.task_rows)), self.max_tasks),
        }
        present = place[obs.present]
        if obs.see_ptr is None:
            parts["team"] = self._by_place(self._team(obs.agent_rows[obs.present]), present)
            parts["team_mask"] = self._mask(present, self.max_agents)
        if self.with_state:
            parts["state_agents"] = self._by_place(self._all_agents(obs.agent_rows[obs.present]), present)
            parts["state_present"] = self._mask(present, self.max_agents)
            parts["state_tasks"] = self._padded(self._all_tasks(obs.task_rows), self.max_tasks)
        return parts

    def _per_member(self, obs: PackedObs, place: Int, choices: Int) -> dict[str, Float]:
        """Arrays [M, ...] of what differs from member to member."""
        count = len(obs.present)
        pairs = np.zeros((count, self.max_tasks, len(self._pairs)), dtype=np.float32)
        pairs[obs.pair_agent, obs.pair_task] = self._pairs(obs.pair_rows)
        tables: dict[str, Float] = {
            "self": self._own(obs.agent_rows),
            "present": obs.present[:, None].astype(np.float32),
            "pairs": pairs,
            "action_mask": (choices != ILLEGAL).astype(np.float32),
        }
        if obs.see_ptr is not None and obs.see_agent is not None:
            looker = np.repeat(np.arange(count), np.diff(obs.see_ptr))
            kept = obs.present[obs.see_agent]
            looker, seen = looker[kept], obs.see_agent[kept]
            tables["team"] = np.zeros((count, self.max_agents, len(self._team)), dtype=np.float32)
            tables["team"][looker, place[seen]] = self._team(obs.agent_rows[seen])
            tables["team_mask"] = np.zeros((count, self.max_agents), dtype=np.float32)
            tables["team_mask"][looker, place[seen]] = 1.0
        return tables

    def _by_place(self, rows: Float, place: Int) -> Float:
        table = np.zeros((self.max_agents, rows.shape[1]), dtype=np.float32)
        table[place] = rows
        return table

    @staticmethod
    def _padded(rows: Float, size: int) -> Float:
        table = np.zeros((size, rows.shape[1]), dtype=np.float32)
        table[: len(rows)] = rows
        return table

    @staticmethod
    def _mask(index: Any, size: int) -> Float:
        mask = np.zeros(size, dtype=np.float32)
        mask[index] = 1.0
        return mask
