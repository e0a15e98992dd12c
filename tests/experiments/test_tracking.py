"""What MLflow records of a run, and that training never depends on it."""

import logging

import pytest

from rl_openness.experiments.schema import ExperimentSettings
from rl_openness.experiments.tracking import RunTracker


@pytest.fixture(autouse=True)
def no_server(monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "runs" / "one").mkdir(parents=True)
    return tmp_path / "runs" / "one"


def row(iteration):
    return {"iteration": iteration, "env_steps": 64 * iteration, "entropy": 1.0 / iteration, "kl": None}


def test_a_resumed_run_goes_on_in_the_same_mlflow_run(folder):
    settings = ExperimentSettings(name="one", settings={"lr": 1e-3})
    first = RunTracker(settings, folder)
    first.log_iteration(row(1))
    first.end("KILLED")
    second = RunTracker(settings, folder)
    second.log_iteration(row(2))

    from mlflow import MlflowClient

    assert first.uri == second.uri == f"sqlite:///{folder.parent.parent / 'mlflow.db'}"
    client = MlflowClient(second.uri)
    (experiment,) = [each for each in client.search_experiments() if each.name == "rl-openness"]
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.run_name == "one"
    assert run.info.status == "RUNNING"
    assert run.data.params["settings.lr"] == "0.001"
    assert run.data.params["environment.options.setup"] == "3x3/S3"
    history = [(metric.step, metric.value) for metric in client.get_metric_history(run.info.run_id, "entropy")]
    assert sorted(history) == [(64, 1.0), (128, 0.5)]
    assert "kl" not in run.data.metrics
    second.end("FINISHED")
    assert client.get_run(run.info.run_id).info.status == "FINISHED"


def test_a_store_that_fails_is_told_once(folder, caplog):
    (folder / "file").write_text("")
    settings = ExperimentSettings(name="one", tracking={"uri": f"sqlite:///{folder / 'file' / 'mlflow.db'}"})
    with caplog.at_level(logging.WARNING):
        tracker = RunTracker(settings, folder)
        tracker.log_iteration(row(1))
        tracker.end("FINISHED")
    assert tracker.uri is None
    (message,) = [record.message for record in caplog.records if record.name.startswith("rl_openness")]
    assert "the training goes on unrecorded" in message


def test_switched_off_nothing_is_written(folder):
    tracker = RunTracker(ExperimentSettings(name="one", tracking={"mlflow": False}), folder)
    tracker.log_iteration(row(1))
    tracker.end("FINISHED")
    assert not list(folder.parent.parent.glob("ml*"))
    assert not list(folder.iterdir())
