"""Rules side by side, their summary, and the curve. Trained policies are evaluated in tests/cli."""

import pandas as pd
import pytest

from rl_openness.errors import UserError
from rl_openness.evaluation.metrics import percent_of_optimum
from rl_openness.experiments.evaluate import draw_learning_curve, play, summary_table
from rl_openness.experiments.worlds import find_world

SEEDS = range(200, 205)


def test_doing_nothing_is_the_zero_of_the_percentages():
    world = find_world("wildfire", {"setup": "2x3/S1"})
    table = play(world, ["coalition"], {}, SEEDS)
    assert table["policy"].unique().tolist() == ["noop", "coalition"]
    assert table["seed"].tolist() == [*SEEDS] * 2
    noop, coalition = summary_table(table, [world]).to_dict("records")
    assert noop["percent_of_optimum"] == 0.0
    assert coalition["optimum"] == 185.8
    expected = percent_of_optimum(coalition["return_mean"], noop["return_mean"], 185.8)
    assert coalition["percent_of_optimum"] == expected > 0.0


def test_no_optimum_no_percentages():
    world = find_world("wildfire", {"setup": "2x3/S1", "team_size": 4})
    table = play(world, ["solo"], {}, SEEDS)
    assert table["policy"].unique().tolist() == ["solo"]
    summary = summary_table(table, [world])
    assert summary["setup"].tolist() == ["2x3/S1 (4 agents)"]
    assert summary[["optimum", "percent_of_optimum"]].isna().all(axis=None)


def test_several_worlds_keep_their_own_zero():
    worlds = [find_world("wildfire", {"setup": setup}) for setup in ("2x3/S1", "3x3/S3")]
    table = pd.concat([play(world, ["random"], {}, SEEDS) for world in worlds])
    summary = summary_table(table, worlds).set_index(["setup", "policy"])
    assert summary.loc[("2x3/S1", "noop"), "percent_of_optimum"] == 0.0
    assert summary.loc[("3x3/S3", "noop"), "percent_of_optimum"] == 0.0
    assert summary.loc[("3x3/S3", "random"), "optimum"] == 21.0


@pytest.mark.parametrize(
    ("options", "name", "optimum"),
    [
        ({}, "3x3/S3", 21.0),
        ({"setup": "3x3/S3", "team_size": 3}, "3x3/S3", 21.0),
        ({"setup": "upstream/3x3/S3"}, "upstream/3x3/S3", None),
        ({"overrides": {"fire": {"burnout_probability": 0.4}}}, "3x3/S3 (fire.burnout_probability=0.4)", None),
    ],
)
def test_worlds_by_name(options, name, optimum):
    world = find_world("wildfire", options)
    assert (world.name, world.optimum) == (name, optimum)


def test_unknown_setup_is_told():
    with pytest.raises(UserError, match=r"^setup: unknown setup '3x3/S33'; did you mean '3x3/S3'\?$"):
        find_world("wildfire", {"setup": "3x3/S33"})


def test_curve_is_drawn_even_before_an_episode_has_ended(tmp_path):
    draw_learning_curve(tmp_path, find_world("wildfire", {}), {"noop": -130.0}, trained="plato")
    assert (tmp_path / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
