"""A run in MLflow: parameters once, metrics per iteration, files at the end. Training never fails because of it."""

from __future__ import annotations

import fcntl
import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pandas as pd

from rl_openness.experiments.evaluate import CURVE
from rl_openness.experiments.keys import flat
from rl_openness.experiments.progress import Row
from rl_openness.experiments.runs import CONFIG, EPISODES
from rl_openness.experiments.schema import ExperimentSettings
from rl_openness.files import write_atomically

RECORD = "mlflow.json"
_QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    # A store that does not answer must not hold up the training for minutes.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
_logger = logging.getLogger(__name__)


class RunTracker:
    """Records one run. The first failure of the store is told as a warning and ends the recording.

    The run's id is kept in `mlflow.json`, so that a resumed training goes on in the same MLflow run.
    """

    uri: str | None = None
    """The store; None if nothing is recorded."""

    def __init__(self, settings: ExperimentSettings, run_folder: Path) -> None:
        self._settings, self._folder = settings, run_folder.resolve()
        self._on = settings.tracking.mlflow
        self._guarded(self._open)

    def log_iteration(self, row: Row) -> None:
        """A row of the progress table, at x = environment steps."""
        step = int(row["env_steps"] or 0)
        self._log({name: value for name, value in row.items() if value is not None and name != "env_steps"}, step)

    def log_results(self, evaluation: pd.DataFrame) -> None:
        """Results of the trained policy, which leads the table of `summary_table`, and the run's files."""
        best = {
            f"evaluation_{name}": float(value)
            for name, value in evaluation.iloc[0].items()
            if isinstance(value, float) and math.isfinite(value)
        }
        self._log(best, self._settings.run.env_steps)
        self._guarded(self._log_files)

    def end(self, status: str) -> None:
        """Mark the run `FINISHED`, `KILLED` (stopped by the user) or `FAILED`."""
        self._guarded(lambda: self._client.set_terminated(self._run_id, status))

    def _log(self, values: Mapping[str, float], step: int) -> None:
        def log() -> None:
            from mlflow.entities import Metric

            now = int(time.time() * 1000)
            metrics = [Metric(name, value, now, step) for name, value in values.items()]
            self._client.log_batch(self._run_id, metrics=metrics)

        self._guarded(log)

    def _log_files(self) -> None:
        for name in (CONFIG, EPISODES, CURVE):
            self._client.log_artifact(self._run_id, str(self._folder / name))

    def _guarded(self, action: Callable[[], None]) -> None:
        if not self._on:
            return
        try:
            action()
        except Exception as error:  # noqa: BLE001  # whatever the store's client raises, the training goes on
            self._on, self.uri = False, None
            _logger.warning("MLflow failed (%s); the training goes on unrecorded", str(error).partition("\n")[0])

    def _open(self) -> None:
        for name, value in _QUIET.items():
            os.environ.setdefault(name, value)
        from mlflow import MlflowClient

        local = self._folder.parent.parent
        uri = self._settings.tracking.uri or os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{local / 'mlflow.db'}"
        with _one_at_a_time(local) if uri.startswith("sqlite:") else nullcontext():
            self._client: Any = MlflowClient(tracking_uri=uri)
            self._run_id: str = self._known_run(uri) or self._new_run(uri, local)
        self.uri = uri

    def _known_run(self, uri: str) -> str | None:
        """The run that this folder's training began, set to running again; None if the store has no such run."""
        from mlflow.exceptions import MlflowException

        path = self._folder / RECORD
        record = json.loads(path.read_text()) if path.exists() else {}
        if record.get("uri") != uri:
            return None
        try:
            self._client.update_run(record["run_id"], status="RUNNING")
        except MlflowException:
            return None
        return str(record["run_id"])

    def _new_run(self, uri: str, local: Path) -> str:
        from mlflow.entities import Param

        client = self._client
        name = self._settings.tracking.experiment
        experiment = client.get_experiment_by_name(name)
        if experiment is None:
            # A server knows where its files go; a local database would put them into the working directory.
            place = (local / "mlruns").as_uri() if uri.startswith("sqlite:") else None
            experiment_id = client.create_experiment(name, artifact_location=place)
        else:
            experiment_id = experiment.experiment_id
        # What identifies the experiment: settings.lr, environment.options.setup, run.seed, ...
        groups = {"name", "algorithm", "environment", "settings", "run"}
        parameters = flat(self._settings.model_dump(mode="json", include=groups))
        run_id: str = client.create_run(experiment_id, run_name=self._folder.name).info.run_id
        client.log_batch(run_id, params=[Param(key, str(value)) for key, value in parameters.items()])
        write_atomically(self._folder / RECORD, json.dumps({"uri": uri, "run_id": run_id}) + "\n")
        return run_id


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    """Processes that start together (several seeds) must not create the same database at the same time."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
