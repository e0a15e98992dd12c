"""Open foraging as an `OpenVectorEnv`: B copies of one world, stepped together by the kernels of `rules` and `team`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_openness.envs.base import Int, PackedObs, Teammates
from rl_openness.envs.draws import Keys, child_seeds
from rl_openness.envs.foraging.config import ForagingConfig
from rl_openness.envs.foraging.rules import EVENTS, NONE, Outcome, Rules, play_step
from rl_openness.envs.foraging.state import empty_state, state_limits
from rl_openness.envs.foraging.team import change_teams, decision_keys, start_teams
from rl_openness.envs.foraging.view import foraging_spec, pack
from rl_openness.envs.state import begin_episodes
from rl_openness.envs.team_env import AtEnd, Played, TeamEnv

# (stay, away, first_less, later_less): bounds of the drawn counters, inclusive. A counter c drawn at reset lasts c + 2
# steps, one drawn later c + 1 (specification, "Open-team process"), which the paper's process takes off.
_PROCESS = {"reference": ((10, 19), (15, 24), 0, 0), "paper": ((15, 25), (10, 20), 2, 1)}


def compile_rules(config: ForagingConfig, num_types: int) -> Rules:
    """The constants of a world whose teammates have `num_types` types."""
    stay, away, first_less, later_less = _PROCESS[config.open_process]
    return Rules(
        size=config.size,
        spawn_size=config.spawn_size,
        max_level=config.max_level,
        max_steps=config.max_steps,
        team_size=config.team_size,
        num_types=num_types,
        strict=config.strict_collisions,
        learner_only=config.controlled == "first",
        stay_low=stay[0],
        stay_range=stay[1] - stay[0] + 1,
        away_low=away[0],
        away_range=away[1] - away[0] + 1,
        first_less=first_less,
        later_less=later_less,
    )


class ForagingEnv(TeamEnv):
    """B copies of one foraging world.

    Members of an observation are the agents in the team now: the learner (member 0 of its copy), then by joining. One
    that comes back is a new member. An action that is not valid (`action_mask`) is played as none and stays the label.
    Teammates and `at_end`: see `TeamEnv`.
    """

    EVENTS = EVENTS
    NO_OP_ACTION = NONE, "none"

    def __init__(
        self,
        config: ForagingConfig,
        num_copies: int = 1,
        teammates: Teammates | None = None,
        *,
        at_end: AtEnd = "reset",
    ) -> None:
        super().__init__(foraging_spec(config), num_copies, teammates, controlled=config.controlled, at_end=at_end)
        self.config = config
        self._rules = compile_rules(config, self.num_types)
        self._state = empty_state(num_copies, config.slots, config.max_food)
        self.reset(child_seeds(0, count=num_copies))

    def reset(self, seeds: Int | Sequence[int] | None = None, copies: Int | None = None) -> None:
        """See `OpenVectorEnv.reset`."""
        rows = begin_episodes(self._state.seed, self._state.episode, seeds, copies)
        with np.errstate(over="ignore"):  # the hash wraps, which NumPy reports when the JIT is off
            start_teams(self._rules, self._state, rows)
        self._obs = None

    def _pack(self, copies: Int) -> PackedObs:
        return pack(self.config, self._state, copies)

    def decision_keys(self) -> Keys:
        """uint64 [B] keys of the current step."""
        keys = np.empty(self.num_copies, dtype=np.uint64)
        with np.errstate(over="ignore"):
            decision_keys(self._state, keys)
        return keys

    def _play(self, obs: PackedObs, labels: Int) -> Played:
        out = Outcome(
            team_reward=np.zeros(self.num_copies),
            agent_reward=np.zeros(len(labels)),
            terminated=np.zeros(self.num_copies, dtype=np.bool_),
            truncated=np.zeros(self.num_copies, dtype=np.bool_),
            events=np.zeros((len(EVENTS), self.num_copies), dtype=np.int64),
        )
        play_step(self._rules, self._state, obs.agent_ptr, obs.action_mask, labels, out)
        change_teams(self._rules, self._state, out)
        return Played(*out)

    def _ended(self) -> NDArray[np.bool_]:
        done: NDArray[np.bool_] = (self._state.step >= self._rules.max_steps) | (self._state.num_foods == 0)
        return done

    def _limits(self) -> Mapping[str, tuple[ArrayLike, ArrayLike]]:
        return state_limits(self.config, self.num_types)
