"""PLATO as an RLlib algorithm: configuration, exact continuation, remote runners and learners, lost runners, Tune."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from ray import tune

from rl_openness.algorithms.mappo.config import PLATO, PLATOConfig
from rl_openness.errors import UserError
from rl_openness.policies.base import Policy
from rl_openness.policies.card import PolicyCard
from rl_openness.rllib.checkpoint import restore_checkpoint, save_checkpoint
from rl_openness.rllib.data import RolloutData

pytestmark = pytest.mark.usefixtures("ray_session")


def small(**training: object) -> PLATOConfig:
    """Sixteen steps of sixteen copies an iteration."""
    options = {
        "train_batch_size_per_learner": 256,
        "num_envs_per_env_runner": 16,
        "minibatch_size": 64,
        "num_epochs": 2,
        "hidden": 16,
        **training,
    }
    config = PLATOConfig().environment("wildfire", env_config={"setup": "3x3/S3"}).debugging(seed=3)
    return config.env_runners(num_envs_per_env_runner=options.pop("num_envs_per_env_runner")).training(**options)


def weights(algorithm: PLATO) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in algorithm.core_module().state_dict().items()}


def same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def learning_rate(algorithm: PLATO) -> float:
    (optimizer,) = algorithm.learner_group._learner._optimizer_parameters
    return optimizer.param_groups[0]["lr"]


def card(algorithm: PLATO) -> PolicyCard:
    return PolicyCard(
        method="plato",
        settings=algorithm.config.settings().model_dump(),
        env_spec=algorithm.core_module().network.spec,
        environment="wildfire",
        env_config=algorithm.config.env_config,
        env_steps=0,
        seed=3,
    )


def identities(algorithm: PLATO) -> dict[int, tuple[int, int, np.ndarray]]:
    """Process, version of the weights and seeds of each remote runner."""
    return dict(
        algorithm.env_runner_group.foreach_env_runner(
            lambda r: (r.worker_index, (os.getpid(), r._weights_seq_no, r._sampler.env.get_state()["seed"])),
            local_env_runner=False,
        )
    )


def test_reports_steps_and_recent_episodes() -> None:
    algorithm = small(train_batch_size_per_learner=1600, minibatch_size=800).build_algo()
    results = [algorithm.train() for _ in range(2)]
    runners = results[-1]["env_runners"]
    assert results[-1]["num_env_steps_sampled_lifetime"] == 3200
    assert runners["num_episodes_lifetime"] == 32
    assert np.isfinite(runners["episode_return_mean"])
    assert runners["episode_len_mean"] == 100.0
    assert set(runners["num_agent_steps_sampled_lifetime"]) == {"agents"}
    assert {"policy_loss", "value_loss", "entropy", "kl", "clip_fraction"} <= set(
        results[-1]["learners"]["default_policy"]
    )
    algorithm.stop()


def test_means_outlive_iterations_without_an_ending_episode() -> None:
    algorithm = small(train_batch_size_per_learner=800, minibatch_size=400).build_algo()
    results = [algorithm.train() for _ in range(5)]
    means = [result["env_runners"].get("episode_return_mean") for result in results]
    assert means[0] is None
    assert all(np.isfinite(mean) for mean in means[1:])
    assert means[1] == means[2]
    algorithm.stop()


@pytest.mark.parametrize("encoder", ["mlp", "lstm"])
@pytest.mark.parametrize("num_runners", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_continues_bit_identically(tmp_path: Path, encoder: str, num_runners: int) -> None:
    config = small(encoder=encoder, max_seq_len=5).env_runners(num_env_runners=num_runners)
    algorithm = config.copy(copy_frozen=False).build_algo()
    for _ in range(3):
        algorithm.train()
    save_checkpoint(algorithm, tmp_path / "half", card(algorithm))
    for _ in range(3):
        straight = algorithm.train()
    reference = weights(algorithm)

    fresh = config.copy(copy_frozen=False).build_algo()
    restore_checkpoint(fresh, tmp_path / "half")
    for _ in range(3):
        resumed = fresh.train()
    assert same(weights(fresh), reference)
    for key in ("num_env_steps_sampled_lifetime", "training_iteration"):
        assert resumed[key] == straight[key]

    restore_checkpoint(algorithm, tmp_path / "half")  # in place, back to older weights
    for _ in range(3):
        algorithm.train()
    assert same(weights(algorithm), reference)
    fresh.stop()
    algorithm.stop()


def test_rllibs_own_checkpoints_continue_too(tmp_path: Path) -> None:
    algorithm = small().build_algo()
    algorithm.train()
    algorithm.save_to_path(str(tmp_path / "rllib"))
    algorithm.train()
    reference = weights(algorithm)
    other = PLATO.from_checkpoint(str(tmp_path / "rllib"))
    other.train()
    assert same(weights(other), reference)
    algorithm.restore_from_path(str(tmp_path / "rllib"))
    algorithm.train()
    assert same(weights(algorithm), reference)
    other.stop()
    algorithm.stop()


def test_schedules_follow_the_env_steps_also_after_a_restore(tmp_path: Path) -> None:
    config = small(lr=[[0, 1e-3], [1024, 0]], entropy_coeff=[[0, 0.5], [1024, 0]])
    algorithm = config.build_algo()
    rates = []
    for _ in range(2):
        algorithm.train()
        rates.append(learning_rate(algorithm))
    assert rates == pytest.approx([0.75e-3, 0.5e-3])  # an update of 256 steps ends at 256, then at 512
    save_checkpoint(algorithm, tmp_path / "saved", card(algorithm))
    algorithm.train()
    other = config.copy(copy_frozen=False).build_algo()
    restore_checkpoint(other, tmp_path / "saved")
    other.train()
    assert learning_rate(other) == learning_rate(algorithm) == pytest.approx(0.25e-3)
    assert same(weights(other), weights(algorithm))
    algorithm.train()
    frozen = weights(algorithm)
    algorithm.train()
    assert all(torch.equal(frozen[name], value) for name, value in weights(algorithm).items() if "norm" not in name)
    algorithm.stop()
    other.stop()


def test_a_saved_policy_acts_like_the_algorithm(tmp_path: Path) -> None:
    algorithm = small().build_algo()
    algorithm.train()
    save_checkpoint(algorithm, tmp_path / "c", card(algorithm))
    policy = Policy.load(tmp_path / "c")
    env = algorithm.env_runner.env
    obs, draws = env.observe(), env.draws()
    expected = algorithm.core_module().network.actor.act(obs, draws, explore=False).choices
    np.testing.assert_array_equal(policy.act(obs, draws), expected)
    algorithm.stop()


def test_a_damaged_or_missing_state_is_named(tmp_path: Path) -> None:
    algorithm = small().build_algo()
    save_checkpoint(algorithm, tmp_path / "c", card(algorithm))
    (tmp_path / "c" / "state" / "arrays.safetensors").write_bytes(b"broken")
    with pytest.raises(UserError, match="cannot be read"):
        restore_checkpoint(algorithm, tmp_path / "c")
    with pytest.raises(UserError, match="holds no state/"):
        restore_checkpoint(algorithm, tmp_path)
    algorithm.stop()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.training(train_batch_size_per_learner=250), "must be a multiple of num_envs_per_env_runner"),
        (lambda c: c.learners(num_learners=3).training(train_batch_size_per_learner=256), "multiple of num_learners"),
        (lambda c: c.env_runners(batch_mode="complete_episodes"), "batch_mode"),
        (lambda c: c.env_runners(rollout_fragment_length=7), "rollout_fragment_length"),
        (lambda c: c.multi_agent(policies={"a", "b"}, policy_mapping_fn=lambda *_: "a"), "multi_agent"),
        (lambda c: c.multi_agent(count_steps_by="agent_steps"), "count_steps_by"),
        (lambda c: c.training(learner_connector=lambda *_: None), "learner_connector"),
        (lambda c: c.training(lr=-0.5), "PLATO setting 'lr'"),
        (lambda c: c.training(train_batch_size=4096), "say train_batch_size_per_learner"),
        (lambda c: c.training(grad_clip_by="value"), "grad_clip_by"),
        (lambda c: c.rl_module(model_config={"hidden": 5}), "say training"),
        (lambda c: c.learners(num_gpus_per_learner=1), "num_gpus_per_learner"),
        (lambda c: c.debugging(seed=-5), "seed must not be negative"),
        (lambda c: c.training(minibatch_size=512), "minibatch_size"),
        (lambda c: c.training(absent_state="hold"), "needs encoder = lstm"),
        (lambda c: c.environment("wildfire", env_config={"setup": "3x3/S9"}), "did you mean"),
    ],
)
def test_refuses_what_does_not_apply(change: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        change(small()).build_algo()


def test_unknown_settings_name_the_nearest() -> None:
    with pytest.raises(UserError, match="did you mean 'entropy_coeff'"):
        PLATOConfig().training(entropy_coef=0.1)
    with pytest.raises(UserError, match="did you mean 'entropy_coeff'"):
        PLATOConfig().training(grad_clip_by="norm", entropy_coef=0.1)
    with pytest.raises(UserError, match="did you mean 'plato-strict'"):
        PLATOConfig(variant="plato-strct")


def test_evaluation_uses_greedy_decisions_and_repeats() -> None:
    config = small().evaluation(evaluation_interval=1, evaluation_duration=20, evaluation_duration_unit="episodes")
    algorithm = config.build_algo()
    first = algorithm.evaluate()["env_runners"]
    again = algorithm.evaluate()["env_runners"]
    assert first["num_episodes"] == 20
    assert first["episode_return_mean"] == again["episode_return_mean"]
    assert "evaluation" in algorithm.train()
    algorithm.stop()


@pytest.mark.parametrize("other", [{"num_envs_per_env_runner": 4}, {"env_config": {"setup": "4x4/S3"}}])
def test_restores_beside_an_evaluation_of_another_size_or_world(tmp_path: Path, other: dict[str, object]) -> None:
    config = small().evaluation(evaluation_interval=1, evaluation_duration=4, evaluation_config=other)
    algorithm = config.build_algo()
    first = algorithm.train()
    save_checkpoint(algorithm, tmp_path / "c", card(algorithm))
    restore_checkpoint(algorithm, tmp_path / "c")
    assert np.isfinite(first["evaluation"]["env_runners"]["episode_return_mean"])
    algorithm.train()
    algorithm.stop()


def test_a_missing_seed_is_drawn_and_known() -> None:
    algorithms = [small().debugging(seed=None).build_algo() for _ in range(2)]
    assert algorithms[0].config.seed != algorithms[1].config.seed
    assert algorithms[0].config.seed >= 0
    for algorithm in algorithms:
        algorithm.stop()


@pytest.mark.slow
def test_an_error_in_a_remote_environment_ends_the_training(tmp_path: Path) -> None:
    options = {"setup": "3x3/S3", "at_end": "stop", "overrides": {"env.max_steps": 3}}
    config = small().environment("wildfire", env_config=options).env_runners(num_env_runners=1)
    algorithm = config.build_algo()

    def train_on() -> None:
        for _ in range(10):
            algorithm.train()

    with pytest.raises(RuntimeError, match="no runner returned a rollout"):
        train_on()
    algorithm.stop()


def test_evaluating_on_the_training_runner_leaves_training_alone() -> None:
    with_evaluation, without = small(encoder="lstm").build_algo(), small(encoder="lstm").build_algo()
    for algorithm in (with_evaluation, without):
        algorithm.train()
    assert with_evaluation.evaluate()["env_runners"]["num_episodes"] == 10
    for algorithm in (with_evaluation, without):
        algorithm.train()
    assert same(weights(with_evaluation), weights(without))
    with_evaluation.stop()
    without.stop()


def test_shares_of_an_update_cover_every_copy_once() -> None:
    algorithm = small().build_algo()
    chunk = algorithm.env_runner.sample()[0]
    shares = [data for data, _ in RolloutData(chunks=[chunk]).shard(3)]
    for share in shares:
        share.solve_refs()
    assert [share.chunks[0].num_copies for share in shares] == [6, 5, 5]
    joined = np.concatenate([share.chunks[0].team_reward for share in shares], axis=1)
    np.testing.assert_array_equal(joined, chunk.team_reward)
    algorithm.stop()


@pytest.mark.slow
def test_two_learners_stay_in_step() -> None:
    algorithm = small().learners(num_learners=2).build_algo()
    for _ in range(2):
        algorithm.train()
    states = algorithm.learner_group.foreach_learner(lambda learner: learner.module.get_state())
    first, second = (result.get()["default_policy"] for result in states)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
    algorithm.stop()


@pytest.mark.slow
def test_two_learners_continue_bit_identically_and_in_step(tmp_path: Path) -> None:
    config = small().learners(num_learners=2)
    algorithm = config.copy(copy_frozen=False).build_algo()
    algorithm.train()
    save_checkpoint(algorithm, tmp_path / "half", card(algorithm))
    for _ in range(2):
        algorithm.train()
    reference = weights(algorithm)
    restore_checkpoint(algorithm, tmp_path / "half")
    for _ in range(2):
        algorithm.train()
    assert same(weights(algorithm), reference)
    states = algorithm.learner_group.foreach_learner(lambda learner: learner.module.get_state())
    first, second = (result.get()["default_policy"] for result in states)
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])
    algorithm.stop()


@pytest.mark.slow
def test_two_runners_evaluation_runners_and_two_learners_together() -> None:
    config = small().env_runners(num_env_runners=2).learners(num_learners=2)
    algorithm = config.evaluation(
        evaluation_interval=1, evaluation_num_env_runners=1, evaluation_duration=16
    ).build_algo()
    result = algorithm.train()
    assert result["num_env_steps_sampled_lifetime"] == 512
    assert np.isfinite(result["evaluation"]["env_runners"]["episode_return_mean"])
    algorithm.stop()


@pytest.mark.slow
def test_a_killed_runner_comes_back_and_no_chunk_counts_twice() -> None:
    config = small().env_runners(num_env_runners=2).fault_tolerance(restart_failed_env_runners=True)
    algorithm = config.build_algo()
    algorithm.train()
    before = identities(algorithm)
    os.kill(before[1][0], signal.SIGKILL)
    steps = [algorithm.train()["num_env_steps_sampled_lifetime"] for _ in range(2)]
    deadline = time.monotonic() + 120
    while algorithm.env_runner_group.num_healthy_remote_workers() < 2 and time.monotonic() < deadline:
        steps.append(algorithm.train()["num_env_steps_sampled_lifetime"])
    back = identities(algorithm)
    assert back[1][0] != before[1][0]
    assert back[2][0] == before[2][0]
    assert back[1][1] == back[2][1]
    assert set(back[1][2]).isdisjoint(before[1][2]), "the predecessor's episodes are played again"
    assert set(back[1][2]).isdisjoint(back[2][2])
    assert np.diff([256, *steps]).tolist() == [256] * len(steps)
    algorithm.stop()


@pytest.mark.slow
def test_runs_under_tune(tmp_path: Path) -> None:
    config = small(lr=tune.grid_search([1e-3, 1e-4]))
    tuner = tune.Tuner(
        PLATO,
        param_space=config,
        run_config=tune.RunConfig(stop={"training_iteration": 2}, storage_path=str(tmp_path), verbose=0),
    )
    results = tuner.fit()
    assert not results.errors
    assert sorted(result.config["lr"] for result in results) == [1e-4, 1e-3]
    assert all(result.metrics["num_env_steps_sampled_lifetime"] == 512 for result in results)
