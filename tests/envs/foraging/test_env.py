"""What holds for every foraging world and play: independence of the batch, exact continuation, who is in the team."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_openness.envs.base import NO_OP, PackedObs, concatenate
from rl_openness.envs.draws import step_keys
from rl_openness.envs.foraging import ForagingEnv, make_foraging
from rl_openness.envs.foraging.view import AGENT_COLUMNS
from tests.envs.alike import assert_a_copy_is_its_own, assert_same
from tests.envs.foraging.golden import check_start
from tests.envs.foraging.worlds import Idle, Remembering, make, play, population

few = settings(max_examples=20, deadline=None)
seed_lists = st.lists(st.integers(0, 2**62), min_size=1, max_size=5)
worlds = st.sampled_from(
    [
        {},
        {"slots": 9, "team_size": 9},
        {"open_process": "paper", "strict_collisions": True, "team_size": 5},
        {"controlled": "all", "slots": 4, "spawn_everywhere": True},
        {"size": 5, "max_steps": 9, "max_food": 2, "slots": 2, "team_size": 2, "max_level": 4},
        {"size": 12, "max_food": 8, "max_level": 1, "slots": 30, "team_size": 20, "max_steps": 30},
    ]
)


@few
@given(worlds, seed_lists, st.randoms())
def test_a_copy_does_not_depend_on_its_batch(world: dict[str, Any], seeds: list[int], random: Any) -> None:
    assert_a_copy_is_its_own(lambda copies: make(copies, **world), play, seeds, random, 55)


@few
@given(worlds, seed_lists, st.integers(0, 40))
def test_set_state_goes_on_exactly(world: dict[str, Any], seeds: list[int], before: int) -> None:
    env, other = make(len(seeds), **world), make(len(seeds), **world)
    env.reset(seeds)
    for _ in play(env, before):
        pass
    other.set_state(env.get_state())
    for (obs, result), (other_obs, other_result) in zip(play(env, 30), play(other, 30), strict=True):
        assert_same(obs, other_obs)
        np.testing.assert_array_equal(result.agent_reward, other_result.agent_reward)
        np.testing.assert_array_equal(result.labels, other_result.labels)
        np.testing.assert_array_equal(result.ended, other_result.ended)


def test_the_state_holds_the_teammates_memory() -> None:
    env, other = (make_foraging(4, teammates=Remembering(), team_size=5) for _ in range(2))
    for _ in play(env, 23):
        pass
    state = env.get_state()
    other.set_state(state)
    for (_, result), (_, other_result) in zip(play(env, 40), play(other, 40), strict=True):
        np.testing.assert_array_equal(result.labels, other_result.labels)
    with pytest.raises(ValueError, match="'food' must have shape"):
        env.set_state({**state, "food": state["food"][:1]})
    with pytest.raises(ValueError, match=r"'seed' must have shape .* found nothing"):
        env.set_state({name: array for name, array in state.items() if name != "seed"})
    for name in ("member", "food", "num_members", "num_foods", "step"):
        before = env.get_state()
        with pytest.raises(ValueError, match=f"'{name}' must lie in"):
            env.set_state({**state, name: state[name] + 99})
        np.testing.assert_array_equal(env.get_state()[name], before[name])
    with pytest.raises(ValueError, match="'span' must be int64, found float64"):
        env.set_state({**state, "span": state["span"] + 0.5})


def test_a_memory_that_does_not_fit_changes_nothing_else() -> None:
    env = make_foraging(4, teammates=Remembering(), team_size=5)
    start = env.get_state()
    for _ in play(env, 3):
        pass
    before = env.get_state()
    with pytest.raises(KeyError):
        env.set_state({name: array for name, array in start.items() if name != "teammates.age"})
    for name, array in env.get_state().items():
        np.testing.assert_array_equal(array, before[name])


def test_memory_follows_each_agent() -> None:
    """`Remembering` plays its age in steps: every teammate's label tells for how long it has been in the team."""
    env = make_foraging(6, teammates=Remembering(), team_size=5)
    joined: list[dict[int, int]] = [{} for _ in range(6)]
    changes = 0
    for t, (obs, result) in enumerate(play(env, 120)):
        assert result.labels is not None
        for m, copy in enumerate(obs.agent_copy):
            agent = int(obs.agent_id[m])
            since = joined[copy].setdefault(agent, t)
            assert (obs.carry[m] == -1) == (since == t)
            if agent:
                assert result.labels[m] == (t - since + agent) % 6
        changes += int(result.events["joins"].sum() + result.events["leaves"].sum())
        for copy in result.ended:
            joined[copy] = {}
    assert changes > 30


@few
@given(worlds, seed_lists)
def test_starts_are_as_the_reference_makes_them(world: dict[str, Any], seeds: list[int]) -> None:
    env = make(len(seeds), **world)
    env.reset(seeds)
    obs = env.observe()
    for b in range(len(seeds)):
        one = obs.select(np.array([b]))
        check_start(env.config, one.agent_rows[:, :3], one.task_rows)
        assert (one.carry == -1).all()
        assert one.agent_id.tolist() == list(range(env.config.team_size))
        assert env.config.size < 8 or len(one.task_rows) == env.config.max_food or env.config.max_food > 3


def check_members(env: ForagingEnv, obs: PackedObs) -> None:
    """Sizes, the learner first, slots that differ, types in range, and arrays of the right kind."""
    config = env.config
    sizes = np.diff(obs.agent_ptr)
    rows = {name: obs.agent_rows[:, column] for column, name in enumerate(AGENT_COLUMNS)}
    assert sizes.min() >= 2
    assert sizes.max() <= config.team_size
    first = np.zeros(len(obs.present), dtype=bool)
    first[obs.agent_ptr[:-1]] = True
    np.testing.assert_array_equal(rows["slot"] == 0, first)
    assert (obs.agent_id[first] == 0).all()
    assert len(np.unique(obs.agent_copy * config.slots + rows["slot"])) == len(first)
    assert (np.diff(obs.agent_id)[~first[1:]] > 0).all()  # listed by joining
    if config.controlled == "first":
        np.testing.assert_array_equal(obs.controlled, first)
        np.testing.assert_array_equal(rows["type"] == -1, first)
        assert rows["type"].max() < 8
    else:
        assert obs.controlled is None
        assert (rows["type"] == -1).all()
    assert obs.present.all()
    assert obs.action_mask is not None
    assert obs.action_mask[:, 0].all()
    assert obs.agent_rows.dtype == obs.task_rows.dtype == np.float32
    assert min(rows["row"].min(), rows["col"].min()) >= 0
    assert max(rows["row"].max(), rows["col"].max()) < config.size
    assert len(obs.pair_agent) == len(obs.pair_task) == len(obs.pair_rows) == 0
    assert obs.pair_ptr.tolist() == [0] * (len(first) + 1)


@few
@given(worlds, seed_lists)
def test_every_step(world: dict[str, Any], seeds: list[int]) -> None:
    env = make(len(seeds), **world)
    env.reset(seeds)
    last: PackedObs | None = None
    for obs, result in play(env, 60):
        check_members(env, obs)
        if last is not None:
            kept = obs.carry >= 0
            np.testing.assert_array_equal(last.agent_id[obs.carry[kept]], obs.agent_id[kept])
            np.testing.assert_array_equal(last.agent_copy[obs.carry[kept]], obs.agent_copy[kept])
            np.testing.assert_array_equal(last.agent_rows[obs.carry[kept], 2:], obs.agent_rows[kept, 2:])
            moved = np.abs(last.agent_rows[obs.carry[kept], :2] - obs.agent_rows[kept, :2]).sum(axis=1)
            assert moved.max(initial=0) <= 1
        if env.config.strict_collisions:
            cells = obs.agent_copy * 1000 + obs.agent_rows[:, 0] * 30 + obs.agent_rows[:, 1]
            assert len(np.unique(cells)) == len(cells)
        assert result.agent_reward.min() >= 0
        members = np.diff(obs.agent_ptr) - result.events["leaves"] + result.events["joins"]
        now = np.diff(env.observe().agent_ptr)
        going = np.setdiff1d(np.arange(len(seeds)), result.ended)
        np.testing.assert_array_equal(now[going], members[going])
        if result.final_obs is not None:
            np.testing.assert_array_equal(np.diff(result.final_obs.agent_ptr), members[result.ended])
            assert (now[result.ended] == env.config.team_size).all()
            assert (env.observe().select(result.ended).carry == -1).all()
        last = obs


@few
@given(worlds, seed_lists, st.data())
def test_select_and_concatenate(world: dict[str, Any], seeds: list[int], data: st.DataObject) -> None:
    env = make(len(seeds), **world)
    env.reset(seeds)
    for _ in play(env, 18):
        pass
    obs = env.observe()
    one_by_one = [obs.select(np.array([b])) for b in range(len(seeds))]
    assert_same(concatenate(one_by_one), obs)
    copies = np.array(data.draw(st.lists(st.integers(0, len(seeds) - 1), min_size=1, max_size=8)))
    assert_same(obs.select(copies), concatenate([one_by_one[b] for b in copies]))


def test_reset_goes_on_to_the_next_episode_unless_seeded() -> None:
    env = make(3)
    env.reset([7, 8, 9])
    start, keys = env.observe(), env.decision_keys()
    assert env.observe() is start
    env.step(np.full(9, NO_OP))
    assert (env.observe().carry == np.arange(9)).all()
    env.reset(copies=np.array([1]))
    assert env.get_state()["episode"].tolist() == [0, 1, 0]
    assert env.get_state()["step"].tolist() == [1, 0, 1]
    assert env.observe().carry.tolist() == [0, 1, 2, -1, -1, -1, 6, 7, 8]  # the others still follow the last step
    env.reset([7, 8, 9])
    assert_same(env.observe(), start)
    np.testing.assert_array_equal(env.decision_keys(), keys)
    with pytest.raises(ValueError, match="one seed per copy: 3 copies"):
        env.reset([1, 2])
    with pytest.raises(ValueError, match="copies must lie in 0 to 2, found"):
        env.reset(copies=np.array([3]))
    with pytest.raises(ValueError, match="seeds must be whole numbers"):
        env.reset([0.5, 1.5, 2.5])  # type: ignore[list-item]


def test_decision_keys_are_the_packages_own() -> None:
    env = make(5)
    for _ in play(env, 7):
        pass
    state = env.get_state()
    np.testing.assert_array_equal(env.decision_keys(), step_keys(state["seed"], state["episode"], state["step"]))


def test_teammates_are_asked_once_per_step() -> None:
    class Counting(Idle):
        calls = 0

        def act(self, obs: PackedObs, draws: Any = None) -> Any:
            self.calls += 1
            assert obs.num_copies == 8
            return super().act(obs, draws)

    mates = Counting()
    env = make_foraging(8, teammates=mates)
    for _ in play(env, 60):
        pass
    assert mates.calls == 60


def test_types_are_uniform_over_the_population() -> None:
    env = make_foraging(4000, teammates=population(), slots=9, team_size=9)
    for _ in play(env, 50):
        pass  # by now many have joined anew
    for obs in (make_foraging(4000, teammates=population(), slots=9, team_size=9).observe(), env.observe()):
        kinds = obs.agent_rows[obs.agent_rows[:, 3] > 0, 4].astype(int)
        counts = np.bincount(kinds, minlength=8)
        expected = len(kinds) / 8
        assert ((counts - expected) ** 2 / expected).sum() < 26  # chi-square, 7 degrees: one in 2 000
