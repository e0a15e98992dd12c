"""Rules side by side, their summary, and the curve. Trained policies are evaluated in tests/cli."""

import pandas as pd
import pytest

from rl_openness.errors import UserError
from rl_openness.evaluation.metrics import percent_of_optimum
from rl_openness.experiments.evaluate import (
    draw_learning_curve,
    evaluation_seeds,
    evaluation_worlds,
    play,
    summary_table,
)
from rl_openness.experiments.schema import ExperimentSettings
from rl_openness.experiments.worlds import find_world, with_team_size
from rl_openness.policies.teammates import read_population

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


def experiment(environment, options=None, **evaluation):
    data = {"name": "x", "algorithm": "gpl", "environment": {"name": environment, "options": options or {}}}
    return ExperimentSettings.model_validate({**data, "evaluation": evaluation})


def test_a_run_is_evaluated_among_the_teammates_of_tests():
    settings = experiment("wolfpack", {"teammates": "wolfpack-exc", "max_steps": 20}, team_sizes=[2, 5])
    worlds = evaluation_worlds(settings)
    assert [world.options["team_size"] for world in worlds] == [2, 5]
    assert all(world.options["split"] == "test" and "wolfpack-exc (test list)" in world.name for world in worlds)
    tests = dict(worlds[1].options) | {"teammates": list(read_population("wolfpack-exc").test)}
    played, expected = (
        play(worlds[1], ["greedy"], {}, SEEDS),
        play(find_world("wolfpack", tests), ["greedy"], {}, SEEDS),
    )
    assert played["return"].tolist() == expected["return"].tolist()


@pytest.mark.parametrize(
    ("environment", "sizes", "words"),
    [
        ("foraging", [3, 40], "evaluation.team_sizes: 40: size 8 is too small: 40 players"),
        ("foraging", [1], "evaluation.team_sizes: 1: team_size: input should be greater than or equal to 2"),
        ("wolfpack", [3, 99], "evaluation.team_sizes: 99: size 10 gives 100 cells"),
    ],
)
def test_impossible_teams_are_told_with_the_configuration(environment, sizes, words):
    with pytest.raises(ValueError, match=words):
        experiment(environment, team_sizes=sizes)


def test_a_smaller_team_starts_with_as_many_as_there_are():
    assert with_team_size("wolfpack", {}, 2) == {"team_size": 2, "slots": 5, "start_size": 2}
    assert with_team_size("wolfpack", {"start_size": 1}, 2) == {"team_size": 2, "slots": 5, "start_size": 1}
    assert with_team_size("wolfpack", {}, 9) == {"team_size": 9, "slots": 9}
    assert with_team_size("foraging", {}, 2) == {"team_size": 2, "slots": 5}
    table = play(find_world("wolfpack", with_team_size("wolfpack", {"max_steps": 20}, 2)), ["greedy"], {}, SEEDS)
    assert (table["agent_steps"] <= 2 * table["length"]).all()


def test_worlds_are_the_same_by_environment_and_options():
    def same(one, other, environment="foraging"):
        return find_world(environment, one).key == find_world(environment, other).key

    assert same({}, {"slots": 5, "team_size": 3})
    assert same({"stay": [25, 35]}, {}, "wolfpack")
    assert same({}, {"setup": "3x3/S3", "team_size": 3}, "wildfire")
    for other in ({"slots": 9}, {"team_size": 2}, {"teammates": "foraging-exc"}, {"split": "test"}, {"max_food": 2}):
        assert not same({}, other)
        assert find_world("foraging", {}).name != find_world("foraging", other).name
    assert (
        find_world("foraging", {"slots": 9}).name == "foraging, 3 agents, teammates all rules (training list), slots=9"
    )
    assert (
        find_world("foraging", with_team_size("foraging", {}, 9)).name
        == "foraging, 9 agents, teammates all rules (training list)"
    )
    assert not same({}, {"controlled": "all"})


def test_the_packages_own_protocol():
    assert evaluation_seeds("foraging") == evaluation_seeds("wolfpack") == range(2500, 2580)
    assert evaluation_seeds("wildfire") == range(200, 250)
    assert evaluation_seeds("foraging", 5) == range(2500, 2505)
    assert evaluation_seeds("foraging", first_seed=7) == range(7, 87)


def test_tables_tell_protocols_apart():
    world = find_world("foraging", {"teammates": "foraging-no-a2c", "max_steps": 10})
    table = pd.concat([play(world, ["H1"], {}, SEEDS), play(world, ["H1"], {}, SEEDS, protocol="reference")])
    summary = summary_table(table, [world])
    assert summary["protocol"].tolist() == ["ours", "reference"]
    assert summary["episodes"].tolist() == [len(SEEDS), len(table) - len(SEEDS)]
