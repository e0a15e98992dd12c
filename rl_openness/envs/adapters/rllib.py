"""One copy of any `OpenVectorEnv` as RLlib's `MultiAgentEnv`, for RLlib's stock algorithms.

    from ray.tune import register_env
    register_env("open", open_multi_agent_env)
    PPOConfig().environment("open", env_config={"env": "wildfire", "env_config": {"setup": "3x3/S3"}, "max_tasks": 9})

This package's own methods do not train through it: everything is padded to fixed bounds, and RLlib gives the time an
agent is away the wrong credit (it becomes one long step of the agent; where a fragment is cut meanwhile, the agent's
last step is lost).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from ray.rllib.env.multi_agent_env import MultiAgentEnv

from rl_openness.envs.base import NO_OP, Column, Float, Int, OpenVectorEnv, PackedObs, StepResult
from rl_openness.envs.draws import child_seeds
from rl_openness.envs.registry import make_environment
from rl_openness.errors import UserError

AgentObs = dict[str, Float]
_ILLEGAL = NO_OP - 1


@dataclass(frozen=True)
class _Columns:
    """Which columns of a row matrix are shown, and their scales."""

    index: list[int]
    scale: Float

    @classmethod
    def of(cls, columns: Sequence[Column], *visible: str) -> _Columns:
        index = [i for i, column in enumerate(columns) if column.visible in visible]
        return cls(index, np.array([columns[i].scale for i in index], dtype=np.float32))

    def __len__(self) -> int:
        return len(self.index)

    def __call__(self, rows: Float) -> Float:
        picked: Float = rows[:, self.index] * self.scale
        return picked


class OpenMultiAgentEnv(MultiAgentEnv):  # type: ignore[misc]
    """A view of `env`, which must have one copy and reset itself when an episode ends.

    Agents are called `agent_<agent_id>`; all ids are declared from the start. An agent that is away is left out of the
    observations; since it may come back, no agent is ever reported as done by itself, only `__all__`. When an episode
    ends, every agent that was in it gets the final state to look at, also those that are away, because RLlib bootstraps
    from it. If nobody is there when an episode starts, all members are shown (RLlib would take an empty start for an
    end); they can only choose the no-op until they are really there.

    Every observation is a dictionary of float32 arrays (rows are scaled as `EnvSpec` says; unused slots are 0):

    | key | shape | |
    |---|---|---|
    | self | [f] | the agent's own row: all columns an agent may know of itself |
    | team, team_mask | [max_agents, f], [max_agents] | present agents it sees (itself among them), by agent id |
    | tasks, task_mask | [max_tasks, f], [max_tasks] | tasks that exist now, in the environment's order |
    | pairs | [max_tasks, f] | features of (agent, task) where the agent may choose the task |
    | action_mask | [actions] | what it may choose |
    | state_agents, state_present, state_tasks | as team, ..., tasks | `with_state`: all columns, for a critic |

    An action is a task slot (or an action of a fixed set); the last one is the no-op. Rewards are the team's reward,
    given to each agent that was present when the step was made. `infos["__common__"]` has the step's `team_reward` and
    `events`.

    Arguments: `max_tasks` is needed where there are tasks; `max_agents` is by default the number of members now. A
    UserError tells if the environment outgrows either. `illegal` says what an action outside the mask does; the default
    lets RLlib's check of environments and algorithms without masks run. `worker_index`: RLlib seeds sub-environments of
    neighbouring runners alike; with an index above 0 the seed is mixed with it.

    RLlib's check of environments seeds all of them alike: where the config has no seed, use
    `environment(disable_env_checking=True)`.
    """

    def __init__(
        self,
        env: OpenVectorEnv,
        *,
        max_tasks: int | None = None,
        max_agents: int | None = None,
        with_state: bool = False,
        illegal: Literal["no_op", "error"] = "no_op",
        worker_index: int = 0,
    ) -> None:
        if env.num_copies != 1:
            raise UserError(f"a MultiAgentEnv view needs an environment of one copy, this one has {env.num_copies}")
        if max_tasks is None and env.spec.task_columns:
            raise UserError(f"environment {env.spec.name!r} has tasks: say `max_tasks`, how many there can be at once")
        self.env, self.spec_of_env = env, env.spec
        self.max_tasks = max_tasks or 0
        self._obs = env.observe()
        members = int(self._obs.agent_id.max(initial=-1)) + 1
        self.max_agents = members if max_agents is None else max_agents
        self.with_state, self.illegal, self.worker_index = with_state, illegal, worker_index
        self._own = _Columns.of(env.spec.agent_columns, "all", "self")
        self._team = _Columns.of(env.spec.agent_columns, "all")
        self._tasks = _Columns.of(env.spec.task_columns, "all")
        self._pairs = _Columns.of(env.spec.pair_columns, "all", "self")
        everything = ("all", "self", "critic")
        self._agents_state = _Columns.of(env.spec.agent_columns, *everything)
        self._tasks_state = _Columns.of(env.spec.task_columns, *everything)
        options = self.max_tasks if env.spec.num_actions is None else env.spec.num_actions
        self.no_op = options
        self.possible_agents = [f"agent_{i}" for i in range(self.max_agents)]
        self.agents = list(self.possible_agents)
        space = self._observation_space()
        self.observation_spaces = dict.fromkeys(self.possible_agents, space)
        self.action_spaces: dict[str, gym.Space[Any]] = dict.fromkeys(
            self.possible_agents, gym.spaces.Discrete(options + 1)
        )
        super().__init__()
        self._seeded = False
        self._between_episodes = True
        self._shown: dict[str, int] = {}
        self._seen_in_episode: set[str] = set()
        self._choices = np.empty((0, 0), dtype=np.int64)

    def _observation_space(self) -> gym.spaces.Dict:
        def rows(*shape: int) -> gym.spaces.Box:
            return gym.spaces.Box(-np.inf, np.inf, shape, np.float32)

        def mask(size: int) -> gym.spaces.Box:
            return gym.spaces.Box(0.0, 1.0, (size,), np.float32)

        spaces: dict[str, gym.Space[Any]] = {
            "self": rows(len(self._own)),
            "team": rows(self.max_agents, len(self._team)),
            "team_mask": mask(self.max_agents),
            "tasks": rows(self.max_tasks, len(self._tasks)),
            "task_mask": mask(self.max_tasks),
            "pairs": rows(self.max_tasks, len(self._pairs)),
            "action_mask": mask(self.no_op + 1),
        }
        if self.with_state:
            spaces["state_agents"] = rows(self.max_agents, len(self._agents_state))
            spaces["state_present"] = mask(self.max_agents)
            spaces["state_tasks"] = rows(self.max_tasks, len(self._tasks_state))
        return gym.spaces.Dict(spaces)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, AgentObs], dict[str, Any]]:
        """The first observations of the next episode, of episode 0 if a `seed` is given."""
        super().reset(seed=seed, options=options)
        if seed is None and not self._seeded:
            seed = int.from_bytes(os.urandom(6), "little")
        if seed is not None:
            mixed = child_seeds(seed, self.worker_index, count=1) if self.worker_index > 0 else [seed]
            self.env.reset(mixed)
            self._seeded = True
        elif not self._between_episodes:
            self.env.reset()
        self._between_episodes = False
        self._seen_in_episode.clear()
        self._obs = self.env.observe()
        shown = self._obs.present if self._obs.present.any() else np.ones_like(self._obs.present)
        return self._observations(self._obs, self._names(self._obs, shown)), {}

    def step(
        self, action_dict: Mapping[str, Any]
    ) -> tuple[dict[str, AgentObs], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """Play one step with the actions of exactly those agents that the last observations named."""
        result = self.env.step(self._to_choices(action_dict))
        reward = float(result.team_reward[0])
        rewards = dict.fromkeys(self._shown, reward)
        terminated = bool(result.terminated[0])
        truncated = bool(result.truncated[0]) and not terminated
        obs = self._obs = self.env.observe()
        if terminated or truncated:
            assert result.final_obs is not None
            obs, self._between_episodes = result.final_obs, True
        shown = self._names(obs, obs.present)
        if self._between_episodes:
            # A row of -1 stands for a member that is no more; of those RLlib knows only that they were there.
            known = self._names(obs, np.ones_like(obs.present))
            shown |= {name: known.get(name, -1) for name in sorted(self._seen_in_episode)}
        return (
            self._observations(obs, shown),
            rewards,
            {"__all__": terminated},
            {"__all__": truncated},
            {"__common__": _facts(result)},
        )

    def _names(self, obs: PackedObs, shown: NDArray[np.bool_]) -> dict[str, int]:
        """Row of every member that is shown, by name."""
        rows = np.flatnonzero(shown)
        ids = obs.agent_id[rows].tolist()
        if ids and max(ids) >= self.max_agents:
            raise UserError(
                f"agent {max(ids)} has come, but this view was made for max_agents={self.max_agents}: make it larger"
            )
        return {self.possible_agents[i]: row for i, row in zip(ids, rows.tolist(), strict=True)}

    def _to_choices(self, action_dict: Mapping[str, Any]) -> Int:
        if action_dict.keys() != self._shown.keys():
            raise UserError(f"step needs the actions of {sorted(self._shown)}, got those of {sorted(action_dict)}")
        choices = np.full(len(self._obs.present), NO_OP, dtype=np.int64)
        for name, row in self._shown.items():
            action = int(action_dict[name])
            choice = self._choices[row, action] if 0 <= action <= self.no_op else _ILLEGAL
            if choice == _ILLEGAL:
                if self.illegal == "error":
                    legal = np.flatnonzero(self._choices[row] != _ILLEGAL).tolist()
                    raise UserError(f"{name}: action {action} is not legal; legal: {legal} ({self.no_op} = no-op)")
                choice = NO_OP
            choices[row] = choice
        return choices

    def _open_choices(self, obs: PackedObs) -> Int:
        """[M, actions]: the environment's name for every action of every member."""
        choices = np.full((len(obs.present), self.no_op + 1), _ILLEGAL, dtype=np.int64)
        choices[:, self.no_op] = NO_OP
        if self.spec_of_env.num_actions is None:
            number = np.arange(len(obs.pair_agent)) - obs.pair_ptr[obs.pair_agent]
            choices[obs.pair_agent, obs.pair_task] = number
        else:
            actions = np.arange(self.no_op)
            allowed = obs.present[:, None] if obs.action_mask is None else obs.action_mask & obs.present[:, None]
            choices[:, : self.no_op] = np.where(allowed, actions, _ILLEGAL)
        return choices

    def _observations(self, obs: PackedObs, shown: dict[str, int]) -> dict[str, AgentObs]:
        """Observations of the agents in `shown` (name -> row, -1 = no row); remembers them as those who act next."""
        num_tasks = len(obs.task_rows)
        if num_tasks > self.max_tasks:
            raise UserError(
                f"there are {num_tasks} tasks, but this view was made for max_tasks={self.max_tasks}: make it larger"
            )
        self._shown, self._choices = shown, self._open_choices(obs)
        self._seen_in_episode.update(shown)
        common, per_member = self._common(obs), self._per_member(obs)
        empty = {key: np.zeros_like(table[0]) for key, table in per_member.items()} if -1 in shown.values() else {}
        if empty:
            empty["action_mask"][self.no_op] = 1.0
        return {
            name: common | ({key: table[row] for key, table in per_member.items()} if row >= 0 else empty)
            for name, row in shown.items()
        }

    def _common(self, obs: PackedObs) -> AgentObs:
        """What is the same for all agents."""
        parts = {
            "tasks": _padded(self._tasks(obs.task_rows), self.max_tasks),
            "task_mask": _mask(np.arange(len(obs.task_rows)), self.max_tasks),
        }
        present = obs.agent_id[obs.present]
        if obs.see_ptr is None:
            parts["team"] = self._by_agent(self._team(obs.agent_rows[obs.present]), present)
            parts["team_mask"] = _mask(present, self.max_agents)
        if self.with_state:
            parts["state_agents"] = self._by_agent(self._agents_state(obs.agent_rows[obs.present]), present)
            parts["state_present"] = _mask(present, self.max_agents)
            parts["state_tasks"] = _padded(self._tasks_state(obs.task_rows), self.max_tasks)
        return parts

    def _per_member(self, obs: PackedObs) -> dict[str, Float]:
        """Arrays [M, ...] of what differs from member to member."""
        pairs = np.zeros((len(obs.present), self.max_tasks, len(self._pairs)), dtype=np.float32)
        pairs[obs.pair_agent, obs.pair_task] = self._pairs(obs.pair_rows)
        tables = {
            "self": self._own(obs.agent_rows),
            "pairs": pairs,
            "action_mask": (self._choices != _ILLEGAL).astype(np.float32),
        }
        if obs.see_ptr is not None and obs.see_agent is not None:
            looker = np.repeat(np.arange(len(obs.present)), np.diff(obs.see_ptr))
            kept = obs.present[obs.see_agent]
            looker, seen = looker[kept], obs.see_agent[kept]
            tables["team"] = np.zeros((len(obs.present), self.max_agents, len(self._team)), dtype=np.float32)
            tables["team"][looker, obs.agent_id[seen]] = self._team(obs.agent_rows[seen])
            tables["team_mask"] = np.zeros((len(obs.present), self.max_agents), dtype=np.float32)
            tables["team_mask"][looker, obs.agent_id[seen]] = 1.0
        return tables

    def _by_agent(self, rows: Float, agent_id: Int) -> Float:
        table = np.zeros((self.max_agents, rows.shape[1]), dtype=np.float32)
        table[agent_id] = rows
        return table


def _padded(rows: Float, size: int) -> Float:
    table = np.zeros((size, rows.shape[1]), dtype=np.float32)
    table[: len(rows)] = rows
    return table


def _mask(index: Int, size: int) -> Float:
    mask = np.zeros(size, dtype=np.float32)
    mask[index] = 1.0
    return mask


def _facts(result: StepResult) -> dict[str, Any]:
    """What belongs to no single agent."""
    events = {name: int(counts[0]) for name, counts in result.events.items()}
    return {"team_reward": float(result.team_reward[0]), "events": events}


def open_multi_agent_env(config: Mapping[str, Any]) -> OpenMultiAgentEnv:
    """For `register_env`: `config` has `env` (a name), `env_config` (its options), and arguments of the view."""
    arguments = dict(config)
    name = arguments.pop("env", None)
    if not isinstance(name, str):
        raise UserError("env_config needs `env`, the name of an environment such as 'wildfire'")
    env = make_environment(name, 1, arguments.pop("env_config", None))
    try:
        return OpenMultiAgentEnv(env, worker_index=getattr(config, "worker_index", 0), **arguments)
    except TypeError as error:
        raise UserError(f"view of environment {name!r}: {error}") from error
