"""Wolfpack as an `OpenVectorEnv`: B copies of one world, stepped together by the kernels of `rules` and `team`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from rl_openness.envs.base import Int, OpenVectorEnv, PackedObs, StepResult, Teammates, whole_numbers
from rl_openness.envs.draws import DecisionDraws, Keys, child_seeds, step_keys
from rl_openness.envs.state import begin_episodes, restore
from rl_openness.envs.wolfpack.config import WolfpackConfig
from rl_openness.envs.wolfpack.prey import WEIGHTS, PreyPolicy, PreyView, WeightedPrey
from rl_openness.envs.wolfpack.rules import (
    EVENTS,
    NUM_PREY_ACTIONS,
    STAY,
    Outcome,
    Rules,
    catch,
    draw_revivals,
    measure,
    move,
    read_choices,
    read_teammates,
    revive,
)
from rl_openness.envs.wolfpack.state import empty_state, state_limits
from rl_openness.envs.wolfpack.team import (
    draw_joiners,
    draw_leavers,
    grow_older,
    join,
    leave,
    no_newcomers,
    start,
)
from rl_openness.envs.wolfpack.view import pack, wolfpack_spec
from rl_openness.errors import UserError, nearest

AtEnd = Literal["reset", "stop"]


def compile_rules(config: WolfpackConfig, num_types: int = 0) -> Rules:
    """The constants of a world."""
    return Rules(
        size=config.size,
        max_steps=config.max_steps,
        start_size=config.start_size,
        capture_reward=config.capture_reward,
        close_penalty=config.close_penalty,
        approach_reward=config.approach_reward,
        paper=config.open_process == "paper",
        p_leave=config.leave_probability,
        p_join=config.join_probability,
        p_pair=config.pair_probability,
        min_age=config.min_age,
        stay_low=config.stay[0],
        stay_high=config.stay[1],
        absence_low=config.absence[0],
        absence_high=config.absence[1],
        num_types=num_types,
        all_controlled=config.controlled == "all",
    )


class WolfpackEnv(OpenVectorEnv):
    """B copies of one Wolfpack world.

    `teammates` decide for all members but the learner and are asked once per step for all copies; they are needed
    unless the config says `controlled` all. `prey` decides for the prey (None: the config's, a built-in one). `at_end`:
    `reset` starts ended copies anew at once, `stop` makes stepping an ended copy an error.
    """

    def __init__(
        self,
        config: WolfpackConfig,
        num_copies: int = 1,
        teammates: Teammates | None = None,
        *,
        prey: PreyPolicy | None = None,
        at_end: AtEnd = "reset",
    ) -> None:
        if np.ndim(num_copies) or whole_numbers(num_copies, "num_copies") < 1:
            raise UserError(f"num_copies must be a whole number of at least 1, not {num_copies!r}")
        if at_end not in get_args(AtEnd):
            raise UserError(f"at_end must be one of {', '.join(get_args(AtEnd))}, not {at_end!r}")
        if (teammates is None) != (config.controlled == "all"):
            raise UserError(
                "wolfpack with controlled = 'first' needs teammates, who decide for everyone but the learner"
                if teammates is None
                else "wolfpack with controlled = 'all' takes no teammates: the caller decides for everyone"
            )
        if prey is None and config.prey not in WEIGHTS:
            raise UserError(f"wolfpack has no built-in prey {config.prey!r}{nearest(config.prey, WEIGHTS)}")
        self.config = config
        self.spec = wolfpack_spec(config)
        self.num_copies = num_copies
        self.at_end = at_end
        self.teammates = teammates
        self.prey: PreyPolicy = prey or WeightedPrey(num_copies, config.num_prey, config.prey)
        self._rules = compile_rules(config, teammates.num_types if teammates is not None else 0)
        self._state = empty_state(config, num_copies)
        self._all = np.arange(num_copies, dtype=np.int64)
        self._newcomers = no_newcomers(num_copies, config.team_size)
        self._obs: PackedObs | None = None
        self.reset(child_seeds(0, count=num_copies))

    def reset(self, seeds: Int | Sequence[int] | None = None, copies: Int | None = None) -> None:
        """See `OpenVectorEnv.reset`."""
        state = self._state
        rows = begin_episodes(state.seed, state.episode, seeds, copies)
        keys = step_keys(state.seed[rows], state.episode[rows], np.zeros_like(rows))
        with np.errstate(over="ignore"):  # the hash wraps, which NumPy reports when the JIT is off
            start(self._rules, state, keys, rows, self._newcomers)
        self._obs = None

    def observe(self) -> PackedObs:
        """The observation of all copies now."""
        if self._obs is None:
            self._obs = pack(self._rules, self._state, self._all)
        return self._obs

    def decision_keys(self) -> Keys:
        """uint64 [B] keys of the current step."""
        return step_keys(self._state.seed, self._state.episode, self._state.step)

    def step(self, choices: Int) -> StepResult:
        """See `OpenVectorEnv.step`. Actions are up, right, down, left, stay (0 to 4); `NO_OP` is staying, too."""
        obs = self.observe()
        choices = whole_numbers(choices, "choices")
        if choices.shape != obs.present.shape:
            raise ValueError(f"step needs {len(obs.present)} choices, one per member, got shape {choices.shape}")
        if self.at_end == "stop" and (self._state.step >= self.config.max_steps).any():
            ended = int(np.flatnonzero(self._state.step >= self.config.max_steps)[0])
            raise ValueError(f"copy {ended} has ended: reset it before the next step")
        keys = self.decision_keys()
        members = np.arange(self._state.row.shape[1]) < self._state.members[:, None]
        moves = self._decide(obs, choices, keys)
        labels = moves[members]
        out = Outcome(np.zeros(moves.shape), np.zeros((len(EVENTS), self.num_copies), dtype=np.int64))
        with np.errstate(over="ignore"):
            self._play(moves, keys, out)
        return self._result(out.reward[members], labels, out)

    def _decide(self, obs: PackedObs, choices: Int, keys: Keys) -> Int:
        """Actions [B, N] of all members; raises ValueError before anyone has been asked if a choice is not legal."""
        moves = np.full(self._state.row.shape, STAY, dtype=np.int64)
        all_controlled = self._rules.all_controlled
        copy, agent = read_choices(self._state.members, choices, all_controlled, moves)
        if copy >= 0:
            legal = "0 to 4 or -1 (stay)" if agent == 0 or all_controlled else "-1 only, its own policy decides for it"
            raise ValueError(self._illegal(copy, agent, choices, legal))
        if self.teammates is not None:
            acts = whole_numbers(self.teammates.act(obs, DecisionDraws(keys)), "the teammates' actions")
            if acts.shape != choices.shape:
                raise ValueError(f"the teammates must give {len(choices)} actions, one per member, not {acts.shape}")
            copy, agent = read_teammates(self._state.members, acts, moves)
            if copy >= 0:
                raise ValueError("teammates: " + self._illegal(copy, agent, acts, "0 to 4 or -1 (stay)"))
        return moves

    def _illegal(self, copy: int, agent: int, choices: Int, legal: str) -> str:
        choice = int(choices[int(self._state.members[:copy].sum()) + agent])
        return f"copy {copy}, agent {agent}: choice {choice} is not legal; legal: {legal}"

    def _play(self, moves: Int, keys: Keys, out: Outcome) -> None:
        """One step of every copy, in the specification's order, with the environment's own draws."""
        rules, state = self._rules, self._state
        prey_actions = whole_numbers(self.prey.act(self._prey_view(), keys), "the prey's actions")
        if prey_actions.shape != state.alive.shape:
            raise ValueError(f"the prey must give actions of shape {state.alive.shape}, not {prey_actions.shape}")
        if prey_actions.min() < 0 or prey_actions.max() >= NUM_PREY_ACTIONS:
            raise ValueError(f"the prey's actions must lie in 0 to {NUM_PREY_ACTIONS - 1}")
        cells = np.empty(state.alive.shape, dtype=np.int64)
        draw_revivals(rules, state, keys, cells)
        revive(rules, state, cells)
        near = np.empty(moves.shape, dtype=np.int64)
        measure(state, near)
        move(rules, state, moves, prey_actions)
        catch(rules, state, near, out)
        grow_older(state)
        leaving = np.empty(moves.shape, dtype=np.bool_)
        draw_leavers(rules, state, keys, leaving)
        leave(state, leaving, out)
        draw_joiners(rules, state, keys, self._newcomers)
        join(rules, state, self._newcomers, out)
        state.step[:] += 1
        self._obs = None

    def _prey_view(self) -> PreyView:
        state = self._state
        return PreyView(
            self.config.size,
            state.step,
            state.members,
            state.row,
            state.col,
            state.prey_row,
            state.prey_col,
            state.facing,
            state.alive,
        )

    def _result(self, reward: NDArray[np.float64], labels: Int, out: Outcome) -> StepResult:
        truncated = self._state.step >= self.config.max_steps
        ended = np.flatnonzero(truncated)
        final_obs = None
        if len(ended):
            final_obs = pack(self._rules, self._state, ended)
            if self.at_end == "reset":
                self.reset(copies=ended)
        return StepResult(
            team_reward=out.reward.sum(axis=1) if self._rules.all_controlled else out.reward[:, 0].copy(),
            agent_reward=reward,
            terminated=np.zeros(self.num_copies, dtype=np.bool_),
            truncated=truncated,
            ended=ended,
            final_obs=final_obs,
            labels=labels,
            events={name: out.events[i] for i, name in enumerate(EVENTS)},
        )

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Copies of all state arrays; the memories of teammates and prey under `teammates.` and `prey.`."""
        state = {name: array.copy() for name, array in self._state._asdict().items()}
        for prefix, policy in self._deciders():
            state |= {prefix + name: array for name, array in policy.get_state().items()}
        return state

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Inverse of `get_state`; nothing changes if anything does not fit."""
        before = self.get_state()
        try:
            self._take(state)
        except ValueError:
            self._take(before)
            raise

    def _take(self, state: Mapping[str, NDArray[Any]]) -> None:
        restore(self._state._asdict(), state, state_limits(self.config, self._rules.num_types))
        for prefix, policy in self._deciders():
            own = {name.removeprefix(prefix): array for name, array in state.items() if name.startswith(prefix)}
            policy.set_state(own)
        self._obs = None

    def _deciders(self) -> list[tuple[str, Teammates | PreyPolicy]]:
        teammates = [] if self.teammates is None else [("teammates.", self.teammates)]
        return [*teammates, ("prey.", self.prey)]


def make_wolfpack(
    num_copies: int = 1,
    *,
    teammates: Teammates | None = None,
    prey_policy: PreyPolicy | None = None,
    at_end: AtEnd = "reset",
    **fields: Any,
) -> WolfpackEnv:
    """B copies of a world with these fields of `WolfpackConfig`. Raises UserError naming the field that is wrong."""
    return WolfpackEnv(wolfpack_config(fields), num_copies, teammates, prey=prey_policy, at_end=at_end)


def wolfpack_config(fields: Mapping[str, Any]) -> WolfpackConfig:
    """A config of these fields. Raises UserError naming the one that is wrong."""
    try:
        return WolfpackConfig.model_validate(fields)
    except ValidationError as error:
        problem = error.errors()[0]
        where = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            raise UserError(f"wolfpack has no field {where!r}{nearest(where, WolfpackConfig.model_fields)}") from None
        message = problem["msg"].removeprefix("Value error, ")
        raise UserError(f"wolfpack field {where!r}: {message}" if where else f"wolfpack: {message}") from None
