"""One copy of any `OpenVectorEnv` with a fixed list of names, padded observations and numbered actions.

What PettingZoo's and RLlib's views have in common; `padding` says what an observation holds.

A member of an episode has a *place*, and its name is `agent_<place>`: the place of its own number (`agent_id`) if there
is one that nobody has, else the one that has been free for longest. It keeps its place, also while it is away, until it
is no member any more. So with enough places (`max_agents`) a name means one member in an episode; with fewer, one that
has left for ever is followed by another.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym
import numpy as np

from rl_openness.envs.adapters.padding import GONE, ILLEGAL, AgentObs, Padding, known_bounds
from rl_openness.envs.base import NO_OP, Bool, Float, Int, OpenVectorEnv, PackedObs, StepResult
from rl_openness.errors import UserError

MOST_PLACES = 10_000
"""Largest `max_agents` and `max_tasks`: every observation has a row for each."""
OnIllegal = Literal["no_op", "error"]
Reward = Literal["team", "own"]


@dataclass(frozen=True)
class Played:
    """What a step gave. `rewards` are those of all members that the caller decides for, by name."""

    rewards: dict[str, float]
    terminated: bool
    truncated: bool
    team_reward: float
    events: dict[str, int]
    illegal_actions: int

    @property
    def over(self) -> bool:
        """The episode has ended."""
        return self.terminated or self.truncated


class PaddedCopy:
    """One copy of `env`, which it takes over: nobody else is to step or reset it.

    `max_agents` and `max_tasks` bound members and tasks at a time (None: `known_bounds`); a UserError tells if the
    environment outgrows them. `reward`: `team` gives every member the team's reward, `own` its own. `illegal` says what
    an action outside the mask does. `names` are the agents that the caller decides for.
    """

    def __init__(
        self,
        env: OpenVectorEnv,
        *,
        max_agents: int | None = None,
        max_tasks: int | None = None,
        with_state: bool = False,
        reward: Reward = "team",
        illegal: OnIllegal = "no_op",
    ) -> None:
        if env.num_copies != 1:
            raise UserError(f"a view needs an environment of one copy, this one has {env.num_copies}")
        for option, value, known in (("reward", reward, ("team", "own")), ("illegal", illegal, ("no_op", "error"))):
            if value not in known:
                raise UserError(f"{option} must be {' or '.join(known)}, not {value!r}")
        places, tasks = known_bounds(env)
        if max_tasks is None and tasks is None and env.spec.task_columns:
            raise UserError(f"environment {env.spec.name!r} has tasks: say `max_tasks`, how many there can be at once")
        max_tasks = (tasks or 0) if max_tasks is None else max_tasks
        max_agents = places if max_agents is None else max_agents
        given: Any
        for option, given in (("max_agents", max_agents), ("max_tasks", max_tasks)):
            if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given <= MOST_PLACES:
                raise UserError(f"{option} must be a whole number from 0 to {MOST_PLACES:,}, not {given!r}")
        self.env, self.reward, self.illegal = env, reward, illegal
        self.padding = Padding(env.spec, max_agents, max_tasks, with_state=with_state)
        if getattr(env, "at_end", None) == "reset":
            env.at_end = "stop"  # type: ignore[attr-defined]  # so that a finished world can still be looked at
        self._resets_itself = getattr(env, "at_end", None) != "stop"
        self._seeded, self._begun, self._over = False, False, False
        self._see(env.observe(), anew=True)
        mine = None if self.obs.controlled is None else set(self.place[self.obs.controlled].tolist())
        self.names = [f"agent_{place}" for place in range(max_agents) if mine is None or place in mine]

    @property
    def action_space(self) -> gym.spaces.Space[Any]:
        """Of every agent."""
        return gym.spaces.Discrete(self.padding.no_op + 1)

    def reset(self, seed: int | None = None) -> None:
        """Begin the next episode; of a `seed`, its episode 0. Without any seed the first one is random."""
        if seed is not None and seed < 0:
            raise UserError(f"a seed is a whole number of at least 0, not {seed!r}")
        if seed is None and not self._seeded:
            seed = int.from_bytes(os.urandom(6), "little")
        if seed is not None:
            self.env.reset([seed])
            self._seeded = True
        elif not (self._over and self._resets_itself):
            self.env.reset()
        self._begun, self._over = True, False
        self._see(self.env.observe(), anew=True)

    def step(self, actions: Mapping[str, Any], expected: Collection[str]) -> Played:
        """Play one step; `actions` are those of the `expected` names, everybody else does nothing.

        After the last step of an episode `obs` is its final observation. Raises UserError for missing or further names,
        and for a step outside an episode.
        """
        if not self._begun or self._over:
            raise UserError(f"the episode has {'ended' if self._begun else 'not begun'}: call reset before step")
        if not isinstance(actions, Mapping):
            raise UserError(f"step needs a dict, agent -> action, not {actions!r:.80}")
        if actions.keys() != set(expected):
            raise UserError(f"step needs the actions of {sorted(expected)}, got those of {sorted(map(str, actions))}")
        rows, choices, illegal = self.rows(), np.full(len(self.obs.present), NO_OP, dtype=np.int64), 0
        for name, action in actions.items():
            row = rows.get(name, GONE)
            choice = self._choice(name, row, action)
            if choice == ILLEGAL:
                illegal += 1
            elif row != GONE:
                choices[row] = choice
        result = self.env.step(choices)
        played = self._played(result, rows, illegal)
        self._over = played.over
        if not played.over:
            self._see(self.env.observe())
        elif result.final_obs is not None:
            self._see(result.final_obs)
        return played

    def _choice(self, name: str, row: int, action: Any) -> int:
        try:
            number = operator.index(action)
        except TypeError:
            raise UserError(f"{name}: an action is a whole number, not {action!r}") from None
        own = self.padding.no_choice if row == GONE else self._choices[row]
        choice = int(own[number]) if 0 <= number < len(own) else ILLEGAL
        if choice == ILLEGAL and self.illegal == "error":
            legal, no_op = np.flatnonzero(own != ILLEGAL).tolist(), self.padding.no_op
            raise UserError(f"{name}: action {number} is not legal; legal: {legal} ({no_op} = no-op)")
        return choice

    def _played(self, result: StepResult, rows: Mapping[str, int], illegal: int) -> Played:
        terminated, truncated = bool(result.terminated[0]), bool(result.truncated[0])
        if result.failed is not None and len(result.failed):  # the environment broke, the world did not end
            terminated, truncated = False, True
        team, own = float(result.team_reward[0]), result.agent_reward
        return Played(
            rewards={name: team if self.reward == "team" else float(own[row]) for name, row in rows.items()},
            terminated=terminated,
            truncated=truncated and not terminated,
            team_reward=team,
            events={name: int(counts[0]) for name, counts in result.events.items()},
            illegal_actions=illegal,
        )

    def _see(self, obs: PackedObs, *, anew: bool = False) -> None:
        """Take over an observation; `anew`: of a new episode."""
        if anew:
            self._place: dict[int, int] = {}
            self._vacant = list(range(self.padding.max_agents))
        self.padding.check(obs)
        ids = obs.agent_id.tolist()
        for agent in sorted(self._place.keys() - set(ids)):
            self._vacant.append(self._place.pop(agent))
        for agent in ids:
            if agent in self._place:
                continue
            if not self._vacant:
                raise UserError(
                    f"agent {agent} has come, but this view was made for max_agents={self.padding.max_agents}: "
                    "make it larger"
                )
            self._place[agent] = agent if agent in self._vacant else self._vacant[0]
            self._vacant.remove(self._place[agent])
        self.obs = obs
        self.place: Int = np.array([self._place[agent] for agent in ids], dtype=np.int64)
        self._choices = self.padding.choices(obs)

    def rows(self, among: Bool | None = None) -> dict[str, int]:
        """Rows of the members that the caller decides for, by name and in the order of names.

        `among` [M] leaves out others. Raises UserError for a member without a name.
        """
        kept = np.ones(len(self.place), dtype=np.bool_) if among is None else among
        if self.obs.controlled is not None:
            kept = kept & self.obs.controlled
        return {
            f"agent_{self.place[row]}": int(row) for row in sorted(np.flatnonzero(kept), key=self.place.__getitem__)
        }

    def members(self) -> dict[str, int]:
        """`agent_id` of who has each name now."""
        return {f"agent_{place}": agent for agent, place in self._place.items()}

    def observations(self, rows: Mapping[str, int]) -> dict[str, AgentObs]:
        """Of the named rows (`GONE` = no member any more)."""
        return self.padding.observations(self.obs, self.place, self._choices, rows)

    def state(self) -> Float:
        """See `Padding.state`."""
        return self.padding.state(self.obs, self.place)
