import gymnasium as gym
import numpy as np
import pytest
from ray.rllib.env.env_context import EnvContext
from ray.rllib.env.multi_agent_episode import MultiAgentEpisode
from ray.rllib.utils.pre_checks.env import check_multiagent_environments

from rl_openness.envs.adapters.rllib import OpenMultiAgentEnv, open_multi_agent_env
from rl_openness.envs.base import NO_OP, Column, EnvSpec, OpenVectorEnv, PackedObs, StepResult
from rl_openness.envs.draws import step_keys
from rl_openness.envs.wildfire import make_wildfire
from rl_openness.errors import UserError

TASKS = 10
SETUPS = ["2x3/S1", "3x3/S3", "5x5/S2", "upstream/3x3/S1", "upstream/4x4/S3"]
WORLDS = {
    "wildfire": {"setup": "3x3/S3"},
    "wildfire-ends": {"setup": "upstream/4x4/S2"},
    "foraging": {},
    "foraging-all": {"controlled": "all", "slots": 7, "team_size": 4},
    "wolfpack": {},
    "wolfpack-all": {"controlled": "all", "open_process": "paper", "max_steps": 90},
}
EMPTY_AT_FIRST = {"agent.initial_suppressant": 0}


def view_of(setup, **kwargs):
    overrides = kwargs.pop("overrides", None)
    return OpenMultiAgentEnv(make_wildfire(setup=setup, overrides=overrides), max_tasks=TASKS, **kwargs)


def random_actions(obs, rng):
    return {name: int(rng.choice(np.flatnonzero(one["action_mask"]))) for name, one in obs.items()}


def play(view, seed, episodes=1):
    """(actions, observations, rewards, terminateds, truncateds, infos) of all steps; actions None = a reset."""
    rng = np.random.default_rng(seed)
    for episode in range(episodes):
        obs, _ = view.reset(seed=seed if episode == 0 else None)
        yield None, obs, None, None, None, None
        done = False
        while not done:
            actions = random_actions(obs, rng)
            obs, *rest = view.step(actions)
            yield actions, obs, *rest
            done = rest[1]["__all__"] or rest[2]["__all__"]


def record(episode, actions, obs, rewards, terminateds, truncateds, infos):
    """As RLlib's runner does."""
    episode.add_env_step(obs, actions, rewards, infos, terminateds=terminateds, truncateds=truncateds)


def assert_in_space(view, obs):
    for name, one in obs.items():
        assert name in view.possible_agents
        assert view.observation_spaces[name].contains(one), name


@pytest.mark.parametrize("setup", SETUPS)
def test_three_episodes_are_those_of_the_vector_environment(setup):
    view, env = view_of(setup, with_state=True, illegal="error"), make_wildfire(setup=setup)
    view_obs, _ = view.reset(seed=11)
    env.reset([11])
    rng = np.random.default_rng(0)
    finished, left, returned, seen = 0, set(), set(), set()
    while True:
        obs = env.observe()
        present = {f"agent_{i}" for i in obs.agent_id[obs.present]}
        assert set(view_obs) == present
        assert_in_space(view, view_obs)
        returned |= left & present
        left |= set(view.possible_agents) - present
        seen |= present
        choices, actions = np.full(len(obs.present), NO_OP), {}
        for row, agent in enumerate(obs.agent_id):
            name, tasks = f"agent_{agent}", obs.pair_task[obs.pair_agent == row]
            if not obs.present[row]:
                continue
            assert np.flatnonzero(view_obs[name]["action_mask"]).tolist() == [*tasks, TASKS]
            choices[row] = rng.integers(-1, len(tasks))
            actions[name] = int(tasks[choices[row]]) if choices[row] >= 0 else TASKS
        result = env.step(choices)
        view_obs, rewards, terminateds, truncateds, infos = view.step(actions)
        assert rewards == dict.fromkeys(sorted(seen), result.team_reward[0])  # also of those who are away
        assert infos["__common__"]["team_reward"] == result.team_reward[0]
        assert infos["__common__"]["events"] == {name: counts[0] for name, counts in result.events.items()}
        assert terminateds == {"__all__": bool(result.terminated[0])}
        assert truncateds == {"__all__": bool(result.truncated[0] and not result.terminated[0])}
        if len(result.ended):
            finished += 1
            assert_in_space(view, view_obs)
            if finished == 3:
                break
            view_obs, _ = view.reset()
            seen = set()
    assert left
    assert returned


def test_shows_what_an_agent_may_see_and_everything_to_the_critic():
    view = view_of("upstream/3x3/S3", with_state=True)  # hides power and suppressant of others
    for _, shown, *_ in play(view, seed=3):
        obs = view.copy.obs
        if shown:
            for name, one in shown.items():
                row = obs.agent_id.tolist().index(int(name.removeprefix("agent_")))
                scale = [column.scale for column in view.env.spec.agent_columns]
                np.testing.assert_allclose(one["self"], obs.agent_rows[row, :4] * scale[:4])
                assert one["team"].shape == (3, 2)
                np.testing.assert_allclose(one["team"][row], obs.agent_rows[row, :2] * scale[:2])
                np.testing.assert_allclose(one["state_agents"][row], obs.agent_rows[row] * scale)
                np.testing.assert_array_equal(one["team_mask"], obs.present)
                np.testing.assert_array_equal(one["state_present"], obs.present)
                count = len(obs.task_rows)
                assert one["task_mask"].tolist() == [1.0] * count + [0.0] * (TASKS - count)
                assert one["tasks"].shape == (TASKS, 4)
                np.testing.assert_allclose(one["state_tasks"][:count, 4], obs.task_rows[:, 4] * 0.5)
                mine = obs.pair_agent == row
                expected = obs.pair_rows[mine] * [column.scale for column in view.env.spec.pair_columns]
                np.testing.assert_allclose(one["pairs"][obs.pair_task[mine]], expected)
                assert not one["pairs"][one["action_mask"][:-1] == 0].any()


def test_everyone_who_was_there_sees_the_state_in_which_an_episode_is_cut():
    view = view_of("3x3/S3")
    steps = list(play(view, seed=5, episodes=12))
    last = [step for step in steps if step[4] is not None and step[4]["__all__"]]
    assert len(last) == 12
    absent = 0
    for _, obs, *_ in last:
        assert set(obs) == set(view.possible_agents)
        assert_in_space(view, obs)
        for name, one in obs.items():
            if not one["team_mask"][view.possible_agents.index(name)]:
                absent += 1
                assert one["action_mask"].tolist() == [0.0] * TASKS + [1.0]
                assert one["task_mask"].any()
    assert absent > 0
    assert all(step[3] in (None, {"__all__": False}) for step in steps)


@pytest.mark.parametrize("reward", ["team", "own"])
@pytest.mark.parametrize("world", WORLDS)
def test_spaces_hold_every_observation_and_no_reward_is_lost(world, reward):
    """Thousands of steps of each environment, recorded as RLlib's runner does."""
    options = {"env": world.partition("-")[0], "env_config": WORLDS[world], "reward": reward, "with_state": True}
    view, steps, returned, absent = open_multi_agent_env(options), 0, 0, 0
    for actions, obs, rewards, *rest in play(view, seed=2, episodes=1000):
        assert_in_space(view, obs)
        if actions is None:
            if steps > 1000:
                break
            episode, given = MultiAgentEpisode(), dict.fromkeys(view.possible_agents, 0.0)
            episode.add_env_reset(observations=obs, infos={})
            before, seen = set(obs), set(obs)
            continue
        steps += 1
        assert set(rest[0]) == set(rest[1]) == {"__all__"}
        record(episode, actions, obs, rewards, *rest)
        for name, reward_now in rewards.items():
            given[name] += reward_now
        over = rest[0]["__all__"] or rest[1]["__all__"]
        returned += len((set(obs) & seen) - before)
        before, seen = set(obs), seen | set(obs)
        assert episode.is_done == over
        if over:
            assert set(obs) == seen
            absent += sum(not one["present"] for one in obs.values())
            for name, one in episode.agent_episodes.items():
                assert one.is_done
                assert one.get_return() == pytest.approx(given[name] - episode._hanging_rewards_begin[name])
    assert (returned > 0 and absent > 0) or world in ("foraging", "wolfpack")


def test_teammates_are_seen_and_decide_for_themselves():
    view = open_multi_agent_env({"env": "foraging"})
    assert view.possible_agents == ["agent_0"]
    steps = [obs for _, obs, *_ in play(view, seed=0, episodes=2)]
    assert {tuple(obs) for obs in steps} == {("agent_0",)}
    assert max(obs["agent_0"]["team_mask"].sum() for obs in steps) == 3


@pytest.mark.parametrize("setup", ["3x3/S3", "upstream/3x3/S1"])
def test_rllib_takes_whole_episodes_of_agents_that_leave_and_return(setup):
    view, returns = view_of(setup), []
    episode = None
    for actions, obs, *rest in play(view, seed=1, episodes=3):
        if actions is None:
            episode, team = MultiAgentEpisode(), dict.fromkeys(view.possible_agents, 0.0)
            episode.add_env_reset(observations=obs, infos={})
            continue
        record(episode, actions, obs, *rest)
        for name, reward in rest[0].items():
            team[name] += reward
        if episode.is_done:
            assert episode.is_truncated == rest[2]["__all__"]
            assert {name: one.get_return() for name, one in episode.agent_episodes.items()} == pytest.approx(team)
            assert all(one.is_done for one in episode.agent_episodes.values())
            returns.append(episode.get_return())
    assert len(returns) == 3


def test_an_episode_that_starts_with_nobody_does_not_look_ended_to_rllib():
    view = view_of("3x3/S3", overrides=EMPTY_AT_FIRST)
    obs, _ = view.reset(seed=0)
    assert set(obs) == set(view.possible_agents)
    assert all(np.flatnonzero(one["action_mask"]).tolist() == [TASKS] for one in obs.values())
    episode = MultiAgentEpisode()
    episode.add_env_reset(observations=obs)
    actions = dict.fromkeys(obs, TASKS)
    record(episode, actions, *view.step(actions))
    assert not episode.is_done


def test_nobody_present_in_the_middle_of_an_episode_is_an_empty_step():
    view = view_of("3x3/S3", overrides={"agent.initial_suppressant": 1, "agent.suppressant_decrease_probability": 1.0})
    empty = 0
    for _, obs, rewards, *_ in play(view, seed=0):
        empty += not obs
        assert rewards is None or len(rewards) <= 3
    assert empty > 0


def test_seeds_and_resets():
    first = {step: obs for step, (_, obs, *_) in enumerate(play(view_of("3x3/S3"), seed=7, episodes=2))}
    again = {step: obs for step, (_, obs, *_) in enumerate(play(view_of("3x3/S3"), seed=7, episodes=2))}
    assert repr(first) == repr(again)
    other = {step: obs for step, (_, obs, *_) in enumerate(play(view_of("3x3/S3", worker_index=1), seed=7))}
    assert repr(first[10]) != repr(other[10])
    views = [view_of("3x3/S3") for _ in range(2)]
    for view in views:
        view.reset()
    assert len({int(view.env.decision_keys()[0]) for view in views}) == 2  # without a seed all are different
    view = view_of("3x3/S3")
    view.reset(seed=7)
    env = make_wildfire(setup="3x3/S3")
    env.reset([7])
    view.reset()
    env.reset()
    assert view.env.decision_keys() == env.decision_keys()


def test_bounds_and_actions_are_checked():
    unbounded = make_wildfire()
    unbounded.config = None
    with pytest.raises(UserError, match="has tasks: say `max_tasks`"):
        OpenMultiAgentEnv(unbounded)
    with pytest.raises(UserError, match="one copy, this one has 2"):
        OpenMultiAgentEnv(make_wildfire(2), max_tasks=9)
    with pytest.raises(UserError, match="4 tasks, but this view was made for max_tasks=3"):
        OpenMultiAgentEnv(make_wildfire(setup="3x3/S3"), max_tasks=3)
    with pytest.raises(UserError, match="agent 2 has come, but this view was made for max_agents=2"):
        OpenMultiAgentEnv(make_wildfire(setup="3x3/S3"), max_tasks=9, max_agents=2)
    view = view_of("3x3/S3", illegal="error", max_agents=5)
    assert len(view.possible_agents) == 5
    obs, _ = view.reset(seed=0)
    assert obs["agent_0"]["team_mask"].tolist() == [1, 1, 1, 0, 0]
    with pytest.raises(UserError, match=r"step needs the actions of \['agent_0', 'agent_1', 'agent_2'\], got those of"):
        view.step({"agent_0": 0})
    with pytest.raises(UserError, match=r"agent_0: action 7 is not legal; legal: \[0, 1, 10\] \(10 = no-op\)"):
        view.step({"agent_0": 7, "agent_1": 10, "agent_2": 10})
    lenient, strict = view_of("3x3/S3"), view_of("3x3/S3")
    for one in (lenient, strict):
        one.reset(seed=0)
    played, expected = lenient.step(dict.fromkeys(obs, 7)), strict.step(dict.fromkeys(obs, TASKS))
    assert repr(played[:4]) == repr(expected[:4])
    assert [step[4]["__common__"]["illegal_actions"] for step in (played, expected)] == [3, 0]


def test_config_of_rllib():
    config = {"env": "wildfire", "env_config": {"setup": "2x3/S1"}, "max_tasks": 3, "with_state": True}
    view = open_multi_agent_env(EnvContext(config, worker_index=2))
    assert view.worker_index == 2
    assert view.observation_spaces["agent_0"]["state_tasks"].shape == (3, 5)
    check_multiagent_environments(view)
    with pytest.raises(UserError, match="needs `env`"):
        open_multi_agent_env({"max_tasks": 3})
    with pytest.raises(UserError, match="max_task"):
        open_multi_agent_env(config | {"max_task": 3})


class Visitors(OpenVectorEnv):
    """At time t the members are the agents t // 2 and t // 2 + 1: one leaves for ever every other step.

    Three fixed actions, the last is closed to the first member; nobody sees others; the reward is the sum of choices.
    """

    spec = EnvSpec("visitors", agent_columns=(Column("number"),), num_actions=3, horizon=4)
    num_copies = 1

    def __init__(self):
        self.time = 0
        self.played = []

    def reset(self, seeds=None, copies=None):
        self.time = 0

    def observe(self):
        first = self.time // 2
        members = np.array([first, first + 1])
        return PackedObs(
            agent_rows=members[:, None].astype(np.float32),
            present=np.array([True, self.time != 1]),
            carry=np.full(2, -1),
            agent_id=members,
            agent_ptr=np.array([0, 2]),
            task_rows=np.empty((0, 0), dtype=np.float32),
            task_ptr=np.array([0, 0]),
            pair_agent=np.empty(0, dtype=np.int64),
            pair_task=np.empty(0, dtype=np.int64),
            pair_rows=np.empty((0, 0), dtype=np.float32),
            action_mask=np.array([[True, True, False], [True, True, True]]),
            see_ptr=np.array([0, 1, 2]),
            see_agent=np.array([0, 1]),
        )

    def step(self, choices):
        self.played.append(choices.tolist())
        self.time += 1
        truncated = np.array([self.time == 4])
        final = self.observe()
        if truncated[0]:
            self.reset()
        return StepResult(
            team_reward=np.array([float(choices.sum())]),
            agent_reward=np.zeros(2),
            terminated=np.array([False]),
            truncated=truncated,
            ended=np.flatnonzero(truncated),
            final_obs=final if truncated[0] else None,
        )

    def decision_keys(self):
        zero = np.zeros(1, dtype=np.int64)
        return step_keys(zero, zero, zero)

    def get_state(self):
        return {}

    def set_state(self, state):
        pass


def test_fixed_actions_members_who_leave_for_ever_and_private_views():
    view = OpenMultiAgentEnv(Visitors(), max_agents=4)
    obs, _ = view.reset(seed=0)
    assert view.action_spaces["agent_0"] == gym.spaces.Discrete(4)
    assert {name: one["action_mask"].tolist() for name, one in obs.items()} == {
        "agent_0": [1, 1, 0, 1],
        "agent_1": [1, 1, 1, 1],
    }
    assert obs["agent_1"]["team_mask"].tolist() == [0, 1, 0, 0]
    assert obs["agent_1"]["team"].tolist() == [[0], [1], [0], [0]]
    episode = MultiAgentEpisode()
    episode.add_env_reset(observations=obs)
    shown = []
    for actions in [
        {"agent_0": 1, "agent_1": 2},
        {"agent_0": 3},
        {"agent_1": 0, "agent_2": 1},
        {"agent_1": 1, "agent_2": 1},
    ]:
        obs, *rest = view.step(actions)
        assert_in_space(view, obs)
        record(episode, actions, obs, *rest)
        shown.append(sorted(obs))
    # agent_3 comes with the end and never acts
    assert shown == [["agent_0"], ["agent_1", "agent_2"], ["agent_1", "agent_2"], ["agent_0", "agent_1", "agent_2"]]
    assert view.env.played == [[1, 2], [-1, -1], [0, 1], [1, 1]]
    assert obs["agent_0"]["self"].tolist() == [0.0]  # gone: nothing is known but that it can do nothing
    assert obs["agent_0"]["action_mask"].tolist() == [0, 0, 0, 1]
    assert episode.is_truncated
    assert set(episode.agent_episodes) == {"agent_0", "agent_1", "agent_2"}
