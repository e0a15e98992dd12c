"""What a long table leaves out, and when a hint follows it."""

import pandas as pd
import pytest

from rl_openness.cli.output import condensed
from rl_openness.experiments.evaluate import better_in_training


def test_a_long_table_shows_the_learner_first_then_the_best_of_the_others():
    rows = [(setup, name, mean) for setup in "ab" for name, mean in (("H1", 1.0), ("net", 2.0), ("H2", 3.0))]
    shown, left_out = condensed(pd.DataFrame(rows, columns=["setup", "policy", "return_mean"]), "net")
    assert shown[["setup", "policy"]].to_numpy().tolist() == [["a", "net"], ["b", "net"], ["a", "H2"], ["b", "H2"]]
    assert left_out == 2


@pytest.mark.parametrize(
    ("mean", "std", "found"),
    [(2.0, 1.0, 10.0), (9.9, 0.1, None), (9.0, 0.1, None), (2.0, 100.0, None), (30.0, 1.0, None), (-5.0, 1.0, 10.0)],
)
def test_far_worse_than_in_training_is_beyond_chance_and_a_fifth(tmp_path, mean, std, found):
    (tmp_path / "progress.csv").write_text("env_steps,episode_return_mean,cpu_seconds\n1,3.0,1\n2,10.0,1\n")
    assert better_in_training(tmp_path, mean, std, 50) == found


def test_nothing_is_said_where_nothing_is_known(tmp_path):
    assert better_in_training(tmp_path, 0.0, 1.0, 50) is None
    (tmp_path / "progress.csv").write_text("damaged")
    assert better_in_training(tmp_path, 0.0, 1.0, 50) is None
