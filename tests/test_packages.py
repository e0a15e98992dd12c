"""Environments, policies and methods of users and of other packages, by name."""

import sys
from pathlib import Path

import numpy as np
import pytest

from rl_openness.algorithms.registry import find_method, method_names
from rl_openness.envs.registry import environment_names, environment_summary, make_environment
from rl_openness.errors import UserError
from rl_openness.experiments.defaults import default_experiment, run_name
from rl_openness.experiments.keys import ConfigError
from rl_openness.experiments.worlds import check_options, check_rule, find_rule, find_world, rule_names
from rl_openness.experiments.yaml_files import dump_experiment, load_experiment
from rl_openness.plugins import ENVIRONMENTS, installed
from rl_openness.policies.card import PolicyCard, users_modules
from rl_openness.policies.teammates import check_teammate, make_teammate
from tests.cli.packages import install

WORLDS = Path(__file__).parent / "envs" / "conformance" / "worlds.py"


@pytest.fixture(autouse=True, scope="module")
def pasture(tmp_path_factory):
    """The package is there for this file alone."""
    folder = install(tmp_path_factory.mktemp("site"), WORLDS)
    sys.path.append(folder)
    yield
    sys.path.remove(folder)
    for name in [name for name in sys.modules if name.partition(".")[0] == "pasture"]:
        del sys.modules[name]


def test_environments_of_other_packages_have_names():
    assert {"herd", "lost", "wildfire"} <= set(environment_names())
    assert environment_summary("herd") == "Sheep that come and go."
    assert installed(ENVIRONMENTS)["herd"].package == "pasture 0.3"
    env = make_environment("herd", 2)
    assert env.spec.horizon == 4  # as the class says
    assert make_environment("herd", 2, {"bridge": {"max_steps": 3}}).spec.horizon == 3
    assert len(env.observe().present) == 2


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("pasture.world:from_config", {"length": 7}, None),
        ("pasture.world:many", {"length": 7}, None),
        ("pasture.world:Herd", {"length": 7}, None),
        ("pasture.world:Herd", {"size": 7}, "'size'; known: length"),
        ("pasture.world:many", {"lenght": 7}, "unknown option 'lenght'; did you mean 'length'?"),
        ("pasture.world:many", {"bridge": {}}, "makes its copies itself: there is nothing to bridge"),
        ("pasture.world:not_many", {}, "so it must give an OpenVectorEnv, not a Herd"),
        ("pasture.world:Herd", {"bridge": {"mapping": {"tasks": "x"}}}, "no entry 'x'"),
        ("pasture.world:Herd", {"bridge": {"mapings": 1}}, "bridge.mapings: unknown key; did you mean 'mapping'?"),
        (
            "pasture.world:Herd",
            {"bridge": {"mapping": {"task": "x"}}},
            "bridge.mapping.task: unknown key; did",
        ),
        ("lost", {}, "'lost' of package pasture 0.3 is broken: .* No module named 'pasture.gone'"),
        ("herb", {}, "unknown environment 'herb'; did you mean 'herd'?"),
    ],
)
def test_what_can_be_made(name, options, words):
    if words is None:
        assert make_environment(name, 3, options).num_copies == 3
        return
    with pytest.raises(UserError) as error:
        make_environment(name, 3, options)
    text = str(error.value)
    assert all(part.strip() in text for part in words.split(".*"))
    assert "\n" not in text


def test_options_name_the_key_that_is_wrong():
    with pytest.raises(ConfigError) as error:
        check_options("herd", {"bridge": {"mapping": {"taks": "x"}}})
    assert error.value.path == ("options", "bridge", "mapping", "taks")
    with pytest.raises(ConfigError) as error:
        check_options("lost", {})
    assert error.value.path == ("name",)
    assert check_options("herd", {"bridge": {"max_steps": 4}}) == {"bridge": {"max_steps": 4}}


def test_policies_of_other_packages():
    for environment in ("herd", "wildfire", "foraging"):
        assert find_rule(environment, "still").name == "still"
        check_rule(environment, "still", {})
        assert "still" not in rule_names(environment)  # plays only where it is named
    check_teammate("foraging", "still")
    assert make_teammate("foraging", "still").name == "still"
    env = make_environment("foraging", 2, {"teammates": ["still", "H1"]})
    env.reset([0, 1])
    assert env.step(np.full(len(env.observe().present), -1)).labels is not None
    with pytest.raises(UserError, match="unknown policy 'stil' for environment 'herd'; did you mean 'still'"):
        find_rule("herd", "stil")


def test_any_environment_has_two_policies():
    assert rule_names("herd") == ["noop", "random"]
    env = make_environment("herd", 3)
    env.reset([4, 5, 6])
    obs, draws = env.observe(), env.draws()
    assert (find_rule("herd", "noop", spec=env.spec).act(obs, draws) == -1).all()
    chosen = find_rule("herd", "random", spec=env.spec)
    assert (chosen.act(obs, draws) == chosen.act(obs, draws)).all()
    counts = np.bincount(np.concatenate([chosen.act(obs) for _ in range(300)]), minlength=3)
    assert (counts > 200).all()  # 900 draws among three actions


def test_methods_of_other_packages():
    assert {"herding", "wrong", "plato"} <= set(method_names())
    assert find_method("herding").defaults == {"hidden": 8}
    assert find_method("pasture.methods:METHOD").summary == "MAPPO for sheep"
    for name in ("wrong", "pasture.methods:WRONG"):
        with pytest.raises(UserError, match="must be an rl_openness.algorithms.registry.Method, not 3"):
            find_method(name)
    with pytest.raises(UserError, match="unknown algorithm 'herdin'; did you mean 'herding'"):
        find_method("herdin")


def test_a_training_without_a_file():
    keys = default_experiment("pasture.world:Herd", {"length": 7}, None)
    assert (keys["name"], keys["algorithm"]) == ("mappo-pasture", "mappo")
    assert keys["settings.num_envs_per_env_runner"] == 16
    settings = load_experiment(None, [*keys.items(), "environment.options.length=7"])
    assert settings.settings["num_envs_per_env_runner"] == 16
    assert settings.evaluation.rules == ["noop", "random"]
    keys = default_experiment("wildfire", {}, None)
    assert keys["algorithm"] == "plato"
    assert not any(key.startswith("settings") for key in keys)
    assert run_name("my_pkg.worlds:Wörld", "pasture.methods:METHOD") == "pasture-my_pkg"


def test_an_experiment_is_written_and_read_back(tmp_path):
    options = {"length": 7, "bridge": {"agents": "a|b", "mapping": {"shared": [""]}}}
    text = [("name", "x"), ("algorithm", "herding"), ("environment", {"name": "herd", "options": options})]
    settings = load_experiment(None, text)
    (tmp_path / "x.yaml").write_text(dump_experiment(settings))
    again = load_experiment(tmp_path / "x.yaml")
    assert again == settings
    assert again.environment.options == options
    assert again.settings["hidden"] == 8
    world = find_world("herd", options)
    assert world.name == "herd (length=7)"
    assert find_world("herd", {**options, "bridge": {}}).key != world.key


def test_what_a_saved_policy_imports():
    env = make_environment("herd", 1)
    card = PolicyCard("mappo", {}, env.spec, "pasture.world:Herd", {}, 0, None)
    assert users_modules(card) == {"pasture.world": "environment"}
    card = PolicyCard("mine.net:make", {}, env.spec, "herd", {}, 0, None)
    assert users_modules(card) == {"mine.net": "policy"}
