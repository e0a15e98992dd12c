"""The arithmetic of values and regularisers against numbers recorded from the authors' program."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rl_openness.algorithms.gpl.graph import TeamGraph, team_graph
from rl_openness.algorithms.gpl.loss import regulariser, regulariser_pairs
from rl_openness.algorithms.gpl.utilities import joint_q, learner_q, pairwise_entries, pairwise_tables, ranged
from tests.conftest import golden_dir

CASES = json.loads((golden_dir("oaht") / "qmath.json").read_text())["cases"]


def near(mine: Tensor, recorded: Any) -> None:
    np.testing.assert_allclose(mine.numpy(), np.asarray(recorded), rtol=1e-4, atol=1e-4)


def packed(case: dict[str, Any]) -> tuple[TeamGraph, dict[str, Tensor]]:
    """All three teams of a case side by side."""
    teams = case["teams"]
    sizes = np.array([team["n"] for team in teams])
    starts = np.cumsum(sizes) - sizes
    graph = team_graph(sizes, starts, complete=case["graph"] == "complete")
    factors = {
        (start + edge["j"], start + edge["k"]): torch.tensor(edge["factor"])
        for start, team in zip(starts, teams, strict=True)
        for edge in team["edges"]
    }
    pairs = list(zip(graph.first.tolist(), graph.second.tolist(), strict=True))
    assert {*pairs, *((k, j) for j, k in pairs)} == factors.keys()
    return graph, {
        "individual": torch.cat([torch.tensor(team["indiv_raw"]) for team in teams]),
        "forward": torch.stack([factors[j, k] for j, k in pairs]),
        "backward": torch.stack([factors[k, j] for j, k in pairs]),
        "probabilities": torch.cat([torch.tensor(team["probs"]) for team in teams])[graph.mate],
        "actions": torch.cat([torch.tensor(team["actions"]) for team in teams]),
    }


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{case['graph']}" for i, case in enumerate(CASES)])
def test_values_and_regularisers(case: dict[str, Any]) -> None:
    graph, x = packed(case)
    individual = ranged(x["individual"], case["indiv_range"])
    tables = ranged(pairwise_tables(x["forward"], x["backward"], case["pair_comp"]), case["pair_range"])
    near(
        learner_q(individual, tables, x["probabilities"], graph),
        [team["learner_q"] for team in case["teams"]],
    )
    a_j, a_k = x["actions"][graph.first], x["actions"][graph.second]
    taken = ranged(x["individual"].gather(1, x["actions"][:, None]).squeeze(1), case["indiv_range"])
    entries = pairwise_entries(x["forward"], x["backward"], a_j, a_k, case["pair_comp"])
    entries = ranged(entries, case["pair_range"])
    near(entries, tables[torch.arange(len(a_j)), a_j, a_k])
    near(joint_q(taken, entries, graph), [team["joint_q"] for team in case["teams"]])
    prediction, target = regulariser_pairs(taken, graph, case["graph"])
    near(prediction, np.hstack([team["reg_pred"] for team in case["teams"]]))
    near(target, np.hstack([team["reg_target"] for team in case["teams"]]))
    near(regulariser(taken, graph, case["graph"], "node_mean"), case["reg_mse_over_batch"])
