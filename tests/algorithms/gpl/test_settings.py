from __future__ import annotations

import pytest
from pydantic import ValidationError

from rl_openness.algorithms.gpl.settings import GPL_VARIANTS, GplSettings
from rl_openness.algorithms.schedules import value_at


def test_the_papers_variants() -> None:
    """Specification, section (d)."""
    table = {
        "gpl": ("complete", "free", "free", 0.0, "all"),
        "ciao-c": ("complete", "pos", "pos", 0.5, "all"),
        "ciao-c-fi": ("complete", "pos", "free", 0.5, "all"),
        "ciao-c-zi": ("complete", "pos", "zero", 0.5, "all"),
        "ciao-c-ni": ("complete", "pos", "neg", 0.5, "all"),
        "ciao-c-np": ("complete", "neg", "pos", 0.5, "all"),
        "ciao-c-nr": ("complete", "pos", "pos", 0.0, "all"),
        "ciao-c-va": ("complete", "pos", "pos", 0.5, "no_joins_set"),
    }
    table |= {name.replace("ciao-c", "ciao-s"): ("star", *row[1:]) for name, row in table.items() if name != "gpl"}
    found = {name: GplSettings(**changes) for name, changes in GPL_VARIANTS.items()}
    assert {
        name: (s.graph, s.pair_range, s.individual_range, s.regularizer_weight, s.transitions)
        for name, s in found.items()
    } == table
    for s in found.values():
        same = ("pair_comp", "rank", "pair_factor", "reg_reduction", "seq_model", "tau", "lr", "gamma", "update_every")
        assert [getattr(s, name) for name in same] == [
            "bmm", 5, "edge", "node_mean", "lstm", 1e-3, 2.5e-4, 0.99, 4,
        ]  # fmt: skip


def test_epsilon_is_the_authors() -> None:
    settings = GplSettings()
    for segment in (0, 1, 700, 1499, 1500, 3000):  # of 200 vector steps of 16 copies
        expected = max(1 - 0.95 * segment / 1500, 0.05)
        assert value_at(settings.epsilon, 3200 * segment) == pytest.approx(expected)


@pytest.mark.parametrize(
    "wrong",
    [
        {"graph": "ring"},
        {"pair_range": "zero"},
        {"epsilon": 1.5},
        {"epsilon": [[0, 1.0], [10, 1.1]]},
        {"lr": 0.0},
        {"rank": 0},
        {"tau": 0.0},
        {"reward_shift": -1.0},
        {"pair_factor": "node", "pair_comp": "avg"},
        {"unknown": 1},
        {"rank": True},
        {"gamma": True},
        {"lr": True},
        {"update_every": True},
        {"grad_clip": True},
        {"epsilon": False},
    ],
)
def test_what_settings_refuse(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        GplSettings(**wrong)


def test_settings_are_plain_data() -> None:
    settings = GplSettings(**GPL_VARIANTS["ciao-s-va"], epsilon=[[0, 1], [100, 0.1]])
    assert GplSettings(**settings.model_dump(mode="json")) == settings
