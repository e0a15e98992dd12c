"""Code of users and of other packages on the command line: lists, trainings, evaluations."""

import json
import os
from pathlib import Path

import pytest
import yaml

from tests.cli.packages import install

WORLDS = Path(__file__).parents[1] / "envs" / "conformance" / "worlds.py"
HERD = """\
name: herd
algorithm: {algorithm}
environment: {{name: "{name}", options: {{length: 4, bridge: {{agents: "a|b", max_steps: 6}}}}}}
settings: {{num_envs_per_env_runner: 4, train_batch_size_per_learner: 32, minibatch_size: 16, num_epochs: 1}}
run: {{env_steps: 64, num_env_runners: {runners}}}
evaluation: {{episodes: 3}}
tracking: {{mlflow: false}}
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory, without_heavy):
    """Variables for a process that has the package `pasture`, with torch and Ray and without."""
    site = install(tmp_path_factory.mktemp("site"), WORLDS)
    mine = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join([mine, site])}, {
        "PYTHONPATH": os.pathsep.join([without_heavy["PYTHONPATH"], site])
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An empty folder with a package of a user's own, which is installed nowhere."""
    folder = tmp_path_factory.mktemp("mine")
    install(folder / "elsewhere", WORLDS)
    (folder / "elsewhere" / "pasture").rename(folder / "pasture")
    return folder


def test_lists_show_packages_and_warn_of_broken_ones(rlo, installed, tmp_path):
    _, light = installed
    done = rlo("list", "environments", cwd=tmp_path, **light)
    row = next(line for line in done.stdout.splitlines() if "herd" in line)
    assert "Sheep that come and go." in row
    assert "pasture 0.3" in row
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(
        "warning: 'lost' of package pasture 0.3 is broken: pasture.gone:World: module 'pasture"
    )
    assert "wildfire" in done.stdout
    done = rlo("list", "algorithms", cwd=tmp_path, **light)
    assert "MAPPO for sheep" in done.stdout
    assert done.stderr == "warning: algorithm 'wrong' must be an rl_openness.algorithms.registry.Method, not 3\n"
    done = rlo("list", "policies", cwd=tmp_path, **light)
    assert done.stdout.count("Stands still. (package pasture 0.3)") == 3
    assert "any other" in done.stdout


def test_a_broken_one_disturbs_nobody_else(rlo, installed, place):
    _, light = installed
    done = rlo("evaluate", "--policy", "noop", "--setup", "2x3/S1", "--episodes", 1, cwd=place, **light)
    assert done.stderr == ""
    done = rlo("train", "--environment", "lost", cwd=place, code=2, **light)
    assert done.stderr.count("\n") == 1
    assert "'lost' of package pasture 0.3 is broken" in done.stderr


def test_rules_of_other_packages_play(rlo, installed, tmp_path):
    _, light = installed
    players = ("--policy", "still", "--policy", "noop", "--policy", "random", "--episodes", 2)
    done = rlo("evaluate", "--environment", "herd", *players, cwd=tmp_path, **light)
    assert [line.split()[1] for line in done.stdout.splitlines() if line.strip().startswith("herd")] == [
        "still", "noop", "random",
    ]  # fmt: skip
    done = rlo("evaluate", "--policy", "still", "--setup", "2x3/S1", "--episodes", 2, cwd=tmp_path, **light)
    assert "still" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("train --environment pasture.world:Hird", "has no attribute 'Hird'; did you mean 'Herd'?"),
        ("train --environment pasture.world:Herd --set environment.options.lenght=3", "did you mean 'length'?"),
        ("train --environment pasture.world:Herd --algorithm mapo", "unknown algorithm 'mapo'; did you mean 'mappo'?"),
        ("train --environment pasture.world:Herd --set settings.lrr=1", "--set: settings.lrr: unknown key"),
        ("train herd.yaml --set environment.options.bridge.mapping.taks=x", "bridge.mapping.taks: unknown key; did"),
        ("train --resume x --environment y", "--resume and --environment do not go together"),
    ],
)
def test_mistakes_are_one_line(rlo, folder, without_heavy, arguments, words):
    (folder / "herd.yaml").write_text(HERD.format(algorithm="mappo", name="pasture.world:Herd", runners=0))
    done = rlo(*arguments.split(), cwd=folder, code=2, **without_heavy)
    assert done.stderr.count("\n") == 1
    assert words in done.stderr


def test_train_and_evaluate_without_a_file(rlo, folder):
    changes = (
        "--set",
        "environment.options.length=4",
        "--set",
        "evaluation.episodes=3",
        "--set",
        "tracking.mlflow=false",
    )
    done = rlo("train", "--environment", "pasture.world:Herd", "--env-steps", 1024, *changes, cwd=folder)
    assert "runs/mappo-pasture: mappo on pasture.world:Herd, seed 0" in done.stdout
    card = json.loads(next(folder.glob("runs/mappo-pasture/checkpoints/*/policy/policy.json")).read_text())
    assert card["environment"] == "pasture.world:Herd"
    assert card["env_config"] == {"length": 4}
    done = rlo("evaluate", "mappo-pasture", "--policy", "random", "--episodes", 2, cwd=folder)
    said = "mappo-pasture: importing module pasture.world, which its environment comes from"
    assert done.stdout.splitlines()[0] == said
    assert "pasture.world:Herd (length=4)" in done.stdout


@pytest.mark.slow
def test_remote_runners_know_it_too(rlo, folder):
    (folder / "far.yaml").write_text(
        HERD.format(algorithm="pasture.methods:METHOD", name="pasture.world:Herd", runners=2)
    )
    done = rlo("train", "far.yaml", "--run", "far", cwd=folder)
    assert "evaluating" in done.stdout
    config = yaml.safe_load((folder / "runs" / "far" / "config.yaml").read_text())
    assert config["environment"]["options"] == {"length": 4, "bridge": {"agents": "a|b", "max_steps": 6}}
    assert config["settings"]["hidden"] == 8
