"""Where the recorded trajectories lie, and the one Ray that all tests share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


def golden_dir(domain: str) -> Path:
    """Folder of recorded trajectories: $RL_OPENNESS_GOLDEN/<domain>, else tests/golden/<domain>; never an empty one."""
    root = os.environ.get("RL_OPENNESS_GOLDEN")
    folder = (Path(root) if root else Path(__file__).parent / "golden") / domain
    if not any(folder.glob("*.json.gz")):
        raise FileNotFoundError(f"no recorded trajectories (*.json.gz) in {folder}")
    return folder


@pytest.fixture(scope="session")
def ray_session() -> Iterator[None]:
    """A local Ray that pretends to have enough cores for a few runners and learners."""
    import ray

    os.environ.setdefault("OMP_NUM_THREADS", "1")
    ray.init(num_cpus=6, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    yield
    ray.shutdown()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`wildfire_golden`: one test per recorded Wildfire file."""
    if "wildfire_golden" in metafunc.fixturenames:
        files = sorted(golden_dir("wildfire").glob("*.json.gz"))
        metafunc.parametrize("wildfire_golden", files, ids=[file.name.removesuffix(".json.gz") for file in files])
