"""Advantages along each member's own steps: numbers worked by hand, and a slow restatement on real rollouts."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rl_openness.algorithms.mappo.chains import MemberValues, member_advantages
from rl_openness.algorithms.mappo.networks.actions import ActionsNetwork
from rl_openness.algorithms.mappo.settings import ActionsSettings, Clock
from rl_openness.envs.base import PackedObs, concatenate
from rl_openness.envs.draws import child_seeds
from rl_openness.envs.registry import make_environment
from rl_openness.rllib.chunk import RolloutChunk
from rl_openness.rllib.sampler import Sampler
from tests.nn.builders import close

A, B, C, D, E = range(5)
REWARDS = [1.0, 3.0, 0.0, 4.0, 2.0, 6.0, 8.0]
VALUES = [1.0, 5.0, 2.0, 1.0, 3.0, 1.0, 2.0]
BOOT, FINAL = [4.0, 100.0], [50.0, 10.0]


def observation(ids: list[int], carry: list[int], sizes: list[int]) -> PackedObs:
    count = len(ids)
    empty = np.empty(0, dtype=np.int64)
    return PackedObs(
        agent_rows=np.zeros((count, 1), dtype=np.float32),
        present=np.ones(count, dtype=bool),
        carry=np.array(carry),
        agent_id=np.array(ids),
        agent_ptr=np.cumsum([0, *sizes]),
        task_rows=np.zeros((0, 1), dtype=np.float32),
        task_ptr=np.zeros(len(sizes) + 1, dtype=np.int64),
        pair_agent=empty,
        pair_task=empty,
        pair_rows=np.zeros((0, 0), dtype=np.float32),
    )


def chunk(*, truncated: bool = False) -> RolloutChunk:
    """One copy: A and B; B leaves, C joins; the episode ends after the third step; in the next one D, then also E."""
    ends = np.array([[False], [False], [True], [False]])
    return RolloutChunk(
        num_steps=4,
        num_copies=1,
        obs=observation([A, B, A, C, A, C, D], [-1, -1, 0, -1, 2, 3, -1], [2, 2, 2, 1]),
        choices=np.zeros(7, dtype=np.int64),
        log_probs=np.zeros(7, dtype=np.float32),
        team_reward=np.zeros((4, 1)),
        terminated=ends & (not truncated),
        truncated=ends & truncated,
        boot=observation([D, E], [0, -1], [2]),
        final=observation([9, A], [-1, -1], [2]) if truncated else None,  # C left at the end, 9 joined
        final_step=np.array([2] if truncated else [], dtype=np.int64),
        window=1,
        memory=None,
        begins=np.zeros(1, dtype=np.uint64),
        goes_on=np.ones(1, dtype=np.uint64),
        agent_reward=np.array(REWARDS),
    )


def advantages(rollout: RolloutChunk, *, horizon_as_terminal: bool = False, final: list[float] | None = None) -> list:
    values = MemberValues(*(torch.tensor(each, dtype=torch.float64) for each in (VALUES, BOOT, final or [], [])))
    rewards = torch.tensor(REWARDS, dtype=torch.float64)
    return member_advantages(
        rollout, rewards, values, gamma=0.5, lambda_=0.5, horizon_as_terminal=horizon_as_terminal
    ).tolist()


def test_who_leaves_and_who_ends_has_no_next_value() -> None:
    found = advantages(chunk())
    assert found[1] == 3 - 5  # B left
    assert found[4] == 2 - 3  # A, the last step of its episode
    assert found[2] == (0 + 0.5 * 3 - 2) + 0.25 * found[4] == -0.75
    assert found[0] == (1 + 0.5 * 2 - 1) + 0.25 * found[2] == 0.8125
    assert found[5] == 6 - 1
    assert found[3] == (4 + 0.5 * 1 - 1) + 0.25 * found[5] == 4.75
    assert found[6] == 8 + 0.5 * 4 - 2  # D, cut by the fragment: bootstraps from what follows


def test_a_time_limit_bootstraps_from_the_final_observation() -> None:
    found = advantages(chunk(truncated=True), final=FINAL)
    assert found[4] == 2 + 0.5 * 10 - 3
    assert found[2] == (0 + 0.5 * 3 - 2) + 0.25 * found[4]
    assert found[5] == 6 - 1  # C left in that very step


def test_or_counts_as_an_end() -> None:
    assert advantages(chunk(truncated=True), final=FINAL, horizon_as_terminal=True) == advantages(chunk())


def absence(present: list[bool]) -> RolloutChunk:
    """One copy with one member that is there or away for four steps, and goes on after the chunk."""
    return replace(
        chunk(),
        obs=replace(observation([A] * 4, [-1, 0, 1, 2], [1] * 4), present=np.array(present)),
        boot=observation([A], [0], [1]),
        terminated=np.zeros((4, 1), dtype=bool),
    )


@pytest.mark.parametrize(
    ("present", "clock", "expected"),
    [
        # rewards 1, 2, 4, 8; values 1, 3, 5, 7, then 9; gamma and lambda 1/2
        ([True, False, False, True], "environment", [1.5 + 1.5 / 4 + 2.5 / 16 + 5.5 / 64, None, None, 5.5]),
        ([True, False, False, True], "agent", [(1 + 2 + 4) + 7 / 2 - 1 + 5.5 / 4, 0.0, 0.0, 5.5]),
        ([True, True, False, False], "agent", [1 + 3 / 2 - 1 + 15.5 / 4, (2 + 4 + 8) + 9 / 2 - 3, 0.0, 0.0]),
        ([False, False, True, True], "agent", [0.0, 0.0, 4 + 7 / 2 - 5 + 5.5 / 4, 5.5]),
        ([False, False, False, False], "agent", [0.0, 0.0, 0.0, 0.0]),
        ([True, True, True, True], "agent", [None, None, 2.5 + 5.5 / 4, 5.5]),
    ],
)
def test_an_absence_takes_time_or_none(present: list[bool], clock: Clock, expected: list[float | None]) -> None:
    numbers = ([1.0, 3.0, 5.0, 7.0], [9.0], [], [])
    values = MemberValues(*(torch.tensor(each, dtype=torch.float64) for each in numbers))
    rewards = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=torch.float64)
    found = member_advantages(
        absence(present), rewards, values, gamma=0.5, lambda_=0.5, horizon_as_terminal=False, clock=clock
    )
    for number, wanted in zip(found.tolist(), expected, strict=True):
        assert wanted is None or number == pytest.approx(wanted, abs=1e-12)


def test_who_is_cut_off_while_the_episode_goes_on_bootstraps_from_its_last_observation() -> None:
    nobody = observation([], [], [0])
    parted = concatenate([observation([B, A], [-1, -1], [2]), nobody, nobody, nobody])  # B was cut, A stayed
    values = MemberValues(*(torch.tensor(each, dtype=torch.float64) for each in (VALUES, BOOT, [], [20.0, 77.0])))
    rewards = torch.tensor(REWARDS, dtype=torch.float64)
    rollout = replace(chunk(), parted=parted)
    arguments = {"gamma": 0.5, "lambda_": 0.5}
    found = member_advantages(rollout, rewards, values, **arguments, horizon_as_terminal=False).tolist()
    assert found[1] == 3 + 0.5 * 20 - 5
    assert found[:1] + found[2:] == advantages(chunk())[:1] + advantages(chunk())[2:]
    cut = member_advantages(rollout, rewards, values, **arguments, horizon_as_terminal=True).tolist()
    assert cut == advantages(chunk())


def slow(rollout: RolloutChunk, rewards: np.ndarray, values: list[np.ndarray], gamma: float, lambda_: float) -> list:
    """Member by member, from identities: recursion (copy, step, id) -> advantage."""
    copies = rollout.num_copies

    def rows_of(obs: PackedObs, place: int) -> dict[int, int]:
        rows = range(obs.agent_ptr[place], obs.agent_ptr[place + 1])
        return {int(obs.agent_id[row]): row for row in rows}

    def advantage(t: int, b: int, who: int) -> float:
        row = rows_of(rollout.obs, t * copies + b)[who]
        ended = rollout.terminated[t, b] or rollout.truncated[t, b]
        following, later = 0.0, 0.0
        if ended:
            place = np.flatnonzero(rollout.final_step == t * copies + b)
            if len(place) and who in (final := rows_of(rollout.final, int(place[0]))):
                following = values[2][final[who]]
        elif t + 1 < rollout.num_steps:
            after = rows_of(rollout.obs, (t + 1) * copies + b)
            if who in after:
                following, later = values[0][after[who]], advantage(t + 1, b, who)
        elif who in (after := rows_of(rollout.boot, b)):
            following = values[1][after[who]]
        return rewards[row] + gamma * following - values[0][row] + gamma * lambda_ * later

    team_step = rollout.obs.agent_copy
    return [
        advantage(int(s) // copies, int(s) % copies, int(i))
        for s, i in zip(team_step, rollout.obs.agent_id, strict=True)
    ]


@pytest.mark.parametrize("share", [None, [0, 2]])
def test_like_a_slow_restatement_on_real_rollouts(share: list[int] | None) -> None:
    env = make_environment("foraging", 3, {"controlled": "all", "team_size": 4, "slots": 5, "max_steps": 23})
    network = ActionsNetwork(env.spec, ActionsSettings(hidden=4))
    sampler = Sampler(env, window=1, agent_rewards=True)
    sampler.restart(child_seeds(3, count=3))
    rng = np.random.default_rng(0)
    for steps in (40, 31, 1):
        rollout = sampler.collect(network.actor, steps)
        if share is not None:
            rollout = rollout.select_copies(np.array(share))
        sizes = [len(obs.present) if obs is not None else 0 for obs in (rollout.obs, rollout.boot, rollout.final)]
        values, rewards = [rng.normal(size=size) for size in sizes], rng.normal(size=sizes[0])
        found = member_advantages(
            rollout,
            torch.from_numpy(rewards),
            MemberValues(*(torch.from_numpy(each) for each in values), torch.zeros(0, dtype=torch.float64)),
            gamma=0.9,
            lambda_=0.8,
            horizon_as_terminal=False,
        )
        close(found, slow(rollout, rewards, values, 0.9, 0.8))


def test_rollouts_hold_own_rewards_only_where_asked_for() -> None:
    env = make_environment("foraging", 2, {"controlled": "all"})
    network = ActionsNetwork(env.spec, ActionsSettings(hidden=4))
    assert Sampler(env, window=1).collect(network.actor, 3).agent_reward is None
    rollout = Sampler(env, window=1, agent_rewards=True).collect(network.actor, 60)
    of_team = np.bincount(rollout.obs.agent_copy, rollout.agent_reward, minlength=120)
    close(of_team.reshape(60, 2), rollout.team_reward)
    assert replace(rollout).select_copies(np.array([1])).agent_reward.sum() == rollout.team_reward[:, 1].sum()
