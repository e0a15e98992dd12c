"""What the checker tells of whole episodes of a foreign environment: seeds, endings, what is left behind."""

import os
import random
import signal

import gymnasium as gym
import numpy as np
import pytest

from rl_openness.errors import UserError
from tests.envs.conformance.worlds import Meadow, check, expect


def test_seed_ignored():
    class Ignores(Meadow):
        def reset(self, seed=None, options=None):
            return super().reset(None)

    found = expect(check(Ignores), "fault", "seed-ignored", "a", 0, "differs between two resets with the same seed")
    assert "default_rng(seed)" in found.remedy


def test_what_an_episode_leaves_behind():
    class Leaves(Meadow):
        episodes = -1

        def reset(self, seed=None, options=None):
            self.episodes += 1
            return super().reset(seed)

        def look(self, name):
            return super().look(name) + np.float32(0.01 * self.episodes)

    found = expect(check(Leaves), "fault", "episode-leaks", "a", 0, "depends on episodes before", seed=1)
    assert "Let reset put back" in found.remedy


def test_later_steps_that_do_not_repeat():
    fresh = np.random.default_rng()

    class Forgets(Meadow):
        def step(self, actions):
            if self.step_number == 1:
                self.rng = fresh
            return super().step(actions)

    expect(check(Forgets), "fault", "not-repeatable", "a", 2, "played again")


@pytest.mark.parametrize("module", ["numpy.random", "random"])
def test_global_random_numbers(module):
    class Shares(Meadow):
        def reset(self, seed=None, options=None):
            np.random.seed(seed)  # noqa: NPY002
            random.seed(seed)
            return super().reset(seed)

        def look(self, name):
            number = random.random() if module == "random" else np.random.rand()  # noqa: NPY002
            return np.array([self.step_number, number], dtype=np.float32)

    found = expect(check(Shares), "fault", "global-random", None, None, "which all copies in a process share")
    assert module in found.text


def test_copies_that_share_a_generator():
    class Shares(Meadow):
        ours = {}  # noqa: RUF012

        def reset(self, seed=None, options=None):
            answer = super().reset(seed)
            self.ours["rng"] = self.rng
            return answer

        def look(self, name):
            rng = self.ours.get("rng", self.rng) if self.step_number else self.rng
            return np.array([self.step_number, rng.uniform()], dtype=np.float32)

    expect(check(Shares), "fault", "copies-share", "a", 1, "another copy")


def test_over_at_the_reset():
    class Empty(Meadow):
        def reset(self, seed=None, options=None):
            super().reset(seed)
            self.agents = []
            return {}, {}

    expect(check(Empty), "fault", "over-at-reset", None, 0, "`agents` is empty")


def test_endless_is_a_note_unless_it_is_cut():
    class Endless(Meadow):
        length = None

    expect(check(Endless), "note", "endless", None, 20, "not ended after 20 steps")
    assert "endless" not in {each.kind for each in check(Endless, max_steps=20).findings}


def test_going_on_after_the_end_is_a_note():
    class GoesOn(Meadow):
        def step(self, actions):
            if not self.agents:
                return {"a": self.look("a")}, {}, {}, {}, {}
            return super().step(actions)

    expect(check(GoesOn), "note", "after-end", "a", 5, "after the end")


def test_a_crash_after_the_end_is_told_and_not_shared():
    class Crashes(Meadow):
        def step(self, actions):
            if not self.agents:
                os.kill(os.getpid(), signal.SIGSEGV)
            return super().step(actions)

    expect(check(Crashes), "note", "after-end-crash", None, 5, "crashes the process (SIGSEGV)")


def test_actions_of_several_parts_begin_where_their_space_begins():
    class Parts(Meadow):
        acts = gym.spaces.MultiDiscrete([2, 3], start=[1, 5])

        def action_space(self, agent):
            return self.acts

    assert check(Parts).faults == ()


def test_accepting_what_is_no_action_is_a_note():
    class Lenient(Meadow):
        def refuse(self, actions):
            pass

    expect(check(Lenient), "note", "illegal-accepted", "a", 1, "the action 4, which its space Discrete(3) does not")


def test_writing_into_observations_is_a_note():
    class Reuses(Meadow):
        def look(self, name):
            self.array = getattr(self, "array", np.zeros(2, np.float32))
            self.array[:] = super().look(name)
            return self.array

    expect(check(Reuses), "note", "observation-changes", "a", 1, "changed during this step")


def test_same_start_is_a_note():
    class Constant(Meadow):
        def look(self, name):
            return np.array([self.step_number, 1.0], dtype=np.float32)

    expect(check(Constant), "note", "same-start", None, 0, "all 2 seeds begin with the same observations")


def test_what_cannot_be_bridged_is_a_fault():
    class Continuous(Meadow):
        def __init__(self):
            super().__init__()
            acts = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
            self.spaces = {name: (space, acts) for name, (space, _) in self.spaces.items()}

    expect(check(Continuous), "fault", "bridge", None, None, "actions must be Discrete")
    report = check(Meadow, mapping={"tasks": "fires"})
    expect(report, "fault", "bridge", None, None, "the observations have no entry 'fires'")


def test_neither_convention_is_the_users_mistake():
    with pytest.raises(UserError, match="neither a PettingZoo ParallelEnv nor an RLlib MultiAgentEnv"):
        check(object)
    with pytest.raises(UserError, match="cannot be made: ZeroDivisionError"):
        check(lambda: 1 / 0)
