"""`evaluate`: trained policies in worlds they know and in others, beside rules."""

import json
import shutil

import pandas as pd


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
