"""The command line as a user calls it: in a process of its own. Expensive runs are shared."""

import os
import subprocess
import sys
import textwrap

import pytest

TINY = """\
name: tiny
environment: {options: {setup: 2x3/S1}}
settings:
  num_envs_per_env_runner: 8
  train_batch_size_per_learner: 64
  minibatch_size: 32
  num_epochs: 2
  deduplicate: true
run: {env_steps: 2560, checkpoint_every: 640}
evaluation: {episodes: 4}
"""
"""Forty iterations of a few milliseconds, checkpoints at 640, 1280, 1920 and 2560 steps."""
HEAVY = ("torch", "ray", "mlflow")


def environment(**extra):
    """This process's variables, without those that would lead a run astray."""
    kept = {key: value for key, value in os.environ.items() if key not in ("RAY_ADDRESS", "MLFLOW_TRACKING_URI")}
    return kept | {"OMP_NUM_THREADS": "1"} | extra


def argv(*arguments):
    return [sys.executable, "-m", "rl_openness", *map(str, arguments)]


@pytest.fixture(scope="session")
def rlo():
    """Call a verb in a folder and return the finished process; unless told otherwise it must end well."""

    def call(*arguments, cwd, code=0, **variables):
        done = subprocess.run(
            argv(*arguments),
            cwd=cwd,
            env=environment(**variables),
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr or code == 1
        return done

    return call


@pytest.fixture(scope="session")
def without_heavy(tmp_path_factory):
    """Variables for a process in which torch, Ray and MLflow cannot be imported."""
    folder = tmp_path_factory.mktemp("blocked")
    for name in HEAVY:
        (folder / f"{name}.py").write_text(f"raise ImportError('{name} must not be imported')\n")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))}


@pytest.fixture(scope="session")
def shared_ray():
    """Variables that let trainings use one running Ray, which saves each the start of its own."""
    code = """
        import sys, ray
        context = ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        print(context.address_info["gcs_address"], flush=True)
        sys.stdin.read()
    """
    host = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield {"RAY_ADDRESS": host.stdout.readline().strip(), "RAY_AUTH_MODE": "token"}
    host.stdin.close()
    host.wait(timeout=240)


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    """A working folder with tiny.yaml."""
    folder = tmp_path_factory.mktemp("work")
    (folder / "tiny.yaml").write_text(TINY)
    return folder


@pytest.fixture(scope="session")
def trained(rlo, place):
    """The folder after `train tiny.yaml`, run just as a user would, and what was printed."""
    return place, rlo("train", "tiny.yaml", cwd=place).stdout
