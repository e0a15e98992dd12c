"""Each thing that the checker tells of an `OpenVectorEnv`, on one that does just that."""

from dataclasses import replace

import numpy as np
import pytest

from rl_openness.envs.adapters.bridge import bridge
from rl_openness.envs.base import OpenVectorEnv
from rl_openness.envs.conformance import check_environment, check_native
from rl_openness.envs.wildfire.setups import make_wildfire
from tests.envs.conformance.worlds import Meadow


class Wrapped(OpenVectorEnv):
    """Wildfire (or another environment) whose data tests spoil."""

    def __init__(self, num_copies, inner=None):
        self.inner = inner or make_wildfire(num_copies, setup="2x3/S3")
        self.spec, self.num_copies = self.inner.spec, num_copies

    def reset(self, seeds=None, copies=None):
        self.inner.reset(seeds, copies)

    def observe(self):
        return self.inner.observe()

    def step(self, choices):
        return self.inner.step(choices)

    def decision_keys(self):
        return self.inner.decision_keys()

    def get_state(self):
        return self.inner.get_state()

    def set_state(self, state):
        self.inner.set_state(state)


def spoilt_observation(**changes):
    """Observations with some arrays changed by a function of the observation."""

    class Spoilt(Wrapped):
        def observe(self):
            obs = super().observe()
            return replace(obs, **{name: change(obs) for name, change in changes.items()})

    return Spoilt


def spoilt_result(**changes):
    class Spoilt(Wrapped):
        def step(self, choices):
            obs = self.observe()
            result = super().step(choices)
            return replace(result, **{name: change(result, obs) for name, change in changes.items()})

    return Spoilt


def expect(make, kind, text):
    report = check_native(make, episodes=2, steps=30)
    found = {each.kind: each for each in report.faults}
    assert kind in found, report.findings
    assert text in found[kind].text
    assert found[kind].remedy.endswith(".")
    return found[kind]


def test_sound_environments_have_no_findings():
    report = check_native(Wrapped, episodes=4, steps=200)
    assert report.findings == ()
    assert (report.convention, report.episodes, report.steps, report.agents) == ("native", 4, 400, 3)
    report = check_native(lambda n: bridge(Meadow, n), episodes=3, steps=20)
    assert report.findings == ()
    assert report.events == {"joins": 3, "leaves": 3, "absences": 3}  # of b, in steps 2, 4 and 3


def all_true(result, obs):
    return np.ones_like(result.terminated)


def copied(array, place, value):
    array = array.copy()
    array[place] = value
    return array


@pytest.mark.parametrize(
    ("kind", "text", "changes"),
    [
        ("pointer", "agent_ptr is", {"agent_ptr": lambda obs: obs.agent_ptr[:-1]}),
        ("pointer", "task_ptr decreases", {"task_ptr": lambda obs: copied(obs.task_ptr, 1, len(obs.task_rows) + 1)}),
        ("array-shape", "agent_rows is float64", {"agent_rows": lambda obs: obs.agent_rows.astype(np.float64)}),
        ("array-shape", "present is bool of shape", {"present": lambda obs: obs.present[:-1]}),
        (
            "not-finite",
            "agent_rows[0] holds nan in column",
            {"agent_rows": lambda obs: copied(obs.agent_rows, 0, np.nan)},
        ),
        ("agent-id", "two members of one copy", {"agent_id": lambda obs: np.zeros_like(obs.agent_id)}),
        ("pair-order", "not sorted", {"pair_agent": lambda obs: obs.pair_agent[::-1].copy()}),
        ("pair-range", "rows that do not exist", {"pair_task": lambda obs: obs.pair_task + 1000}),
        ("pair-away", "is away and has pairs", {"present": lambda obs: np.zeros_like(obs.present)}),
        ("mask", "no num_actions", {"action_mask": lambda obs: np.ones((len(obs.present), 2), bool)}),
        ("see", "only one of", {"see_ptr": lambda obs: np.zeros(len(obs.present) + 1, np.int64)}),
        ("carry-fresh", "episode has just begun", {"carry": lambda obs: np.arange(len(obs.present))}),
    ],
)
def test_observations(kind, text, changes):
    expect(spoilt_observation(**changes), kind, text)


def test_see_of_another_copy():
    changes = {
        "see_ptr": lambda obs: np.arange(len(obs.present) + 1),
        "see_agent": lambda obs: np.zeros(len(obs.present), np.int64),
    }
    expect(spoilt_observation(**changes), "see", "another copy")


def test_carries_of_somebody_else():
    class Swaps(Wrapped):
        def observe(self):
            obs = super().observe()
            return replace(obs, carry=np.where(obs.carry >= 0, obs.carry[::-1], -1))

    found = expect(Swaps, "carry-other", "the row of somebody else")
    assert found.agent is not None
    assert (found.step, found.seed) == (1, 0)
    expect(
        spoilt_observation(carry=lambda obs: np.where(obs.carry >= 0, 99, -1)), "carry-range", "no row of the previous"
    )


@pytest.mark.parametrize(
    ("kind", "text", "changes"),
    [
        ("reward-finite", "team_reward[0] is nan", {"team_reward": lambda r, obs: r.team_reward * np.nan}),
        ("result-shape", "agent_reward is float64", {"agent_reward": lambda r, obs: r.agent_reward[:-1]}),
        ("ended", "ended is [0]", {"ended": lambda r, obs: np.array([0])}),
        ("both-ends", "terminated and truncated", {"terminated": all_true, "truncated": all_true}),
        ("events", "event 'x'", {"events": lambda r, obs: {"x": np.zeros(7)}}),
        ("labels", "its label 99 is no action", {"labels": lambda r, obs: np.full(len(obs.present), 99)}),
    ],
)
def test_results(kind, text, changes):
    expect(spoilt_result(**changes), kind, text)


def test_missing_final_observation_and_horizon():
    class Short(Wrapped):
        def __init__(self, num_copies):
            super().__init__(num_copies)
            self.spec = replace(self.spec, horizon=10)

    expect(Short, "horizon", "goes on after its horizon of 10 steps")
    make = spoilt_result(final_obs=lambda r, obs: None)
    report = check_native(make, episodes=2, steps=200)
    assert [each.kind for each in report.faults] == ["final-obs"]


def test_labels_are_missing():
    make = spoilt_observation(controlled=lambda obs: obs.agent_id == obs.agent_id.min())
    expect(make, "labels", "labels are missing although teammates decide")


def test_copies_that_depend_on_their_batch():
    class Depends(Wrapped):
        def observe(self):
            obs = super().observe()
            return replace(obs, agent_rows=obs.agent_rows + np.float32(self.num_copies))

    expect(Depends, "batch", "agent_rows of copy 0 of 2 differs")


def test_states_that_lack_something():
    class Forgets(Wrapped):
        def set_state(self, state):
            super().set_state({**state, "seed": state["seed"] + 1})

    assert "seed" in Wrapped(1).get_state()
    expect(Forgets, "state", "is another after get_state and set_state")

    class Objects(Wrapped):
        def get_state(self):
            return {"all": self}

    expect(Objects, "state-kind", "'all' as Objects")


def test_illegal_choices():
    class Lenient(Wrapped):
        def step(self, choices):
            return super().step(np.where(choices > 1000, -1, choices))

    expect(Lenient, "illegal-accepted", "the choice 1000000 is accepted")

    class Other(Wrapped):
        def step(self, choices):
            if choices.max() > 1000:
                raise IndexError
            return super().step(choices)

    expect(Other, "illegal-error", "raises IndexError instead of ValueError")


def test_keys_and_errors():
    class Keys(Wrapped):
        def decision_keys(self):
            return super().decision_keys().astype(np.int64)

    expect(Keys, "decision-keys", "are int64")

    class Raises(Wrapped):
        def step(self, choices):
            raise RuntimeError("no more")

    expect(Raises, "raised", "step raised RuntimeError: no more")


def test_endless_and_empty_masks_are_notes():
    report = check_native(Wrapped, episodes=2, steps=20)
    assert [(each.kind, each.step) for each in report.notes] == [("endless", 19)]

    class Masked(Wrapped):
        def observe(self):
            obs = super().observe()
            return replace(obs, action_mask=np.zeros((len(obs.present), 3), bool))

    report = check_native(lambda n: Masked(n, bridge(Meadow, n)), episodes=2, steps=20)
    assert {each.kind for each in report.findings} == {"mask-empty"}


@pytest.mark.parametrize("name", ["wildfire", "foraging", "wolfpack"])
def test_bundled_environments(name):
    report = check_environment(name, episodes=3, steps=60)
    assert report.faults == ()
    assert report.episodes == 3
