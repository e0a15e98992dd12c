"""One copy of somebody else's environment as a sequence of moments, whichever convention it follows.

PettingZoo's `ParallelEnv` lists its agents in `agents`; an episode is over when nobody is left. RLlib's `MultiAgentEnv`
returns an observation for everyone who acts next, and says `__all__` when an episode is over. Neither library is
imported here: an environment is known by the classes it derives from.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import gymnasium as gym

from rl_openness.errors import UserError

Name = Hashable
Convention = Literal["auto", "parallel", "rllib"]
ALL = "__all__"


class ConventionError(ValueError):
    """An environment broke the rules of its own library."""


@dataclass(frozen=True)
class Moment:
    """What an environment said after a reset or a step."""

    observations: Mapping[Name, Any]
    """Of everyone who acts next."""
    rewards: Mapping[Name, float]
    terminated: frozenset[Name]
    truncated: frozenset[Name]
    """Whose stay is over. Who is in neither and has no observation is away."""
    last: Mapping[Name, Any]
    """Last observations of these, where there are any."""
    over: bool
    """The episode has ended,"""
    cut: bool
    """by a limit of time: values go on from the last observations."""


class Foreign(ABC):
    """One copy of an environment."""

    convention: str

    def __init__(self, env: Any) -> None:
        self.env = env

    @property
    def label(self) -> str:
        """What messages call it: the name in its metadata, which PettingZoo's have, or its class."""
        metadata = getattr(self.env, "metadata", None)
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        return str(name or type(self.env).__name__)

    @abstractmethod
    def reset(self, seed: int) -> Moment:
        """Begin an episode."""

    @abstractmethod
    def step(self, actions: Mapping[Name, Any]) -> Moment:
        """Play one step."""

    @abstractmethod
    def declared(self) -> list[Name] | None:
        """Names that the environment knows beforehand; None if it does not say. Raises ConventionError for no names."""

    @abstractmethod
    def spaces(self, name: Name) -> tuple[gym.Space[Any], gym.Space[Any]]:
        """Observation and action space of an agent. Raises ConventionError if there are none."""

    def close(self) -> None:
        """Release what the environment holds."""
        if hasattr(self.env, "close"):
            self.env.close()


class ParallelForeign(Foreign):
    """A PettingZoo `ParallelEnv`.

    Agents may come, leave and come back. `over(env)` says whether the episode has ended, for worlds in which nobody may
    be present for a while; by default it has when nobody is left.
    """

    convention = "parallel"

    def __init__(self, env: Any, over: Callable[[Any], bool] | None = None) -> None:
        super().__init__(env)
        self._over = over

    def reset(self, seed: int) -> Moment:
        """See `Foreign.reset`."""
        observations, _ = self.env.reset(seed=seed)
        here = {name: observations[name] for name in self.env.agents if name in observations}
        over = bool(self._over(self.env)) if self._over else not self.env.agents
        return Moment(here, {}, frozenset(), frozenset(), {}, over=over, cut=False)

    def step(self, actions: Mapping[Name, Any]) -> Moment:
        """See `Foreign.step`."""
        observations, rewards, terminations, truncations, _ = self.env.step(dict(actions))
        listed = list(self.env.agents)
        terminated = frozenset(name for name, flag in terminations.items() if flag and name != ALL)
        truncated = frozenset(name for name, flag in truncations.items() if flag and name != ALL) - terminated
        done = terminated | truncated
        over = bool(self._over(self.env)) if self._over else not set(listed) - done
        return Moment(
            observations={name: observations[name] for name in listed if name in observations and name not in done},
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            last={name: observations[name] for name in done if name in observations},
            over=over,
            cut=over and bool(truncated),
        )

    def declared(self) -> list[Name] | None:
        """See `Foreign.declared`."""
        names = getattr(self.env, "possible_agents", None)
        return None if names is None else _name_list(names)

    def spaces(self, name: Name) -> tuple[gym.Space[Any], gym.Space[Any]]:
        """See `Foreign.spaces`."""
        try:
            return self.env.observation_space(name), self.env.action_space(name)
        except Exception as error:  # a user's code
            raise ConventionError(f"agent {name!r} has no observation_space or action_space ({error!r})") from error


class RllibForeign(Foreign):
    """An RLlib `MultiAgentEnv`: who has no observation does not act now, and is away until it has one again."""

    convention = "rllib"

    def reset(self, seed: int) -> Moment:
        """See `Foreign.reset`."""
        observations, _ = self.env.reset(seed=seed, options=None)
        return Moment(observations, {}, frozenset(), frozenset(), {}, over=False, cut=False)

    def step(self, actions: Mapping[Name, Any]) -> Moment:
        """See `Foreign.step`."""
        observations, rewards, terminateds, truncateds, _ = self.env.step(dict(actions))
        if ALL not in terminateds:
            raise ConventionError(f"RLlib's environments return {ALL!r} in terminateds at every step")
        # Without it in truncateds RLlib's own runners go on, too: several of RLlib's examples return {}.
        ended, cut = bool(terminateds[ALL]), bool(truncateds.get(ALL, False))
        terminated = frozenset(name for name, flag in terminateds.items() if flag and name != ALL)
        truncated = frozenset(name for name, flag in truncateds.items() if flag and name != ALL) - terminated
        if cut and not ended:  # everyone is cut who did not end by itself, away or not
            truncated |= observations.keys() - terminated
        done = terminated | truncated
        return Moment(
            observations={name: each for name, each in observations.items() if name not in done},
            rewards=rewards,
            terminated=terminated,
            truncated=truncated,
            last={name: observations[name] for name in done if name in observations},
            over=ended or cut,
            cut=cut and not ended,
        )

    def declared(self) -> list[Name] | None:
        """See `Foreign.declared`."""
        names = getattr(self.env, "possible_agents", None) or getattr(self.env, "agents", None)
        return _name_list(names) if names else None

    def spaces(self, name: Name) -> tuple[gym.Space[Any], gym.Space[Any]]:
        """See `Foreign.spaces`."""
        try:
            found = self.env.get_observation_space(name), self.env.get_action_space(name)
        except Exception as error:  # a user's code
            raise ConventionError(f"agent {name!r} has no observation or action space ({error!r})") from error
        for what, space in zip(("observation", "action"), found, strict=True):
            if not isinstance(space, gym.Space):
                raise ConventionError(f"agent {name!r} has no {what} space: it is {space!r}")
        return found


def _name_list(names: Any) -> list[Name]:
    if isinstance(names, (str, bytes, Iterator)) or not isinstance(names, Iterable):
        raise ConventionError(f"possible_agents must be a list of names, not {names!r:.80}")
    return list(names)


def made(make: Callable[[], Any]) -> Any:
    """What a user's `make()` gives. Raises UserError with what it raised."""
    try:
        return make()
    except UserError:
        raise
    except Exception as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"the environment cannot be made: {told}") from error


def _derives(env: Any, package: str, name: str) -> bool:
    return any(c.__name__ == name and c.__module__.partition(".")[0] == package for c in type(env).__mro__)


def convention_of(env: Any) -> Literal["parallel", "rllib"]:
    """Which it follows. Raises UserError, saying what to do, for anything else."""
    if _derives(env, "ray", "MultiAgentEnv"):
        return "rllib"
    if _derives(env, "pettingzoo", "ParallelEnv"):
        return "parallel"
    kind = type(env).__name__
    if _derives(env, "pettingzoo", "AECEnv"):
        raise UserError(
            f"{kind} is an AECEnv, whose agents take turns: pass pettingzoo.utils.aec_to_parallel({kind}(...)) instead"
        )
    raise UserError(
        f"{kind} is neither a PettingZoo ParallelEnv nor an RLlib MultiAgentEnv: derive from one, or name the "
        "convention it follows, parallel or rllib (option bridge.convention)"
    )


def make_foreign(env: Any, convention: Convention = "auto", over: Callable[[Any], bool] | None = None) -> Foreign:
    """An environment by the convention it follows. Raises UserError if that cannot be told."""
    if convention == "auto":
        convention = convention_of(env)
    if convention == "rllib":
        if over is not None:
            raise UserError(f"over: an RLlib MultiAgentEnv says itself when an episode has ended ({ALL!r})")
        return RllibForeign(env)
    return ParallelForeign(env, over)
