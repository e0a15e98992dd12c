import warnings
from dataclasses import replace
from functools import partial
from itertools import islice

import numpy as np
import pytest
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test
from pettingzoo.utils.conversions import parallel_to_aec

from rl_openness.envs.adapters.pettingzoo import OpenParallelEnv, parallel_env
from rl_openness.envs.base import NO_OP, PackedObs
from rl_openness.envs.registry import make_environment
from rl_openness.errors import UserError

WORLDS = {
    "wildfire": {"setup": "3x3/S3"},
    "wildfire-ends": {"setup": "upstream/4x4/S2"},
    "wildfire-empty": {
        "setup": "3x3/S3",
        "overrides": {"agent.initial_suppressant": 1, "agent.suppressant_decrease_probability": 1.0},
    },
    "foraging": {},
    "foraging-all": {"controlled": "all", "slots": 7, "team_size": 4},
    "wolfpack": {},
    "wolfpack-all": {"controlled": "all", "open_process": "paper", "max_steps": 90},
}
EMPTY_AT_FIRST = {"agent.initial_suppressant": 0}


def view_of(world, presence="mask", **kwargs):
    return parallel_env(world.partition("-")[0], presence, **WORLDS[world], **kwargs)


def random_actions(view, obs, rng):
    return {name: int(rng.choice(np.flatnonzero(obs[name]["action_mask"]))) for name in view.agents}


def play(view, seed, episodes=1):
    """(actions, agents listed afterwards, (observations, rewards, terminations, truncations, infos)) of every step;
    actions None = a reset."""
    rng = np.random.default_rng(seed)
    for episode in range(episodes):
        obs, infos = view.reset(seed=seed if episode == 0 else None)
        yield None, list(view.agents), (obs, {}, {}, {}, infos)
        while view.agents:
            actions = random_actions(view, obs, rng)
            obs, *rest = view.step(actions)
            yield actions, list(view.agents), (obs, *rest)


class Twin:
    """The same world as a plain vector environment, played with the same actions."""

    def __init__(self, world, seed):
        self.env = make_environment(world.partition("-")[0], 1, WORLDS[world])
        self.env.reset([seed])

    @property
    def obs(self) -> PackedObs:
        return self.env.observe()

    def mine(self, obs=None):
        obs = self.obs if obs is None else obs
        return np.ones_like(obs.present) if obs.controlled is None else obs.controlled

    def step(self, actions, view_members):
        """`view_members`: agent_id -> name, before the step."""
        obs = self.obs
        choices = np.full(len(obs.present), NO_OP)
        for row, agent in enumerate(obs.agent_id.tolist()):
            action = actions.get(view_members.get(agent))
            if action is None:
                continue
            if self.env.spec.num_actions is None:
                tasks = obs.pair_task[obs.pair_agent == row].tolist()
                choices[row] = tasks.index(action) if action in tasks else NO_OP
            else:
                choices[row] = action if action < self.env.spec.num_actions else NO_OP
        return self.env.step(choices)


@pytest.mark.parametrize("world", WORLDS)
def test_passes_the_api_test_of_pettingzoo(world):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        parallel_api_test(view_of(world), num_cycles=1000)


@pytest.mark.parametrize("world", WORLDS)
def test_passes_the_seed_test_of_pettingzoo(world):
    parallel_seed_test(partial(view_of, world), num_cycles=500)


@pytest.mark.filterwarnings("ignore:Observation is not a NumPy array", "ignore:Observation space for each agent")
@pytest.mark.parametrize("world", ["wildfire", "foraging", "wolfpack"])
def test_goes_through_the_conversion_of_pettingzoo_to_turns(world):
    api_test(parallel_to_aec(view_of(world)), num_cycles=100)


@pytest.mark.parametrize("presence", ["mask", "leave"])
@pytest.mark.parametrize("world", WORLDS)
def test_spaces_contain_every_observation(world, presence):
    view = view_of(world, presence)
    for _, _, (obs, *_) in islice(play(view, seed=2, episodes=1000), 1000):
        assert view.state_space.contains(view.state())
        for name, one in obs.items():
            assert view.observation_space(name).contains(one), name
            assert one["action_mask"][-1] == 1  # the no-op
            assert not np.isnan(np.concatenate([part.ravel() for part in one["observation"].values()])).any()


@pytest.mark.parametrize("reward", ["team", "own"])
@pytest.mark.parametrize("world", WORLDS)
def test_the_mask_form_plays_the_vector_environment(world, reward):
    view, twin, away = view_of(world, reward=reward), Twin(world, 4), 0
    for actions, agents, (obs, rewards, terminations, truncations, infos) in play(
        view, seed=4, episodes=12 if "ends" in world else 2
    ):
        names = {agent: f"agent_{place}" for agent, place in view.copy._place.items()}
        if actions is None:
            members = names
            continue
        assert set(obs) == set(rewards) == set(infos) == set(view.possible_agents)
        mine, ids = twin.mine(), twin.obs.agent_id
        result = twin.step(actions, members)
        expected = dict.fromkeys(view.possible_agents, 0.0)
        for row in np.flatnonzero(mine):
            own = result.agent_reward[row] if reward == "own" else result.team_reward[0]
            expected[members[int(ids[row])]] = own
        assert rewards == pytest.approx(expected)
        over = bool(len(result.ended))
        assert agents == ([] if over else view.possible_agents)
        assert set(terminations.values()) == {bool(result.terminated[0])}
        assert set(truncations.values()) == {bool(result.truncated[0] and not result.terminated[0])}
        now = result.final_obs if over else twin.obs
        present = {names[int(now.agent_id[row])] for row in np.flatnonzero(now.present & twin.mine(now))}
        for name, one in obs.items():
            there = name in present
            assert one["observation"]["present"] == there == infos[name]["present"]
            assert infos[name]["team_reward"] == result.team_reward[0]
            if not there:
                away += 1
                assert not any(part.any() for part in one["observation"].values())
                assert one["action_mask"].tolist() == [0] * (len(one["action_mask"]) - 1) + [1]
        members = names
    assert away > 0 or world in ("foraging", "wolfpack")


@pytest.mark.parametrize("reward", ["team", "own"])
@pytest.mark.parametrize("world", WORLDS)
def test_the_leave_form_lists_who_is_there_and_loses_no_reward(world, reward):
    view, twin = view_of(world, "leave", reward=reward), Twin(world, 4)
    returned, gone, passed, unpaid = 0, set(), 0, 0
    for actions, agents, (obs, rewards, terminations, truncations, infos) in play(view, seed=4, episodes=4):
        names = {agent: f"agent_{place}" for agent, place in view.copy._place.items()}
        if actions is None:
            listed, members, gone, paid, earned, team = agents, names, set(), {}, {}, 0.0
            continue
        told, steps = set(obs), infos[next(iter(obs))]["steps"]
        assert told == set(rewards) == set(terminations) == set(truncations) == set(infos) == set(listed) | set(agents)
        passed += steps - 1
        for step in range(steps):  # further ones had nobody there
            mine, before = twin.mine(), twin.obs
            assert step == 0 or not (before.present & mine).any()
            result = twin.step(actions if step == 0 else {}, members)
            for row in np.flatnonzero(mine):
                name = members[int(before.agent_id[row])]
                own = result.agent_reward[row] if reward == "own" else result.team_reward[0]
                earned[name] = earned.get(name, 0.0) + own
            team += result.team_reward[0]
            assert not len(result.ended) or step == steps - 1
        over = bool(len(result.ended))
        now = result.final_obs if over else twin.obs
        present = {names[int(now.agent_id[row])] for row in np.flatnonzero(now.present & twin.mine(now))}
        assert set(agents) == (set() if over else present)
        for name in told:
            paid[name] = paid.get(name, 0.0) + rewards[name]
            left = name in listed and name not in present
            assert terminations[name] == (over and bool(result.terminated[0]))
            assert truncations[name] == ((over and not result.terminated[0]) or (left and not over))
            assert infos[name]["away"] == (name not in present)
            assert obs[name]["observation"]["present"] == (name in present)
            if left:
                assert obs[name]["action_mask"].sum() == 1
        returned += len(set(agents) & gone)
        gone = (gone | (set(listed) - set(agents))) - set(agents)
        if over:
            rest = infos[listed[0]]["unpaid"]
            unpaid += sum(map(abs, rest.values()))
            assert {n: paid.get(n, 0.0) + rest.get(n, 0.0) for n in earned} == pytest.approx(earned)
            if reward == "team" and world.startswith("wildfire"):
                assert list(earned.values()) == pytest.approx([team] * 3)
        listed, members = agents, names
    assert returned > 0 or world in ("foraging", "wolfpack")
    if world == "wildfire-empty":
        assert passed > 0
        assert unpaid > 0


@pytest.mark.parametrize("presence", ["mask", "leave"])
@pytest.mark.parametrize("world", ["wildfire", "foraging-all", "wolfpack"])
def test_a_seed_fixes_everything(world, presence):
    first, again, other = (repr(list(play(view_of(world, presence), seed, 2))) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_without_a_seed_every_view_is_another():
    views = [view_of("wildfire") for _ in range(2)]
    for view in views:
        view.reset()
    assert views[0].copy.env.decision_keys() != views[1].copy.env.decision_keys()


@pytest.mark.parametrize("presence", ["mask", "leave"])
def test_an_end_is_told_as_it_was(presence):
    truncated = list(play(view_of("wildfire", presence), seed=0))[-1]
    assert set(truncated[2][3].values()) == {True}
    assert set(truncated[2][2].values()) == {False}
    calm = parallel_env("wildfire", presence, setup="upstream/2x3/S0")
    steps = [step for step in play(calm, seed=0, episodes=5) if not step[1]]
    assert len(steps) == 5
    for _, _, (_, _, terminations, truncations, _) in steps:
        assert set(terminations.values()) == {True}
        assert set(truncations.values()) == {False}


def test_who_leaves_is_shown_where_it_stands_and_who_is_there_is_what_others_see():
    view = view_of("wildfire", "leave")
    left = 0
    for _, agents, (obs, *_, infos) in play(view, seed=1):
        for name, one in obs.items():
            parts = one["observation"]
            assert parts["self"][3] > 0 or infos[name].get("away") or not infos[name]["present"]
            if infos[name].get("away"):
                left += 1
                assert parts["self"][:2].tolist() == [0.25 * int(name[-1])] * 2  # on the diagonal of a 3x3 grid
                assert parts["task_mask"].any()
            if agents:
                assert parts["team_mask"].tolist() == [float(other in agents) for other in view.possible_agents]
    assert left > 0


def test_nobody_there_at_the_start_is_not_the_end():
    view = parallel_env("wildfire", "leave", setup="3x3/S3", overrides=EMPTY_AT_FIRST)
    obs, infos = view.reset(seed=0)
    assert view.agents == view.possible_agents
    assert all(one["action_mask"].tolist() == [0] * 6 + [1] for one in obs.values())
    assert not any(info["present"] for info in infos.values())
    view.step(dict.fromkeys(view.agents, 6))
    assert view.agents
    forever = parallel_env(
        "wildfire",
        "leave",
        setup="3x3/S3",
        overrides=EMPTY_AT_FIRST | {"agent.suppressant_refill_probability": 0.0},
    )
    forever.reset(seed=0)
    *_, truncations, infos = forever.step(dict.fromkeys(forever.agents, 6))
    assert not forever.agents
    assert all(truncations.values())
    assert infos["agent_0"]["steps"] == 100


def test_teammates_are_seen_and_not_listed():
    view = view_of("foraging", "leave")
    assert view.possible_agents == ["agent_0"]
    team = {int(step[2][0]["agent_0"]["observation"]["team_mask"].sum()) for step in play(view, seed=0, episodes=3)}
    assert max(team) == 3
    assert all(step[1] == ["agent_0"] for step in play(view, seed=0) if step[1])


def test_with_few_places_a_name_goes_from_one_member_to_the_next():
    def members(**kwargs):
        steps = play(view_of("foraging-all", **kwargs), seed=0, episodes=2)
        found = {}
        for _, _, (*_, infos) in steps:
            for name, info in infos.items():
                found.setdefault(name, set()).add(info["agent_id"])
        return found

    assert any(len(ids - {-1}) > 1 for ids in members().values())
    many = members(max_agents=30)
    assert len(many) == 30
    assert all(ids <= {-1, int(name.removeprefix("agent_"))} for name, ids in many.items())


def test_the_state_is_what_a_critic_may_know():
    view = view_of("wildfire")
    view.reset(seed=0)
    state, obs = view.state(), view.copy.obs
    agents, tasks = state[: 3 * 7].reshape(3, 7), state[3 * 7 :].reshape(6, 6)
    scale = [column.scale for column in view.copy.env.spec.agent_columns]
    np.testing.assert_allclose(agents, np.column_stack([obs.present, obs.agent_rows * scale]))
    scale = [column.scale for column in view.copy.env.spec.task_columns]
    count = len(obs.task_rows)
    np.testing.assert_allclose(tasks[:count], np.column_stack([np.ones(count), obs.task_rows * scale]))
    assert not tasks[count:].any()


def test_a_nan_is_shown_as_nothing():
    view = view_of("wildfire")
    view.reset(seed=0)
    view.copy.obs.agent_rows[:, 3] = np.nan
    view.copy.obs.task_rows[0] = np.nan
    view.copy.obs.pair_rows[:, 2] = np.nan
    for name, one in view._observe(view.agents).items():
        assert view.observation_space(name).contains(one)
        assert one["observation"]["self"][3] == 0
    assert np.isfinite(view.state()).all()


@pytest.mark.parametrize("presence", ["mask", "leave"])
def test_an_environment_that_broke_is_cut_where_it_was_last_seen(presence, monkeypatch):
    view = view_of("wildfire", presence)
    first, _ = view.reset(seed=0)
    play_on = view.copy.env.step

    def broken(choices):
        result = play_on(choices)
        view.copy.env.reset()
        return replace(result, terminated=np.array([True]), failed=np.array([0]))  # as a bridge says it

    monkeypatch.setattr(view.copy.env, "step", broken)
    last, _, terminations, truncations, _ = view.step(dict.fromkeys(view.agents, 6))
    assert repr(last) == repr(first)
    assert not any(terminations.values())
    assert all(truncations.values())
    assert not view.agents


def test_actions_outside_the_mask():
    lenient, strict = view_of("wildfire"), view_of("wildfire", illegal="error")
    for view in (lenient, strict):
        view.reset(seed=0)
    *_, infos = lenient.step(dict.fromkeys(lenient.agents, 5))
    assert infos["agent_0"]["illegal_actions"] >= 1
    with pytest.raises(UserError, match=r"agent_0: action 5 is not legal; legal: \[0, 1, 6\] \(6 = no-op\)"):
        strict.step(dict.fromkeys(strict.agents, 5))


def test_mistakes_are_told_in_one_line():
    with pytest.raises(UserError, match="presence must be one of mask, leave, not 'away'"):
        view_of("wildfire", "away")
    with pytest.raises(UserError, match="render_mode must be one of None, rgb_array, ansi, not 'human'"):
        view_of("wildfire", render_mode="human")
    with pytest.raises(UserError, match="reward must be team or own, not 'mean'"):
        view_of("wildfire", reward="mean")
    with pytest.raises(UserError, match="max_tasks must be a whole number from 0 to 10,000, not 2.5"):
        view_of("wildfire", max_tasks=2.5)
    with pytest.raises(UserError, match="unknown environment 'wildfires'; did you mean 'wildfire'"):
        parallel_env("wildfires")
    with pytest.raises(UserError, match="not an environment|an OpenVectorEnv, not 3"):
        parallel_env(3)
    with pytest.raises(UserError, match="needs an environment of one copy, this one has 2"):
        parallel_env(make_environment("wildfire", 2))
    with pytest.raises(UserError, match="option 'setup' is for environments made by name"):
        parallel_env(make_environment("wildfire", 1), setup="3x3/S3")
    with pytest.raises(UserError, match="4 tasks, but this view was made for max_tasks=2: make it larger"):
        view_of("wildfire", max_tasks=2)
    with pytest.raises(UserError, match="agent 2 has come, but this view was made for max_agents=2: make it larger"):
        view_of("wildfire", max_agents=2)
    view = view_of("wildfire")
    view.reset()
    with pytest.raises(UserError, match=r"agent_0: an action is a whole number, not 0\.7"):
        view.step(dict.fromkeys(view.agents, 0.7))
    view = view_of("wildfire")
    with pytest.raises(UserError, match="the episode has not begun: call reset before step"):
        view.step({})
    *_, _ = play(view, seed=0)
    with pytest.raises(UserError, match="the episode has ended: call reset before step"):
        view.step({})
    view.reset()
    with pytest.raises(UserError, match=r"step needs the actions of \['agent_0', 'agent_1', 'agent_2'\], got those of"):
        view.step({"agent_0": 6})


@pytest.mark.parametrize("world", ["wildfire", "foraging", "wolfpack"])
def test_the_last_picture_is_that_of_the_end(world):
    view = view_of(world, render_mode="ansi")
    pictures = [view.render() for _ in play(view, seed=0)]
    horizon = view.copy.env.spec.horizon
    assert f"step {len(pictures) - 1}/{horizon}" in pictures[-1]
    view.reset()
    assert f"step 0/{horizon}" in view.render()
    silent = OpenParallelEnv(view.copy)
    assert silent.render() is None
