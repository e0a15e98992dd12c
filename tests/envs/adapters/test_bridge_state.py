"""Seeds, states and crowds: foreign environments repeat themselves, come back, and lose no reward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from rl_openness.envs.adapters.bridge import bridge
from tests.envs.adapters.scripted import Crowd, Weather, play


def test_copies_have_seeds_of_their_own_which_a_rerun_repeats() -> None:
    def rows(seeds: list[int]) -> list[np.ndarray]:
        env = bridge(lambda: Crowd(Weather()), len(seeds))
        env.reset(np.array(seeds))
        found = []
        for _ in range(30):
            play(env)
            found.append(env.observe().agent_id)
        return found

    assert [row.tolist() for row in rows([1, 2, 3])] == [row.tolist() for row in rows([1, 2, 3])]
    env = bridge(lambda: Crowd(Weather()), 8)
    env.reset(np.arange(8))
    assert len({env._foreign_seed(b) for b in range(8)}) == 8
    before = env._foreign_seed(0)
    env.reset()
    assert env._foreign_seed(0) != before  # the next episode


def test_state_goes_on_exactly() -> None:
    env, other = (bridge(lambda: Crowd(Weather(end=0.1)), 3) for _ in range(2))
    env.reset(np.arange(3))
    for steps in (0, 1, 17):
        for _ in range(steps):
            play(env)
        other.set_state(env.get_state())
        assert not other.anew.any()
        for _ in range(25):
            one, two = env.observe(), other.observe()
            for name in ("agent_rows", "agent_id", "carry", "present", "agent_ptr"):
                np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
            np.testing.assert_array_equal(play(env).agent_reward, play(other).agent_reward)


def test_names_that_a_pattern_accepts_keep_their_numbers_in_a_state() -> None:
    class Drawn(Crowd):
        def __init__(self) -> None:
            super().__init__(Weather(end=0.2))
            self.known, self.possible_agents = self.possible_agents, self.possible_agents[:1]

        def step(self, actions: dict[str, Any]) -> Any:
            self.possible_agents, few = self.known, self.possible_agents
            answer = super().step(actions)
            self.possible_agents = few
            return answer

    env, other = (bridge(Drawn, 2, agents="agent .*") for _ in range(2))
    env.reset(np.arange(2))
    for _ in range(25):
        play(env)
    other.set_state(env.get_state())
    assert not other.anew.any()
    np.testing.assert_array_equal(env.observe().agent_id, other.observe().agent_id)


def test_an_environment_that_ignores_its_seed_begins_a_new_episode(caplog: pytest.LogCaptureFixture) -> None:
    class Unseeded(Crowd):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            return super().reset(seed=None)

    env, other = (bridge(lambda: Unseeded(Weather()), 2) for _ in range(2))
    env.reset(np.arange(2))
    for _ in range(20):
        play(env)
    other.set_state(env.get_state())
    assert other.anew.all()
    assert "cannot be repeated from its seed" in caplog.text
    assert (other.observe().carry == -1).all()
    play(other)


# A crowd


class CrowdMachine(RuleBasedStateMachine):
    """Stretches of steps under changing weather; what the copies paid is what the results say."""

    def __init__(self) -> None:
        super().__init__()
        self.weather = Weather()
        self.env = bridge(lambda: Crowd(self.weather), 16)
        self.env.reset(np.arange(16))
        self.earned = 0.0

    @rule(join=st.floats(0, 1), leave=st.floats(0, 0.5), vanish=st.floats(0, 1), back=st.floats(0, 1))
    def change(self, **chances: float) -> None:
        for name, chance in chances.items():
            setattr(self.weather, name, chance)

    @rule(end=st.sampled_from([0.0, 0.01, 0.5]))
    def episodes(self, end: float) -> None:
        self.weather.end = end

    @rule(action=st.integers(-1, 2))
    def stretch(self, action: int) -> None:
        for _ in range(40):
            obs = self.env.observe()
            assert obs.carry.max(initial=-1) < 16 * 8
            kept = obs.carry[obs.carry >= 0]
            assert len(set(kept.tolist())) == len(kept)
            result = play(self.env, action)
            own = np.bincount(obs.agent_copy, result.agent_reward, minlength=16)
            np.testing.assert_array_equal(own, result.team_reward)  # every agent that is paid is a member
            self.earned += result.team_reward.sum()
            decisions[0] += int(obs.present.sum())

    @invariant()
    def returns_add_up(self) -> None:
        assert self.earned == self.weather.paid


decisions = [0]


@pytest.mark.parametrize(("examples", "least"), [(5, 5_000), pytest.param(150, 1_000_000, marks=pytest.mark.slow)])
def test_a_crowd_comes_and_goes(examples: int, least: int) -> None:
    decisions[0] = 0
    many = settings(max_examples=examples, stateful_step_count=30, deadline=None, derandomize=True)
    run_state_machine_as_test(CrowdMachine, settings=many)
    assert decisions[0] > least
