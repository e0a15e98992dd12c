"""The learned Wolfpack teammate `distilled`: behaviour cloning of the hand-written rule TeammateAware.

The network is MAPPO's actor, the one without memory that there is. It reads the prey and the other predators as two
sets, so it can only approximate the rule's order of all predators by their largest distance to cells beside prey, and
ties by index not at all; how well it does is on its card. The reference's network of this name is unpublished.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from rl_openness.algorithms.mappo.networks.actions import ActionsActor
from rl_openness.algorithms.mappo.networks.members import MemberInputs
from rl_openness.algorithms.mappo.settings import ActionsSettings
from rl_openness.envs.base import NO_OP, Int, PackedObs, concatenate
from rl_openness.envs.draws import DecisionDraws, child_seeds
from rl_openness.envs.wolfpack import WolfpackConfig, make_wolfpack
from rl_openness.envs.wolfpack.env import WolfpackEnv
from rl_openness.envs.wolfpack.rules import NUM_ACTIONS
from rl_openness.envs.wolfpack.view import wolfpack_spec
from rl_openness.errors import StoppedError
from rl_openness.experiments.process import stop_on_signal, use_one_thread
from rl_openness.experiments.strength import FIRST_SEED, Say, among_heuristics, episodes_played
from rl_openness.experiments.teammates import Request
from rl_openness.experiments.train import Progress
from rl_openness.policies.base import Policy
from rl_openness.policies.card import PolicyCard
from rl_openness.policies.checkpoint import load_policy, save_policy
from rl_openness.policies.population import Population
from rl_openness.policies.wolfpack import HEURISTICS, make_wolfpack_rule

Float64 = NDArray[np.float64]
HIDDEN = 128
TEAM_SIZES = (3, 5, 9)
COPIES = 8
"""Of the world of each team size."""
LEARNING_RATE, MINIBATCH, EPOCHS = 1e-3, 1024, 2
REDRAWS = 16
"""Draws that tell what the rule chooses with which probability; all alike where it is sure."""


class Student(Policy):
    """The network as it is now, sampling."""

    name = "student"
    memoryless = True

    def __init__(self, actor: ActionsActor) -> None:
        self._actor = actor

    def act(self, obs: PackedObs, draws: DecisionDraws | None = None) -> Int:
        """See `Policy.act`."""
        return self._actor.act(obs, draws, explore=True).choices


@dataclass(frozen=True)
class Labelled:
    """R members and the action that the rule chose for each."""

    inputs: MemberInputs
    actions: torch.Tensor
    """[R] int64"""


class School:
    """Worlds in which the student is the learner and one of the types of teammates beside the seven heuristics.

    So states come from everybody's behaviour, the student's own mistakes included (Ross et al. 2011, DAgger). All
    members are asked what the rule would do, whatever they follow.
    """

    def __init__(self, actor: ActionsActor, seed: int) -> None:
        self._actor, self._student = actor, Student(actor)
        types = [*map(make_wolfpack_rule, HEURISTICS), self._student]
        self.worlds: list[WolfpackEnv] = []
        for number, size in enumerate(TEAM_SIZES):
            config = WolfpackConfig(team_size=size, slots=max(size, 5))
            population = Population(types, wolfpack_spec(config))
            self.worlds.append(make_wolfpack(COPIES, teammates=population, team_size=size, slots=config.slots))
            self.worlds[-1].reset(child_seeds(seed, number, count=COPIES))

    @property
    def env_steps(self) -> int:
        """Steps of all copies in a round."""
        return sum(world.num_copies * world.config.max_steps for world in self.worlds)

    def round(self) -> Labelled:
        """An episode of every copy."""
        seen: list[PackedObs] = []
        actions: list[Int] = []
        for world in self.worlds:
            for _ in range(world.config.max_steps):
                obs, draws = world.observe(), world.draws()
                seen.append(obs)
                actions.append(rule_choices(obs, draws))
                world.step(self._student.act(obs, draws))
        whole = concatenate(seen)
        members = np.flatnonzero(whole.present)
        return Labelled(self._actor.view.inputs(whole, members), torch.from_numpy(np.concatenate(actions)[members]))


def rule_choices(obs: PackedObs, draws: DecisionDraws) -> Int:
    """[M] what TeammateAware would do in each member's place; where it draws, an action that it drew."""
    rule = make_wolfpack_rule("teammate_aware")
    return rule.decide(obs, np.where(obs.present, rule.kind, NO_OP), draws)


def minibatches(data: Labelled, rng: np.random.Generator) -> Iterator[Labelled]:
    """`EPOCHS` passes over all members in random order."""
    for _ in range(EPOCHS):
        order = torch.from_numpy(rng.permutation(len(data.actions)))
        for start in range(0, len(order), MINIBATCH):
            part = order[start : start + MINIBATCH]
            yield Labelled(data.inputs.select(part), data.actions[part])


def learn(request: Request) -> Path:
    """See `teammates.Recipe`."""
    use_one_thread()
    torch.manual_seed(request.seed)
    rng = np.random.default_rng(request.seed)
    spec = wolfpack_spec(WolfpackConfig())
    settings = ActionsSettings(hidden=HIDDEN)
    actor = ActionsActor(spec, settings)
    school = School(actor, request.seed)
    optimiser = torch.optim.Adam(actor.parameters(), lr=LEARNING_RATE)
    steps, number, started = 0, 0, perf_counter()
    with stop_on_signal() as stop:
        while steps < request.env_steps and not stop.requested:
            for group in optimiser.param_groups:
                group["lr"] = LEARNING_RATE * (1.0 - steps / request.env_steps)
            for batch in minibatches(school.round(), rng):
                optimiser.zero_grad()
                loss = cross_entropy(actor.network(batch.inputs), batch.actions)
                torch.autograd.backward(loss)
                optimiser.step()
            steps, number = steps + school.env_steps, number + 1
            speed = steps / (perf_counter() - started)
            request.report(Progress(number, steps, request.env_steps, speed, None))
    if steps < request.env_steps:
        raise StoppedError("stopped before the training was done; nothing was kept")
    card = PolicyCard("mappo", settings.model_dump(mode="json"), spec, "wolfpack", {}, steps, request.seed)
    save_policy(request.folder / "policy", card, actor)
    return request.folder / "policy"


def measure(folder: Path, say: Say) -> dict[str, Any]:
    """How alike it is to the rule on states that it has not seen, and how strong it is beside it."""
    use_one_thread()
    sampled = load_policy(folder, explore=True)
    players: dict[str, Policy] = {"distilled": sampled, "distilled, best action": load_policy(folder)}
    actor = sampled.network
    assert isinstance(actor, ActionsActor)
    return {**likeness(actor), "episodes": episodes_played(), "strength": among_heuristics(players, say)}


def likeness(actor: ActionsActor) -> dict[str, Any]:
    """Cross-entropy (nats) and agreement with the rule on an episode of every copy of a school of other seeds."""
    school, student = School(actor, FIRST_SEED), Student(actor)
    shares, logits = [], []
    for world in school.worlds:
        for _ in range(world.config.max_steps):
            obs, draws = world.observe(), world.draws()
            members = np.flatnonzero(obs.present)
            shares.append(rule_shares(obs, draws)[members])
            logits.append(actor.logits(obs, members))
            world.step(student.act(obs, draws))
    share, log_prob = np.concatenate(shares), torch.from_numpy(np.concatenate(logits)).double().log_softmax(1).numpy()
    prob, drawn = np.exp(log_prob), float((share.max(axis=1) < 1.0).mean())
    best = share[np.arange(len(share)), log_prob.argmax(axis=1)]
    return {
        "cross_entropy": round(float(-(share * log_prob).sum(axis=1).mean()), 3),
        "least_cross_entropy": round(drawn * float(np.log(share.shape[1])), 3),
        "agreement": {
            "sampled": round(float((share * prob).sum(axis=1).mean()), 3),
            "best_action": round(float(best.mean()), 3),
            "most": round(float(share.max(axis=1).mean()), 3),
        },
        "entropy": round(float(-(prob * log_prob).sum(axis=1).mean()), 3),
        "held_out": f"{len(share)} decisions in whole episodes with up to {', '.join(map(str, TEAM_SIZES))} agents",
    }


def rule_shares(obs: PackedObs, draws: DecisionDraws) -> Float64:
    """[M, A] how often TeammateAware chose each action in `REDRAWS` draws in each member's place."""
    again = [rule_choices(obs, DecisionDraws(draws.keys + np.uint64(number))) for number in range(REDRAWS)]
    shares: Float64 = (np.stack(again)[:, :, None] == np.arange(NUM_ACTIONS)).mean(axis=0)
    return shares
