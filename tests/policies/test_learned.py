"""The learned teammates that come with the package: found by name, small, in populations, asked only when needed."""

import json
from dataclasses import replace

import numpy as np
import pytest

from rl_openness.envs.base import NO_OP
from rl_openness.envs.draws import child_seeds
from rl_openness.envs.registry import make_environment
from rl_openness.errors import UserError
from rl_openness.experiments.teammates import find_recipe, read_teammate_card, recipe_names, shipped_folder
from rl_openness.policies.population import Population
from rl_openness.policies.teammates import (
    check_teammate,
    learned_names,
    make_teammate,
    population_files,
    read_population,
    teammate_names,
)


def test_found_by_name_and_by_nobody_else() -> None:
    assert "a2c" in learned_names("foraging")
    assert "a2c" not in learned_names("wolfpack")
    policy = make_teammate("foraging", "a2c")
    assert (policy.name, policy.memoryless) == ("a2c", True)
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


@pytest.mark.parametrize("name", [name for name in population_files() if name.startswith("foraging")])
def test_every_shipped_population_plays(name: str) -> None:
    for split in ("train", "test"):
        env = make_environment("foraging", 4, {"teammates": name, "split": split, "team_size": 5, "slots": 5})
        types = getattr(read_population(name), split)
        assert env.teammates.names == list(types)
        for _ in range(60):
            env.step(np.full(len(env.observe().present), NO_OP))


def test_populations_of_the_papers() -> None:
    rules = tuple(teammate_names("foraging"))
    everyone, meeting, apart = (read_population(f"foraging-{name}") for name in ("all", "int", "exc"))
    assert everyone.train == everyone.test == (*rules, "a2c")
    assert set(meeting.train) & set(meeting.test) == {"a2c"}
    assert not set(apart.train) & set(apart.test)
    assert set(meeting.train) | set(meeting.test) == {*rules, "a2c"}


def test_asked_only_for_its_own_members_it_decides_the_same() -> None:
    env = make_environment("foraging", 6, {"teammates": "foraging-all", "team_size": 5, "slots": 5})
    policy = make_teammate("foraging", "a2c")
    population: Population = env.teammates
    env.reset(child_seeds(1, count=6))
    asked = 0
    for _ in range(40):
        obs, draws = env.observe(), env.draws()
        mine = obs.agent_rows[:, 4] == population.names.index("a2c")
        everyone = policy.act(replace(obs, controlled=None), draws)
        np.testing.assert_array_equal(population.act(obs, draws)[mine], everyone[mine])
        asked += mine.sum()
        env.step(np.full(len(obs.present), NO_OP))
    assert asked > 20


def test_a_copy_plays_alike_whatever_is_beside_it() -> None:
    options = {"teammates": ["a2c"], "team_size": 4, "slots": 5}
    several, seeds = make_environment("foraging", 5, options), child_seeds(7, count=5)
    alone = make_environment("foraging", 1, options)
    several.reset(seeds)
    alone.reset(seeds[3:4])
    for _ in range(120):
        rows = several.observe().agent_copy == 3
        np.testing.assert_array_equal(several.observe().agent_rows[rows], alone.observe().agent_rows)
        choices = [np.full(len(env.observe().present), NO_OP) for env in (several, alone)]
        together, single = several.step(choices[0]), alone.step(choices[1])
        np.testing.assert_array_equal(together.labels[rows], single.labels)
