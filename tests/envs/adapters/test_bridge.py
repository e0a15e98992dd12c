"""Foreign environments, moment by moment: who is a member, whose stay is over, what a step gave. Worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from rl_openness.envs.adapters.bridge import BridgedEnv, bridge
from rl_openness.envs.adapters.copy import EnvironmentFailedError
from rl_openness.envs.adapters.mapping import ObservationMapping
from rl_openness.envs.base import PackedObs
from rl_openness.errors import UserError
from tests.envs.adapters.scripted import Line, ScriptedMulti, ScriptedParallel, play

BOTH = pytest.mark.parametrize("convention", [ScriptedParallel, ScriptedMulti])


def world(kind: Any, lines: list[Line], names: str = "abc", **options: Any) -> BridgedEnv:
    env = bridge(lambda: kind(lines, names), **options)
    env.reset(np.array([0]))
    return env


def names(obs: PackedObs) -> str:
    return "".join("abcdefgh"[number] for number in obs.agent_id)


def told(env: BridgedEnv) -> tuple[str, list[bool], list[int]]:
    """Members, whether each is present, and its row before."""
    obs = env.observe()
    return names(obs), obs.present.tolist(), obs.carry.tolist()


@BOTH
def test_death_at_the_first_step(convention: Any) -> None:
    env = world(convention, [Line("ab"), Line("a", {"a": 1.0, "b": -5.0}, ends="b"), Line("a")])
    assert told(env) == ("ab", [True, True], [-1, -1])
    result = play(env)
    assert result.agent_reward.tolist() == [1.0, -5.0]
    assert result.team_reward.tolist() == [-4.0]
    assert not result.terminated[0]
    assert result.events["leaves"].tolist() == [1]
    assert told(env) == ("a", [True], [0])


@BOTH
def test_arriving_and_ending_in_one_step(convention: Any) -> None:
    """`b` is seen once, with its end: it decided nothing, so it has no row, but what it earned is the team's."""
    env = world(convention, [Line("a"), Line("a", {"a": 1.0, "b": 7.0}, ends="b"), Line("a")])
    env.observe()
    result = play(env)
    assert result.agent_reward.tolist() == [1.0]
    assert result.team_reward.tolist() == [8.0]
    assert result.events["joins"].tolist() == [0]
    assert told(env) == ("a", [True], [0])


@BOTH
def test_leaving_and_returning_is_two_stays(convention: Any) -> None:
    env = world(convention, [Line("ab"), Line("a", ends="b"), Line("ab"), Line("ab")])
    env.observe()
    play(env)
    assert told(env) == ("a", [True], [0])
    result = play(env)
    assert result.events["joins"].tolist() == [1]
    assert told(env) == ("ab", [True, True], [0, -1])  # the same identity, nothing carried over
    play(env)
    assert told(env) == ("ab", [True, True], [0, 1])


@BOTH
def test_vanishing_without_a_flag_is_an_absence(convention: Any) -> None:
    env = world(convention, [Line("ab"), Line("a"), Line("a", {"b": 3.0}), Line("ab"), Line("ab")])
    env.observe()
    assert play(env).events["absences"].tolist() == [1]
    assert told(env) == ("ab", [True, False], [0, 1])
    result = play(env)
    assert result.agent_reward.tolist() == [0.0, 3.0]  # what it earns meanwhile is its own
    assert told(env) == ("ab", [True, False], [0, 1])
    assert play(env).events["joins"].tolist() == [0]
    assert told(env) == ("ab", [True, True], [0, 1])
    assert env._copies[0]._foreign.env.script.taken[1].keys() == {"a"}


@BOTH
def test_joining_later_than_the_reset(convention: Any) -> None:
    env = world(convention, [Line("a"), Line("ac"), Line("ac")])
    env.observe()
    assert play(env).events["joins"].tolist() == [1]
    assert told(env) == ("ac", [True, True], [0, -1])
    np.testing.assert_array_equal(env.observe().agent_rows, [[1, 0], [1, 2]])


@BOTH
def test_leaving_without_a_last_observation(convention: Any) -> None:
    env = world(convention, [Line("ab"), Line("a", {"b": 2.0}, cut="b", silent="b"), Line("a")])
    env.observe()
    result = play(env)
    assert result.agent_reward.tolist() == [0.0, 2.0]
    assert result.parted is None  # nothing to bootstrap from
    assert told(env) == ("a", [True], [0])


@BOTH
def test_being_cut_off_while_the_episode_goes_on(convention: Any) -> None:
    env = world(convention, [Line("ab"), Line("a", cut="b"), Line("a")])
    env.observe()
    result = play(env)
    assert names(result.parted) == "ab"
    np.testing.assert_array_equal(result.parted.agent_rows, [[1, 0], [1, 1]])
    assert told(env) == ("a", [True], [0])


def test_nobody_present_for_some_steps() -> None:
    lines = [Line("ab"), Line(""), Line("", {"a": 1.0}), Line("b"), Line("b")]
    env = world(ScriptedMulti, lines)
    env.observe()
    play(env)
    assert told(env) == ("ab", [False, False], [0, 1])
    assert play(env).agent_reward.tolist() == [1.0, 0.0]
    play(env)
    assert told(env) == ("ab", [False, True], [0, 1])


def test_nobody_present_in_a_parallel_env_that_says_when_it_is_over() -> None:
    lines = [Line("ab"), Line(""), Line("b"), Line("b")]
    env = world(ScriptedParallel, lines, over=lambda env: env.script.time == 3)
    env.observe()
    assert not play(env).terminated[0]
    assert told(env) == ("ab", [False, False], [0, 1])
    assert not play(env).terminated[0]
    assert told(env) == ("ab", [False, True], [0, 1])
    assert play(env).terminated[0]


def test_all_gone_for_good_and_others_come() -> None:
    env = world(ScriptedMulti, [Line("a"), Line("", ends="a"), Line("c"), Line("c")])
    env.observe()
    play(env)
    assert told(env) == ("", [], [])
    assert env.observe().agent_ptr.tolist() == [0, 0]
    play(env)
    assert told(env) == ("c", [True], [-1])


@BOTH
def test_termination_truncation_and_both(convention: Any) -> None:
    ended = world(convention, [Line("ab"), Line("", ends="ab", over=True)])
    ended.observe()
    result = play(ended)
    assert (result.terminated[0], result.truncated[0]) == (True, False)
    assert len(result.final_obs.agent_id) == 0
    assert told(ended) == ("ab", [True, True], [-1, -1])
    cut = world(convention, [Line("ab"), Line("", {"a": 1.0}, cut="ab", limit=True)])
    cut.observe()
    result = play(cut)
    assert (result.terminated[0], result.truncated[0]) == (False, True)
    assert names(result.final_obs) == "ab"
    np.testing.assert_array_equal(result.final_obs.agent_rows, [[1, 0], [1, 1]])
    mixed = world(convention, [Line("ab"), Line("", ends="a", cut="b", limit=True)])
    mixed.observe()
    result = play(mixed)
    assert result.truncated[0]
    assert names(result.final_obs) == "b"  # a's end is an end
    assert result.events["leaves"].tolist() == [0]


def test_who_is_away_when_an_episode_is_cut_keeps_its_row() -> None:
    env = world(ScriptedMulti, [Line("ab"), Line("a"), Line("", cut="a", limit=True)])
    env.observe()
    play(env)
    final = play(env).final_obs
    assert (names(final), final.present.tolist()) == ("ba", [False, True])


def test_a_limit_of_our_own() -> None:
    env = world(ScriptedMulti, [Line("ab"), Line("a"), Line("a")], max_steps=2)
    assert env.spec.horizon == 2
    env.observe()
    play(env)
    result = play(env)
    assert result.truncated[0]
    assert (names(result.final_obs), result.final_obs.present.tolist()) == ("ab", [True, False])


# Names


def test_an_agent_that_nobody_declared() -> None:
    env = world(ScriptedParallel, [Line("ab"), Line("abz")])
    with pytest.raises(EnvironmentFailedError) as caught:
        play(env)
    text = str(caught.value)
    assert "agent 'z' was not declared" in text
    assert "environment scripted" in text
    assert "step 1" in text
    assert "option bridge.agents" in text
    accepted = world(ScriptedParallel, [Line("ab"), Line("abz"), Line("abz")], agents="[a-z]")
    accepted.observe()
    play(accepted)
    assert accepted.observe().agent_id.tolist() == [0, 1, 3]
    with pytest.raises(EnvironmentFailedError, match="does not match"):
        play(world(ScriptedParallel, [Line("ab"), Line("abz")], agents="[a-y]"))


def test_fifty_names_over_time() -> None:
    letters = "".join(chr(97 + number) for number in range(50))
    env = world(ScriptedParallel, [Line(letter) for letter in letters], names=letters)
    for _ in range(49):
        assert set(play(env).events) == {"joins", "leaves", "absences", "without_action"}
    assert env.observe().present.sum() == 1


def test_what_each_agent_earns_is_counted_on_request() -> None:
    lines = [Line("ab"), Line("ab", {"a": 0.5}), Line("a", {"a": 0.25, "b": 2.0}, ends="b"), Line("a")]
    env = world(ScriptedParallel, lines, agent_returns=True)
    play(env)
    events = play(env).events
    assert {name: each.tolist() for name, each in events.items() if name.startswith("return_of_")} == {
        "return_of_a": [0.25],
        "return_of_b": [2.0],
        "return_of_c": [0.0],
    }


# What is refused


def test_what_an_environment_raises_is_told_with_its_place() -> None:
    class Broken(ScriptedParallel):
        def step(self, actions: dict[str, Any]) -> Any:
            if self.script.time == 1:
                raise RuntimeError("the\ndoor is stuck")
            return super().step(actions)

    env = bridge(lambda: Broken([Line("ab")] * 4), 2, name="house")
    env.reset(np.array([5, 6]))
    play(env)
    with pytest.raises(EnvironmentFailedError) as caught:
        play(env, action=2)
    text = str(caught.value)
    assert text.startswith("environment house raised RuntimeError: the door is stuck (copy 0, seed ")
    assert text.endswith("step 2, joint action {a: 2, b: 2})")


def test_a_failed_copy_begins_anew_where_that_is_asked_for() -> None:
    made = []

    class Moody(ScriptedParallel):
        def __init__(self) -> None:
            super().__init__([Line("ab"), Line("ab", {"a": 1.0}), Line("ab", {"a": 1.0}), Line("", ends="ab")])
            made.append(self)

        def step(self, actions: dict[str, Any]) -> Any:
            if len(made) == 2 and self is made[1] and self.script.time == 1:
                raise ValueError("no")
            return super().step(actions)

    env = bridge(Moody, 2)
    env.restart_failed = True
    env.reset(np.array([5, 6]))
    assert play(env).failed is None
    result = play(env)
    assert result.failed.tolist() == [1]
    assert result.team_reward.tolist() == [1.0, 0.0]
    assert result.ended.tolist() == []
    assert env.observe().carry.tolist() == [0, 1, -1, -1]
    assert len(made) == 3
    assert play(env).ended.tolist() == [0]


@pytest.mark.parametrize("reward", [np.nan, np.inf, None, "x", np.array([1.0]), 1j])
def test_rewards_must_be_numbers(reward: float) -> None:
    env = world(ScriptedParallel, [Line("ab"), Line("ab", {"b": reward})])
    with pytest.raises(EnvironmentFailedError, match="the reward of agent 'b' is"):
        play(env)


def test_choices_are_checked_before_anything_moves() -> None:
    env = world(ScriptedParallel, [Line("ab"), Line("a"), Line("a")])
    with pytest.raises(ValueError, match="copy 0, agent 'b': choice 3 must lie in -1 to 2"):
        env.step(np.array([0, 3]))
    with pytest.raises(ValueError, match="one per member"):
        env.step(np.array([0]))
    play(env)
    with pytest.raises(ValueError, match="choice 0 must lie in -1 to -1"):
        env.step(np.array([0, 0]))  # b is away


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"num_copies": 0}, "num_copies must be a whole number of at least 1, not 0"),
        ({"num_copies": True}, "num_copies must be"),
        ({"num_copies": 2.0}, "num_copies must be"),
        ({"max_steps": 0}, "max_steps must be a whole number of at least 1"),
        ({"max_steps": 1.5}, "max_steps must be"),
        ({"agents": "z("}, "is no regular expression"),
        ({"mapping": ObservationMapping(noop=7)}, "mapping.noop is 7, but the actions are 0 to 2"),
    ],
)
def test_wrong_arguments_are_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        bridge(lambda: ScriptedParallel([Line("a")]), **options)


def test_environments_of_no_known_kind_are_refused() -> None:
    with pytest.raises(UserError, match="neither a PettingZoo ParallelEnv nor an RLlib MultiAgentEnv"):
        bridge(dict)
    with pytest.raises(UserError, match="says itself when an episode has ended"):
        bridge(lambda: ScriptedMulti([Line("a")]), over=bool)
