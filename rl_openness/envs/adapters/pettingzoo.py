"""One copy of any `OpenVectorEnv` as PettingZoo's `ParallelEnv`.

from rl_openness.envs.adapters.pettingzoo import parallel_env
env = parallel_env("wildfire", setup="3x3/S3")                     # everybody stays listed
env = parallel_env("wildfire", presence="leave", setup="3x3/S3")   # agents leave `env.agents` and come back
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Literal, get_args

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from pettingzoo import ParallelEnv

from rl_openness.envs.adapters.padded_copy import OnIllegal, PaddedCopy, Played, Reward
from rl_openness.envs.adapters.padding import GONE, AgentObs
from rl_openness.envs.base import Float, OpenVectorEnv
from rl_openness.envs.registry import make_environment
from rl_openness.envs.render import picture, world_in_words
from rl_openness.errors import UserError

Presence = Literal["mask", "leave"]
RenderMode = Literal["rgb_array", "ansi"]
Obs = dict[str, Any]
Stepped = tuple[
    dict[str, Obs], dict[str, float], dict[str, bool], dict[str, bool], dict[str, dict[str, Any]]
]  # observations, rewards, terminations, truncations, infos
LONGEST_GAP = 10_000
"""Steps in a row without any agent after which the leave form gives up."""


def parallel_env(
    env: str | OpenVectorEnv,
    presence: Presence = "mask",
    render_mode: RenderMode | None = None,
    *,
    max_agents: int | None = None,
    max_tasks: int | None = None,
    reward: Reward = "team",
    illegal: OnIllegal = "no_op",
    **options: Any,
) -> OpenParallelEnv:
    """A view of an environment, given by its name and `options` (as for `make_environment`) or itself.

    Arguments are those of `OpenParallelEnv`. Raises UserError, in one line, for any that is wrong.
    """
    if isinstance(env, str):
        env = make_environment(env, 1, options)
    elif not isinstance(env, OpenVectorEnv):
        raise UserError(f"parallel_env needs the name of an environment or an OpenVectorEnv, not {env!r}")
    elif options:
        raise UserError(f"option {min(options)!r} is for environments made by name; this one is already made")
    copy = PaddedCopy(env, max_agents=max_agents, max_tasks=max_tasks, reward=reward, illegal=illegal)
    return OpenParallelEnv(copy, presence, render_mode)


class OpenParallelEnv(ParallelEnv[str, Obs, int]):  # type: ignore[misc]
    """A view of one copy, which it takes over.

    Agents are those that the caller decides for; teammates are only seen. Names and places: see `padded_copy`. An
    observation is `{"observation": parts, "action_mask": int8 [actions]}`; the parts are those of `padding`.

    `presence="mask"`: all `possible_agents` stay listed for the whole episode. An agent that is away, and a place that
    nobody has, is shown nothing: all parts are 0 (`present` too), and only the no-op is legal. Its rewards go on.

    `presence="leave"`: `agents` are those who are there.

    * Who leaves gets a last observation (its own row and what all can see; `present` is 0) and `truncations[name]`: its
      stay is over, but not by an end of the world, for it may come back: values go on from that observation. Nobody is
      ever terminated unless the episode is. `infos[name]["away"]` tells leaving from the episode's own truncation.
    * Who comes (back) appears in all five dictionaries with its first observation, both flags false.
    * `agents` is empty only when the episode is over. Steps in which nobody is there are passed over at once
      (`infos[name]["steps"]` counts the steps of the environment). If nobody is there at the start, all members are
      listed and can only choose the no-op.
    * Rewards of an agent that is away are paid when it comes back. What is left at the end of the episode is in the
      infos' `unpaid` (name -> amount), for who is not listed gets no entries.

    When an episode ends, every listed agent gets its final observation and `terminations` or `truncations`.
    `infos[name]` has `agent_id` (number of the member that has this name; -1 = nobody), `present`, and what belongs to
    the whole step: `team_reward`, `events`, `illegal_actions` (played as the no-op), `steps`.
    """

    def __init__(self, copy: PaddedCopy, presence: Presence = "mask", render_mode: RenderMode | None = None) -> None:
        for option, value, known in (
            ("presence", presence, get_args(Presence)),
            ("render_mode", render_mode, (None, *get_args(RenderMode))),
        ):
            if value not in known:
                raise UserError(f"{option} must be one of {', '.join(map(str, known))}, not {value!r}")
        self.copy, self.presence, self.render_mode = copy, presence, render_mode
        self.metadata = {
            "name": f"{copy.env.spec.name}_{presence}",
            "render_modes": list(get_args(RenderMode)),
            "render_fps": 4,
            "is_parallelizable": True,
        }
        self.possible_agents = list(copy.names)
        self.agents: list[str] = []
        parts = copy.padding.space
        mask = gym.spaces.Box(0, 1, parts["action_mask"].shape, np.int8)
        rest = gym.spaces.Dict({key: space for key, space in parts.items() if key != "action_mask"})
        space = gym.spaces.Dict({"observation": rest, "action_mask": mask})
        self.observation_spaces = {name: deepcopy(space) for name in self.possible_agents}
        self.action_spaces = {name: deepcopy(copy.action_space) for name in self.possible_agents}
        self.state_space = gym.spaces.Box(-np.inf, np.inf, copy.state().shape, np.float32)
        self._owed: dict[str, float] = {}

    def observation_space(self, agent: str) -> gym.spaces.Space[Any]:
        """The same for all; always the same object for an agent."""
        return self.observation_spaces[agent]

    def action_space(self, agent: str) -> gym.spaces.Space[Any]:
        """The same for all; always the same object for an agent."""
        return self.action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Obs], dict[str, dict[str, Any]]]:
        """The first observations of the next episode, of episode 0 if a `seed` is given. `options` are not read."""
        self.copy.reset(seed)
        self._owed = {}
        if self.presence == "mask":
            self.agents = list(self.possible_agents)
        else:
            self.agents = list(self.copy.rows(self.copy.obs.present) or self.copy.rows())
        facts = {"team_reward": 0.0, "events": {}, "illegal_actions": 0, "steps": 0}
        return self._observe(self.agents), self._infos(self.agents, facts)

    def step(self, actions: Mapping[str, Any]) -> Stepped:
        """Play one step with the actions of exactly the listed agents."""
        before = self.agents
        played, facts = self._play(actions)
        present = self.copy.rows(self.copy.obs.present)
        if played.over:
            self.agents, told = [], before
        elif self.presence == "mask":
            told = before
        else:
            self.agents = list(present)
            told = [name for name in self.possible_agents if name in present or name in before]
        infos = self._infos(told, facts)
        if self.presence == "leave":
            for name in told:
                infos[name]["away"] = name not in present
        rewards = {name: self._owed.pop(name, 0.0) for name in told}
        if played.over:
            for name in told:
                infos[name]["unpaid"] = dict(self._owed)
        left = set() if played.over else set(told) - set(self.agents)
        return (
            self._observe(told),
            rewards,
            dict.fromkeys(told, played.terminated),
            {name: played.truncated or name in left for name in told},
            infos,
        )

    def _play(self, actions: Mapping[str, Any]) -> tuple[Played, dict[str, Any]]:
        """Play on until somebody is there or the episode is over; what all these steps gave together."""
        steps, expected = 0, self.agents
        facts: dict[str, Any] = {"team_reward": 0.0, "events": {}, "illegal_actions": 0}
        while True:
            played = self.copy.step(actions, expected)
            for name, reward in played.rewards.items():
                self._owed[name] = self._owed.get(name, 0.0) + reward
            steps += 1
            facts["team_reward"] += played.team_reward
            facts["illegal_actions"] += played.illegal_actions
            for event, count in played.events.items():
                facts["events"][event] = facts["events"].get(event, 0) + count
            if played.over or self.presence == "mask" or self.copy.rows(self.copy.obs.present):
                return played, facts | {"steps": steps}
            if steps > LONGEST_GAP:
                raise UserError(f"nobody has been there for {LONGEST_GAP} steps: this episode cannot go on")
            actions, expected = {}, []

    def _observe(self, names: list[str]) -> dict[str, Obs]:
        """In the mask form who is away is shown nothing, in the leave form it is shown what it leaves behind."""
        present, known = self.copy.rows(self.copy.obs.present), self.copy.rows()
        unknown = known.keys() - set(self.possible_agents)
        if unknown:
            raise UserError(f"{min(unknown)} is now decided for by the caller, but was not when this view was made")
        if self.presence == "leave":
            parts = self.copy.observations({name: known.get(name, GONE) for name in names})
        else:
            parts = self.copy.observations({name: present[name] for name in names if name in present})
            parts = {name: parts[name] if name in parts else self.copy.padding.blank() for name in names}
        return {name: _with_mask(each) for name, each in parts.items()}

    def _infos(self, names: list[str], facts: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        members, present = self.copy.members(), self.copy.rows(self.copy.obs.present)
        return {
            name: {"agent_id": members.get(name, -1), "present": name in present, **deepcopy(dict(facts))}
            for name in names
        }

    def state(self) -> Float:
        """Everything that is true now, for a critic (float32, see `Padding.state` for the layout)."""
        return self.copy.state()

    def render(self) -> NDArray[np.uint8] | str | None:
        """A picture (uint8 [H, W, 3]) or words, as `render_mode` says; None without one."""
        if self.render_mode is None:
            return None
        return picture(self.copy.env) if self.render_mode == "rgb_array" else world_in_words(self.copy.env)

    def close(self) -> None:
        """Nothing is open."""


def _with_mask(parts: AgentObs) -> Obs:
    observation = dict(parts)
    mask = observation.pop("action_mask").astype(np.int8)
    return {"observation": observation, "action_mask": mask}
