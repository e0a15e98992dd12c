"""`train`: what a run leaves behind, and that it goes on exactly after any end."""

import re
import shutil
import signal
import subprocess

import pandas as pd
import pytest
import yaml

from tests.cli.conftest import argv, environment

END = "checkpoints/000000002560"


def policy_bytes(run):
    return {path.name: path.read_bytes() for path in sorted((run / END / "policy").iterdir())}


def progress(run):
    """All columns but those that measure time."""
    table = pd.read_csv(run / "progress.csv", float_precision="round_trip")
    return table.drop(columns=["env_steps_per_second", "seconds", "cpu_seconds"])


def same_end(run, other):
    pd.testing.assert_frame_equal(progress(run), progress(other))
    assert set(policy_bytes(run)) == {"policy.json", "weights.safetensors"}
    return policy_bytes(run) == policy_bytes(other)


def store(place):
    from mlflow import MlflowClient

    return MlflowClient(f"sqlite:///{place / 'mlflow.db'}")


def tracked_runs(place):
    return store(place).search_runs([store(place).get_experiment_by_name("rl-openness").experiment_id])


def history(place, run):
    """Steps and values of the logged entropy."""
    return sorted((metric.step, metric.value) for metric in store(place).get_metric_history(run.info.run_id, "entropy"))


def interrupt(arguments, number, starts, cwd, **variables):
    """Send a signal once a line of each start was printed; returns the exit code and what is printed afterwards."""
    with subprocess.Popen(
        argv(*arguments), cwd=cwd, env=environment(**variables), stdout=subprocess.PIPE, text=True
    ) as process:
        missing = set(starts)
        while missing:
            line = process.stdout.readline()
            assert line, f"ended without {missing}"
            missing -= {start for start in missing if line.startswith(start)}
        process.send_signal(number)
        printed = process.stdout.read()
    return process.returncode, printed


def test_a_run_leaves_all_its_files(trained):
    place, _ = trained
    run = place / "runs" / "tiny"
    assert {path.name for path in run.iterdir()} == {
        ".lock",
        "checkpoints",
        "config.yaml",
        "episodes.parquet",
        "learning_curve.png",
        "mlflow.json",
        "progress.csv",
    }
    checkpoints = sorted((run / "checkpoints").iterdir())
    assert [path.name for path in checkpoints] == ["000000001280", "000000001920", "000000002560"]
    assert {path.name for path in checkpoints[0].iterdir()} == {"policy", "state"}
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["settings"]["gcn_layers"] == 2
    assert config["run"]["seed"] == 0


def test_progress_has_a_row_per_iteration_and_empty_cells_for_unknown(trained):
    place, _ = trained
    text = (place / "runs" / "tiny" / "progress.csv").read_text()
    table = pd.read_csv(place / "runs" / "tiny" / "progress.csv")
    assert table["iteration"].tolist() == list(range(1, 41))
    assert table["env_steps"].tolist() == list(range(64, 2561, 64))
    assert table["episode_return_mean"].isna().sum() == 12  # 8 copies end their first episodes after 100 steps each
    assert "nan" not in text.lower()
    losses = ["policy_loss", "value_loss", "entropy", "kl", "clip_fraction", "actor_grad_norm", "critic_grad_norm"]
    assert table[losses].notna().all(axis=None)
    assert table["cpu_seconds"].is_monotonic_increasing


def test_evaluation_stands_beside_rules_and_optimum(trained):
    place, printed = trained
    episodes = pd.read_parquet(place / "runs" / "tiny" / "episodes.parquet")
    policies = ["plato", "noop", "random", "weakest", "strongest", "solo", "coalition"]
    assert episodes["policy"].unique().tolist() == policies
    assert set(episodes["seed"]) == {200, 201, 202, 203}
    mean = episodes.loc[episodes["policy"] == "plato", "return"].mean()
    (line,) = [line.split() for line in printed.splitlines() if " plato " in line and "2x3/S1 " in line and "." in line]
    assert line[:3] == ["2x3/S1", "plato", f"{mean:.1f}"]
    assert line[4] == "185.8"


def test_it_says_how_to_browse_and_how_to_go_on(trained):
    place, printed = trained
    assert f"mlflow ui --backend-store-uri sqlite:///{place / 'mlflow.db'}" in printed
    assert "rl-openness train --resume runs/tiny --set run.env_steps=5120" in printed


def test_plain_lines_where_stdout_is_no_terminal(trained):
    lines = [line for line in trained[1].splitlines() if line.startswith("iteration ")]
    assert lines[0].startswith("iteration 1  64/2,560 env steps  ")
    assert lines[-1].startswith("iteration 40  2,560/2,560 env steps  ")
    assert len(lines) < 40
    assert "\x1b" not in trained[1]


def test_the_run_is_in_mlflow(trained):
    place, _ = trained
    (run,) = [run for run in tracked_runs(place) if run.info.run_name == "tiny"]
    assert run.info.status == "FINISHED"
    assert run.data.params["settings.minibatch_size"] == "32"
    entropy = progress(place / "runs" / "tiny")[["env_steps", "entropy"]]
    assert history(place, run) == [tuple(pair) for pair in entropy.itertuples(index=False)]
    assert run.data.metrics["evaluation_optimum"] == 185.8
    files = {file.path for file in store(place).list_artifacts(run.info.run_id)}
    assert files == {"config.yaml", "episodes.parquet", "learning_curve.png"}


@pytest.mark.slow
def test_half_a_run_and_its_rest_equal_the_whole(trained, rlo, shared_ray):
    place, _ = trained
    options = ("--set", "tracking.mlflow=false", "--set", "evaluation.rules=[]")
    rlo("train", "tiny.yaml", "--run", "half", "--set", "run.env_steps=1280", *options, cwd=place, **shared_ray)
    half = place / "runs" / "half"
    assert len(progress(half)) == 20
    # As if it had been killed after a checkpoint, while it wrote the next one.
    (half / "checkpoints/000000001280").rename(half / "checkpoints/.000000001280.12345678.new")
    rlo("train", "--resume", "half", "--set", "run.env_steps=2560", cwd=place, **shared_ray)
    assert same_end(half, place / "runs" / "tiny")
    assert yaml.safe_load((half / "config.yaml").read_text())["run"]["env_steps"] == 2560


@pytest.mark.slow
def test_interrupted_it_saves_and_goes_on_exactly(trained, rlo, shared_ray):
    place, _ = trained
    for attempt in range(5):  # on a busy machine the signal may come after the end of so short a run
        name = f"cut{attempt}"
        arguments = ("train", "tiny.yaml", "--run", name, "--set", "evaluation.rules=[]")
        code, printed = interrupt(arguments, signal.SIGINT, ["iteration 1 "], cwd=place, **shared_ray)
        if code != 0:
            break
    assert code == 130
    run = place / "runs" / name
    assert f"rl-openness train --resume runs/{name}" in printed
    done = len(progress(run))
    assert 1 <= done < 40
    assert f"runs/{name}/checkpoints/{64 * done:012d} is saved" in printed
    rlo("train", "tiny.yaml", "--resume", name, "--set", "evaluation.rules=[]", cwd=place, **shared_ray)
    assert same_end(run, place / "runs" / "tiny")
    (tracked,) = [each for each in tracked_runs(place) if each.info.run_name == name]
    assert tracked.info.status == "FINISHED"
    assert {step for step, _ in history(place, tracked)} == set(range(64, 2561, 64))


@pytest.mark.slow
def test_a_finished_run_says_so_and_what_to_do(trained, rlo):
    place, _ = trained
    before = {path: path.stat().st_mtime_ns for path in (place / "runs" / "tiny").rglob("*")}
    said = rlo("train", "--resume", "runs/tiny", cwd=place, code=2).stderr
    assert "runs/tiny is finished (2,560 env steps); to train longer: " in said
    assert "train --resume runs/tiny --set run.env_steps=5120" in said
    assert {path: path.stat().st_mtime_ns for path in (place / "runs" / "tiny").rglob("*")} == before


def test_a_run_that_lost_its_evaluation_is_evaluated_without_training(trained, rlo, shared_ray, tmp_path):
    run = shutil.copytree(trained[0] / "runs" / "tiny", tmp_path / "runs" / "tiny")
    (run / "episodes.parquet").unlink()
    before = (run / "progress.csv").read_bytes()
    printed = rlo("train", "--resume", "tiny", cwd=tmp_path, **shared_ray).stdout
    assert "\niteration" not in printed
    assert "185.8" in printed
    assert (run / "progress.csv").read_bytes() == before


@pytest.mark.slow
def test_several_seeds_side_by_side(rlo, shared_ray, place, tmp_path):
    changes = ("--set", "run.env_steps=128", "--set", "evaluation.episodes=1")
    done = rlo("train", place / "tiny.yaml", "--seeds", "1,2", *changes, cwd=tmp_path, **shared_ray)
    for seed in (1, 2):
        assert f"[seed {seed}] iteration 1 " in done.stdout
        assert f"tiny-seed{seed}: done (runs/tiny-seed{seed})" in done.stdout
        config = yaml.safe_load((tmp_path / "runs" / f"tiny-seed{seed}" / "config.yaml").read_text())
        assert config["run"]["seed"] == seed
    assert "mean return over 2 seeds" in done.stdout
    assert re.search(r"2x3/S1 .*plato +(│ +-?[0-9.]+ +){4}│", done.stdout)
    weights = [
        path.read_bytes() for path in tmp_path.glob("runs/*/checkpoints/000000000128/policy/weights.safetensors")
    ]
    assert len(set(weights)) == 2
    assert {run.info.run_name for run in tracked_runs(tmp_path)} == {"tiny-seed1", "tiny-seed2"}


@pytest.mark.slow
def test_interrupted_seeds_all_save(shared_ray, place, tmp_path):
    arguments = ("train", place / "tiny.yaml", "--seeds", "3,4", "--jobs", 2, "--set", "run.env_steps=1e6")
    changes = ("--set", "tracking.mlflow=false")
    first = ["[seed 3] iteration 1 ", "[seed 4] iteration 1 "]
    code, printed = interrupt((*arguments, *changes), signal.SIGTERM, first, cwd=tmp_path, **shared_ray)
    assert code == 130
    for seed in (3, 4):
        assert f"[seed {seed}] Stopped; " in printed
        assert list(tmp_path.glob(f"runs/tiny-seed{seed}/checkpoints/*/policy/policy.json"))


def test_failed_seeds_fail_the_command(place, rlo, tmp_path, without_heavy):
    done = rlo("train", place / "tiny.yaml", "--seeds", "1,2", cwd=tmp_path, code=1, **without_heavy)
    assert "torch must not be imported" in done.stdout
    assert "tiny-seed2: exit code 1" in done.stdout
