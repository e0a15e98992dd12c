"""RLlib's stock PPO trains on our environments through the view."""

import numpy as np
import pytest
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.connectors.env_to_module import FlattenObservations
from ray.tune import register_env

from rl_openness.envs.adapters.rllib import open_multi_agent_env


def stock_ppo(env_config, **runners):
    register_env("open_multi_agent", open_multi_agent_env)
    return (
        PPOConfig()
        .environment("open_multi_agent", env_config=env_config)
        .multi_agent(policies={"shared"}, policy_mapping_fn=lambda agent, episode, **kwargs: "shared")
        .env_runners(
            num_env_runners=0,
            env_to_module_connector=lambda env, spaces, device: FlattenObservations(multi_agent=True),
            **runners,
        )
        .training(minibatch_size=128, num_epochs=1)
        .debugging(seed=1, log_level="ERROR")
    )


def last_result(config, iterations):
    algorithm = config.build_algo()
    try:
        return [algorithm.train() for _ in range(iterations)][-1]
    finally:
        algorithm.stop()


def test_stock_ppo_trains_on_it(ray_session):
    world = {"env": "wildfire", "env_config": {"setup": "3x3/S3"}, "max_tasks": 6}
    config = stock_ppo(world, num_envs_per_env_runner=2).training(train_batch_size_per_learner=256)
    result = last_result(config, 1)
    assert result["env_runners"]["num_episodes"] == 2
    assert result["env_runners"]["episode_len_mean"] == 100
    assert np.isfinite(result["learners"]["shared"]["total_loss"])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("foraging", {"slots": 7, "team_size": 4}),
        ("wolfpack", {"open_process": "paper", "max_steps": 90}),
    ],
)
def test_stock_ppo_takes_teams_that_change_and_fragments_that_cut_them(ray_session, name, options):
    world = {"env": name, "env_config": {"controlled": "all", **options}}
    config = stock_ppo(world, num_envs_per_env_runner=3, rollout_fragment_length=7)
    config.environment(disable_env_checking=True).training(train_batch_size_per_learner=300)
    result = last_result(config, 3)
    assert result["env_runners"]["num_episodes_lifetime"] >= 6
    assert np.isfinite(result["learners"]["shared"]["total_loss"])
