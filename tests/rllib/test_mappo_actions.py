"""MAPPO over fixed actions as an RLlib algorithm: exact continuation, saved policies, several learners, refusals."""

from pathlib import Path

import numpy as np
import pytest
import torch

from rl_openness.algorithms.mappo.config import MAPPOConfig
from rl_openness.algorithms.registry import find_method
from rl_openness.envs.registry import make_environment
from rl_openness.errors import UserError
from rl_openness.policies.base import Policy
from rl_openness.rllib.checkpoint import save_checkpoint
from tests.rllib.continuation import assert_continues_exactly, card_of, same, weights

pytestmark = pytest.mark.usefixtures("ray_session")


def small(**training: object) -> MAPPOConfig:
    """Eight steps of four copies an update."""
    config = MAPPOConfig().environment("foraging", env_config={"controlled": "all", "team_size": 4}).debugging(seed=3)
    sizes = {"hidden": 8, "train_batch_size_per_learner": 32, "minibatch_size": 8, "num_epochs": 2}
    return config.env_runners(num_envs_per_env_runner=4).training(**{**sizes, **training})


@pytest.mark.parametrize("num_runners", [0, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("rewards", ["own", "team"])
def test_continues_bit_identically(tmp_path: Path, num_runners: int, rewards: str) -> None:
    schedule = [[0, 1e-3], [400, 1e-4]]
    config = small(rewards=rewards, lr=schedule).env_runners(num_env_runners=num_runners)
    assert_continues_exactly(config, "mappo", tmp_path)


def test_it_reports_its_losses_and_moves_both_networks() -> None:
    algorithm = small().build_algo()
    before = weights(algorithm)
    learner = algorithm.train()["learners"]["default_policy"]
    assert {"policy_loss", "value_loss", "entropy", "kl", "actor_grad_norm", "critic_grad_norm"} <= set(learner)
    assert np.isfinite(learner["total_loss"])
    after = weights(algorithm)
    for half in ("network.actor", "network.critic"):
        assert any(not torch.equal(after[name], before[name]) for name in after if name.startswith(half))
    algorithm.stop()


@pytest.mark.slow
def test_several_learners_share_the_copies() -> None:
    algorithm = small(train_batch_size_per_learner=16).learners(num_learners=2).build_algo()
    before = weights(algorithm)
    assert algorithm.train()["num_env_steps_sampled_lifetime"] == 32
    assert not same(weights(algorithm), before)
    algorithm.stop()


def test_a_saved_policy_acts_like_the_algorithm_and_in_teams_of_any_size(tmp_path: Path) -> None:
    algorithm = small().build_algo()
    algorithm.train()
    save_checkpoint(algorithm, tmp_path / "saved", card_of(algorithm, "mappo"))
    env = algorithm.env_runner.env
    obs, draws = env.observe(), env.draws()
    for explore in (False, True):
        expected = algorithm.core_module().actor.act(obs, draws, explore=explore).choices
        np.testing.assert_array_equal(Policy.load(tmp_path / "saved", explore=explore).act(obs, draws), expected)
    algorithm.stop()
    policy = Policy.load(tmp_path / "saved")
    assert policy.memoryless
    for team_size in (2, 5, 9):
        options = {"team_size": team_size, "slots": team_size, "max_food": team_size, "size": 12}
        for controlled in ("all", "first"):
            env = make_environment("foraging", 3, {**options, "controlled": controlled})
            for _ in range(30):
                env.step(policy.act(env.observe(), env.draws()))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: MAPPOConfig().environment("wildfire"), "agents of 'wildfire' choose tasks: see PLATO"),
        (lambda c: c.training(rewards="mine"), "setting 'rewards'"),
        (lambda c: c.training(train_batch_size_per_learner=30), "must be a multiple of num_envs_per_env_runner"),
        (lambda c: c.training(query="stats"), "MAPPO has no setting 'query'"),
    ],
)
def test_refuses_what_does_not_apply(change: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        change(small().copy(copy_frozen=False)).build_algo()


def test_it_is_known_by_name() -> None:
    assert isinstance(find_method("mappo").new_config(), MAPPOConfig)
    with pytest.raises(UserError, match="unknown variant"):
        MAPPOConfig(variant="mapo")
