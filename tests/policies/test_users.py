"""A user's policy that goes wrong while it acts: one line with its name, environment and place."""

import numpy as np
import pytest

from rl_openness.envs.base import NO_OP
from rl_openness.envs.registry import make_environment
from rl_openness.envs.wolfpack import make_wolfpack
from rl_openness.errors import RunFailedError
from rl_openness.evaluation.rollout import play_episodes
from rl_openness.policies.base import Policy
from rl_openness.policies.generic import Noop
from rl_openness.policies.population import Population
from rl_openness.policies.teammates import user_policy
from rl_openness.policies.users import UsersPolicy, fit
from rl_openness.policies.wolfpack import WolfpackRule


class Answers(Policy):
    """Gives whatever a function makes of the observation."""

    name = "answers"
    memoryless = True

    def __init__(self, answer):
        self.answer = answer

    def act(self, obs, draws=None):
        return self.answer(obs)


MISTAKES = {
    "raises": (lambda obs: 1 / 0, r"raised ZeroDivisionError: division by zero \(test_users.py line \d+, call 1"),
    "exits": (lambda obs: exit(3), "raised SystemExit: 3"),
    "floats": (lambda obs: np.full(len(obs.present), 0.5), "must be whole numbers .*found an array of float64"),
    "nothing": (lambda obs: None, "broke a rule"),
    "few": (lambda obs: np.zeros(1, dtype=np.int64), "one choice per member"),
    "illegal": (lambda obs: np.full(len(obs.present), 99), r"chose 99 for row .* legal: -1 \(nothing\) to \d"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("place", ["teammate", "player"])
def test_is_told_in_one_line_with_name_environment_and_place(mistake, place):
    answer, words = MISTAKES[mistake]
    env = make_environment("wolfpack", 2, {"max_steps": 5})
    player = policy = fit(UsersPolicy(Answers(answer), "mine:answers", "wolfpack"), env.spec)
    if place == "teammate":
        env = make_wolfpack(2, teammates=Population([policy], env.spec), max_steps=5)
        player = Noop()
    with pytest.raises(RunFailedError, match=f"^policy 'mine:answers' in wolfpack .*{words}") as told:
        play_episodes(env, player, [1, 2])
    assert "\n" not in str(told.value)
    assert "mend its act(obs, draws)" in str(told.value)


def test_choices_for_members_of_others_are_dropped():
    zeros = Answers(lambda obs: np.zeros(len(obs.present), dtype=np.int64))
    env = make_environment("wolfpack", 2, {"max_steps": 5})
    policy = fit(UsersPolicy(zeros, "mine:zeros", "wolfpack"), env.spec)
    obs = env.observe()
    choices = policy.act(obs)
    assert (choices == np.where(obs.controlled & obs.present, 0, NO_OP)).all()
    assert len(play_episodes(env, policy, [1, 2])) == 2


def test_a_policy_of_our_own_classes_stays_what_it_is(tmp_path, monkeypatch):
    (tmp_path / "own_rule.py").write_text(
        "from rl_openness.policies.wolfpack import WolfpackRule\ndef hunter():\n    return WolfpackRule('greedy')\n"
    )
    monkeypatch.chdir(tmp_path)
    policy = user_policy("wolfpack", "own_rule:hunter")
    assert isinstance(policy, WolfpackRule)
    assert policy.name == "own_rule:hunter"
