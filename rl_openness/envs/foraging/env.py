"""Open foraging as an `OpenVectorEnv`: B copies of one world, stepped together by the kernels of `rules` and `team`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from rl_openness.envs.base import Int, OpenVectorEnv, PackedObs, StepResult, Teammates, whole_numbers
from rl_openness.envs.draws import Keys, child_seeds
from rl_openness.envs.foraging.config import ForagingConfig
from rl_openness.envs.foraging.rules import (
    EVENTS,
    ID,
    NUM_ACTIONS,
    Outcome,
    Rules,
    first_illegal,
    merge_choices,
    play_step,
)
from rl_openness.envs.foraging.state import empty_state, state_limits
from rl_openness.envs.foraging.team import change_teams, decision_keys, start_teams
from rl_openness.envs.foraging.view import foraging_spec, pack
from rl_openness.envs.state import begin_episodes, restore
from rl_openness.errors import UserError

AtEnd = Literal["reset", "stop"]

_MATES = "teammates."
"""What the names of the teammates' arrays start with in `get_state`."""

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


class ForagingEnv(OpenVectorEnv):
    """B copies of one foraging world.

    Members of an observation are the agents in the team now: the learner (member 0 of its copy), then by joining. One
    that comes back is a new member. `teammates` decide for all others unless `controlled = "all"`; they are asked once
    per step for all copies. `at_end`: `reset` starts ended copies anew at once, `stop` makes stepping one an error.
    Raises UserError if teammates are missing, or given where nobody asks them.
    """

    def __init__(
        self,
        config: ForagingConfig,
        num_copies: int = 1,
        teammates: Teammates | None = None,
        *,
        at_end: AtEnd = "reset",
    ) -> None:
        if np.ndim(num_copies) or whole_numbers(num_copies, "num_copies") < 1:
            raise UserError(f"num_copies must be a whole number of at least 1, not {num_copies!r}")
        if at_end not in get_args(AtEnd):
            raise UserError(f"at_end must be one of {', '.join(get_args(AtEnd))}, not {at_end!r}")
        if config.controlled == "first" and teammates is None:
            raise UserError("foraging needs teammates for the agents besides the learner (or controlled = all)")
        if config.controlled == "all" and teammates is not None:
            raise UserError("foraging with controlled = all asks no teammates: give none")
        self.config = config
        self.spec = foraging_spec(config)
        self.num_copies = num_copies
        self.at_end = at_end
        self.teammates = teammates
        self._rules = compile_rules(config, 0 if teammates is None else teammates.num_types)
        self._state = empty_state(num_copies, config.slots, config.max_food)
        self._all = np.arange(num_copies, dtype=np.int64)
        self._obs: PackedObs | None = None
        self.reset(child_seeds(0, count=num_copies))

    def reset(self, seeds: Int | Sequence[int] | None = None, copies: Int | None = None) -> None:
        """See `OpenVectorEnv.reset`."""
        rows = begin_episodes(self._state.seed, self._state.episode, seeds, copies)
        with np.errstate(over="ignore"):  # the hash wraps, which NumPy reports when the JIT is off
            start_teams(self._rules, self._state, rows)
        self._obs = None

    def observe(self) -> PackedObs:
        """The observation of all copies now (the same object until the next step or reset)."""
        if self._obs is None:
            self._obs = pack(self.config, self._state, self._all)
        return self._obs

    def decision_keys(self) -> Keys:
        """uint64 [B] keys of the current step."""
        keys = np.empty(self.num_copies, dtype=np.uint64)
        with np.errstate(over="ignore"):
            decision_keys(self._state, keys)
        return keys

    def step(self, choices: Int) -> StepResult:
        """See `OpenVectorEnv.step`: 0 to 5 or `NO_OP` (none) for controlled members, `NO_OP` for the others.

        An action that is not valid (`action_mask`) is played as none and stays the label. Raises ValueError too if a
        teammate's action is none of these.
        """
        obs = self.observe()
        choices = whole_numbers(choices, "choices")
        if choices.shape != obs.present.shape:
            raise ValueError(f"step needs {len(obs.present)} choices, one per member, got shape {choices.shape}")
        if self.at_end == "stop" and self._ended().any():
            raise ValueError(f"copy {int(np.flatnonzero(self._ended())[0])} has ended: reset it before the next step")
        labels = self._labels(obs, choices)
        out = Outcome(
            team_reward=np.zeros(self.num_copies),
            agent_reward=np.zeros(len(labels)),
            terminated=np.zeros(self.num_copies, dtype=np.bool_),
            truncated=np.zeros(self.num_copies, dtype=np.bool_),
            events=np.zeros((len(EVENTS), self.num_copies), dtype=np.int64),
        )
        play_step(self._rules, self._state, obs.agent_ptr, obs.action_mask, labels, out)
        with np.errstate(over="ignore"):
            change_teams(self._rules, self._state, out)
        self._obs = None
        return self._result(out, labels)

    def _labels(self, obs: PackedObs, choices: Int) -> Int:
        """[M] what every member chose."""
        controlled = np.ones(len(choices), dtype=np.bool_) if obs.controlled is None else obs.controlled
        bad = first_illegal(controlled, choices)
        if bad >= 0:
            legal = f"-1 (none) to {NUM_ACTIONS - 1}" if controlled[bad] else "-1 only (teammates decide for it)"
            raise ValueError(f"{self._where(obs, bad)}: choice {choices[bad]} is not legal; legal: {legal}")
        others = choices
        if self.teammates is not None:
            others = whole_numbers(self.teammates.act(obs, self.draws()), "the teammates' actions")
            if others.shape != choices.shape:
                raise ValueError(f"teammates must give {len(choices)} actions, one per member, got {others.shape}")
        labels = np.empty_like(choices)
        bad = merge_choices(controlled, choices, others, labels)
        if bad >= 0:
            legal = f"-1 (none) to {NUM_ACTIONS - 1}"
            raise ValueError(f"{self._where(obs, bad)}: its teammate policy chose {others[bad]}; legal: {legal}")
        return labels

    def _where(self, obs: PackedObs, member: int) -> str:
        copy = int(obs.agent_copy[member])
        return f"copy {copy}, agent {self._state.member[copy, member - obs.agent_ptr[copy], ID]}"

    def _result(self, out: Outcome, labels: Int) -> StepResult:
        ended = np.flatnonzero(out.terminated | out.truncated)
        final_obs = None
        if len(ended):
            final_obs = pack(self.config, self._state, ended)
            if self.at_end == "reset":
                self.reset(copies=ended)
        return StepResult(
            team_reward=out.team_reward,
            agent_reward=out.agent_reward,
            terminated=out.terminated,
            truncated=out.truncated,
            ended=ended,
            final_obs=final_obs,
            labels=labels,
            events={name: out.events[i] for i, name in enumerate(EVENTS)},
        )

    def _ended(self) -> NDArray[np.bool_]:
        done: NDArray[np.bool_] = (self._state.step >= self._rules.max_steps) | (self._state.num_foods == 0)
        return done

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Copies of all state arrays, and the teammates' memory under `teammates.`."""
        state = {name: array.copy() for name, array in self._state._asdict().items()}
        if self.teammates is not None:
            state |= {_MATES + name: array for name, array in self.teammates.get_state().items()}
        return state

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Inverse of `get_state`."""
        restore(self._state._asdict(), state, state_limits(self.config, self._rules.num_types))
        self._obs = None
        if self.teammates is not None:
            memory = {name.removeprefix(_MATES): array for name, array in state.items() if name.startswith(_MATES)}
            self.teammates.set_state(memory)
