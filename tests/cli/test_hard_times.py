"""Runs that somebody edited, trained twice, or whose reader went away; and trainings that learn nothing."""

import shutil
import signal
import subprocess

import pandas as pd
import pytest

from tests.cli.conftest import argv, environment


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the shared run, at its newest checkpoint."""
    return shutil.copytree(trained[0] / "runs" / "tiny", tmp_path / "runs" / "tiny")


LONGER = ("--set", "run.env_steps=2624")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("hidden: 64", "hidden: 128", "settings.hidden is 128, but the run was trained with 64"),
        ("gamma: 0.99", "gamma: 0.5", "settings.gamma is 0.5"),
        ("setup: 2x3/S1", "setup: 3x3/S1", "options.setup is '3x3/S1'"),
        ("seed: 0", "seed: 1", "seed is 1"),
    ],
)
def test_an_edited_configuration_cannot_be_resumed(run, rlo, tmp_path, old, new, words):
    text = (run / "config.yaml").read_text()
    assert old in text
    (run / "config.yaml").write_text(text.replace(old, new))
    assert words in rlo("train", "--resume", "tiny", *LONGER, cwd=tmp_path, code=2).stderr
    assert (run / "config.yaml").read_text() == text.replace(old, new)


def test_a_damaged_table_is_told(run, rlo, tmp_path, shared_ray):
    (run / "progress.csv").write_text((run / "progress.csv").read_text().replace(",", ";"))
    said = rlo("train", "--resume", "tiny", *LONGER, cwd=tmp_path, code=2, **shared_ray).stderr
    assert "progress.csv is damaged" in said


def test_what_lies_beside_checkpoints_disturbs_nothing(run, rlo, tmp_path, shared_ray):
    (run / "checkpoints" / ".DS_Store").write_text("")
    (run / "checkpoints" / ".notes").mkdir()
    (run / "checkpoints" / "²").mkdir()
    (run / "checkpoints" / "5").write_text("")
    rlo("train", "--resume", "tiny", *LONGER, cwd=tmp_path, **shared_ray)
    left = {path.name for path in (run / "checkpoints").iterdir()}
    assert {".DS_Store", ".notes", "²", "5", "000000002624"} <= left


@pytest.fixture
def long_training(run, tmp_path, shared_ray):
    """A training of two million steps in a process, and what it has printed until the first iteration is read."""
    command = argv("train", "--resume", "tiny", "--set", "run.env_steps=2000000")
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored, here and in what is started
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment(**shared_ray), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            while not process.stdout.readline().startswith("iteration"):
                assert process.poll() is None
            yield process
        finally:
            process.kill()
            signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_a_run_is_trained_by_one_process_and_a_reader_may_leave(long_training, run, rlo, tmp_path):
    said = rlo("train", "--resume", "tiny", "--set", "run.env_steps=3000000", cwd=tmp_path, code=2).stderr
    assert f"is in use by another process ({long_training.pid})" in said
    long_training.stdout.close()  # as `| head` does; the training goes on, and a closed terminal makes it save
    rows = len(pd.read_csv(run / "progress.csv"))
    while len(pd.read_csv(run / "progress.csv")) < rows + 50:
        assert long_training.poll() is None
    long_training.send_signal(signal.SIGHUP)
    assert long_training.wait(240) == 130
    assert long_training.stderr.read() == ""
    steps = pd.read_csv(run / "progress.csv")["env_steps"]
    assert (run / "checkpoints" / f"{steps.iloc[-1]:012d}" / "state").is_dir()
    assert steps.is_monotonic_increasing
    assert steps.is_unique


def test_a_training_of_numbers_that_are_none_fails(place, rlo, tmp_path, shared_ray):
    done = rlo(
        "train", place / "tiny.yaml", "--set", "settings.lr=1e300", "--run", "wild", cwd=tmp_path, code=1, **shared_ray
    )
    assert "are not finite, so nothing is learnt" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unusable_folder_is_told(place, rlo, tmp_path):
    (tmp_path / "file").write_text("")
    said = rlo("train", place / "tiny.yaml", "--runs-folder", tmp_path / "file", cwd=tmp_path, code=2).stderr
    assert "Not a directory" in said
