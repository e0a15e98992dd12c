"""The papers' own protocols: which episodes count, on a world whose episodes have known lengths."""

from typing import Any

import numpy as np
import pytest

from rl_openness.envs.base import NO_OP, EnvSpec, PackedObs, StepResult
from rl_openness.envs.draws import DecisionDraws
from rl_openness.envs.registry import make_environment
from rl_openness.evaluation import reference
from rl_openness.evaluation.reference import COPIES, play_reference
from rl_openness.evaluation.rollout import play_episodes
from rl_openness.policies.base import Policy
from rl_openness.policies.teammates import make_teammate


class Clockwork:
    """Copy b's episodes last b + 1 steps, each worth 1; copies 5 to 15 take a hundred times as long."""

    spec = EnvSpec("foraging", (), num_actions=2)
    num_copies = COPIES

    def __init__(self) -> None:
        self.lengths = np.where(np.arange(COPIES) < 5, 1, 100) * (np.arange(COPIES) + 1)
        self.seeds: list[list[int]] = []

    def reset(self, seeds: Any) -> None:
        self.seeds.append(list(seeds))
        self.age = np.zeros(COPIES, dtype=np.int64)

    def observe(self) -> PackedObs:
        nothing, rows = np.empty(0, dtype=np.int64), np.zeros((COPIES, 1), dtype=np.float32)
        copies, here = np.arange(COPIES), np.ones(COPIES, dtype=np.bool_)
        ptr, none = np.arange(COPIES + 1), np.zeros(COPIES + 1, dtype=np.int64)
        empty = np.empty((0, 0), dtype=np.float32)
        return PackedObs(rows, here, copies, copies, ptr, empty, none, nothing, nothing, empty)

    def draws(self) -> DecisionDraws:
        return DecisionDraws.fresh(COPIES)

    def step(self, choices: np.ndarray) -> StepResult:
        self.age += 1
        done = self.age == self.lengths
        self.age[done] = 0
        reward, no = np.ones(COPIES), np.zeros(COPIES, dtype=np.bool_)
        return StepResult(reward, reward, done, no, np.flatnonzero(done), None)


class Idle(Policy):
    name = "idle"

    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> np.ndarray:
        return np.full(len(obs.present), NO_OP)


def test_foraging_stops_with_the_first_copy_that_has_five_episodes() -> None:
    """After five steps copies 0 to 4 have finished 5, 2, 1, 1 and 1 episodes; all of them count, no other does."""
    env = Clockwork()
    table = play_reference(env, Idle())
    assert env.seeds == [list(range(2500, 2516))]
    counts = table["seed"].value_counts().to_dict()
    assert counts == {2500: 5, 2501: 2, 2502: 1, 2503: 1, 2504: 1}
    assert (table["length"] == table["seed"] - 2499).all()
    assert (table["return"] == table["length"]).all()


def test_wolfpack_plays_five_rounds_of_sixteen() -> None:
    env = make_environment("wolfpack", COPIES, {"max_steps": 10})
    table = play_reference(env, make_teammate("wolfpack", "greedy"))
    assert table["seed"].tolist() == list(range(2000, 2080))
    expected = play_episodes(env, make_teammate("wolfpack", "greedy"), range(2000, 2080))
    assert table["return"].tolist() == expected["return"].tolist()


def test_in_foraging_short_episodes_count_more_often() -> None:
    env = make_environment("foraging", COPIES)
    table = play_reference(env, make_teammate("foraging", "H1"))
    ours = play_episodes(env, make_teammate("foraging", "H1"), range(2500, 2580))
    assert table["seed"].value_counts().max() == 5
    assert set(table["seed"]) <= set(range(2500, 2516))
    assert table["length"].mean() < ours["length"].mean()
    assert set(table.columns) == set(ours.columns)


@pytest.mark.parametrize(("name", "copies"), [("wildfire", 16), ("foraging", 15)])
def test_other_worlds_have_no_such_protocol(name: str, copies: int) -> None:
    with pytest.raises(ValueError, match="16 copies of foraging or wolfpack"):
        play_reference(make_environment(name, copies), Idle())
    assert reference.COPIES == 16
