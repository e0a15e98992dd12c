"""`evaluate`: trained policies in worlds they know and in others, beside rules."""

import json
import shutil

import pandas as pd
import pytest

from rl_openness.envs.registry import make_environment
from rl_openness.evaluation.reference import play_reference
from rl_openness.evaluation.rollout import play_episodes
from rl_openness.policies.base import Policy
from rl_openness.policies.teammates import make_teammate
from tests.policies.checkpoints import save_untrained


def lines(printed):
    """Rows of the printed table by (setup, policy)."""
    rows = [line.split("  ") for line in printed.splitlines() if "/S" in line]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]
    return {(row[0], row[1]): row[2:] for row in cells}


def test_same_episodes_as_after_the_training(trained, rlo, tmp_path):
    place, _ = trained
    rlo("evaluate", "runs/tiny", "--episodes", 4, "--output", tmp_path / "new" / "again.parquet", cwd=place)
    again = pd.read_parquet(tmp_path / "new" / "again.parquet")
    after = pd.read_parquet(place / "runs" / "tiny" / "episodes.parquet")
    mine = again[again["policy"] == "runs/tiny"].drop(columns="policy").reset_index(drop=True)
    theirs = after[after["policy"] == "plato"].drop(columns="policy").reset_index(drop=True)
    pd.testing.assert_frame_equal(mine, theirs)


def test_other_grids_and_teams_unchanged(trained, rlo, tmp_path):
    place, _ = trained
    checkpoint, policy = "runs/tiny/checkpoints/000000002560", "runs/tiny/checkpoints/000000002560/policy"
    worlds = ("--setup", "3x3/S3", "--setup", "4x4/S1", "--team-size", 5)
    options = ("--policy", "random", "--episodes", 3, "--first-seed", 7, "--output", tmp_path / "out.csv", "--explore")
    done = rlo("evaluate", checkpoint, policy, *worlds, *options, cwd=place)
    table = pd.read_csv(tmp_path / "out.csv")
    assert table["setup"].unique().tolist() == ["3x3/S3 (5 agents)", "4x4/S1 (5 agents)"]
    assert table["policy"].unique().tolist() == [checkpoint, policy, "random"]
    assert (table["agent_steps"] == 5 * table["length"]).all()
    assert set(table["seed"]) == {7, 8, 9}
    returns = table.groupby(["policy", "setup"])["return"].apply(list)
    assert returns[checkpoint].tolist() == returns[policy].tolist()
    shown = lines(done.stdout)
    assert set(shown) == {(setup, policy) for setup in table["setup"].unique() for policy in table["policy"].unique()}
    assert "exact" not in done.stdout.partition("mean, std")[0]  # no optimum is known for five agents


def test_rules_alone_need_no_torch(place, rlo, without_heavy):
    options = ("--policy", "coalition", "--setup", "2x3/S1", "--setup", "upstream/2x3/S1", "--episodes", 2)
    shown = lines(rlo("evaluate", *options, cwd=place, **without_heavy).stdout)
    assert set(shown) == {("2x3/S1", "noop"), ("2x3/S1", "coalition"), ("upstream/2x3/S1", "coalition")}
    assert shown["2x3/S1", "noop"][2:4] == ["185.8", "0.0"]
    assert shown["upstream/2x3/S1", "coalition"][2:4] == ["-", "-"]


def test_policy_for_other_observations_is_refused(trained, rlo, tmp_path):
    place, _ = trained
    policy = shutil.copytree(place / "runs/tiny/checkpoints/000000002560/policy", tmp_path / "policy")
    card = json.loads((policy / "policy.json").read_text())
    card["env_spec"]["task_columns"][0]["name"] = "row"
    (policy / "policy.json").write_text(json.dumps(card))
    done = rlo("evaluate", policy, "--setup", "3x3/S3", cwd=place, code=2)
    assert done.stderr.count("\n") == 1
    assert "was trained on 'wildfire' and cannot act in 3x3/S3: task columns " in done.stderr


HOME = {"teammates": "foraging-exc", "team_size": 3, "slots": 5, "max_steps": 20}
FORAGING = {**HOME, "teammates": ["H1", "H2", "H3", "H4"]}
"""Its evaluation has the teammates of the population's test list."""


@pytest.fixture(scope="module")
def forager(tmp_path_factory):
    """A folder with an untrained foraging policy `net`."""
    folder = tmp_path_factory.mktemp("foraging")
    save_untrained(folder / "net", "gpl", "foraging", **HOME)
    return folder


def returns(path, setup=None):
    table = pd.read_csv(path)
    return table.loc[table["setup"] == setup if setup else slice(None), "return"].tolist()


def test_one_net_in_teams_of_other_sizes_among_the_teammates_of_tests(forager, rlo):
    done = rlo("evaluate", "net", "--team-size", "3,5,9", "--output", "sizes.csv", cwd=forager)
    table = pd.read_csv(forager / "sizes.csv")
    names = [f"foraging, {size} agents, teammates foraging-exc (test list), max_steps=20" for size in (3, 5, 9)]
    assert table["setup"].unique().tolist() == names
    assert set(table["protocol"]) == {"ours"}
    assert "Played: 80 episodes of seeds 2500 to 2579 for each policy (protocol ours)." in done.stdout
    for name, size in zip(names, (3, 5, 9), strict=True):
        env = make_environment("foraging", 16, {**FORAGING, "team_size": size, "slots": max(5, size)})
        expected = play_episodes(env, Policy.load(forager / "net"), range(2500, 2580))["return"].tolist()
        assert returns(forager / "sizes.csv", name) == pytest.approx(expected)


def test_named_teammates_are_those_of_tests(forager, rlo):
    options = ("--teammates", "foraging-exc", "--episodes", 20, "--output", "test.csv")
    rlo("evaluate", "net", "--policy", "H1", *options, cwd=forager)
    table = pd.read_csv(forager / "test.csv")
    assert table["setup"].unique().tolist() == ["foraging, 3 agents, teammates foraging-exc (test list), max_steps=20"]
    env = make_environment("foraging", 16, FORAGING)
    expected = play_episodes(env, make_teammate("foraging", "H1"), range(2500, 2520))["return"].tolist()
    assert table.loc[table["policy"] == "H1", "return"].tolist() == pytest.approx(expected)


def test_the_papers_protocol(forager, rlo):
    done = rlo("evaluate", "net", "--protocol", "reference", "--output", "reference.csv", cwd=forager)
    env = make_environment("foraging", 16, FORAGING)
    expected = play_reference(env, Policy.load(forager / "net"))["return"].tolist()
    assert returns(forager / "reference.csv") == pytest.approx(expected)
    assert set(pd.read_csv(forager / "reference.csv")["protocol"]) == {"reference"}
    assert f"Played: {len(expected)} episodes of seeds 2500 to 2515 for each policy (protocol reference)" in done.stdout
    assert "reference" in done.stdout.partition("mean, std")[0]


def test_worlds_with_other_slots_are_other_worlds(forager, rlo):
    save_untrained(forager / "wide", "gpl", "foraging", **HOME | {"slots": 9})
    rlo("evaluate", "net", "wide", "--episodes", 20, "--output", "slots.csv", cwd=forager)
    played = pd.read_csv(forager / "slots.csv").groupby("policy")["setup"].unique()
    assert played["net"].tolist() == ["foraging, 3 agents, teammates foraging-exc (test list), max_steps=20"]
    assert played["wide"].tolist() == ["foraging, 3 agents, teammates foraging-exc (test list), max_steps=20, slots=9"]
    env = make_environment("foraging", 20, FORAGING | {"slots": 9})
    expected = play_episodes(env, Policy.load(forager / "wide"), range(2500, 2520))["return"].tolist()
    table = pd.read_csv(forager / "slots.csv")
    assert table.loc[table["policy"] == "wide", "return"].tolist() == pytest.approx(expected)


def test_who_was_trained_for_the_whole_team_is_the_learner_among_named_teammates(rlo, tmp_path):
    save_untrained(tmp_path / "net", "mappo", "wolfpack", controlled="all", max_steps=20)
    options = ("--episodes", 5, "--output", "out.csv")
    assert "controlled=all" in rlo("evaluate", "net", *options, cwd=tmp_path).stdout
    alone = returns(tmp_path / "out.csv")
    rlo("evaluate", "net", "--teammates", "wolfpack-heuristics", *options, cwd=tmp_path)
    env = make_environment("wolfpack", 5, {"max_steps": 20, "teammates": "wolfpack-heuristics"})
    expected = play_episodes(env, Policy.load(tmp_path / "net"), range(2500, 2505))["return"].tolist()
    assert returns(tmp_path / "out.csv") == pytest.approx(expected) != pytest.approx(alone)


def test_learned_teammates_take_their_best_action_unless_told_to_explore(rlo, tmp_path):
    options = ("--environment", "foraging", "--policy", "a2c", "--episodes", 30, "--output", "out.csv")
    env = make_environment("foraging", 30)
    for explore in (False, True):
        rlo("evaluate", *options, *(["--explore"] if explore else []), cwd=tmp_path)
        policy = make_teammate("foraging", "a2c", explore=explore)
        expected = play_episodes(env, policy, range(2500, 2530))["return"].tolist()
        assert returns(tmp_path / "out.csv") == pytest.approx(expected)
