"""PLATO's networks inside RLlib's stock PPO: padded tensors with masks, through the `MultiAgentEnv` view.

The layers are those of `PlatoNetwork` themselves; only the data path differs. `difference()` shows that, on the same
states and with the same weights, both paths compute the same probabilities and values.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.columns import Columns
from ray.rllib.core.rl_module.apis import InferenceOnlyAPI, ValueFunctionAPI
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.tune import register_env
from torch import Tensor

from rl_openness.algorithms.mappo.networks.plato import PlatoNetwork
from rl_openness.algorithms.mappo.settings import PlatoSettings
from rl_openness.envs.adapters.rllib import OpenMultiAgentEnv, open_multi_agent_env
from rl_openness.envs.base import EnvSpec
from rl_openness.envs.registry import make_environment
from rl_openness.nn.inputs import TeamTensors
from rl_openness.policies.generic import Random

NAME = "open_multi_agent"
LOWEST = torch.finfo(torch.float32).min
Obs = dict[str, Tensor]


class PaddedPlato(torch.nn.Module):
    """Reads dictionaries of padded rows [N, slots, .] and masks [N, slots], one row per agent and step."""

    def __init__(self, spec: EnvSpec, settings: PlatoSettings, *, with_critic: bool = True) -> None:
        super().__init__()
        self.network = PlatoNetwork(spec, settings, with_critic=with_critic)
        features = self.network.actor.features
        if (
            features.pointer
            or features.memory
            or (settings.gcn_norm, settings.critic_edges)
            != (
                "sym_selfloop",
                "complete",
            )
        ):
            raise ValueError("only PLATO's default form is written for padded tensors")
        self.axes = [features.team.index(i) for i in features.axes]
        self.own_axes = [features.own.index(i) for i in features.axes]

    def logits(self, obs: Obs) -> Tensor:
        """[N, max_tasks + 1], closed options at the lowest number."""
        actor = self.network.actor
        keys = actor.scorer.key(actor.keys(torch.cat([obs["tasks"], obs["pairs"]], dim=-1)))
        queries = actor.scorer.query(actor.query.encode(self._query_rows(obs)))
        pairs = actor.scorer.score(keys, queries.unsqueeze(1))
        noop = actor.scorer.score(actor.scorer.key(actor.noop_key()), queries)
        scores = torch.cat([pairs, noop.unsqueeze(1)], dim=1)
        return torch.where(obs["action_mask"] > 0, scores, LOWEST)

    def _query_rows(self, obs: Obs) -> Tensor:
        features = self.network.actor.features
        rows, mask, own = obs["team"], obs["team_mask"].unsqueeze(-1), obs["self"]
        size = mask.sum(1)
        mean = (rows * mask).sum(1) / size.clamp(min=1)
        here, parts = own[:, self.own_axes], []
        for name in features.stats:
            if name == "mean":
                value = mean
            elif name == "std":
                value = (((rows - mean.unsqueeze(1)).square() * mask).sum(1) / size.clamp(min=1)).sqrt()
            elif name == "min":
                value = torch.where(mask > 0, rows, -LOWEST).amin(1)
            elif name == "max":
                value = torch.where(mask > 0, rows, LOWEST).amax(1)
            else:
                raise ValueError(f"statistic {name!r} is not written for padded tensors")
            value = torch.where(size > 0, value, 0.0)
            at_axes = value[:, self.axes]
            parts += [value, at_axes if name == "std" else at_axes - here]
        return torch.cat([*parts, own], dim=1)

    def values(self, obs: Obs) -> Tensor:
        """[N] value of the state, once per agent and step: so stock PPO wants it."""
        critic = self.network.critic
        assert critic is not None
        agent_mask, task_mask = obs["state_present"].unsqueeze(-1), obs["task_mask"].unsqueeze(-1)
        agents, tasks = critic.agents(obs["state_agents"]), critic.tasks(obs["state_tasks"])
        n, m = agent_mask.sum(1), task_mask.sum(1)
        inputs = (agents * agent_mask).sum(1) + (tasks * task_mask).sum(1)
        cross, agent_self, task_self = ((m + 1) * (n + 1)).rsqrt(), 1 / (m + 1), 1 / (n + 1)
        sums = (agents * agent_mask).sum(1), (tasks * task_mask).sum(1)
        for layer in critic.graph.layers[:-1]:
            mine, theirs = agents @ layer.weight.T, tasks @ layer.weight.T
            from_tasks = cross * (theirs * task_mask).sum(1) + layer.bias
            from_agents = cross * (mine * agent_mask).sum(1) + layer.bias
            agents = (agent_self.unsqueeze(1) * mine + from_tasks.unsqueeze(1)).relu()
            tasks = (task_self.unsqueeze(1) * theirs + from_agents.unsqueeze(1)).relu()
            sums = (agents * agent_mask).sum(1), (tasks * task_mask).sum(1)
        per_node = 1 / (n + m).clamp(min=1)
        mixed = (agent_self + m * cross) * sums[0] + (task_self + n * cross) * sums[1]
        pooled = critic.graph.layers[-1](mixed * per_node) + inputs * per_node
        value: Tensor = critic.value(torch.where(n + m > 0, pooled, 0.0)).squeeze(-1)
        return value


class StockModule(TorchRLModule, ValueFunctionAPI, InferenceOnlyAPI):
    """What stock PPO trains."""

    def setup(self) -> None:
        config = self.model_config
        self.padded = PaddedPlato(
            EnvSpec.from_json(config["env_spec"]),
            PlatoSettings(**config["settings"]),
            with_critic=not self.inference_only,
        )

    def get_non_inference_attributes(self) -> list[str]:
        return ["padded.network.critic"]

    def _forward(self, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        return {Columns.ACTION_DIST_INPUTS: self.padded.logits(batch[Columns.OBS])}

    def compute_values(self, batch: dict[str, Any], embeddings: Any = None) -> Tensor:
        return self.padded.values(batch[Columns.OBS])


def most_tasks(setup: str) -> int:
    """The tightest bound: cells that can burn."""
    env = make_environment("wildfire", 1, {"setup": setup})
    return int(np.count_nonzero(env.config.fire.fire_types))  # type: ignore[attr-defined]


def mean_present(setup: str, copies: int = 64, steps: int = 100) -> float:
    """Agents present in an average step while all play at random."""
    env, rule, present = make_environment("wildfire", copies, {"setup": setup}), Random(), 0
    for _ in range(steps):
        obs = env.observe()
        present += int(obs.present.sum())
        env.step(rule.act(obs, env.draws()))
    return present / (copies * steps)


def stock_config(setup: str, settings: PlatoSettings, sub_envs: int) -> PPOConfig:
    """Stock PPO with the same networks, team-steps per batch and per minibatch, and epochs.

    RLlib counts a minibatch in steps of agents: the size is multiplied by the mean number of present ones.
    """
    register_env(NAME, open_multi_agent_env)
    spec = make_environment("wildfire", 1, {"setup": setup}).spec
    return (
        PPOConfig()
        .environment(
            NAME,
            env_config={
                "env": "wildfire",
                "env_config": {"setup": setup},
                "max_tasks": most_tasks(setup),
                "with_state": True,
            },
            disable_env_checking=True,
        )
        .multi_agent(policies={"shared"}, policy_mapping_fn=lambda agent, episode, **kwargs: "shared")
        .env_runners(num_env_runners=0, num_envs_per_env_runner=sub_envs)
        .learners(num_learners=0)
        .training(
            train_batch_size_per_learner=settings.train_batch_size_per_learner,
            minibatch_size=round(settings.minibatch_size * mean_present(setup)),
            num_epochs=settings.num_epochs,
            lr=settings.lr,
            gamma=settings.gamma,
            lambda_=settings.lambda_,
            clip_param=settings.clip_param,
            entropy_coeff=settings.entropy_coeff,
            vf_loss_coeff=settings.vf_loss_coeff,
            vf_clip_param=float("inf"),
            use_kl_loss=False,
            grad_clip=settings.grad_clip,
            grad_clip_by="global_norm",
        )
        .rl_module(
            rl_module_spec=RLModuleSpec(
                module_class=StockModule,
                model_config={"env_spec": spec.to_json(), "settings": settings.model_dump()},
            )
        )
        .debugging(seed=0, log_level="ERROR")
    )


@torch.no_grad()
def difference(setup: str, settings: PlatoSettings, steps: int = 200) -> float:
    """Largest difference of any log-probability or value between the padded and the packed network."""
    env = make_environment("wildfire", 1, {"setup": setup})
    view = OpenMultiAgentEnv(env, max_tasks=most_tasks(setup), with_state=True)
    torch.manual_seed(0)
    padded = PaddedPlato(env.spec, settings)
    for parameter in padded.parameters():
        parameter.add_(0.1 * torch.randn_like(parameter))  # the first policy is almost uniform, which proves little
    network, worst = padded.network, 0.0
    assert network.critic is not None
    rng = np.random.default_rng(0)
    obs, _ = view.reset(seed=0)
    for _ in range(steps):
        if obs:
            batch = {key: torch.from_numpy(np.stack([one[key] for one in obs.values()])) for key in obs[min(obs)]}
            packed = env.observe()
            team = TeamTensors.from_obs(packed)
            inputs = network.actor.features(team)
            distribution, log_probs = network.actor(inputs), padded.logits(batch).log_softmax(1)
            value = network.critic(network.critic.inputs(team))
            worst = max(worst, float((padded.values(batch) - value).abs().max()))
            rows = {f"agent_{packed.agent_id[m]}": d for d, m in enumerate(inputs.member.tolist())}
            for own, name in zip(log_probs, obs, strict=True):
                if name not in rows:  # nothing to choose
                    worst = max(worst, float(own[-1].abs()))
                    continue
                d = rows[name]
                pairs = slice(int(inputs.pair_ptr[d]), int(inputs.pair_ptr[d + 1]))
                theirs = torch.cat([distribution.pair_log_probs[pairs], distribution.noop_log_probs[d : d + 1]])
                mine = own[torch.from_numpy(obs[name]["action_mask"]) > 0]
                worst = max(worst, float((mine - theirs).abs().max()))
        actions = {name: int(rng.choice(np.flatnonzero(one["action_mask"]))) for name, one in obs.items()}
        obs, _, terminated, truncated, _ = view.step(actions)
        if terminated["__all__"] or truncated["__all__"]:
            obs, _ = view.reset()
    return worst
