"""Training on foreign environments: with tasks, with a fixed set of actions, and through everything that goes wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ray.rllib.examples.envs.classes.multi_agent import MultiAgentCartPole

from rl_openness.algorithms.mappo.config import MAPPOConfig, PLATOConfig
from rl_openness.algorithms.mappo.networks.plato import PlatoNetwork
from rl_openness.algorithms.mappo.settings import PlatoSettings
from rl_openness.envs.adapters.bridge import bridge
from rl_openness.envs.registry import make_environment, register_environment
from rl_openness.evaluation.rollout import play_episodes
from rl_openness.policies.base import Policy
from rl_openness.rllib.checkpoint import save_checkpoint
from rl_openness.rllib.sampler import Sampler
from tests.envs.adapters.errands import MAPPING, Errands
from tests.envs.adapters.scripted import Crowd, Weather
from tests.rllib.continuation import assert_continues_exactly, card_of

pytestmark = pytest.mark.usefixtures("ray_session")


def errands(num_copies: int, **options: Any) -> Any:
    """Errands through the bridge."""
    return bridge(lambda: Errands(**options), num_copies, mapping=MAPPING)


class Failing(Errands):
    """Raises at the tenth step of some episodes."""

    def step(self, actions: dict[str, int]) -> Any:
        if self.time == 9 and self.rng.random() < 0.3:
            raise RuntimeError("out of order")
        return super().step(actions)


register_environment("errands", errands)
register_environment("failing-errands", lambda num_copies: bridge(Failing, num_copies, mapping=MAPPING))


def carts(num_copies: int) -> Any:
    """Three cart poles of RLlib's."""
    return bridge(lambda: MultiAgentCartPole({"num_agents": 3}), num_copies, max_steps=600)


register_environment("carts", carts)
register_environment("crowd", lambda num_copies: bridge(lambda: Crowd(Weather()), num_copies, max_steps=30))


def plato(environment: str = "errands", **options: Any) -> PLATOConfig:
    config = PLATOConfig().environment(environment, env_config=options).debugging(seed=1)
    config.env_runners(num_envs_per_env_runner=8)
    return config.training(train_batch_size_per_learner=160, minibatch_size=80, num_epochs=4, hidden=16)


def trained_for(algorithm: Any, iterations: int) -> Any:
    """The last result."""
    return [algorithm.train() for _ in range(iterations)][-1]


def saved(algorithm: Any, folder: Path) -> Path:
    save_checkpoint(algorithm, folder, card_of(algorithm, "plato"))
    return folder


def test_plato_learns_foreign_tasks_and_plays_in_other_teams(tmp_path: Path) -> None:
    algorithm = plato().training(lr=3e-3, gamma=0.9).build_algo()
    first = algorithm.train()["env_runners"]["episode_return_mean"]
    before = Policy.load(saved(algorithm, tmp_path / "before"), explore=True)
    for _ in range(16):
        result = algorithm.train()
    assert result["env_runners"]["episode_return_mean"] > first + 6.0
    after = Policy.load(saved(algorithm, tmp_path / "after"))
    algorithm.stop()
    for team in (1, 2, 3, 5, 7):  # trained with 3
        env = make_environment("errands", 10, {"team": team})
        returns = [play_episodes(env, policy, range(20))["return"].mean() for policy in (before, after)]
        assert returns[1] > returns[0] + 2.0, team


def test_what_stands_in_rows_that_mean_nothing_changes_no_bit() -> None:
    def weights(filler: float) -> dict[str, torch.Tensor]:
        algorithm = plato(filler=filler).build_algo()
        for _ in range(2):
            algorithm.train()
        found = {name: each.clone() for name, each in algorithm.core_module().state_dict().items()}
        algorithm.stop()
        return found

    zeros, nans, huge = weights(0.0), weights(float("nan")), weights(1e30)
    for name, value in zeros.items():
        assert torch.equal(value, nans[name]), name
        assert torch.equal(value, huge[name]), name
        assert value.isfinite().all()


def test_it_goes_on_exactly_from_a_checkpoint(tmp_path: Path) -> None:
    assert_continues_exactly(plato(), "plato", tmp_path)


def test_an_episode_that_does_not_come_back_is_not_counted_on() -> None:
    """After 5 of 20 steps, two environments that ignore their seed begin new episodes, of 20 steps again."""

    class Unseeded(Errands):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            return super().reset(None)

    actor = PlatoNetwork(errands(1).spec, PlatoSettings(hidden=8)).actor
    samplers = [Sampler(bridge(Unseeded, 2, mapping=MAPPING), window=1) for _ in range(2)]
    samplers[0].collect(actor, 5)
    samplers[1].set_state(samplers[0].state())
    samplers[1].collect(actor, 20)
    assert [episode["length"] for _, episode in samplers[1].finished_episodes()] == [20.0, 20.0]


def test_failing_copies_begin_anew_and_their_fragments_are_dropped() -> None:
    config = plato("failing-errands").fault_tolerance(restart_failed_sub_environments=True)
    algorithm = config.build_algo()
    result = trained_for(algorithm, 4)
    runners = result["env_runners"]
    assert runners["failed_copies_lifetime"] > 0
    assert runners["num_env_steps_sampled_lifetime"] == 4 * 160 - 20 * runners["failed_copies_lifetime"]
    assert np.isfinite(result["learners"]["default_policy"]["total_loss"])
    algorithm.stop()


def test_or_end_the_training_with_their_place_told() -> None:
    algorithm = plato("failing-errands").build_algo()
    told = r"environment errands raised RuntimeError: out of order \(copy \d, seed \d+, step 10, joint action"
    with pytest.raises(RuntimeError, match=told):
        trained_for(algorithm, 20)
    algorithm.stop()


def test_mappo_learns_rllibs_own_example_whose_agents_end_one_by_one() -> None:
    config = MAPPOConfig().environment("carts").debugging(seed=1).env_runners(num_envs_per_env_runner=8)
    config.training(train_batch_size_per_learner=1024, minibatch_size=256, num_epochs=8, lr=2e-3, gamma=0.98)
    algorithm = config.build_algo()
    first = algorithm.train()["env_runners"]["episode_return_mean"]
    last = trained_for(algorithm, 12)["env_runners"]["episode_return_mean"]
    assert last > 2.0 * first, (first, last)  # 70, and 260 with this seed
    algorithm.stop()


@pytest.mark.parametrize("clock", ["environment", "agent"])
def test_mappo_trains_among_a_crowd_and_logs_few_keys(clock: str) -> None:
    config = MAPPOConfig().environment("crowd").debugging(seed=1).env_runners(num_envs_per_env_runner=4)
    config.training(train_batch_size_per_learner=160, minibatch_size=40, num_epochs=1, clock=clock)
    algorithm = config.build_algo()
    result = algorithm.train()
    assert np.isfinite(result["learners"]["default_policy"]["total_loss"])

    def keys(tree: Any) -> int:
        return sum(keys(each) for each in tree.values()) if isinstance(tree, dict) else 1

    assert keys({name: result[name] for name in ("env_runners", "learners")}) < 60
    algorithm.stop()
