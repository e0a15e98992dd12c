"""`rl-openness teammates train`: weights and a card in a folder, and what it refuses."""

import json

import pytest


@pytest.mark.slow
def test_trains_a_teammate_that_populations_can_name(rlo, tmp_path):
    done = rlo(
        "teammates", "train", "a2c-foraging", "--env-steps", 2048, "--seed", 3, "--out", "mine/new", cwd=tmp_path
    )
    card = json.loads((tmp_path / "mine/new/card.json").read_text())
    assert card["command"] == "rl-openness teammates train a2c-foraging --seed 3 --env-steps 2048"
    assert set(card["return"]) >= {"a2c", "H1", "H8"}
    assert "mine/new" in done.stdout
    (tmp_path / "pop.yaml").write_text("environment: foraging\ntrain: [H1, ./mine/new]\n")
    options = ("--environment", "foraging", "--policy", "H2", "--teammates", "pop.yaml", "--episodes", 2)
    rlo("evaluate", *options, cwd=tmp_path)
    again = rlo("teammates", "train", "a2c-foraging", "--out", "mine/new", cwd=tmp_path, code=2)
    assert "mine/new exists: add --replace" in again.stderr


def test_wrong_input_is_told_at_once(rlo, tmp_path, without_heavy):
    done = rlo("teammates", "train", "a2c-forging", cwd=tmp_path, code=2, **without_heavy)
    assert "did you mean 'a2c-foraging'?" in done.stderr
    done = rlo("teammates", "train", "a2c-foraging", cwd=tmp_path, code=2, **without_heavy)
    assert "exists: add --replace" in done.stderr
    rlo("teammates", "train", "a2c-foraging", "--env-steps", 0, cwd=tmp_path, code=2, **without_heavy)


def test_lists_name_it_without_loading_it(rlo, tmp_path, without_heavy):
    shown = rlo("list", "teammates", cwd=tmp_path, **without_heavy).stdout
    words = ("foraging-all", "foraging-int", "foraging-exc", "wolfpack-all", "wolfpack-int", "wolfpack-exc")
    assert all(word in shown for word in (*words, "a2c", "distilled", "dqn", "teammates train"))
    shown = rlo("list", "policies", cwd=tmp_path, **without_heavy).stdout
    assert all(word in shown for word in ("H8", "greedy", "Learned: self-play", "Learned: behaviour cloning"))
