"""MAPPO over fixed actions: whose reward counts, what a minibatch holds, and a game that is learnt in seconds."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch

from rl_openness.algorithms.mappo.actions_update import (
    evaluate_members,
    member_loss,
    member_minibatches,
    prepare_members,
)
from rl_openness.algorithms.mappo.networks.actions import ActionsNetwork
from rl_openness.algorithms.mappo.settings import ActionsSettings
from rl_openness.envs.base import Column, EnvSpec, Int, OpenVectorEnv, PackedObs, StepResult
from rl_openness.envs.draws import Keys, child_seeds, step_keys
from rl_openness.envs.ragged import pointer
from rl_openness.envs.registry import make_environment
from rl_openness.rllib.chunk import RolloutChunk
from rl_openness.rllib.sampler import Sampler
from tests.nn.builders import close, equal

QUICK = {"hidden": 16, "lr": 3e-3, "num_epochs": 4, "train_batch_size_per_learner": 512, "minibatch_size": 128}


class Lane(OpenVectorEnv):
    """One to four agents on a line and a prize: each earns 1 by a step to the prize's side, at once and for itself."""

    spec = EnvSpec(
        name="lane", agent_columns=(Column("x", axis="x"),), task_columns=(Column("x", axis="x"),), num_actions=3
    )

    def __init__(self, num_copies: int) -> None:
        self.num_copies = num_copies
        self.episode = np.zeros(num_copies, dtype=np.int64)
        self.reset(child_seeds(0, count=num_copies))

    def reset(self, seeds=None, copies=None) -> None:
        if seeds is not None:
            self.seed, self.episode[:] = np.array(seeds), 0
        else:
            self.episode[copies] += 1

    def observe(self) -> PackedObs:
        rngs = [np.random.default_rng([s, e]) for s, e in zip(self.seed, self.episode, strict=True)]
        agents = [rng.uniform(-1, 1, rng.integers(1, 5)) for rng in rngs]
        ptr, empty = pointer(np.array([len(each) for each in agents])), np.empty(0, dtype=np.int64)
        members = int(ptr[-1])
        return PackedObs(
            agent_rows=np.concatenate(agents).astype(np.float32)[:, None],
            present=np.ones(members, dtype=bool),
            carry=np.full(members, -1),
            agent_id=np.arange(members),
            agent_ptr=ptr,
            task_rows=np.array([rng.uniform(-1, 1) for rng in rngs], dtype=np.float32)[:, None],
            task_ptr=np.arange(self.num_copies + 1),
            pair_agent=empty,
            pair_task=empty,
            pair_rows=np.zeros((0, 0), dtype=np.float32),
        )

    def step(self, choices: Int) -> StepResult:
        obs = self.observe()
        side = np.sign(obs.task_rows[obs.agent_copy, 0] - obs.agent_rows[:, 0])
        own = (side == np.array([0, -1, 1])[choices]).astype(float)
        team = np.bincount(obs.agent_copy, own, minlength=self.num_copies)
        done, never = np.ones(self.num_copies, dtype=bool), np.zeros(self.num_copies, dtype=bool)
        self.reset(copies=np.arange(self.num_copies))
        return StepResult(team, own, done, never, np.arange(self.num_copies), obs)

    def decision_keys(self) -> Keys:
        return step_keys(self.seed, self.episode, np.zeros_like(self.seed))

    def get_state(self) -> dict[str, np.ndarray]:
        return {"seed": self.seed.copy(), "episode": self.episode.copy()}

    def set_state(self, state: Mapping[str, np.ndarray]) -> None:
        self.seed, self.episode = state["seed"].copy(), state["episode"].copy()


def train(env: OpenVectorEnv, settings: ActionsSettings, updates: int) -> ActionsNetwork:
    torch.manual_seed(0)
    network, rng = ActionsNetwork(env.spec, settings), np.random.default_rng(0)
    sampler = Sampler(env, window=1, agent_rewards=True)
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.lr, eps=settings.adam_epsilon)
    for _ in range(updates):
        rollout = sampler.collect(network.actor, settings.train_batch_size_per_learner // env.num_copies)
        for batch in member_minibatches(prepare_members([rollout], network, settings), settings, rng):
            loss, _ = member_loss(network, batch, evaluate_members(network, batch), settings)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return network


@pytest.mark.parametrize(("rewards", "updates"), [("own", 12), ("team", 25)])
def test_each_agent_learns_to_go_to_the_prize(rewards: str, updates: int) -> None:
    network = train(Lane(64), ActionsSettings(**QUICK, rewards=rewards), updates)
    env = Lane(200)
    env.reset(child_seeds(9, count=200))
    result = env.step(network.actor.act(env.observe(), env.draws(), explore=False).choices)
    assert result.agent_reward.mean() > 0.93


def foraging_rollout(steps: int = 30, *, own: bool = True, **options: object) -> tuple[RolloutChunk, ActionsNetwork]:
    env = make_environment("foraging", 4, {"controlled": "all", "team_size": 4, "slots": 5, **options})
    torch.manual_seed(1)
    network = ActionsNetwork(env.spec, ActionsSettings(hidden=4))
    return Sampler(env, window=1, agent_rewards=own).collect(network.actor, steps), network


def test_values_and_targets_are_each_members_own() -> None:
    rollout, network = foraging_rollout()
    network.double()
    settings = ActionsSettings(hidden=4, gamma=0.0, lambda_=0.0)
    whole = prepare_members([rollout], network, settings, torch.float64)
    close(whole.target, rollout.agent_reward, atol=1e-6)  # without a future a value is the reward
    assert len(whole) == 120
    team = prepare_members([rollout], network, settings.model_copy(update={"rewards": "team"}), torch.float64)
    close(team.target, rollout.team_reward.ravel()[rollout.obs.agent_copy], atol=1e-6)


def test_only_controlled_members_are_learnt_from() -> None:
    rollout, network = foraging_rollout(controlled="first")
    whole = prepare_members([rollout], network, ActionsSettings(hidden=4))
    assert len(whole.target) == len(whole) == 120
    equal(whole.chosen, rollout.choices[rollout.obs.controlled])


def test_minibatches_cover_every_member_once_an_epoch() -> None:
    rollout, network = foraging_rollout()
    settings = ActionsSettings(hidden=4, minibatch_size=50, num_epochs=2)
    whole = prepare_members([rollout, rollout], network, settings)
    parts = list(member_minibatches(whole, settings, np.random.default_rng(0)))
    assert [len(part) for part in parts] == [48] * 10
    for epoch in (parts[:5], parts[5:]):
        equal(np.sort(np.concatenate([part.target for part in epoch])), np.sort(whole.target))
    sizes = np.diff(whole.step_ptr)
    assert sum(len(part.target) for part in parts[:5]) == sizes.sum()


def test_the_first_pass_finds_the_probabilities_of_the_rollout() -> None:
    rollout, network = foraging_rollout()
    whole = prepare_members([rollout], network, ActionsSettings(hidden=4))
    outputs = evaluate_members(network, whole)
    close(outputs.log_prob, whole.old_log_prob, atol=1e-5)
    close(outputs.value, whole.old_value, atol=1e-6)
    loss, parts = member_loss(network, whole, outputs, ActionsSettings(hidden=4))
    assert torch.isfinite(loss)
    assert abs(float(parts["kl"])) < 1e-5
    loss.backward()
    assert all(torch.isfinite(p.grad).all() for p in network.parameters())


def test_an_empty_minibatch_has_a_loss_of_nothing() -> None:
    rollout, network = foraging_rollout()
    nobody = prepare_members([rollout], network, ActionsSettings(hidden=4)).select(torch.empty(0, dtype=torch.long))
    loss, parts = member_loss(network, nobody, evaluate_members(network, nobody), ActionsSettings(hidden=4))
    assert (loss.item(), parts) == (0.0, {})


def test_own_rewards_must_have_been_sampled() -> None:
    rollout, network = foraging_rollout(own=False)
    with pytest.raises(AssertionError, match="not asked for"):
        prepare_members([rollout], network, ActionsSettings(hidden=4))
