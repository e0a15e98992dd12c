"""Wolfpack as an `OpenVectorEnv`: B copies of one world, stepped together by the kernels of `rules` and `team`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from rl_openness.envs.base import Int, PackedObs, Teammates, whole_numbers
from rl_openness.envs.draws import Keys, child_seeds, step_keys
from rl_openness.envs.state import begin_episodes
from rl_openness.envs.team_env import AtEnd, Played, Remembers, TeamEnv, checked_config
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


class WolfpackEnv(TeamEnv):
    """B copies of one Wolfpack world.

    Actions are up, right, down, left, stay (0 to 4); `NO_OP` is staying, too. `prey` decides for the prey (None: the
    config's, a built-in one). Teammates and `at_end`: see `TeamEnv`.
    """

    EVENTS = EVENTS
    NO_OP_ACTION = STAY, "stay"

    def __init__(
        self,
        config: WolfpackConfig,
        num_copies: int = 1,
        teammates: Teammates | None = None,
        *,
        prey: PreyPolicy | None = None,
        at_end: AtEnd = "reset",
    ) -> None:
        super().__init__(wolfpack_spec(config), num_copies, teammates, controlled=config.controlled, at_end=at_end)
        if prey is None and config.prey not in WEIGHTS:
            raise UserError(f"wolfpack has no built-in prey {config.prey!r}{nearest(config.prey, WEIGHTS)}")
        self.config = config
        self.prey: PreyPolicy = prey or WeightedPrey(num_copies, config.num_prey, config.prey)
        self._rules = compile_rules(config, self.num_types)
        self._state = empty_state(config, num_copies)
        self._newcomers = no_newcomers(num_copies, config.team_size)
        self.reset(child_seeds(0, count=num_copies))

    def reset(self, seeds: Int | Sequence[int] | None = None, copies: Int | None = None) -> None:
        """See `OpenVectorEnv.reset`."""
        state = self._state
        rows = begin_episodes(state.seed, state.episode, seeds, copies)
        keys = step_keys(state.seed[rows], state.episode[rows], np.zeros_like(rows))
        with np.errstate(over="ignore"):  # the hash wraps, which NumPy reports when the JIT is off
            start(self._rules, state, keys, rows, self._newcomers)
        self._obs = None

    def _pack(self, copies: Int) -> PackedObs:
        return pack(self._rules, self._state, copies)

    def decision_keys(self) -> Keys:
        """uint64 [B] keys of the current step."""
        return step_keys(self._state.seed, self._state.episode, self._state.step)

    def _play(self, obs: PackedObs, labels: Int) -> Played:
        """In the specification's order, with the environment's own draws."""
        rules, state, keys = self._rules, self._state, self.decision_keys()
        members = np.arange(state.row.shape[1]) < state.members[:, None]
        moves = np.full(state.row.shape, STAY, dtype=np.int64)
        moves[members] = labels
        out = Outcome(np.zeros(moves.shape), np.zeros((len(EVENTS), self.num_copies), dtype=np.int64))
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
        return Played(
            team_reward=out.reward.sum(axis=1) if rules.all_controlled else out.reward[:, 0].copy(),
            agent_reward=out.reward[members],
            terminated=np.zeros(self.num_copies, dtype=np.bool_),
            truncated=self._ended(),
            events=out.events,
        )

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

    def _ended(self) -> NDArray[np.bool_]:
        done: NDArray[np.bool_] = self._state.step >= self.config.max_steps
        return done

    def _limits(self) -> Mapping[str, tuple[ArrayLike, ArrayLike]]:
        return state_limits(self.config, self.num_types)

    def _deciders(self) -> list[tuple[str, Remembers]]:
        return [*super()._deciders(), ("prey.", self.prey)]


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
    return checked_config(WolfpackConfig, "wolfpack", fields)
