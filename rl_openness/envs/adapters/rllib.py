"""One copy of any `OpenVectorEnv` as RLlib's `MultiAgentEnv`, for RLlib's stock algorithms.

    from ray.tune import register_env
    register_env("open", open_multi_agent_env)
    PPOConfig().environment("open", env_config={"env": "wildfire", "env_config": {"setup": "3x3/S3"}})

This package's own methods do not train through it: everything is padded to fixed bounds, and RLlib gives the time an
agent is away the wrong credit (it becomes one long step of the agent; where a fragment is cut meanwhile, the agent's
last step is lost).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
from ray.rllib.env.multi_agent_env import MultiAgentEnv

from rl_openness.envs.adapters.padded_copy import OnIllegal, PaddedCopy, Reward
from rl_openness.envs.adapters.padding import GONE, AgentObs
from rl_openness.envs.base import OpenVectorEnv
from rl_openness.envs.draws import child_seeds
from rl_openness.envs.registry import make_environment
from rl_openness.errors import UserError


class OpenMultiAgentEnv(MultiAgentEnv):  # type: ignore[misc]
    """A view of `env`, which must have one copy and is taken over.

    Observations and actions are those of `padding`; names and places those of `padded_copy`. All names are declared
    from the start: the agents that the caller decides for; teammates are only seen. An agent that is away is left out
    of the observations; since it may come back, no agent is ever reported as done by itself, only `__all__`. When an
    episode ends, every agent that was in it gets the final state to look at, also those that are away, because RLlib
    bootstraps from it. If nobody is there when an episode starts, all members are shown (RLlib would take an empty
    start for an end); they can only choose the no-op until they are really there.

    Every agent that was seen in the episode gets its reward (the team's, or with `reward="own"` its own) in every step,
    also while it is away: RLlib adds it to the agent's last action. `infos["__common__"]` has the step's `team_reward`
    and `events`, and how many actions outside the mask were played as the no-op (`illegal_actions`).

    Arguments: those of `PaddedCopy`; `with_state` adds what a critic may know to the observations. `illegal`: the
    default lets RLlib's check of environments and algorithms without masks run. `worker_index`: RLlib seeds
    sub-environments of neighbouring runners alike; with an index above 0 the seed is mixed with it.

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
        reward: Reward = "team",
        illegal: OnIllegal = "no_op",
        worker_index: int = 0,
    ) -> None:
        self.copy = PaddedCopy(
            env, max_agents=max_agents, max_tasks=max_tasks, with_state=with_state, reward=reward, illegal=illegal
        )
        self.worker_index = worker_index
        self.possible_agents = list(self.copy.names)
        self.agents = list(self.possible_agents)
        self.observation_spaces: dict[str, gym.Space[Any]] = dict.fromkeys(
            self.possible_agents, self.copy.padding.space
        )
        self.action_spaces: dict[str, gym.Space[Any]] = dict.fromkeys(self.possible_agents, self.copy.action_space)
        super().__init__()
        self._seeded = False
        self._shown: list[str] = []
        self._seen_in_episode: dict[str, None] = {}

    @property
    def env(self) -> OpenVectorEnv:
        """The environment behind the view."""
        return self.copy.env

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, AgentObs], dict[str, Any]]:
        """The first observations of the next episode, of episode 0 if a `seed` is given."""
        super().reset(seed=seed, options=options)
        if seed is None and not self._seeded:
            seed = int.from_bytes(os.urandom(6), "little")
        if seed is not None and self.worker_index > 0:
            seed = int(child_seeds(seed, self.worker_index, count=1)[0])
        self.copy.reset(seed)
        self._seeded = True
        self._seen_in_episode.clear()
        return self._observe(self.copy.rows(self.copy.obs.present) or self.copy.rows()), {}

    def step(
        self, action_dict: Mapping[str, Any]
    ) -> tuple[dict[str, AgentObs], dict[str, float], dict[str, bool], dict[str, bool], dict[str, Any]]:
        """Play one step with the actions of exactly those agents that the last observations named."""
        played = self.copy.step(action_dict, self._shown)
        rewards = {name: reward for name, reward in played.rewards.items() if name in self._seen_in_episode}
        shown = self.copy.rows(self.copy.obs.present)
        if played.over:
            # Of members that are no more RLlib knows only that they were there; who comes now will never act.
            known = self.copy.rows()
            shown = {name: known.get(name, GONE) for name in self._seen_in_episode}
        facts = {
            "team_reward": played.team_reward,
            "events": played.events,
            "illegal_actions": played.illegal_actions,
        }
        return (
            self._observe(shown),
            rewards,
            {"__all__": played.terminated},
            {"__all__": played.truncated},
            {"__common__": facts},
        )

    def _observe(self, rows: dict[str, int]) -> dict[str, AgentObs]:
        """Observations of these agents, who act next."""
        unknown = rows.keys() - set(self.possible_agents)
        if unknown:
            raise UserError(f"{min(unknown)} is now decided for by the caller, but was not when this view was made")
        self._shown = list(rows)
        self._seen_in_episode |= dict.fromkeys(rows)
        return self.copy.observations(rows)


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
