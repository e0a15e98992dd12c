"""Each thing that the checker tells of a foreign environment, on one that does just that."""

import gymnasium as gym
import numpy as np
import pytest

from tests.envs.conformance.worlds import Meadow, check, expect, only, rllib_meadow


def test_sound_environments_have_no_faults():
    report = check(Meadow)
    assert report.faults == ()
    assert (report.convention, report.episodes, report.steps, report.agents) == ("parallel", 2, 10, 2)
    # b joins in step 2, is away in step 3, is back in step 4, where its stay ends
    assert report.events == {"joins": 2, "leaves": 2, "absences": 2}
    assert only(report).kind == "vanished"  # step 3: nothing tells that b will be back
    report = check(rllib_meadow())
    assert report.findings == ()
    assert (report.convention, report.agents, report.events["absences"]) == ("rllib", 2, 2)


def broken_step(change, kind=Meadow):
    """An environment whose steps go through `change(env, answer)`."""

    class Broken(kind):
        def step(self, actions):
            return change(self, super().step(actions))

    return Broken


def with_value(place, name, value, step=3):
    def change(env, answer):
        if env.step_number == step:
            answer[place][name] = value
        return answer

    return change


def test_raising():
    def change(env, answer):
        raise RuntimeError("out of grass")

    finding = only(check(broken_step(change)))
    expect(check(broken_step(change)), "fault", "raised", None, 1, "step raised RuntimeError: out of grass")
    assert "joint action {'a':" in finding.text
    assert finding.times == 2


@pytest.mark.parametrize(("cut", "words"), [(4, "4 values instead of 5"), (2, "2 values")])
def test_step_of_wrong_length(cut, words):
    expect(check(broken_step(lambda env, answer: answer[:cut])), "fault", "step-length", None, 1, words)


def test_reset_of_wrong_length():
    class OldReset(Meadow):
        def reset(self, seed=None, options=None):
            return super().reset(seed)[0]

    expect(check(OldReset), "fault", "reset-length", None, 0, "reset returned a dict instead of 2")


def test_no_dict():
    report = check(broken_step(lambda env, answer: (answer[0], 1.0, *answer[2:])))
    expect(report, "fault", "step-type", None, 1, "rewards, which step returned, is a float instead of a dict")


def test_listed_without_observation():
    def change(env, answer):
        if env.step_number == 2:
            del answer[0]["b"]
        return answer

    expect(check(broken_step(change)), "fault", "listed-without-observation", "b", 2, "no observation for it")


def test_observation_of_who_is_not_listed():
    report = check(broken_step(with_value(0, "b", np.zeros(2, np.float32), step=1)))
    expect(report, "fault", "observation-not-listed", "b", 1, "not listed in `agents`")


def test_listed_twice():
    def change(env, answer):
        env.agents = [*env.agents, *env.agents]
        return answer

    expect(check(broken_step(change)), "fault", "listed-twice", "a", 1, "listed twice")


def test_all_in_a_parallel_env():
    finding = expect(
        check(broken_step(with_value(2, "__all__", False))), "fault", "all-in-parallel", None, 3, "RLlib's way"
    )
    assert "when `agents` is empty" in finding.remedy


def test_no_all_in_an_rllib_env():
    def change(env, answer):
        del answer[2]["__all__"]
        return answer

    report = check(broken_step(change, rllib_meadow()))
    expect(report, "fault", "all-missing", None, 1, "terminateds has no '__all__'")


def test_no_all_in_truncateds_is_a_note_for_rllib_goes_on():
    def change(env, answer):
        return *answer[:2], {**answer[2], "__all__": env.step_number == 5}, {}, {}

    report = check(broken_step(change, rllib_meadow()))
    expect(report, "note", "all-missing-truncated", None, 1, "counts as false")
    assert report.faults == ()


def test_done_but_listed():
    def change(env, answer):
        if env.step_number == 3:
            answer[2]["a"] = True
        return answer

    expect(check(broken_step(change)), "fault", "done-but-listed", "a", 3, "still listed")


def test_unknown_flag_reward_and_kind_of_flag():
    expect(check(broken_step(with_value(2, "c", True))), "fault", "flag-unknown", "c", 3, "terminations")
    expect(check(broken_step(with_value(1, "c", 1.0))), "fault", "reward-unknown", "c", 3, "never was")
    expect(check(broken_step(with_value(3, "a", None))), "fault", "flag-type", "a", 3, "neither true nor false")


def test_rllib_unknown_reward():
    report = check(broken_step(with_value(1, "b", 1.0, step=1), rllib_meadow()))
    expect(report, "fault", "reward-unknown", "b", 1, "agents so far: a")


def test_vanishing_is_a_note():
    expect(check(Meadow), "note", "vanished", "b", 3, "counts as away")


def test_revival_is_a_note():
    def change(env, answer):
        if env.step_number == 2:
            answer[2]["b"] = True
            env.agents.remove("b")
        return answer

    report = check(broken_step(change))
    expect(report, "note", "revival", "b", 4, "begins a second stay")
    assert report.faults == ()


def test_truncated_without_observation_is_a_note():
    def change(env, answer):
        answer[3]["a"] = env.step_number == 1
        if env.step_number == 1:
            del answer[0]["a"]
            answer[0]["b"] = env.look()
        return answer

    report = check(broken_step(change, rllib_meadow()))
    expect(report, "note", "truncated-without-observation", "a", 1, "value cannot go on")


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        ("observation-shape", np.zeros(3, np.float32), "shape (3,), but its space has (2,)"),
        ("observation-dtype", np.zeros(2, np.float64), "of float64, but its space is of float32"),
        ("observation-finite", np.array([0, np.nan], np.float32), "holds nan at place 1"),
        ("observation-bounds", np.array([0, 11], np.float32), "holds 11.0 at place 1, outside 0.0 to 10.0"),
        ("observation-type", [0.0, 1.0], "is a list"),
    ],
)
def test_observation_outside_its_space(kind, value, text):
    expect(check(broken_step(with_value(0, "a", value))), "fault", kind, "a", 3, text)


class WithMask(Meadow):
    """Observations with an action mask, all ones but for one step."""

    bad = np.zeros(3, np.int8)

    def __init__(self):
        box = gym.spaces.Box(0.0, 10.0, (2,), np.float32)
        mask = gym.spaces.MultiBinary(len(self.bad))
        space = gym.spaces.Dict({"grass": box, "action_mask": mask})
        self.spaces = {name: (space, gym.spaces.Discrete(3)) for name in self.possible_agents}

    def look(self, name):
        mask = self.bad if self.step_number == 1 else np.ones_like(self.bad)
        return {"grass": super().look(name), "action_mask": mask}


def test_masks():
    report = check(WithMask)
    expect(report, "note", "mask-empty", "a", 1, "allows nothing")
    assert report.faults == ()

    class Long(WithMask):
        bad = np.zeros(4, np.int8)

    expect(check(Long), "fault", "mask-length", "a", 0, "4 entries for 3 actions")


def test_entries_of_a_dict():
    class Lacks(WithMask):
        def look(self, name):
            return {"grass": super().look(name)["grass"], "more": 1}

    found = expect(check(Lacks), "fault", "observation-entries", "a", 0, "lacks action_mask and has more")
    assert found.also == ("b",)


def test_spaces_missing_and_changing():
    class Without(Meadow):
        def action_space(self, name):
            raise NotImplementedError

    expect(check(Without), "fault", "space-missing", "a", 0, "has no spaces")

    class Grows(Meadow):
        def action_space(self, name):
            return gym.spaces.Discrete(3 + self.step_number)

    expect(
        check(Grows), "fault", "space-changes", "a", 1, "action space changes: it was Discrete(3) and is Discrete(4)"
    )


def test_nobody_declared_it():
    class Late(Meadow):
        possible_agents = ("a",)

        def __init__(self):
            super().__init__()
            self.spaces["b"] = self.spaces["a"]

    found = expect(check(Late), "fault", "not-declared", "b", 2, "not declared")
    assert "bridge.agents" in found.remedy
    assert check(Late, agents="b|a").faults == ()


@pytest.mark.parametrize(
    ("kind", "reward", "text"), [("reward-type", "1", "is 1, which is no number"), ("reward-finite", np.inf, "is inf")]
)
def test_rewards(kind, reward, text):
    expect(check(broken_step(with_value(1, "a", reward))), "fault", kind, "a", 3, text)


def test_spaces_and_agents_that_are_none():
    class NoSpace(Meadow):
        def action_space(self, name):
            raise ZeroDivisionError("half a space")

    expect(check(NoSpace), "fault", "space-missing", "a", 0, "ZeroDivisionError('half a space')")

    class Nobody(Meadow):
        def reset(self, seed=None, options=None):
            answer = super().reset(seed, options)
            self.agents = None
            return answer

    expect(check(Nobody), "fault", "agents-type", None, 0, "`agents` is None instead of a list of names")

    class Number(Meadow):
        possible_agents = 5

        def __init__(self):
            self.possible_agents = ("a", "b")
            super().__init__()
            self.possible_agents = 5

    assert "possible-agents" in [each.kind for each in check(Number).faults]


def test_spaces_that_are_made_at_every_call():
    class Fresh(Meadow):
        def action_space(self, name):
            return gym.spaces.Discrete(3)

    found = [each for each in check(Fresh).findings if each.kind == "space-new"]
    assert [(each.severity, each.agent) for each in found] == [("note", "a")]


def test_one_object_for_all_copies():
    one = Meadow()
    report = check(lambda: one)
    assert [each.kind for each in report.faults] == ["same-object"]


def test_a_close_that_raises():
    class Stuck(Meadow):
        def close(self):
            raise OSError("window is gone")

    report = check(Stuck)
    assert report.faults == ()
    assert "close raised OSError: window is gone" in next(e for e in report.notes if e.kind == "close-raised").text


@pytest.mark.parametrize(
    ("place", "kind"), [(2, "terminated-without-observation"), (3, "truncated-without-observation")]
)
def test_stays_that_end_unseen(place, kind):
    def change(env, answer):
        if env.step_number == env.length:
            answer[2]["a"], answer[3]["a"] = place == 2, place == 3
            answer[0].pop("a", None)
        return answer

    found = [each for each in check(broken_step(change)).findings if each.kind == kind]
    assert [(each.severity, each.agent, each.step) for each in found] == [("note", "a", 5)]
