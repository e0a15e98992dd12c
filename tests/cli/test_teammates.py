"""`rl-openness teammates train`: weights and a card in a folder, and what it refuses."""

import json
import signal
import subprocess

import pandas as pd
import pytest

from rl_openness.experiments.teammates import recipe_names
from tests.cli.conftest import argv, environment
from tests.policies.checkpoints import save_untrained


@pytest.mark.slow
def test_trains_a_teammate_that_populations_can_name(rlo, tmp_path):
    done = rlo(
        "teammates", "train", "a2c-foraging", "--env-steps", 2048, "--seed", 3, "--out", "mine/new", cwd=tmp_path
    )
    card = json.loads((tmp_path / "mine/new/card.json").read_text())
    assert card["command"] == "rl-openness teammates train a2c-foraging --seed 3 --env-steps 2048"
    assert set(card["return"]) >= {"a2c", "H1", "H8"}
    assert "mine/new" in done.stdout
    (tmp_path / "pop.yaml").write_text("environment: foraging\ntrain: [H1, ./mine/new]\n")
    options = ("--environment", "foraging", "--policy", "H2", "--teammates", "pop.yaml", "--episodes", 2)
    rlo("evaluate", *options, cwd=tmp_path)
    again = rlo("teammates", "train", "a2c-foraging", "--out", "mine/new", cwd=tmp_path, code=2)
    assert "mine/new exists: add --replace" in again.stderr


def test_wrong_input_is_told_at_once(rlo, tmp_path, without_heavy):
    done = rlo("teammates", "train", "a2c-forging", cwd=tmp_path, code=2, **without_heavy)
    assert "did you mean 'a2c-foraging'?" in done.stderr
    done = rlo("teammates", "train", "a2c-foraging", cwd=tmp_path, code=2, **without_heavy)
    assert "exists: add --replace" in done.stderr
    rlo("teammates", "train", "a2c-foraging", "--env-steps", 0, cwd=tmp_path, code=2, **without_heavy)


WOLVES = """\
name: wolves
algorithm: ciao-c
environment: {name: wolfpack, options: {teammates: wolfpack-heuristics, max_steps: 20}}
settings: {encoder_hidden: 8, recurrent_hidden: 8, type_width: 8, utility_hidden: 8, updates_per_iteration: 6}
run: {env_steps: 384, checkpoint_every: 384}
evaluation: {first_seed: 2500, episodes: 2, team_sizes: [3], rules: [greedy]}
tracking: {mlflow: false}
"""


@pytest.mark.slow
def test_a_run_and_its_evaluation_have_the_prey_of_the_configuration(rlo, tmp_path, shared_ray):
    (tmp_path / "wolves.yaml").write_text(WOLVES)
    rlo("train", "wolves.yaml", "--set", "environment.options.prey=dqn", cwd=tmp_path, **shared_ray)
    run = json.loads(next(tmp_path.glob("runs/wolves/checkpoints/*/policy/policy.json")).read_text())
    assert run["env_config"]["prey"] == "dqn"
    after = pd.read_parquet(tmp_path / "runs/wolves/episodes.parquet").set_index("policy").loc["ciao-c"]
    options = ("--first-seed", 2500, "--episodes", 2, "--output", "again.csv")
    shown = rlo("evaluate", "runs/wolves", *options, cwd=tmp_path).stdout
    again = pd.read_csv(tmp_path / "again.csv")
    assert "prey=dqn" in shown
    assert again["return"].tolist() == pytest.approx(after["return"].tolist())
    shown = rlo("evaluate", "runs/wolves", "--prey", "random", *options, cwd=tmp_path).stdout
    assert "prey=random" in shown
    assert pd.read_csv(tmp_path / "again.csv")["return"].tolist() != pytest.approx(after["return"].tolist())
    done = rlo("evaluate", "runs/wolves", "--prey", "runs/wolves", cwd=tmp_path, code=2)
    assert done.stderr.count("\n") == 1
    assert "holds a policy of 'gpl', not a prey" in done.stderr


def test_wrong_prey_is_told_at_once(rlo, tmp_path, without_heavy):
    (tmp_path / "wolves.yaml").write_text(WOLVES)
    for prey, words in (
        ("dqm", "environment.options.prey: unknown prey 'dqm'; did you mean 'dqn'?"),
        ("./none", "environment.options.prey: no checkpoint at 'none'"),
    ):
        setting = ("--set", f"environment.options.prey={prey}")
        done = rlo("train", "wolves.yaml", *setting, cwd=tmp_path, code=2, **without_heavy)
        assert done.stderr.count("\n") == 1
        assert words in done.stderr
        command = ("evaluate", "--environment", "wolfpack", "--policy", "greedy", "--prey", prey)
        done = rlo(*command, cwd=tmp_path, code=2, **without_heavy)
        assert done.stderr.count("\n") == 1
        assert words.removeprefix("environment.options.") in done.stderr


@pytest.mark.slow
def test_stopped_it_exits_with_130_and_leaves_nothing(tmp_path):
    command = argv("teammates", "train", "distilled-wolfpack", "--out", "mine/new")
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    training = subprocess.Popen(command, cwd=tmp_path, env=environment(), **options)
    while not (line := training.stdout.readline()).startswith("iteration"):
        assert line or training.poll() is None
    training.send_signal(signal.SIGINT)
    printed, said = training.communicate(timeout=240)
    assert training.returncode == 130, said
    assert said == ""
    assert "Stopped; nothing was kept." in printed
    assert not (tmp_path / "mine/new").exists()


@pytest.mark.parametrize("method", ["gpl", "mappo"])
def test_a_teammate_that_does_not_fit_is_told_at_once(rlo, tmp_path, without_heavy, method):
    save_untrained(tmp_path / "mate", method, "foraging")
    (tmp_path / "wolves.yaml").write_text(WOLVES)
    setting = ("--set", "environment.options.teammates=[greedy, ./mate]")
    done = rlo("train", "wolves.yaml", *setting, cwd=tmp_path, code=2, **without_heavy)
    assert done.stderr.count("\n") == 1
    assert "environment.options.teammates: teammate './mate' was trained on foraging and cannot act here" in done.stderr
    (tmp_path / "pop.yaml").write_text("environment: wolfpack\ntrain: [greedy, ./mate]\n")
    options = ("--environment", "wolfpack", "--policy", "greedy", "--teammates", "pop.yaml")
    done = rlo("evaluate", *options, cwd=tmp_path, code=2, **without_heavy)
    assert done.stderr.count("\n") == 1
    assert "was trained on foraging and cannot act here" in done.stderr


MINE = """\
from rl_openness.policies.wolfpack import WolfpackRule


def hunter():
    return WolfpackRule("teammate_aware")
"""


def test_a_function_of_a_users_on_the_command_line(rlo, tmp_path, without_heavy):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "pop.yaml").write_text("environment: wolfpack\ntrain: [greedy]\ntest: ['mine:hunter']\n")
    safe = {**without_heavy, "PYTHONSAFEPATH": "1"}  # as for `rl-openness`, whose path lacks the present folder
    options = ("--environment", "wolfpack", "--policy", "greedy", "--episodes", 2, "--output", "out.csv")
    rlo("evaluate", *options, "--teammates", "pop.yaml", cwd=tmp_path, **safe)
    among_mine = pd.read_csv(tmp_path / "out.csv")["return"]
    (tmp_path / "pop.yaml").write_text("environment: wolfpack\ntrain: [greedy]\ntest: [teammate_aware]\n")
    rlo("evaluate", *options, "--teammates", "pop.yaml", cwd=tmp_path, **safe)
    assert among_mine.tolist() == pd.read_csv(tmp_path / "out.csv")["return"].tolist()
    (tmp_path / "pop.yaml").write_text("environment: wolfpack\ntrain: ['mine:huntr']\n")
    done = rlo("evaluate", *options, "--teammates", "pop.yaml", cwd=tmp_path, code=2, **safe)
    assert done.stderr.count("\n") == 1
    assert "mine:huntr: module 'mine' has no attribute 'huntr'; did you mean 'hunter'?" in done.stderr


@pytest.mark.slow
def test_a_function_of_a_users_reaches_runners_in_other_processes(rlo, tmp_path):
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "wolves.yaml").write_text(WOLVES)
    settings = ("--set", "environment.options.teammates=['mine:hunter', greedy]", "--set", "run.num_env_runners=1")
    rlo("train", "wolves.yaml", *settings, cwd=tmp_path, PYTHONSAFEPATH="1")
    assert len(pd.read_parquet(tmp_path / "runs/wolves/episodes.parquet")) == 4


def test_lists_name_the_prey(rlo, tmp_path, without_heavy):
    shown = rlo("list", "teammates", cwd=tmp_path, **without_heavy).stdout
    assert all(word in shown for word in ("evader", "dqn", "prey-wolfpack", "environment.options.prey"))


def test_lists_name_it_without_loading_it(rlo, tmp_path, without_heavy):
    shown = rlo("list", "teammates", cwd=tmp_path, **without_heavy).stdout
    words = ("foraging-all", "foraging-int", "foraging-exc", "wolfpack-all", "wolfpack-int", "wolfpack-exc")
    assert all(word in shown for word in (*words, "a2c", "distilled", "dqn", "teammates train"))
    shown = rlo("list", "policies", cwd=tmp_path, **without_heavy).stdout
    assert all(word in shown for word in ("H8", "greedy", "Learned: self-play", "Learned: behaviour cloning"))


BROKEN = """\
from rl_openness.policies.base import Policy


class Broken(Policy):
    memoryless = True

    def act(self, obs, draws=None):
        raise ZeroDivisionError("lost")


def broken():
    return Broken()
"""


@pytest.mark.slow
def test_a_policy_of_a_users_that_raises_ends_a_training_in_one_line(rlo, tmp_path, shared_ray):
    (tmp_path / "broken_mate.py").write_text(BROKEN)
    (tmp_path / "wolves.yaml").write_text(WOLVES)
    setting = ("--set", "environment.options.teammates=['broken_mate:broken']")
    done = rlo("train", "wolves.yaml", *setting, cwd=tmp_path, code=1, **shared_ray)
    _told_in_one_line(done.stderr)


@pytest.mark.parametrize(
    "options", [("--policy", "broken_mate:broken"), ("--policy", "greedy", "--teammates", "p.yaml")]
)
def test_a_policy_of_a_users_that_raises_ends_an_evaluation_in_one_line(rlo, tmp_path, options):
    (tmp_path / "broken_mate.py").write_text(BROKEN)
    (tmp_path / "p.yaml").write_text("environment: wolfpack\ntrain: ['broken_mate:broken']\n")
    done = rlo("evaluate", "--environment", "wolfpack", "--episodes", 2, *options, cwd=tmp_path, code=1)
    assert done.stderr.count("\n") == 1
    _told_in_one_line(done.stderr)


def _told_in_one_line(said):
    assert "Traceback" not in said
    words = (
        "error: policy 'broken_mate:broken' in wolfpack raised ZeroDivisionError: lost (broken_mate.py line 8, call 1"
    )
    assert words in said


def test_help_and_lists_name_what_can_be_trained(rlo, tmp_path, without_heavy):
    helped = rlo("teammates", "train", "--help", cwd=tmp_path, COLUMNS="200", **without_heavy).stdout
    listed = rlo("list", "teammates", cwd=tmp_path, **without_heavy).stdout
    for name in recipe_names():
        assert name in helped
        assert name in listed
