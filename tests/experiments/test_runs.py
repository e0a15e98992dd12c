"""A run's folder and its table of progress. Nothing here needs Ray."""

import csv
import math

import pytest

from rl_openness.errors import UserError
from rl_openness.experiments.progress import ProgressTable, progress_row
from rl_openness.experiments.runs import (
    checkpoint_folder,
    checkpoint_steps,
    create_run,
    find_run,
    remove_old_checkpoints,
    resumed_settings,
)
from rl_openness.experiments.schema import ExperimentSettings
from rl_openness.experiments.yaml_files import load_experiment


def result(iteration, episode_return=None):
    return {
        "training_iteration": iteration,
        "num_env_steps_sampled_lifetime": 64.0 * iteration,
        "env_runners": {"num_env_steps_sampled": 64, "episode_return_mean": episode_return},
        "learners": {
            "__all_modules__": {"num_trainable_parameters": math.nan},
            "default_policy": {"entropy": 1.5, "actor_grad_norm": math.inf, "num_trainable_parameters": 3.0},
        },
    }


def row(iteration, **known):
    return progress_row(result(iteration, **known), seconds=2.0 * iteration, cpu_seconds=1.0 * iteration, duration=2.0)


@pytest.fixture
def run(tmp_path):
    create_run(tmp_path / "runs" / "one", ExperimentSettings(name="one", run={"env_steps": 100}))
    return tmp_path / "runs" / "one"


def test_row_holds_finite_numbers_or_nothing(tmp_path):
    table = ProgressTable(tmp_path)
    table.append(row(1, episode_return=math.nan))
    table.append(row(2, episode_return=-3.5))
    text = table.path.read_text().splitlines()
    assert text[0].startswith("iteration,env_steps,env_steps_per_second,episode_return_mean,episode_len_mean,")
    assert text[1] == "1,64,32.0,,,,1.5,2.0,1.0"
    assert text[2] == "2,128,32.0,-3.5,,,1.5,4.0,2.0"
    assert next(csv.DictReader(text)).keys() == table.rows()[0].keys()


def test_columns_stay_when_another_version_logs_more(tmp_path):
    ProgressTable(tmp_path).append(row(1))
    ProgressTable(tmp_path).append({"new": 1.0, **row(2)})
    assert [each["env_steps"] for each in ProgressTable(tmp_path).rows()] == [64, 128]


def test_cut_drops_later_rows_and_half_a_line(tmp_path):
    table = ProgressTable(tmp_path)
    for iteration in (1, 2, 3):
        table.append(row(iteration))
    whole = table.path.read_text()
    with table.path.open("a") as file:
        file.write("4,25")  # a process killed while it wrote "4,256,..."
    assert table.cut_after(10**9)["iteration"] == 3
    assert table.path.read_text() == whole
    assert table.cut_after(128) == table.rows()[-1]
    assert [each["env_steps"] for each in table.rows()] == [64, 128]
    assert table.cut_after(0) is None
    assert not table.path.exists()


def test_config_of_a_run_reads_back(run):
    assert load_experiment(run / "config.yaml").run.env_steps == 100


def test_run_is_found_by_name_and_by_folder(run, tmp_path):
    assert find_run("one", run.parent) == run
    assert find_run(str(run), tmp_path / "elsewhere") == run
    with pytest.raises(UserError, match=r"no run 'on' in .*did you mean 'one'\?"):
        find_run("on", run.parent)


def test_existing_run_is_refused_with_the_remedy(run):
    with pytest.raises(UserError, match="train --resume .*`, or name another one by --run"):
        create_run(run, ExperimentSettings(name="one"))


def test_resumed_run_keeps_its_configuration_but_may_grow(run, tmp_path):
    assert resumed_settings(run, None).run.env_steps == 100
    assert resumed_settings(run, None, ["run.env_steps=200"]).run.env_steps == 200
    (tmp_path / "config.yaml").write_text("name: other\nrun: {env_steps: 300}\n")
    again = resumed_settings(run, tmp_path / "config.yaml")
    assert (again.name, again.run.env_steps) == ("one", 300)
    for change, words in (
        ("run.env_steps=50", "run.env_steps is 100 in this run and cannot become 50"),
        ("run.seed=1", "run.seed is 0 in this run and cannot become 1"),
        ("environment.options.team_size=4", "environment.options.team_size is None in this run and cannot become 4"),
    ):
        with pytest.raises(UserError, match=words):
            resumed_settings(run, None, [change])


def test_newest_checkpoints_stay_and_unfinished_ones_go(run):
    for env_steps in (9, 10, 100, 1000):
        (checkpoint_folder(run, env_steps) / "policy").mkdir(parents=True)
    (run / "checkpoints" / ".000000001100.ab.new").mkdir()
    remove_old_checkpoints(run, 2)
    assert checkpoint_steps(run) == [100, 1000]
    assert len(list((run / "checkpoints").iterdir())) == 2
