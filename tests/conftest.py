"""Where the recorded trajectories lie."""

import os
from pathlib import Path

import pytest


def golden_dir(domain: str) -> Path:
    """Folder of recorded trajectories: $RL_OPENNESS_GOLDEN/<domain>, else tests/golden/<domain>; never an empty one."""
    root = os.environ.get("RL_OPENNESS_GOLDEN")
    folder = (Path(root) if root else Path(__file__).parent / "golden") / domain
    if not any(folder.glob("*.json.gz")):
        raise FileNotFoundError(f"no recorded trajectories (*.json.gz) in {folder}")
    return folder


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """`wildfire_golden`: one test per recorded Wildfire file."""
    if "wildfire_golden" in metafunc.fixturenames:
        files = sorted(golden_dir("wildfire").glob("*.json.gz"))
        metafunc.parametrize("wildfire_golden", files, ids=[file.name.removesuffix(".json.gz") for file in files])
