"""What cannot be bridged, or cannot go on, is told in one line."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rl_openness.envs.adapters.bridge import bridge
from rl_openness.envs.adapters.copy import EnvironmentFailedError
from rl_openness.envs.adapters.mapping import Kind, ObservationMapping, entries, entry
from rl_openness.envs.adapters.options import bridge_options
from rl_openness.envs.adapters.pettingzoo import parallel_env
from rl_openness.errors import UserError
from tests.envs.adapters.scripted import ACTIONS, SPACE, Crowd, Line, ScriptedParallel, Weather, play


def refused(make: Any, words: str, copies: int = 1, **options: Any) -> None:
    with pytest.raises(UserError, match=words) as caught:
        bridge(make, copies, **options).reset()
    assert "\n" not in str(caught.value)


def test_what_makes_it_raises() -> None:
    def make() -> Any:
        raise FileNotFoundError("no map")

    refused(make, "^the environment cannot be made: FileNotFoundError: no map$")


@pytest.mark.parametrize("names", [5, "ab", iter("ab")])
def test_possible_agents_that_are_no_names(names: Any) -> None:
    class Odd(Crowd):
        def __init__(self) -> None:
            super().__init__(Weather())
            self.possible_agents = names

    refused(Odd, "possible_agents must be a list of names, not")


def test_spaces_that_raise() -> None:
    class Odd(Crowd):
        def get_observation_space(self, agent_id: Any) -> Any:
            raise ZeroDivisionError("half a space")

    refused(lambda: Odd(Weather()), "has no observation or action space .ZeroDivisionError.'half a space'")


def test_a_reset_that_raises_while_names_are_asked_for() -> None:
    class Odd(Crowd):
        def __init__(self) -> None:
            super().__init__(Weather())
            self.possible_agents = []

        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            raise OSError("no licence")

    refused(Odd, "raised OSError: no licence")


def test_the_same_object_twice() -> None:
    only = Crowd(Weather())
    refused(lambda: only, "the same object twice", copies=2)
    bridge(lambda: only, 1).reset()


def test_no_step_after_a_failure_until_all_copies_are_reset() -> None:
    class Frail(Crowd):
        def step(self, actions: Any) -> Any:
            raise RuntimeError("out of grass")

    made = iter([Crowd(Weather()), Frail(Weather()), Crowd(Weather()), Crowd(Weather())])
    env = bridge(lambda: next(made), 2)
    env.reset()
    with pytest.raises(EnvironmentFailedError, match="out of grass"):
        play(env)
    with pytest.raises(RuntimeError, match="reset all copies before stepping on"):
        env.step(np.full(len(env._copies[0].members) + len(env._copies[1].members), -1))
    with pytest.raises(ValueError, match="after a failure reset all copies"):
        env.reset(copies=np.array([0]))
    env.reset()
    assert env.observe().num_copies == 2


def test_states_that_are_none() -> None:
    env = bridge(lambda: Crowd(Weather()), 2)
    env.reset(np.arange(2))
    play(env)
    state = env.get_state()
    for name in ("steps", "carry", "digest"):
        with pytest.raises(ValueError, match=f"the state has no '{name}'"):
            env.set_state({key: value for key, value in state.items() if key != name})
        with pytest.raises(ValueError, match="the state's '"):
            env.set_state(state | {name: np.append(state[name], 1)})
    with pytest.raises(ValueError, match="the state's"):
        bridge(lambda: Crowd(Weather()), 3).set_state(state)


def test_a_state_of_agents_of_other_names_is_not_taken_over() -> None:
    lines = [Line("ab"), Line("ab"), Line("ab")]

    class Renamed(ScriptedParallel):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            observations, infos = super().reset(seed, options)
            return dict(zip("xy", observations.values(), strict=True)), infos

    first = bridge(lambda: ScriptedParallel(lines, "ab"), 1)
    first.reset(np.arange(1))
    other = bridge(lambda: ScriptedParallel([Line("ba"), *lines[1:]], "ba"), 1)
    other.set_state(first.get_state())
    assert other.anew.all()


def test_entries_whose_names_collide() -> None:
    inner = gym.spaces.Dict({"b": SPACE})
    with pytest.raises(UserError, match=r"two entries of the observations are 'a\.b'"):
        entries(gym.spaces.Dict({"a": inner, "a.b": SPACE}))
    assert list(entries(gym.spaces.Dict({"a.b": inner}))) == ["a.b.b"]
    assert entry({"a.b": {"b": 7}}, "a.b.b") == 7
    assert entry({"a": {"b": {"c": 8}}}, "a.b.c") == 8
    with pytest.raises(KeyError):
        entry({"a": {"b": 1}}, "a.c")


def test_numbers_that_are_none() -> None:
    kind = Kind(SPACE, ACTIONS, ObservationMapping())
    with pytest.raises(ValueError, match="complex"):
        kind.read(np.array([1, 2j]))
    with pytest.raises(UserError, match="too many: a fixed set has at most 65,536"):
        Kind(SPACE, gym.spaces.Discrete(10**9), ObservationMapping())


def test_rows_of_another_shape() -> None:
    box = gym.spaces.Box(-1.0, 1.0, (2, 3), np.float32)
    space = gym.spaces.Dict({"fires": box, "offsets": box, "burns": gym.spaces.MultiBinary(2)})
    mapping = ObservationMapping(tasks="fires", pairs="offsets", task_exists="burns")
    kind = Kind(space, gym.spaces.Discrete(3), mapping)
    sound = {"fires": np.ones((2, 3)), "offsets": np.ones((2, 3)), "burns": np.ones(2)}
    assert kind.read(sound).tasks.shape == (2, 3)  # type: ignore[union-attr]
    for name, value in (("fires", np.ones((2, 4))), ("offsets", np.ones((3, 3))), ("burns", np.ones(3))):
        with pytest.raises(ValueError, match=f"entry '{name}' has"):
            kind.read(sound | {name: value})


def test_options_are_called_as_they_are_written() -> None:
    with pytest.raises(UserError, match=r"^bridge\.agents: a pattern or a list of names, not 5$"):
        bridge_options({"agents": 5})


def test_views_refuse_what_is_no_step() -> None:
    env = parallel_env("wildfire", setup="3x3/S3")
    env.reset(seed=1)
    with pytest.raises(UserError, match="step needs a dict, agent -> action, not None"):
        env.step(None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="a seed is a whole number of at least 0, not -1"):
        env.reset(seed=-1)
    with pytest.raises(UserError, match="max_agents must be a whole number from 0 to 10,000"):
        parallel_env("wildfire", setup="3x3/S3", max_agents=10**9)
