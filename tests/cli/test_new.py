"""`new environment` and `new algorithm`: what they write works as it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rl_openness.experiments.scaffold import TEMPLATES
from tests.cli.conftest import environment as variables


@pytest.fixture(scope="module")
def projects(rlo, tmp_path_factory, without_heavy):
    """A folder with one project of each kind."""
    folder = tmp_path_factory.mktemp("new")
    for kind, name in (("environment", "my-world"), ("algorithm", "my_method")):
        done = rlo("new", kind, name, cwd=folder, **without_heavy)
        assert f"cd {name}" in done.stdout
    return folder


def run_tests(folder):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        command, cwd=folder, env=variables(), capture_output=True, text=True, timeout=280, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_files(projects):
    files = {str(path.relative_to(projects)) for path in projects.rglob("*") if path.is_file()}
    assert files == {
        *(f"my-world/{name}" for name in ("README.md", "pyproject.toml", "train.yaml", "tests/test_world.py")),
        *(f"my-world/my_world/{name}" for name in ("__init__.py", "world.py")),
        *(f"my_method/{name}" for name in ("README.md", "pyproject.toml", "train.yaml", "tests/test_method.py")),
        *(f"my_method/my_method/{name}.py" for name in ("__init__", "network", "settings", "training")),
    }
    assert not any("@" in (projects / name).read_text().replace("@classmethod", "") for name in files)
    assert 'my-world = "my_world.world:World"' in (projects / "my-world" / "pyproject.toml").read_text()
    assert all(path.suffix == ".txt" for path in TEMPLATES.rglob("*") if path.is_file())


def test_nothing_is_overwritten_and_names_are_checked(rlo, projects, without_heavy):
    before = (projects / "my-world" / "train.yaml").read_text()
    for name, words in (
        ("my-world", "exists and is left as it is"),
        ("torch", "is the name of an installed module"),
        ("My World", "must begin with a small letter"),
        ("../x", "must begin with a small letter"),
        ("class", "a word of the Python language, which no package can have: try 'my-class'"),
    ):
        done = rlo("new", "environment", name, cwd=projects, code=2, **without_heavy)
        assert done.stderr.count("\n") == 1
        assert words in done.stderr
    assert (projects / "my-world" / "train.yaml").read_text() == before


def test_the_environment_keeps_the_rules(rlo, projects):
    done = rlo("check", "train.yaml", "--episodes", 2, cwd=projects / "my-world")
    assert ": no faults, 1 note." in done.stdout
    assert "3 passed" in run_tests(projects / "my-world")


@pytest.mark.slow
def test_the_environment_trains(rlo, projects):
    few = ("--env-steps", 3072, "--set", "evaluation.episodes=3", "--set", "tracking.mlflow=false")
    done = rlo("train", "train.yaml", *few, cwd=projects / "my-world")
    assert "my_world.world:World (length=40)" in done.stdout


@pytest.mark.slow
def test_the_algorithm_passes_its_tests(projects):
    assert "3 passed" in run_tests(projects / "my_method")


@pytest.mark.slow
def test_the_algorithm_trains_and_is_evaluated(rlo, projects):
    few = ("--env-steps", 4096, "--set", "evaluation.episodes=2", "--set", "tracking.mlflow=false")
    home = projects / "my_method"
    done = rlo("train", "train.yaml", *few, cwd=home)
    assert "my_method:METHOD" in done.stdout
    done = rlo("evaluate", "my_method", "--episodes", 2, cwd=home)
    assert "importing module my_method.network, which its policy comes from" in done.stdout
    assert not (Path(os.getcwd()) / "my_method").exists()


@pytest.mark.parametrize(("kind", "example"), [("environment", "my-world"), ("algorithm", "small-mappo")])
def test_help_gives_a_name_that_fits(rlo, tmp_path, without_heavy, kind, example):
    assert f"e.g. {example}." in rlo("new", kind, "--help", cwd=tmp_path, COLUMNS="200", **without_heavy).stdout
