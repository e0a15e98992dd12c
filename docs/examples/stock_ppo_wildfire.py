"""RLlib's own PPO on Wildfire, through our `MultiAgentEnv`: about a minute on one core.

    python docs/examples/stock_ppo_wildfire.py [--setup 3x3/S3] [--iterations 20] [--seed 0]

Nothing of this package's training is used: the environment is registered under a name, and a small RLModule masks the
actions that an agent cannot choose. One policy plays all agents; its critic sees the whole state (`with_state`).
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import ray
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.tune import register_env
from torch import Tensor, nn

from rl_openness.envs.adapters.rllib import OpenMultiAgentEnv, open_multi_agent_env
from rl_openness.envs.wildfire.setups import exact_optimum

NAME = "open_multi_agent"
SEEN = ("self", "present", "team", "team_mask", "tasks", "task_mask", "pairs")
STATE = ("state_agents", "state_present", "state_tasks", "task_mask")


class MaskedModule(TorchRLModule, ValueFunctionAPI, InferenceOnlyAPI):
    """Two networks of two layers: what the agent sees gives logits, what is true gives a value."""

    def setup(self) -> None:
        def network(parts: Sequence[str], outputs: int) -> nn.Module:
            inputs = sum(int(np.prod(self.observation_space[part].shape)) for part in parts)
            hidden = self.model_config["hidden"]
            return nn.Sequential(
                nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, outputs)
            )

        self.actor = network(SEEN, int(self.action_space.n))
        if not self.inference_only:
            self.critic = network(STATE, 1)

    def get_non_inference_attributes(self) -> list[str]:
        return ["critic"]

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        obs = batch[Columns.OBS]
        logits = self.actor(_flat(obs, SEEN))
        closed = torch.finfo(logits.dtype).min  # not -inf: its difference to itself would be NaN
        return {Columns.ACTION_DIST_INPUTS: torch.where(obs["action_mask"] > 0, logits, closed)}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Tensor:
        return self.critic(_flat(batch[Columns.OBS], STATE)).squeeze(-1)


def _flat(obs: dict[str, Tensor], parts: Sequence[str]) -> Tensor:
    return torch.cat([obs[part].flatten(start_dim=1) for part in parts], dim=1)


def config(setup: str, seed: int) -> PPOConfig:
    register_env(NAME, open_multi_agent_env)
    return (
        PPOConfig()
        .environment(
            NAME,
            env_config={"env": "wildfire", "env_config": {"setup": setup}, "with_state": True},
            disable_env_checking=True,
        )
        .multi_agent(policies={"shared"}, policy_mapping_fn=lambda agent, episode, **kwargs: "shared")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=16)
        .learners(num_learners=0)
        .rl_module(rl_module_spec=RLModuleSpec(module_class=MaskedModule, model_config={"hidden": 64}))
        .training(
            train_batch_size_per_learner=1600,  # steps of the team: each of the 16 copies plays one episode
            minibatch_size=512,  # steps of agents
            num_epochs=6,
            lr=1e-3,
            gamma=0.95,
            lambda_=0.9,
            entropy_coeff=0.01,
            vf_clip_param=float("inf"),
            use_kl_loss=False,
            vf_loss_coeff=0.01,  # values are large, and both networks are clipped by one norm
            grad_clip=1.0,
            grad_clip_by="global_norm",
        )
        .reporting(metrics_num_episodes_for_smoothing=16)  # one iteration's
        .debugging(seed=seed, log_level="ERROR")
    )


def random_return(setup: str, episodes: int = 20) -> float:
    """Mean return of the team when all choose uniformly among what they may."""
    env: OpenMultiAgentEnv = open_multi_agent_env({"env": "wildfire", "env_config": {"setup": setup}})
    rng, total = np.random.default_rng(0), 0.0
    for episode in range(episodes):
        obs, _ = env.reset(seed=episode)
        over = False
        while not over:
            actions = {name: int(rng.choice(np.flatnonzero(one["action_mask"]))) for name, one in obs.items()}
            obs, _, terminated, truncated, infos = env.step(actions)
            total += infos["__common__"]["team_reward"]
            over = terminated["__all__"] or truncated["__all__"]
    return total / episodes


def main(arguments: Sequence[str] | None = None) -> tuple[float, float]:
    """Train; gives the mean returns of the first and of the last iterations."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--setup", default="3x3/S3", help="a world by name, such as 3x3/S3")
    parser.add_argument("--iterations", type=int, default=20, help="of 1,600 steps each")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(arguments)
    logging.getLogger("ray.rllib").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    if not ray.is_initialized():
        ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    print(f"{args.setup}: random {random_return(args.setup):.1f}, best possible {exact_optimum(args.setup)}")
    algorithm = config(args.setup, args.seed).build_algo()
    returns, started = [], time.perf_counter()
    try:
        for iteration in range(1, args.iterations + 1):
            sampled = algorithm.train()["env_runners"]
            # RLlib adds up the rewards of all agents, each of which gets the team's in every step.
            team = sampled["agent_episode_returns_mean"]
            returns.append(float(np.mean(list(team.values()))))
            print(f"{iteration:3d}  {time.perf_counter() - started:5.0f} s  mean return {returns[-1]:8.1f}")
    finally:
        algorithm.stop()
    print(f"return of the team: {returns[0]:.1f} before training, {returns[-1]:.1f} after {args.iterations} iterations")
    return returns[0], returns[-1]


if __name__ == "__main__":
    main()
