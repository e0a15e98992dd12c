"""Types of teammates by name, by path and as a function of a user's: which fit, and what is told of others."""

import sys
from pathlib import Path

import numpy as np
import pytest

from rl_openness.envs.base import NO_OP
from rl_openness.envs.registry import make_environment
from rl_openness.errors import UserError
from rl_openness.experiments.schema import ExperimentSettings
from rl_openness.experiments.worlds import find_world
from rl_openness.policies.base import Policy
from rl_openness.policies.card import PREY
from rl_openness.policies.teammates import (
    FOLDER,
    check_teammate,
    default_types,
    make_teammate,
    population_files,
    read_population,
)
from rl_openness.policies.wolfpack import HEURISTICS
from tests.policies.checkpoints import save_untrained


def play_some(environment: str, options: dict) -> list[str]:
    env = make_environment(environment, 3, options)
    for _ in range(20):
        env.step(np.full(len(env.observe().present), NO_OP))
    return env.teammates.names


@pytest.mark.parametrize("method", ["gpl", "mappo"])
@pytest.mark.parametrize(("home", "away"), [("wolfpack", "foraging"), ("foraging", "wolfpack")])
def test_of_another_world_it_is_refused_with_the_configuration(tmp_path, method, home, away):
    path = str(save_untrained(tmp_path / "mate", method, home))
    words = rf"options.teammates: teammate '{path}' was trained on {home} and cannot act here: agent columns"
    with pytest.raises(ValueError, match=words):
        ExperimentSettings.model_validate(
            {"name": "x", "algorithm": "gpl", "environment": {"name": away, "options": {"teammates": [path]}}}
        )
    with pytest.raises(UserError, match="cannot act here"):
        make_environment(away, 1, {"teammates": [path]})
    play_some(home, {"teammates": [path]})


def test_also_where_only_the_test_list_has_it(tmp_path):
    save_untrained(tmp_path / "mate", "gpl", "foraging")
    (tmp_path / "pop.yaml").write_text("environment: wolfpack\ntrain: [greedy]\ntest: [./mate]\n")
    with pytest.raises(UserError, match="was trained on foraging and cannot act here"):
        find_world("wolfpack", {"teammates": str(tmp_path / "pop.yaml")})


@pytest.mark.parametrize(("environment", "number"), [("wolfpack", "num_prey"), ("foraging", "max_food")])
def test_a_vector_of_tasks_has_one_length_and_a_set_has_any(tmp_path, environment, number):
    options = {number: 4}
    vector, tasks = (str(save_untrained(tmp_path / method, method, environment)) for method in ("gpl", "mappo"))
    with pytest.raises(UserError, match="cannot act here: task_slots is 4 there"):
        find_world(environment, {**options, "teammates": [vector]})
    find_world(environment, {**options, "teammates": [tasks]})
    play_some(environment, {**options, "teammates": [tasks]})


def test_a_learned_type_is_checked_against_the_world():
    with pytest.raises(UserError, match="teammate 'dqn' .* task_slots is 3 there, not 2"):
        find_world("wolfpack", {"teammates": ["greedy", "dqn"], "num_prey": 3})
    find_world("wolfpack", {"teammates": ["distilled"], "num_prey": 3})


def test_a_prey_is_no_teammate(tmp_path):
    path = str(save_untrained(tmp_path / "prey", PREY, "wolfpack"))
    with pytest.raises(UserError, match="holds a prey of wolfpack, not a policy"):
        find_world("wolfpack", {"teammates": [path]})
    with pytest.raises(UserError, match="holds a prey of wolfpack, not a policy"):
        make_environment("wolfpack", 1, {"teammates": [path]})


def test_nobody_is_left_for_teammates_where_the_caller_decides_for_all():
    with pytest.raises(UserError, match=r"teammates: controlled = all leaves nobody"):
        find_world("wolfpack", {"controlled": "all", "teammates": ["greedy"]})


def test_wolfpack_without_named_teammates_has_the_papers_seven():
    assert make_environment("wolfpack", 1).teammates.names == default_types("wolfpack") == list(HEURISTICS)
    assert make_environment("foraging", 1).teammates.names == [f"H{n}" for n in range(1, 9)]


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """The present folder, with a module of a user's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    (tmp_path / "my_mates.py").write_text(
        "from rl_openness.policies.wolfpack import WolfpackRule\n"
        "from rl_openness.policies.base import Policy\n\n"
        "def hunter():\n    return WolfpackRule('teammate_aware')\n\n"
        "def needs(size):\n    return hunter()\n\n"
        "def text():\n    return 'greedy'\n\n"
        "def fails():\n    return {}['x']\n\n"
        "number = 3\n"
    )
    return tmp_path


def test_a_function_of_a_users_by_name(mine):
    assert isinstance(make_teammate("wolfpack", "my_mates:hunter"), Policy)
    assert play_some("wolfpack", {"teammates": ["greedy", "my_mates:hunter"]}) == ["greedy", "my_mates:hunter"]
    (mine / "sub").mkdir()
    (mine / "sub" / "pop.yaml").write_text("environment: wolfpack\ntrain: ['my_mates:hunter']\n")
    world = find_world("wolfpack", {"teammates": "sub/pop.yaml"})
    assert play_some("wolfpack", dict(world.options)) == ["my_mates:hunter"]


@pytest.mark.parametrize(
    ("name", "words", "when_checked"),
    [
        ("my_mates:huntr", "no attribute 'huntr'; did you mean 'hunter'?", True),
        ("my_matez:hunter", "module 'my_matez' cannot be imported", True),
        ("my_mates:needs", "must be a function without arguments that returns a Policy", True),
        ("my_mates:number", "must be a function without arguments that returns a Policy", True),
        ("my_mates:text", "must return a Policy, not str", False),
        ("my_mates:fails", "cannot be made: KeyError: 'x'", False),
    ],
)
def test_what_is_wrong_with_a_function(mine, name, words, when_checked):
    for attempt in [make_teammate, *([check_teammate] if when_checked else [])]:
        with pytest.raises(UserError) as told:
            attempt("wolfpack", name)
        assert words in str(told.value)
        assert "\n" not in str(told.value)


def test_paths_in_a_population_are_relative_to_its_file(tmp_path, monkeypatch):
    save_untrained(tmp_path / "pops" / "nets" / "mate", "mappo", "wolfpack")
    save_untrained(tmp_path / "pops" / "bare", "mappo", "wolfpack")
    (tmp_path / "pops" / "greedy").mkdir()  # a rule's name stays a rule's
    text = f"environment: wolfpack\ntrain: [./nets/mate, bare, greedy, {tmp_path}/pops/bare]\n"
    (tmp_path / "pops" / "pop.yaml").write_text(text)
    for folder, name in ((tmp_path, "pops/pop.yaml"), (tmp_path / "pops", "pop.yaml"), (Path("/"), None)):
        monkeypatch.chdir(folder)
        name = name or str(tmp_path / "pops" / "pop.yaml")
        assert len(play_some("wolfpack", dict(find_world("wolfpack", {"teammates": name}).options))) == 4
        assert read_population(name).train[2] == "greedy"


def test_shipped_populations_are_found_from_any_folder(tmp_path, monkeypatch):
    here = {name: path.read_text() for name, path in population_files().items()}
    assert here == {path.stem: path.read_text() for path in (Path(__file__).parents[2] / FOLDER).glob("*.yaml")}
    monkeypatch.chdir(tmp_path)
    assert set(population_files()) == set(here)
    (tmp_path / FOLDER).mkdir(parents=True)
    (tmp_path / FOLDER / "wolfpack-all.yaml").write_text("environment: wolfpack\ntrain: [greedy]\n")
    assert read_population("wolfpack-all").train == ("greedy",)
