"""The learned teammates that come with the package: found by name, small, in populations, asked only when needed."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rl_openness.envs.base import NO_OP
from rl_openness.envs.draws import child_seeds
from rl_openness.envs.registry import make_environment
from rl_openness.errors import UserError
from rl_openness.evaluation.rollout import play_episodes
from rl_openness.experiments.strength import FIRST_SEED
from rl_openness.experiments.teammates import find_recipe, read_teammate_card, recipe_names, shipped_folder
from rl_openness.policies.base import Policy
from rl_openness.policies.network import NetworkPolicy
from rl_openness.policies.population import Population
from rl_openness.policies.teammates import (
    check_teammate,
    learned_names,
    make_teammate,
    population_files,
    read_population,
    teammate_names,
)
from rl_openness.policies.wolfpack import HEURISTICS

TYPES = (("foraging", "a2c"), ("wolfpack", "distilled"), ("wolfpack", "dqn"))


def test_found_by_name_and_by_nobody_else() -> None:
    assert "a2c" in learned_names("foraging")
    assert "a2c" not in learned_names("wolfpack")
    policy = make_teammate("foraging", "a2c")
    assert (policy.name, policy.memoryless) == ("a2c", True)
    assert learned_names("wolfpack") == ["distilled", "dqn"]
    assert [make_teammate("wolfpack", name).memoryless for name in ("distilled", "dqn")] == [True, False]
    check_teammate("foraging", "a2c")
    for wrong in ("a2d", "A2C"):
        with pytest.raises(UserError, match=rf"unknown type of teammate '{wrong}' in foraging"):
            make_teammate("foraging", wrong)
        with pytest.raises(UserError, match="unknown type of teammate"):
            check_teammate("foraging", wrong)
    with pytest.raises(UserError, match="no checkpoint at"):
        check_teammate("foraging", "./nowhere")


@pytest.mark.parametrize("name", recipe_names())
def test_shipped_with_a_card_that_says_how_it_was_made(name: str) -> None:
    folder = shipped_folder(name)
    assert (folder / "weights.safetensors").stat().st_size < 1_000_000
    card, policy = read_teammate_card(folder), json.loads((folder / "policy.json").read_text())
    assert (
        card["command"] == f"rl-openness teammates train {name} --seed {card['seed']} --env-steps {card['env_steps']}"
    )
    assert card["env_steps"] == find_recipe(name).env_steps
    assert card["env_steps"] <= policy["env_steps"] < card["env_steps"] + 10_000  # whole updates


def test_useful_but_not_perfect() -> None:
    card = read_teammate_card(shipped_folder("a2c-foraging"))
    rules = [card["return"][name]["mean"] for name in teammate_names("foraging")]
    assert card["return"]["a2c"]["mean"] > np.mean(rules)
    assert 0.05 < card["entropy"] < 1.2  # of 1.79 nats: neither a fixed rule nor a coin


def test_distilled_does_mostly_what_its_model_does() -> None:
    card = read_teammate_card(shipped_folder("distilled-wolfpack"))
    assert card["least_cross_entropy"] < card["cross_entropy"] < 0.8 < np.log(5)
    assert 0.6 < card["agreement"]["sampled"] < card["agreement"]["best_action"] < card["agreement"]["most"]
    assert 0.1 < card["entropy"] < 1.2
    for world in card["strength"]:
        captures = {name: number["mean"] for name, number in world["captures"].items()}
        assert captures["distilled"] > 0.8 * captures["teammate_aware"]


def test_dqn_hunts_with_its_like() -> None:
    *_, self_play = read_teammate_card(shipped_folder("dqn-wolfpack"))["strength"]
    returns = {name: number["mean"] for name, number in self_play["return"].items()}
    assert returns["dqn"] > max(returns[name] for name in HEURISTICS)


HERE: dict[str, tuple[str, dict, str, bool]] = {  # environment, options, name on the card, whether it samples
    "a2c-foraging": ("foraging", {"team_size": 3, "teammates": [f"H{n}" for n in range(1, 9)]}, "a2c", True),
    "distilled-wolfpack": ("wolfpack", {"team_size": 3, "teammates": list(HEURISTICS)}, "distilled", True),
    "dqn-wolfpack": ("wolfpack", {"team_size": 3, "teammates": list(HEURISTICS)}, "dqn", False),
}
"""Where the first numbers of each card were taken."""


def farthest_from_card(recipe: str, policy: Policy, episodes: int = 100) -> float:
    """The largest distance of a mean over some of the card's episodes from the card's, in standard errors of both."""
    environment, options, name, _ = HERE[recipe]
    card = read_teammate_card(shipped_folder(recipe))
    numbers = card["strength"][0] if "strength" in card else card
    seeds = range(FIRST_SEED, FIRST_SEED + episodes)
    table = play_episodes(make_environment(environment, episodes, options), policy, seeds)
    distances = []
    for column in ({"return", "captures"} & set(numbers)) & set(table):
        own_error = table[column].std() / episodes**0.5
        error = np.hypot(own_error, numbers[column][name]["standard_error"])
        distances.append(abs(table[column].mean() - numbers[column][name]["mean"]) / error)
    return max(distances)


@pytest.mark.parametrize("recipe", HERE)
def test_as_good_as_its_card_says(recipe: str) -> None:
    """Each mean lies within four standard errors; with random weights in its place it would not."""
    explore = HERE[recipe][3]
    policy = Policy.load(shipped_folder(recipe), explore=explore)
    assert farthest_from_card(recipe, policy) < 4.0
    torch.manual_seed(0)
    with torch.no_grad():
        for parameter in policy.network.parameters():
            parameter.copy_(torch.randn_like(parameter) / max(parameter.shape[-1], 1) ** 0.5)
    assert farthest_from_card(recipe, NetworkPolicy("random", policy.network, explore=explore)) > 4.0


def test_a_world_that_it_cannot_read_is_told(tmp_path: Path) -> None:
    words = "teammate 'dqn' was trained on wolfpack and cannot act here: task_slots is 3 there, not 2"
    with pytest.raises(UserError, match=words):
        make_environment("wolfpack", 1, {"teammates": ["greedy", "dqn"], "num_prey": 3})
    with pytest.raises(UserError, match="was trained on wolfpack and cannot act here: agent columns"):
        make_environment("foraging", 1, {"teammates": [str(shipped_folder("distilled-wolfpack"))]})
    env = make_environment("wolfpack", 2, {"teammates": ["distilled"], "num_prey": 3})  # reads a set of any size
    env.step(np.full(len(env.observe().present), NO_OP))


@pytest.mark.parametrize("name", population_files())
def test_every_shipped_population_plays(name: str) -> None:
    population = read_population(name)
    for split in ("train", "test"):
        options = {"teammates": name, "split": split, "team_size": 5, "slots": 5}
        env = make_environment(population.environment, 4, options)
        assert env.teammates.names == list(getattr(population, split))
        for _ in range(60):
            env.step(np.full(len(env.observe().present), NO_OP))


def test_populations_of_the_papers() -> None:
    rules = tuple(teammate_names("foraging"))
    everyone, meeting, apart = (read_population(f"foraging-{name}") for name in ("all", "int", "exc"))
    assert everyone.train == everyone.test == (*rules, "a2c")
    assert set(meeting.train) & set(meeting.test) == {"a2c"}
    assert not set(apart.train) & set(apart.test)
    assert set(meeting.train) | set(meeting.test) == {*rules, "a2c"}


def test_populations_of_the_papers_in_wolfpack() -> None:
    everyone, meeting, apart = (read_population(f"wolfpack-{name}") for name in ("all", "int", "exc"))
    assert everyone.train == everyone.test == (*HEURISTICS, "distilled", "dqn")
    assert set(meeting.train) & set(meeting.test) == {"dqn"}
    assert set(meeting.train) | set(meeting.test) == set(everyone.train)
    for split in ("train", "test"):
        without = [name for name in getattr(meeting, split) if name != "dqn"]
        assert list(getattr(apart, split)) == without


def test_values_are_followed_and_distributions_sampled(tmp_path: Path) -> None:
    """A Q-network's random actions are a way to learn; by name or by path, as a teammate it takes the best."""
    shutil.copytree(shipped_folder("dqn-wolfpack"), tmp_path / "mine")
    for name in ("dqn", str(tmp_path / "mine")):
        check_teammate("wolfpack", name)
        policy, best = make_teammate("wolfpack", name), Policy.load(shipped_folder("dqn-wolfpack"))
        env = make_environment("wolfpack", 16, {"teammates": ["dqn"]})
        for _ in range(30):
            obs, draws = env.observe(), env.draws()
            np.testing.assert_array_equal(policy.act(obs, draws), best.act(obs))
            env.step(np.full(len(obs.present), NO_OP))
    assert make_teammate("wolfpack", "distilled").explore


@pytest.mark.parametrize(("environment", "name"), [each for each in TYPES if each[1] != "dqn"])
def test_asked_only_for_its_own_members_it_decides_the_same(environment: str, name: str) -> None:
    options = {"teammates": f"{environment}-all", "team_size": 5, "slots": 5}
    env = make_environment(environment, 6, options)
    policy = make_teammate(environment, name)
    population: Population = env.teammates
    column = [each.name for each in env.spec.agent_columns].index("type")
    env.reset(child_seeds(1, count=6))
    asked = 0
    for _ in range(60):
        obs, draws = env.observe(), env.draws()
        mine = obs.agent_rows[:, column] == population.names.index(name)
        everyone = policy.act(replace(obs, controlled=None), draws)
        state = population.get_state()
        np.testing.assert_array_equal(population.act(obs, draws)[mine], everyone[mine])
        population.set_state(state)  # the environment asks once more
        asked += mine.sum()
        env.step(np.full(len(obs.present), NO_OP))
    assert asked > 20


def test_memory_begins_when_the_first_of_its_type_comes() -> None:
    """Beside it, a policy of its own for every copy, made anew whenever a copy has one of its type again."""
    env = make_environment("wolfpack", 8, {"teammates": ["greedy", "random", "dqn"], "team_size": 4, "min_age": 5})
    env.reset(child_seeds(2, count=8))
    own: list[Policy | None] = [None] * 8
    before = np.zeros(9, dtype=np.int64)
    began = kept = 0
    for _ in range(230):
        obs, draws = env.observe(), env.draws()
        mine = obs.agent_rows[:, 2] == 2
        expected = np.full(len(mine), NO_OP)
        for b in range(8):
            rows = slice(*obs.agent_ptr[b : b + 2])
            if not mine[rows].any():
                own[b] = None
                continue
            part = replace(obs, controlled=mine).select(np.array([b]))
            carry = np.where(part.carry >= 0, part.carry - before[b], -1)
            if own[b] is None:
                own[b], carry, began = make_teammate("wolfpack", "dqn"), np.full_like(carry, -1), began + 1
            expected[rows] = own[b].act(replace(part, carry=carry))
            kept += (carry >= 0).any()
        before = obs.agent_ptr
        state = env.teammates.get_state()
        np.testing.assert_array_equal(env.teammates.act(obs, draws)[mine], expected[mine])
        env.teammates.set_state(state)
        env.step(np.full(len(mine), NO_OP))
    assert began > 16
    assert kept > 200


def test_memory_goes_on_from_a_saved_state() -> None:
    options = {"teammates": ["dqn", "greedy"], "team_size": 4, "min_age": 5}
    env, other = (make_environment("wolfpack", 6, options) for _ in range(2))
    for _ in range(77):
        env.step(np.full(len(env.observe().present), NO_OP))
    other.set_state(env.get_state())
    for _ in range(60):
        steps = [each.step(np.full(len(each.observe().present), NO_OP)) for each in (env, other)]
        np.testing.assert_array_equal(steps[0].labels, steps[1].labels)


@pytest.mark.parametrize(("environment", "name"), TYPES)
def test_a_copy_plays_alike_whatever_is_beside_it(environment: str, name: str) -> None:
    options = {"teammates": [name], "team_size": 4, "slots": 5}
    several, seeds = make_environment(environment, 5, options), child_seeds(7, count=5)
    alone = make_environment(environment, 1, options)
    several.reset(seeds)
    alone.reset(seeds[3:4])
    for _ in range(120):
        rows = several.observe().agent_copy == 3
        np.testing.assert_array_equal(several.observe().agent_rows[rows], alone.observe().agent_rows)
        choices = [np.full(len(env.observe().present), NO_OP) for env in (several, alone)]
        together, single = several.step(choices[0]), alone.step(choices[1])
        np.testing.assert_array_equal(together.labels[rows], single.labels)
