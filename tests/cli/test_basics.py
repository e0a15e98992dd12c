"""Help, version and lists, which import nothing heavy, and the line that follows a training in a terminal."""

import io

import pytest
from rich.console import Console

from rl_openness.cli.output import follow
from rl_openness.experiments.train import Progress
from rl_openness.version import __version__


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("--help", ["train", "evaluate", "list", "130"]),
        ("train --help", ["--set", "--seeds", "--resume"]),
        ("evaluate --help", ["--setup", "--team-size", "--explore", "2500", "learned"]),
        ("check --help", ["--episodes", "--steps", "--set"]),
        ("new --help", ["environment", "algorithm"]),
        ("--version", [__version__]),
        ("list setups", ["2x3/S0", "5x5/S3", "185.8", "upstream"]),
        ("list algorithms", ["plato", "plato-strict", "frame: absolute"]),
        ("list environments", ["wildfire"]),
        (
            "list policies",
            ["noop", "coalition", "Nobody does anything.", "food farthest from itself", "shortest way (ours"],
        ),
    ],
)
def test_nothing_heavy_is_imported(rlo, without_heavy, tmp_path, command, words):
    printed = rlo(*command.split(), cwd=tmp_path, **without_heavy).stdout
    for word in words:
        assert word in printed


def test_every_policy_is_listed_with_words_of_its_own(rlo, without_heavy, tmp_path):
    printed = rlo("list", "policies", cwd=tmp_path, **without_heavy).stdout
    rows = [line.split("│")[1:4] for line in printed.splitlines() if line.startswith("│")]
    words = [what.strip() for _, _, what in rows]
    assert len(set(words)) == len(words) == 4 + 8 + 8 + 3 + 2  # the last two are for Wildfire and any other environment
    assert all(words)


def test_wrong_usage_has_exit_code_2(rlo, tmp_path):
    rlo("trane", cwd=tmp_path, code=2)
    rlo("train", "--no-such-option", cwd=tmp_path, code=2)


def test_one_live_line_in_a_terminal():
    screen = io.StringIO()
    with follow(Console(file=screen, force_terminal=True, width=90)) as report:
        report(Progress(1, 64, 128, 32.0, None))
        report(Progress(2, 128, 128, 32.0, -1.25))
    assert "iteration 1  64/128 env steps  32/s  return -  0:00:02 left" in screen.getvalue()
    assert "iteration 2  128/128 env steps  32/s  return -1.2  0:00:00 left" in screen.getvalue()
    assert screen.getvalue().count("\n") == 1
