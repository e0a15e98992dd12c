"""Seconds of training on lessons that need no luck: matching marks, and remembering a cue while away."""

from __future__ import annotations

from typing import Any

import pytest

from rl_openness.algorithms.mappo.settings import PlatoSettings
from tests.algorithms.training import mean_return, train
from tests.algorithms.worlds import CueEnv, IdentityEnv

QUICK = {"hidden": 32, "lr": 5e-3, "num_epochs": 4, "train_batch_size_per_learner": 512, "minibatch_size": 128}
COPIES = 64


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"query": "agent_pointer", "scorer": "dot", "noop": "learned_key"},
        {"deduplicate": True, "critic_edges": "actions", "noop": "zeros"},
    ],
)
def test_each_agent_learns_to_choose_the_task_with_its_mark(settings: dict[str, Any]) -> None:
    network = train(IdentityEnv(COPIES), PlatoSettings(**QUICK, **settings), updates=10)
    assert mean_return(IdentityEnv(COPIES), network, steps=8) > 0.95


@pytest.mark.parametrize("settings", [{}, {"absent_state": "hold", "scorer": "dot"}])
def test_memory_keeps_a_cue_while_its_agent_is_away(settings: dict[str, Any]) -> None:
    settings = PlatoSettings(**QUICK, encoder="lstm", max_seq_len=8, **settings)
    network = train(CueEnv(COPIES), settings, updates=12)
    assert mean_return(CueEnv(COPIES), network, steps=8) > 0.95


@pytest.mark.parametrize("settings", [{}, {"encoder": "lstm", "absent_state": "reset", "max_seq_len": 8}])
def test_without_memory_a_cue_is_lost(settings: dict[str, Any]) -> None:
    network = train(CueEnv(COPIES), PlatoSettings(**QUICK, **settings), updates=12)
    assert mean_return(CueEnv(COPIES), network, steps=40) < 0.65  # two tasks: guessing gets half
