from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_openness.algorithms.gpl.graph import chains, learners_of, rows_or_zeros, team_graph
from tests.nn.builders import SEEDS, several

SIZES = st.lists(st.integers(1, 6), min_size=1, max_size=6)


@several
@given(SIZES, SEEDS, st.booleans(), st.booleans())
def test_pairs_edges_and_mates(sizes: list[int], seed: int, complete: bool, moved: bool) -> None:
    rng = np.random.default_rng(seed)
    starts = np.cumsum(sizes) - sizes
    learner = starts + rng.integers(0, sizes)
    node = rng.permutation(sum(sizes)) if moved else np.arange(sum(sizes))
    graph = team_graph(np.array(sizes), learner, complete=complete, place=node if moved else None)
    teams = [list(range(start, start + size)) for start, size in zip(starts, sizes, strict=True)]
    mates = [i for team in teams for i in team if i not in learner]
    team_of = {i: t for t, team in enumerate(teams) for i in team}
    assert graph.num_teams == len(sizes)
    assert graph.learner.tolist() == node[learner].tolist()
    assert graph.mate.tolist() == node[mates].tolist()
    assert graph.mate_team.tolist() == [team_of[i] for i in mates]
    for i, t in team_of.items():
        assert graph.team[node[i]] == t
        assert graph.learner_of_node[node[i]] == node[learner[t]]

    pairs = list(zip(graph.first.tolist(), graph.second.tolist(), strict=True))
    count = len(mates)
    assert pairs[:count] == [(node[learner[team_of[i]]], node[i]) for i in mates]
    expected = [pair for team in teams for pair in combinations([i for i in team if i in mates], 2)] if complete else []
    assert sorted(map(sorted, pairs[count:])) == sorted(sorted((node[j], node[k])) for j, k in expected)
    numbers = list(zip(graph.rest_first.tolist(), graph.rest_second.tolist(), strict=True))
    assert [(node[mates[j]], node[mates[k]]) for j, k in numbers] == pairs[count:]
    assert graph.rest_team.tolist() == [team_of[mates[j]] for j, _ in numbers]

    both = set(pairs) | {(k, j) for j, k in pairs}
    edges = list(zip(graph.source.tolist(), graph.target.tolist(), strict=True))
    assert len(edges) == len(set(edges))
    assert set(edges) == {(j, k) for j, k in both if k not in graph.learner.tolist()}
    ends = graph.target.tolist()
    assert ends[:count] == graph.mate.tolist()
    assert [graph.mate[i].item() for i in graph.heard] == ends[count:]
    assert graph.in_degree.squeeze(1).tolist() == [ends.count(i) for i in graph.mate.tolist()]
    for only in (False, True):
        j, k = (x.tolist() for x in graph.factor_edges(learner_only=only))
        chosen = pairs[:count] if only else pairs
        assert list(zip(j, k, strict=True)) == chosen + [(k, j) for j, k in chosen]


def test_learners() -> None:
    sizes = np.array([2, 1, 3])
    assert learners_of(sizes, None).tolist() == [0, 2, 3]
    flags = np.array([False, True, True, True, False, True])
    assert learners_of(sizes, flags).tolist() == [1, 2, 3]
    flags[2] = False
    with pytest.raises(ValueError, match="controlled"):
        learners_of(sizes, flags)
    with pytest.raises(ValueError, match="controlled"):
        learners_of(np.array([1, 0]), None)


def test_chains_of_an_example() -> None:
    # rows 0 1 2 | 3 4 5 | 6 7: 0 stays to the end, 1 leaves, 2 leaves late; 5 is new; 7 is new
    previous = np.array([-1, -1, -1, 0, 2, -1, 3, -1])
    order, sizes = chains(previous)
    assert sizes == (5, 2, 1)
    assert order.tolist() == [0, 2, 1, 5, 7, 3, 4, 6]


@several
@given(st.integers(1, 6), st.integers(1, 6), SEEDS)
def test_chains(steps: int, width: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    previous, start = [], 0
    rows_before = np.empty(0, dtype=np.int64)
    for _ in range(steps):
        here = rng.integers(1, width + 1)
        old = rng.permutation(rows_before)
        previous += [old[i] if i < len(old) and rng.random() < 0.7 else -1 for i in range(here)]
        rows_before = np.arange(start, start + here)
        start += here
    order, sizes = chains(np.array(previous))
    assert sorted(order) == list(range(len(previous)))
    assert sum(sizes) == len(previous)
    assert list(sizes) == sorted(sizes, reverse=True)
    ends = np.cumsum(sizes)
    for place, row in enumerate(order):
        block = int(np.searchsorted(ends, place, side="right"))
        if block == 0:
            assert previous[row] == -1
        else:
            first = ends[block - 1]
            assert previous[row] == order[place - first + ends[block - 1] - sizes[block - 1]]


def test_rows_or_zeros() -> None:
    rows = torch.arange(6.0).view(3, 2) + 1
    assert rows_or_zeros(rows, np.array([2, 0])).tolist() == [[5, 6], [1, 2]]
    assert rows_or_zeros(rows, np.array([-1, 1, -1])).tolist() == [[0, 0], [3, 4], [0, 0]]
    assert rows_or_zeros(rows[:0], np.array([-1])).tolist() == [[0, 0]]
    assert rows_or_zeros(rows, np.empty(0, dtype=np.int64)).shape == (0, 2)
