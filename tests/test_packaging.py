"""What a real install has, apart from the code: a wheel is built and unpacked away from the repository."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.cli.conftest import environment

ROOT = Path(__file__).parents[1]


def test_a_wheel_has_all_that_the_package_reads(tmp_path):
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    leave = shutil.ignore_patterns("__pycache__")
    for name in ("rl_openness", "tune_configs"):
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=leave)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, "--target", tmp_path / "site", tmp_path], check=True, timeout=240)
    folder, installed = ROOT / "rl_openness", tmp_path / "site" / "rl_openness"
    for pattern in ("envs/*/*.json", "policies/learned/*/*", "policies/populations/*.yaml", "py.typed"):
        expected = {path.relative_to(folder) for path in folder.glob(pattern)}
        assert expected
        assert {path.relative_to(installed) for path in installed.glob(pattern)} == expected
    (tmp_path / "elsewhere").mkdir()
    shown = subprocess.run(
        [sys.executable, "-m", "rl_openness", "list", "teammates"],
        cwd=tmp_path / "elsewhere",
        env=environment(PYTHONPATH=str(tmp_path / "site")),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert all(path.stem in shown for path in (ROOT / "tune_configs" / "teammates").glob("*.yaml"))
