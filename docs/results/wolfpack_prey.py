"""The weights of Wolfpack's prey, fitted to the recorded episodes, and how the result compares.

    PYTHONPATH=. python docs/results/wolfpack_prey.py

prints the fitted table (`rl_openness.envs.wolfpack.prey.WEIGHTS` holds it rounded), its log-likelihood beside simpler
tables, what the recorded prey did beside what the shipped table says, by distance to the nearest predator, and whole
episodes in which the learner follows one rule. In between, the same shares of `evader` and the trained `dqn` as they
play: other predators, so other places, but the same question.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from rl_openness.envs.base import NO_OP
from rl_openness.envs.wolfpack import WolfpackConfig, make_wolfpack
from rl_openness.envs.wolfpack.prey import BANDS, WEIGHTS, PreyPolicy, PreyView, action_weights
from rl_openness.envs.wolfpack.view import wolfpack_spec
from rl_openness.policies.population import Population
from rl_openness.policies.prey import make_wolfpack_with_prey
from rl_openness.policies.wolfpack import HEURISTICS, WolfpackRule, make_wolfpack_rule
from tests.envs.wolfpack.recorded_prey import captures, recorded_decisions, shares_by_distance

COLUMNS = ("away", "same", "closer", "taken", "outside", "standing", "left", "right")
FACTORS = ("still", "stuck", "again", "back", "to and fro", "to border", "from border")
DISTANCES = [range(d, d + 1) for d in range(1, 7)] + [range(7, 19)]
PROBES = [np.where(np.arange(15) == column, np.e, np.ones((len(BANDS) + 1, 1))) for column in range(15)]
LEARNER = {"random": 0.33, "greedy": 0.23, "greedy_probabilistic": 0.28, "teammate_aware": 0.16}
"""Mixture of rules that is most likely to have made the recorded learner's actions (expectation maximisation)."""


def fit(used: int) -> tuple[np.ndarray, float]:
    """Maximum-likelihood weights with the first `used` columns free, the others 1; mean log-likelihood in nats."""
    band, features, chosen = [], [], []
    for decision in recorded_decisions():
        if decision.habit >= 0:  # sure, whatever the weights
            continue
        band.append(np.searchsorted(BANDS, decision.distance))
        # an action's weight is a product, so with one column at e and the others at 1 its logarithm counts the column
        features.append(np.array([np.log(decision.weigh(probe)[1]) for probe in PROBES]).T)
        chosen.append(decision.chosen)
    x, rows, y = torch.tensor(np.array(features)), torch.tensor(np.array(band)), torch.tensor(chosen)
    free = torch.arange(15) < used
    free[0] = False  # "away" is the unit
    logs = torch.zeros(len(BANDS) + 1, 15, dtype=torch.float64, requires_grad=True)
    optimiser = torch.optim.LBFGS([logs], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        scores = (x @ (logs * free)[rows].unsqueeze(-1)).squeeze(-1)
        return torch.nn.functional.cross_entropy(scores, y, reduction="sum")

    def closure() -> torch.Tensor:
        optimiser.zero_grad()
        total = loss() + 0.5 * (logs**2).sum()  # keeps weights without data at 1
        total.backward()
        return total

    optimiser.step(closure)
    return torch.exp(logs * free).detach().numpy(), -loss().item() / len(chosen)


def play(
    learner: dict[str, float], team_size: int, slots: int, episodes: int, types: tuple[str, ...] = HEURISTICS
) -> str:
    """Mean return and captures of a learner that mixes rules at random, among teammates of these types."""
    spec = wolfpack_spec(WolfpackConfig(team_size=team_size, slots=slots))
    teammates = Population([make_wolfpack_rule(name) for name in types], spec)
    env = make_wolfpack(episodes, teammates=teammates, team_size=team_size, slots=slots)
    env.reset(np.arange(episodes))
    generator = np.random.default_rng(0)
    total, caught = np.zeros(episodes), np.zeros(episodes)
    for _ in range(env.config.max_steps):
        obs, draws = env.observe(), env.draws()
        acts = [
            np.full(len(obs.present), 4) if name == "noop" else make_wolfpack_rule(name).act(obs, draws)
            for name in learner
        ]
        which = generator.choice(len(acts), size=len(obs.present), p=list(learner.values()))
        choices = np.where(obs.controlled, np.choose(which, acts), NO_OP)
        result = env.step(choices)
        total += result.team_reward
        caught += result.events["captures"]
    return f"{total.mean():6.1f} (sd {total.std():.0f}) | {caught.mean():5.1f} (sd {caught.std():.1f})"


class Watched:
    """Prey whose actions are counted by distance to the nearest predator and by what they mean."""

    def __init__(self, prey: PreyPolicy) -> None:
        self.prey, self.counts = prey, np.zeros((len(DISTANCES), 8))

    def act(self, view: PreyView, keys: np.ndarray) -> np.ndarray:
        actions = self.prey.act(view, keys)
        meaning, weight, memory = np.empty(7, dtype=np.int64), np.empty(7), np.full(8, -1)
        for b in np.flatnonzero(view.alive.all(axis=1)):
            rows, cols = view.row[b, : view.predators[b]], view.col[b, : view.predators[b]]
            for k, x in enumerate(actions[b]):
                args = (view.size, rows, cols, view.prey_row[b], view.prey_col[b], k, memory, WEIGHTS["random"])
                action_weights(*args, meaning, weight)
                distance = np.abs(rows - view.prey_row[b, k]) + np.abs(cols - view.prey_col[b, k])
                group = next(i for i, some in enumerate(DISTANCES) if distance.min() in some)
                self.counts[group, meaning[(x + view.facing[b, k]) % 4 if x < 4 else x]] += 1
        return actions

    def get_state(self) -> dict[str, np.ndarray]:
        return self.prey.get_state()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self.prey.set_state(state)


def shares_in_play(prey: str, team_size: int, episodes: int) -> np.ndarray:
    """Counts [len(DISTANCES), 8] of what this prey does among the seven heuristics, one of them the learner."""
    spec = wolfpack_spec(WolfpackConfig(team_size=team_size))
    teammates = Population([make_wolfpack_rule(name) for name in HEURISTICS], spec)
    env = make_wolfpack_with_prey(episodes, teammates=teammates, team_size=team_size, prey=prey)
    env.prey = watched = Watched(env.prey)
    env.reset(np.arange(episodes))
    for _ in range(env.config.max_steps):
        obs = env.observe()
        kinds = np.where(obs.controlled, obs.agent_copy % len(HEURISTICS), -1)
        env.step(WolfpackRule.decide(obs, kinds, env.draws()))
    return watched.counts


def main() -> None:
    np.set_printoptions(linewidth=150, suppress=True, precision=3)
    print("fitted rows (distance up to", *BANDS, "and more) of", *COLUMNS, *FACTORS)
    for used, name in ((1, "uniform"), (8, "by distance alone"), (13, "without borders"), (15, "all")):
        table, likelihood = fit(used)
        recorded, expected, deviation = captures(table, habits=used > 8)
        print(f"{name}: log-likelihood {likelihood:.3f}, captures {expected:.0f} +- {deviation:.0f}, were {recorded}")
        print(table)
    chances = [(decision.chances(WEIGHTS["evader"])[1], decision) for decision in recorded_decisions()]
    sure = [decision.chosen == decision.habit for _, decision in chances if decision.habit >= 0]
    drawn = [np.log(chance[decision.chosen]) for chance, decision in chances if decision.habit < 0]
    longest = max(decision.memory[6] for _, decision in chances)
    print(f"\nhabits: {sum(sure)} of {len(sure)} kept, at most {longest} equal views; the shipped table's")
    print(f"log-likelihood: {np.mean(drawn):.3f}, with habits counting 0: {np.sum(drawn) / len(chances):.3f}")
    print("\nshares by distance, recorded and (below) of the shipped table:", *COLUMNS)
    for distance, was, says, number in zip(DISTANCES, *shares_by_distance(WEIGHTS["evader"], DISTANCES), strict=True):
        print(f"{distance.start:2d} n={number:4.0f}", was, "\n         ", says)
    for prey in ("evader", "dqn"):
        print(f"\nshares by distance of {prey} in play, 3 agents:", *COLUMNS)
        for distance, counts in zip(DISTANCES, shares_in_play(prey, 3, 70), strict=True):
            print(f"{distance.start:2d} n={counts.sum():5.0f}", counts / counts.sum())
    print("\n| learner | return, 3 agents | captures | return, 5 agents | captures |\n|---|---|---|---|---|")
    for name in ("as recorded", "noop", *HEURISTICS):
        mixture = LEARNER if name == "as recorded" else {name: 1.0}
        print(f"| {name} | {play(mixture, 3, 5, 400)} | {play(mixture, 5, 5, 400)} |")
    print(f"as recorded, 9 agents: {play(LEARNER, 9, 9, 400)}")
    nine = (*HEURISTICS, "teammate_aware", "teammate_aware")
    for team_size, slots in ((3, 5), (5, 5), (9, 9)):
        print(f"the same with teammate_aware for the networks: {play(LEARNER, team_size, slots, 400, nine)}")


if __name__ == "__main__":
    main()
