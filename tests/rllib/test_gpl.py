"""GPL and CIAO as RLlib algorithms: learning from teammates' labels, exact continuation, what is refused."""

import os
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from rl_openness.algorithms.gpl import learner as learner_module
from rl_openness.algorithms.gpl.config import CIAOConfig, GPLConfig
from rl_openness.algorithms.gpl.update import prepare
from rl_openness.errors import UserError
from rl_openness.policies.base import Policy
from rl_openness.rllib.checkpoint import save_checkpoint
from tests.rllib.continuation import assert_continues_exactly, card_of, weights

pytestmark = pytest.mark.usefixtures("ray_session")

SMALL = {
    "encoder_hidden": 8,
    "recurrent_hidden": 8,
    "type_width": 8,
    "utility_hidden": 8,
    "updates_per_iteration": 6,
    "epsilon": [[0, 1.0], [2000, 0.1]],
}


def small(config: GPLConfig | None = None, environment: str = "foraging", **training: object) -> GPLConfig:
    """Six updates of four steps of four copies an iteration."""
    config = config or GPLConfig()
    config.environment(environment, env_config={"team_size": 3}).debugging(seed=3)
    return config.env_runners(num_envs_per_env_runner=4).training(**{**SMALL, **training})


def test_it_reports_its_losses_and_moves_both_networks() -> None:
    algorithm = small().build_algo()
    before = weights(algorithm)
    result = algorithm.train()
    assert result["num_env_steps_sampled_lifetime"] == 6 * 4 * 4
    learner = result["learners"]["default_policy"]
    assert {"td_loss", "agent_model_loss", "agent_model_accuracy", "q", "network_grad_norm"} <= set(learner)
    assert all(np.isfinite(learner[name]) for name in ("td_loss", "agent_model_loss", "total_loss"))
    after = weights(algorithm)
    for half in ("network", "target"):
        assert any(not torch.equal(after[name], before[name]) for name in after if name.startswith(half))
    algorithm.stop()


def test_the_target_memory_goes_on_from_window_to_window(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[tuple[object, list[torch.Tensor]]] = []

    def watched(chunks: object, target: object, memory: list[torch.Tensor | None]) -> object:
        batch, after = prepare(chunks, target, memory)
        given.append((memory, after))
        return batch, after

    monkeypatch.setattr(learner_module, "prepare", watched)
    algorithm = small().build_algo()
    result = algorithm.train()
    assert result["learners"]["default_policy"]["windows_without_target_memory"] == 1  # the very first
    assert algorithm.train()["learners"]["default_policy"]["windows_without_target_memory"] == 0
    assert len(given) == 12
    assert given[0][0] == [None]
    for (_, after), (memory, _) in pairwise(given):
        assert memory[0] is after[0]
    algorithm.env_runner.sample(force_reset=True)  # other episodes: what is remembered of the last ones must go
    algorithm.train()
    assert given[12][0] == [None]
    algorithm.stop()


def test_exploration_follows_the_env_steps_of_the_whole_training() -> None:
    algorithm = small(epsilon=[[0, 1.0], [192, 0.0]]).build_algo()
    used = []
    network = algorithm.env_runner.module.network
    act = network.act
    network.act = lambda *args, epsilon, **kwargs: (used.append(epsilon), act(*args, epsilon=epsilon, **kwargs))[1]
    algorithm.train()
    np.testing.assert_allclose(used, np.repeat(1.0 - np.arange(6) * 16 / 192, 4))
    algorithm.train()
    np.testing.assert_allclose(used[24:], np.repeat(1.0 - (6 + np.arange(6)) * 16 / 192, 4))
    algorithm.train()
    assert used[48:] == [0.0] * 24
    algorithm.stop()


def test_a_module_explores_as_much_as_it_is_told() -> None:
    algorithm = small(epsilon=[[0, 1.0], [1000, 0.0]]).build_algo()
    module, env = algorithm.env_runner.module, algorithm.env_runner.env
    inputs = {"obs": env.observe(), "draws": env.draws(), "memory": None}
    greedy = module.forward_inference(inputs)["decision"].choices
    late = module.forward_exploration({**inputs, "env_steps": 1000})["decision"].choices
    np.testing.assert_array_equal(late, greedy)
    early = module.forward_exploration({**inputs, "env_steps": 0})["decision"].choices
    assert (early != greedy).any()
    algorithm.stop()


@pytest.mark.slow
def test_runners_explore_by_the_steps_of_all_also_after_one_was_lost() -> None:
    config = small(epsilon=[[0, 1.0], [10_000, 0.0]]).env_runners(num_env_runners=2)
    algorithm = config.fault_tolerance(restart_failed_env_runners=True).build_algo()
    algorithm.train()
    group = algorithm.env_runner_group
    group.foreach_env_runner(lambda runner: os._exit(1) if runner.worker_index == 1 else None, local_env_runner=False)
    algorithm.train()
    deadline = time.monotonic() + 120
    while group.num_healthy_remote_workers() < 2 and time.monotonic() < deadline:
        algorithm.train()
    seen = algorithm.train()["num_env_steps_sampled_lifetime"]
    steps = group.foreach_env_runner(lambda runner: runner._env_steps, local_env_runner=False)
    assert steps == [seen - 32, seen - 32]  # what had been sampled before the last windows
    algorithm.stop()


@pytest.mark.parametrize("environment", ["foraging", "wolfpack"])
def test_a_time_limit_may_be_bootstrapped_from(environment: str) -> None:
    config = small(environment=environment, horizon_as_terminal=False)
    config.env_config |= {"max_steps": 9}
    algorithm = config.build_algo()
    for _ in range(3):  # in foraging some copies end by themselves, others at the limit
        loss = algorithm.train()["learners"]["default_policy"]["total_loss"]
    assert np.isfinite(loss)
    algorithm.stop()


@pytest.mark.parametrize("environment", ["foraging", "wolfpack"])
@pytest.mark.parametrize("seq_model", ["lstm", "gru"])
@pytest.mark.parametrize("num_runners", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_continues_bit_identically(tmp_path: Path, environment: str, seq_model: str, num_runners: int) -> None:
    config = small(CIAOConfig(), environment, seq_model=seq_model).env_runners(num_env_runners=num_runners)
    assert_continues_exactly(config, "gpl", tmp_path)


def test_a_saved_policy_acts_like_the_algorithm(tmp_path: Path) -> None:
    algorithm = small().build_algo()
    algorithm.train()
    save_checkpoint(algorithm, tmp_path / "saved", card_of(algorithm, "gpl"))
    policy = Policy.load(tmp_path / "saved")
    env = algorithm.env_runner.env
    obs, draws = env.observe(), env.draws()
    expected = algorithm.core_module().network.act(obs, draws, explore=False).choices
    np.testing.assert_array_equal(policy.act(obs, draws), expected)
    algorithm.stop()


def test_one_net_plays_in_teams_of_any_size(tmp_path: Path) -> None:
    from rl_openness.envs.registry import make_environment

    algorithm = small().build_algo()
    save_checkpoint(algorithm, tmp_path / "saved", card_of(algorithm, "gpl"))
    algorithm.stop()
    policy = Policy.load(tmp_path / "saved")
    for team_size in (2, 5, 9):
        env = make_environment("foraging", 3, {"team_size": team_size, "slots": team_size})
        for _ in range(60):
            env.step(policy.act(env.observe(), env.draws()))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.learners(num_learners=2), "learns with one learner"),
        (lambda c: c.environment("wildfire"), "needs a fixed set of actions"),
        (lambda c: c.training(epsilon=1.5), "epsilon is a probability"),
        (lambda c: c.training(pair_range="zero"), "setting 'pair_range'"),
        (lambda c: c.training(train_batch_size_per_learner=64), "update_every x num_envs_per_env_runner x runners"),
        (lambda c: c.training(minibatch_size=16), "takes no minibatch_size: .* set update_every"),
        (lambda c: c.training(num_epochs=5), "takes no num_epochs: .* update_every"),
        (lambda c: c.environment("foraging", env_config={"teammates": []}), "at least one type of teammate"),
        (lambda c: c.environment("foraging", env_config={"teammates": ["H9"]}), "unknown type of teammate 'H9'"),
        (lambda c: c.environment("foraging", env_config={"slots": 1}), "foraging field 'slots'"),
    ],
)
def test_refuses_what_does_not_apply(change: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        change(small(CIAOConfig()).copy(copy_frozen=False)).build_algo()


def test_variants_are_the_papers() -> None:
    star = CIAOConfig(variant="ciao-s").settings()
    assert (star.graph, star.pair_range, star.individual_range, star.regularizer_weight) == ("star", "pos", "pos", 0.5)
    plain = GPLConfig().settings()
    assert (plain.graph, plain.pair_range, plain.regularizer_weight) == ("complete", "free", 0.0)
    with pytest.raises(UserError, match="unknown variant 'ciao-x'"):
        CIAOConfig(variant="ciao-x")
