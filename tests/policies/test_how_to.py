"""The page on rules of one's own: its rule plays, and its tables are those of the code."""

import re
from pathlib import Path

import pytest

import rl_openness
from rl_openness.envs.foraging import rules as foraging
from rl_openness.envs.foraging import view as foraging_view
from rl_openness.envs.registry import make_environment
from rl_openness.envs.wolfpack import rules as wolfpack
from rl_openness.envs.wolfpack import view as wolfpack_view
from rl_openness.evaluation.rollout import play_episodes
from rl_openness.experiments.worlds import find_rule

PAGE = Path(rl_openness.__file__).parent.parent / "docs/how-to/your-own-teammates.md"


def test_the_rule_of_the_page_plays_in_both_places(tmp_path, monkeypatch):
    text = PAGE.read_text()
    (tmp_path / "mine.py").write_text(re.search(r"```python\n(.*?)```", text, re.DOTALL)[1])
    (tmp_path / "chasers.yaml").write_text(re.search(r"```yaml\n(.*?)```", text, re.DOTALL)[1])
    monkeypatch.chdir(tmp_path)
    env = make_environment("wolfpack", 2, {"teammates": "chasers.yaml", "max_steps": 20})
    assert "mine:chaser" in env.teammates.names
    table = play_episodes(env, find_rule("wolfpack", "mine:chaser", spec=env.spec), [1, 2])
    assert table["length"].tolist() == [20, 20]


@pytest.mark.parametrize(("title", "view"), [("Foraging", foraging_view), ("Wolfpack", wolfpack_view)])
def test_the_page_names_the_columns_in_their_order(title, view):
    section = PAGE.read_text().partition(f"### {title}")[2].partition("###")[0]
    agents, tasks = section.split("`task_rows`")
    names = [
        name
        for row in re.findall(r"^\| [\d, ]+ \| (.*?) \|", agents, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    ]
    assert tuple(names) == view.AGENT_COLUMNS
    places = [tasks.index(f"`{name}`") for name in view.TASK_COLUMNS]
    assert places == sorted(places)


def test_the_page_numbers_the_actions_as_the_rules_do():
    assert list(range(6)) == [
        foraging.NONE,
        foraging.NORTH,
        foraging.SOUTH,
        foraging.WEST,
        foraging.EAST,
        foraging.LOAD,
    ]
    assert list(range(5)) == [wolfpack.UP, wolfpack.RIGHT, wolfpack.DOWN, wolfpack.LEFT, wolfpack.STAY]
