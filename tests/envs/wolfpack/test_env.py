"""What holds for every world and every play: teams, packing, independence of the batch, exact continuation, errors."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_openness.envs.base import NO_OP, PackedObs, StepResult
from rl_openness.envs.draws import DecisionDraws
from rl_openness.envs.wolfpack import PreyView, WolfpackConfig, WolfpackEnv, make_wolfpack
from rl_openness.envs.wolfpack.view import wolfpack_spec
from rl_openness.errors import UserError
from rl_openness.policies.population import Population
from rl_openness.policies.wolfpack import HEURISTICS, make_wolfpack_rule
from tests.envs.alike import assert_a_copy_is_its_own, assert_same

few = settings(max_examples=12, deadline=None)
seed_lists = st.lists(st.integers(0, 2**62), min_size=1, max_size=5)
# Worlds in which a lot happens within a few steps.
BUSY = {"leave_probability": 0.4, "join_probability": 0.5, "min_age": 2, "max_steps": 12}
worlds = st.sampled_from(
    [
        {"max_steps": 15},
        {**BUSY, "team_size": 5},
        {**BUSY, "team_size": 9, "slots": 9, "size": 6, "num_prey": 3, "start_size": 1, "prey": "random"},
        {"open_process": "paper", "stay": (2, 4), "absence": (1, 3), "team_size": 4, "slots": 7, "max_steps": 20},
        {**BUSY, "team_size": 5, "controlled": "all"},
    ]
)


class Remembering:
    """Teammates with memory that follows `carry`: each does what its number of steps in the team says."""

    num_types = 3

    def __init__(self) -> None:
        self.age = np.empty(0, dtype=np.int64)

    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> np.ndarray:
        assert draws is not None
        self.age = np.array([0 if row < 0 else self.age[row] + 1 for row in obs.carry], dtype=np.int64)
        return (self.age + obs.agent_rows[:, 2].astype(np.int64)) % 5

    def get_state(self) -> dict[str, np.ndarray]:
        return {"age": self.age.copy()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        self.age = state["age"].copy()


def make(copies: int, *, names: tuple[str, ...] = HEURISTICS, at_end: Any = "reset", **world: Any) -> WolfpackEnv:
    if world.get("controlled") == "all":
        return make_wolfpack(copies, at_end=at_end, **world)
    spec = wolfpack_spec(WolfpackConfig(**world))
    teammates = Population([make_wolfpack_rule(name) for name in names], spec)
    return make_wolfpack(copies, teammates=teammates, at_end=at_end, **world)


def choose(obs: PackedObs, draws: DecisionDraws) -> np.ndarray:
    """Random actions of the controlled members."""
    actions = make_wolfpack_rule("random").act(obs, draws)
    return actions if obs.controlled is None else np.where(obs.controlled, actions, NO_OP)


def play(env: WolfpackEnv, count: int) -> Iterator[tuple[PackedObs, StepResult]]:
    for _ in range(count):
        obs = env.observe()
        yield obs, env.step(choose(obs, env.draws()))


@few
@given(worlds, seed_lists, st.randoms())
def test_a_copy_does_not_depend_on_its_batch(world: dict[str, Any], seeds: list[int], random: Any) -> None:
    assert_a_copy_is_its_own(lambda copies: make(copies, **world), play, seeds, random, 30)


@few
@given(worlds, seed_lists, st.integers(0, 25))
def test_set_state_goes_on_exactly(world: dict[str, Any], seeds: list[int], before: int) -> None:
    def remembering() -> WolfpackEnv:
        mates = None if world.get("controlled") == "all" else Remembering()
        return make_wolfpack(len(seeds), teammates=mates, **world)

    env, other = remembering(), remembering()
    env.reset(seeds)
    for _ in play(env, before):
        pass
    other.set_state(env.get_state())
    for (obs, result), (other_obs, other_result) in zip(play(env, 20), play(other, 20), strict=True):
        assert_same(obs, other_obs)
        np.testing.assert_array_equal(result.agent_reward, other_result.agent_reward)
        np.testing.assert_array_equal(result.labels, other_result.labels)


def test_get_state_is_a_copy_and_set_state_checks_it() -> None:
    env = make(2)
    state = env.get_state()
    env.step(np.full(6, NO_OP))
    assert state["step"].tolist() == [0, 0]
    assert {"prey.memory", "row", "seed"} <= state.keys()
    with pytest.raises(ValueError, match="'row' must have shape"):
        env.set_state({**state, "row": state["row"][:1]})
    with pytest.raises(ValueError, match=r"'seed' must have shape .* found nothing"):
        env.set_state({name: array for name, array in state.items() if name != "seed"})
    for name, value, message in (
        ("facing", 4, "'facing' must lie in 0 to 3"),
        ("members", 0, "'members' must lie in 1 to 3"),
        ("prey.memory", 7, "'memory' must lie in"),
        ("row", 0.5, "'row' must be int64, found float64"),
        ("alive", 1, "'alive' must be bool, found int64"),
    ):
        with pytest.raises(ValueError, match=message):
            env.set_state({**state, name: np.full(state[name].shape, value)})
    assert env.get_state()["step"].tolist() == [1, 1]


def test_a_memory_that_does_not_fit_changes_nothing_else() -> None:
    env = make_wolfpack(2, teammates=Remembering())
    start = env.get_state()
    for _ in range(3):
        env.step(np.full(len(env.observe().present), NO_OP))
    before = env.get_state()
    for name in ("teammates.age", "prey.memory"):
        with pytest.raises((KeyError, ValueError)):
            env.set_state({each: array for each, array in start.items() if each != name})
        for each, array in env.get_state().items():
            np.testing.assert_array_equal(array, before[each])


def test_reset_goes_on_to_the_next_episode_unless_seeded() -> None:
    env = make(3)
    env.reset([7, 8, 9])
    first, keys = env.observe(), env.decision_keys()
    env.step(np.full(9, NO_OP))
    env.reset(copies=np.array([1]))
    assert env.get_state()["episode"].tolist() == [0, 1, 0]
    assert env.get_state()["step"].tolist() == [1, 0, 1]
    assert env.observe().carry.tolist() == [0, 1, 2, -1, -1, -1, 6, 7, 8]
    assert not np.array_equal(env.observe().agent_rows[3:6, :2], first.agent_rows[3:6, :2])
    env.reset([7, 8, 9])
    assert_same(env.observe(), first)
    np.testing.assert_array_equal(env.decision_keys(), keys)
    with pytest.raises(ValueError, match="one seed per copy: 3 copies"):
        env.reset([1, 2])
    with pytest.raises(ValueError, match=r"copies must lie in 0 to 2, found \[3\]"):
        env.reset(copies=np.array([3]))


def check_packing(env: WolfpackEnv, obs: PackedObs) -> None:
    config, copies = env.config, len(obs.agent_ptr) - 1
    sizes = np.diff(obs.agent_ptr)
    assert obs.present.all()
    assert ((sizes >= 1) & (sizes <= config.team_size)).all()
    assert np.diff(obs.task_ptr).tolist() == [config.num_prey] * copies
    assert (len(obs.pair_agent), len(obs.pair_task), obs.pair_rows.shape) == (0, 0, (0, 0))
    assert obs.pair_ptr.tolist() == [0] * (len(obs.present) + 1)
    for rows, columns in ((obs.agent_rows, env.spec.agent_columns), (obs.task_rows, env.spec.task_columns)):
        assert rows.dtype == np.float32
        assert rows.shape[1] == len(columns)
    learners = obs.agent_ptr[:-1]
    types = obs.agent_rows[:, 2]
    if config.controlled == "first":
        assert obs.controlled is not None
        assert np.flatnonzero(obs.controlled).tolist() == learners.tolist()
        assert (types[learners] == -1).all()
        assert (types[~obs.controlled] >= 0).all()
    else:
        assert obs.controlled is None
        assert (types == -1).all()
    assert (obs.agent_id[learners] == 0).all()
    assert np.isin(obs.agent_rows[:, 3], (2, 3, 4)).all()
    assert np.isin(obs.agent_rows[:, 4], (1, 2)).all()
    assert (obs.task_rows[:, 2:6].sum(axis=1) == 1).all()
    for b in range(copies):
        places = [tuple(row) for row in obs.agent_rows[obs.agent_ptr[b] : obs.agent_ptr[b + 1], :2]]
        prey = obs.task_rows[obs.task_ptr[b] : obs.task_ptr[b + 1]]
        places += [tuple(row[:2]) for row in prey if row[6]]
        assert len({*places}) == len(places)
        assert np.array(places).min() >= 0
        assert np.array(places).max() < config.size


@few
@given(worlds, seed_lists)
def test_teams(world: dict[str, Any], seeds: list[int]) -> None:
    """Packing; who stays keeps its place in the list, identity and type; who comes is new and last."""
    env = make(len(seeds), **world)
    env.reset(seeds)
    last: PackedObs | None = None
    ended = np.ones(len(seeds), dtype=bool)
    for obs, result in play(env, 30):
        check_packing(env, obs)
        kept = obs.carry >= 0
        assert (kept[obs.agent_ptr[:-1]] == ~ended).all()  # the learner never leaves
        if last is not None:
            was = obs.carry[kept]
            assert (np.diff(was) > 0).all()
            np.testing.assert_array_equal(obs.agent_id[kept], last.agent_id[was])
            np.testing.assert_array_equal(obs.agent_rows[kept, 2:], last.agent_rows[was, 2:])
            np.testing.assert_array_equal(obs.agent_copy[kept], last.agent_copy[was])
            for b in np.flatnonzero(~ended):
                new, before = obs.carry[obs.agent_ptr[b] : obs.agent_ptr[b + 1]] < 0, np.diff(last.agent_ptr)[b]
                assert (np.diff(new.astype(int)) >= 0).all()
                assert (obs.agent_id[obs.agent_ptr[b] : obs.agent_ptr[b + 1]][new] > last.agent_id.min()).all()
                assert before < 2 or (~new).sum() >= 2  # a teammate stays
        last, ended = obs, result.truncated


@few
@given(worlds, seed_lists)
def test_results(world: dict[str, Any], seeds: list[int]) -> None:
    """Shapes, labels, the team's reward, ends and last observations."""
    env, watch = make(len(seeds), **world), make(len(seeds), **world, at_end="stop")
    env.reset(seeds)
    watch.reset(seeds)
    for step in range(1, world["max_steps"] + 1):
        obs = env.observe()
        choices = choose(obs, env.draws())
        result, other = env.step(choices), watch.step(choices)
        assert result.labels is not None
        controlled = np.ones(len(obs.present), dtype=bool) if obs.controlled is None else obs.controlled
        np.testing.assert_array_equal(result.labels[controlled], choices[controlled])
        assert ((result.labels >= 0) & (result.labels <= 4)).all()
        assert result.agent_reward.shape == result.labels.shape
        if env.config.controlled == "first":
            np.testing.assert_array_equal(result.team_reward, result.agent_reward[obs.agent_ptr[:-1]])
        else:
            own = np.add.reduceat(result.agent_reward, obs.agent_ptr[:-1])
            np.testing.assert_allclose(result.team_reward, own, atol=1e-12)
        np.testing.assert_array_equal(result.agent_reward, other.agent_reward)
        assert not result.terminated.any()
        assert result.truncated.tolist() == [step == world["max_steps"]] * len(seeds)
        after = watch.observe()
        change = result.events["joins"] - result.events["leaves"]
        np.testing.assert_array_equal(np.diff(after.agent_ptr) - np.diff(obs.agent_ptr), change)
        dead = (after.task_rows[:, 6] == 0).reshape(len(seeds), -1).sum(axis=1)
        np.testing.assert_array_equal(result.events["captures"], dead)
    assert result.final_obs is not None
    assert result.ended.tolist() == list(range(len(seeds)))
    assert_same(result.final_obs, watch.observe())
    assert (env.observe().carry == -1).all()
    with pytest.raises(ValueError, match="copy 0 has ended: reset it"):
        watch.step(np.full(len(watch.observe().present), NO_OP))


def test_teammates_are_asked_once_with_what_everyone_sees() -> None:
    class Spy(Remembering):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[PackedObs] = []

        def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> np.ndarray:
            self.seen.append(obs)
            return super().act(obs, draws)

    spy = Spy()
    env = make_wolfpack(2, teammates=spy)
    for _ in range(3):
        obs = env.observe()
        env.step(np.full(len(obs.present), NO_OP))
        assert spy.seen[-1] is obs
    assert len(spy.seen) == 3
    assert spy.age.tolist() == [2] * 6


class Still:
    """Prey that do not move; what they are shown is kept."""

    def __init__(self, action: int = 4) -> None:
        self.views: list[PreyView] = []
        self.action = action

    def act(self, view: PreyView, keys: np.ndarray) -> np.ndarray:
        self.views.append(view)
        assert keys.shape == view.step.shape
        return np.full(view.alive.shape, self.action)

    def get_state(self) -> dict[str, np.ndarray]:
        return {}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        assert not state


def test_prey_can_be_replaced() -> None:
    still = Still()
    env = make_wolfpack(2, teammates=make(1).teammates, prey_policy=still)
    before = env.observe().task_rows.copy()
    env.step(np.full(6, NO_OP))
    np.testing.assert_array_equal(env.observe().task_rows[:, :6], before[:, :6])
    assert len(still.views) == 1
    env.set_state(env.get_state())
    still.action = 7
    illegal(env, [0] + [-1] * 2 + [0] + [-1] * 2, "the prey's actions must lie in 0 to 6")


def illegal(env: WolfpackEnv, choices: list[int], message: str) -> None:
    before = env.get_state()
    with pytest.raises(ValueError, match=message):
        env.step(np.array(choices))
    for name, array in env.get_state().items():
        np.testing.assert_array_equal(array, before[name])


def test_illegal_choices_change_nothing() -> None:
    env = make_wolfpack(2, teammates=Remembering())
    illegal(env, [0, -1, -1, 5, -1, -1], r"copy 1, agent 0: choice 5 is not legal; legal: -1 \(stay\) to 4")
    illegal(env, [0, -1, -1, -2, -1, -1], "copy 1, agent 0: choice -2 is not legal")
    illegal(env, [0, -1, 3, 0, -1, -1], "copy 0, agent 2: choice 3 is not legal; legal: -1 only")
    illegal(env, [0.5] * 6, "choices must be whole numbers")  # type: ignore[list-item]
    illegal(env, [0, -1], r"step needs 6 choices, one per member, got shape \(2,\)")
    everyone = make_wolfpack(1, controlled="all")
    illegal(everyone, [0, 4, 7], r"copy 0, agent 2: choice 7 is not legal; legal: -1 \(stay\) to 4")
    assert everyone.step(np.array([0, -1, 2])).labels.tolist() == [0, 4, 2]  # type: ignore[union-attr]


def test_teammates_actions_are_checked() -> None:
    class Wrong(Remembering):
        answer = np.array([0, 0, 9])

        def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> np.ndarray:
            return self.answer

    mates = Wrong()
    env = make_wolfpack(1, teammates=mates)
    illegal(env, [0, -1, -1], r"copy 0, agent 2: its teammate policy chose 9; legal: -1 \(stay\) to 4")
    mates.answer = np.array([0, 0])
    illegal(env, [0, -1, -1], r"teammates must give 3 actions, one per member, got \(2,\)")
    mates.answer = np.array([9, 1, -1])  # the learner's is not read
    assert env.step(np.array([2, -1, -1])).labels.tolist() == [2, 1, 4]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"slots": 1}, "wolfpack field 'slots': Input should be greater than or equal to 2"),
        ({"team_size": 6}, r"wolfpack: team_size \(6\) must not exceed slots \(5\)"),
        ({"start_size": 4}, r"wolfpack: start_size \(4\) must not exceed team_size \(3\)"),
        ({"size": 2}, r"wolfpack: size 2 gives 4 cells, but team_size 3 and num_prey 2 need 7"),
        ({"stay": (5, 4)}, r"wolfpack: stay must be \(shortest, longest\), found \(5, 4\)"),
        ({"team_sise": 5}, "wolfpack has no field 'team_sise'; did you mean 'team_size'"),
        ({"join_probability": 1.5}, "wolfpack field 'join_probability'"),
        ({}, "needs teammates"),
    ],
)
def test_errors_name_the_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_wolfpack(1, **fields)


def test_further_errors() -> None:
    with pytest.raises(UserError, match="asks no teammates"):
        make_wolfpack(1, teammates=Remembering(), controlled="all")
    with pytest.raises(UserError, match="num_copies must be a whole number of at least 1, not 0"):
        make_wolfpack(0, controlled="all")
    with pytest.raises(UserError, match="at_end must be one of reset, stop, not 'continue'"):
        make_wolfpack(1, controlled="all", at_end="continue")  # type: ignore[arg-type]


def test_any_number_of_slots_and_prey_and_the_tightest_grid() -> None:
    for world in (
        {"slots": 2, "team_size": 2, "start_size": 2, "num_prey": 1, "size": 2},
        {"slots": 40, "team_size": 30, "start_size": 30, "num_prey": 35, "size": 10},
    ):
        env = make(2, max_steps=20, **world)
        for obs, _ in play(env, 45):
            check_packing(env, obs)
