"""Tables of episodes and what is computed from them."""

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from rl_openness.envs.base import NO_OP, Int, PackedObs
from rl_openness.envs.draws import DecisionDraws
from rl_openness.envs.wildfire import make_wildfire
from rl_openness.errors import RunFailedError
from rl_openness.evaluation.metrics import percent_of_optimum, summarise
from rl_openness.evaluation.rollout import EPISODE_COLUMNS, play_episodes
from rl_openness.policies.base import Policy
from rl_openness.policies.generic import Noop
from rl_openness.policies.wildfire import make_rule

SEEDS = [5, 3, 5, 2**40, 0, 17, 200, 201, 202, 203, 204]
UPSTREAM: dict[str, Any] = {"setup": "upstream/4x4/S3"}  # episodes of different lengths, ended by themselves


@pytest.mark.parametrize("copies", [1, 2, 3, 5, 11, 16])
@pytest.mark.parametrize("world", [UPSTREAM, {"setup": "3x3/S3", "team_size": 4}])
def test_the_batch_size_changes_nothing(copies: int, world: dict[str, Any]) -> None:
    expected = play_episodes(make_wildfire(4, **world), make_rule("weakest"), SEEDS)
    frame = play_episodes(make_wildfire(copies, **world), make_rule("weakest"), SEEDS)
    pd.testing.assert_frame_equal(frame, expected)
    assert frame["seed"].tolist() == SEEDS
    assert frame.iloc[0].equals(frame.iloc[2])  # the same seed
    assert frame["return"].nunique() > 3


def test_every_count_against_a_plain_loop() -> None:
    env = make_wildfire(1, **UPSTREAM)
    rule = make_rule("random")
    frame = play_episodes(env, rule, SEEDS)
    assert frame["length"].nunique() > 1
    assert frame["absent_steps"].sum() > 0
    for row in frame.to_dict("records"):
        env.reset([row["seed"]])
        total = fights = absent = length = 0
        events: dict[str, int] = {}
        while True:
            obs = env.observe()
            choices = rule.act(obs, env.draws())
            result = env.step(choices)
            total += result.team_reward[0]
            fights += sum(choice >= 0 for choice in choices)
            absent += sum(not present for present in obs.present)
            length += 1
            for name, count in result.events.items():
                events[name] = events.get(name, 0) + int(count[0])
            if len(result.ended):
                break
        own = {"return": total, "length": length, "fights": fights, "noops": 3 * length - fights}
        assert row == {"seed": row["seed"], **events, **own, "agent_steps": 3 * length, "absent_steps": absent}


def test_columns_and_types() -> None:
    frame = play_episodes(make_wildfire(2), Noop(), [1, 2, 3])
    assert tuple(frame.columns[: len(EPISODE_COLUMNS)]) == EPISODE_COLUMNS
    assert {"putouts", "burnouts", "ignitions", "ran_dry", "refilled", "bad_attacks"} < set(frame.columns)
    assert all(frame[name].dtype == np.int64 for name in frame.columns if name != "return")
    assert frame["length"].tolist() == [100] * 3
    assert frame["noops"].tolist() == frame["agent_steps"].tolist() == [300] * 3


class CountsItsSteps(Policy):
    """A recurrent policy: acts as Random, and remembers for every member how long it has been in the episode."""

    name = "counts"

    def __init__(self) -> None:
        self.age = np.zeros(0, dtype=np.int64)
        self.oldest = 0

    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> Int:
        known = np.append(self.age, -1)
        self.age = known[obs.carry] + 1  # carry -1 reads the -1 at the end: age 0
        self.oldest = max(self.oldest, int(self.age.max()))
        return make_rule("random").act(obs, draws)


def test_recurrent_policies_start_every_episode_anew() -> None:
    policy = CountsItsSteps()
    env = make_wildfire(3, overrides={"env.max_steps": 9})
    play_episodes(env, policy, range(10))
    assert policy.oldest == 8


@pytest.mark.parametrize("seeds", [[], [[1, 2]]])
def test_seeds_must_be_a_list(seeds: Any) -> None:
    with pytest.raises(ValueError, match="at least one seed"):
        play_episodes(make_wildfire(2), Noop(), seeds)


def frame_of(**columns: list[float]) -> pd.DataFrame:
    rows = len(next(iter(columns.values())))
    filled = {name: columns.get(name, [0] * rows) for name in EPISODE_COLUMNS}
    return pd.DataFrame({**filled, **columns})


def test_summary() -> None:
    frame = frame_of(
        **{"return": [4.0, -6.0, 8.0]},
        length=[10, 20, 30],
        fights=[2, 0, 8],
        noops=[28, 60, 82],
        agent_steps=[30, 60, 90],
        absent_steps=[5, 5, 5],
        burnouts=[1, 2, 6],
        ran_dry=[0, 0, 3],
    )
    summary = summarise(frame)
    assert summary == pytest.approx(
        {
            "team_size_mean": 165 / 60,
            "episodes": 3,
            "return_mean": 2.0,
            "return_std": np.std([4, -6, 8], ddof=1),
            "length_mean": 20,
            "reward_per_fight": (2.0 + 1.0) / 2,
            "reward_per_fight_excluded": 1,
            "reward_per_fight_pooled": 0.6,
            "noop_percent": 100 * 170 / 180,
            "burnouts": 3.0,
            "ran_dry": 1.0,
        }
    )


def test_summary_without_any_fight() -> None:
    summary = summarise(play_episodes(make_wildfire(2), Noop(), [1, 2]))
    assert math.isnan(summary["reward_per_fight"])
    assert math.isnan(summary["reward_per_fight_pooled"])
    assert summary["reward_per_fight_excluded"] == 2
    assert summary["noop_percent"] == 100.0
    assert summary["burnouts"] > 0


def test_percent_of_optimum() -> None:
    assert percent_of_optimum(-128.2, -128.2, 21.0) == 0.0
    assert percent_of_optimum(21.0, -128.2, 21.0) == 100.0
    assert percent_of_optimum(-10.0, -20.0, 0.0) == 50.0
    assert percent_of_optimum(-30.0, -20.0, 0.0) == -50.0
    assert math.isnan(percent_of_optimum(1.0, 4.0, 4.0))


def test_only_the_first_episode_of_a_seed_counts() -> None:
    """Short episodes wait for long ones, and what they play meanwhile is not theirs."""

    class FightsInEvenCopies(Policy):
        name = "even"

        def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> Int:
            choices = make_rule("random").act(obs, draws)
            return np.where(obs.agent_copy % 2 == 0, choices, NO_OP)

    env = make_wildfire(4, **UPSTREAM)
    frame = play_episodes(env, FightsInEvenCopies(), [1, 2, 3, 4])
    alone = play_episodes(env, Noop(), [1, 2, 3, 4])
    assert (frame["length"] > alone["length"]).any()
    pd.testing.assert_frame_equal(frame.iloc[[1, 3]], alone.iloc[[1, 3]])


def test_an_endless_episode_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rl_openness.evaluation.rollout.MAX_STEPS", 50)
    with pytest.raises(RunFailedError, match=r"wildfire with seed 7 has not ended after 50 steps: give .* a limit"):
        play_episodes(make_wildfire(2, setup="2x3/S1"), Noop(), [7, 8])
