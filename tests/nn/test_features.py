"""Team statistics against NumPy, and feature frames by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from rl_openness.nn.features import ActorFeatures, critic_inputs, segment_median, team_statistics
from tests.nn.builders import AGENT, BUSY, SEE, SEEDS, SIZES, SPEC, close, equal, random_obs, several, tensors

NUMPY = {
    "mean": np.mean,
    "std": np.std,
    "min": np.min,
    "max": np.max,
    "sum": np.sum,
    "median": np.median,
    "count": lambda rows, axis: np.full(rows.shape[1], float(len(rows))),
}
COUNTS = st.lists(st.integers(0, 5), min_size=1, max_size=6)
SCALE = np.array([column.scale for column in SPEC.agent_columns])


@several
@given(seed=SEEDS, counts=COUNTS, width=st.integers(0, 3), ties=st.booleans())
def test_statistics_against_numpy(seed: int, counts: list[int], width: int, ties: bool) -> None:
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(sum(counts), width)) * 10
    rows = rows.round(-1) if ties else rows
    order = rng.permutation(len(rows))  # rows of a segment need not stand together
    segment = np.repeat(np.arange(len(counts)), counts)
    found = team_statistics(torch.from_numpy(rows[order]), torch.from_numpy(segment[order]), len(counts), list(NUMPY))
    for (name, function), table in zip(NUMPY.items(), found, strict=True):
        parts = [rows[segment == i] for i in range(len(counts))]
        expected = [function(part, axis=0) if len(part) else np.zeros(width) for part in parts]
        close(table, np.array(expected).reshape(len(counts), width))
        assert table.shape == (len(counts), width), name


def test_statistics_of_one_row_and_of_a_row_twice() -> None:
    rows, segment = torch.tensor([[3.0], [5.0], [5.0]]), torch.tensor([0, 1, 1])
    found = team_statistics(rows, segment, 2, ["std", "median", "count"])
    equal(torch.cat(found, dim=1), [[0.0, 3.0, 1.0], [0.0, 5.0, 2.0]])


def test_median_of_nothing() -> None:
    empty = torch.empty(0, dtype=torch.long)
    equal(segment_median(torch.empty(0, 2), empty, 3), np.zeros((3, 2)))
    assert segment_median(torch.empty(0, 0), empty, 3).shape == (3, 0)


@pytest.mark.parametrize("frame", ["absolute", "relative", "both"])
@pytest.mark.parametrize("include_self", [False, True])
@several
@example(seed=1, sizes=BUSY, see=0.5)
@given(seed=SEEDS, sizes=SIZES, see=SEE)
def test_query_rows_by_hand(
    frame: str, include_self: bool, seed: int, sizes: list[tuple[int, int]], see: float | None
) -> None:
    obs = random_obs(np.random.default_rng(seed), sizes, see=see)
    features = ActorFeatures(SPEC, frame=frame, stats=list(NUMPY), include_self=include_self)
    inputs = features(tensors(obs))
    scaled = obs.agent_rows.astype(np.float64) * SCALE
    absolute = {"absolute": ["y", "x", "power"], "relative": ["power"], "both": ["y", "x", "power"]}[frame]
    expected = []
    for member in inputs.member.tolist():
        seen = obs.agent_copy == obs.agent_copy[member]
        if see is not None:
            seen = np.isin(np.arange(len(seen)), obs.see_agent[obs.see_ptr[member] : obs.see_ptr[member + 1]])
        team = scaled[seen & obs.present]
        row = []
        for function in NUMPY.values():  # of shifted rows, not shifted statistics
            row += list(function(team[:, [AGENT[name] for name in absolute]], axis=0))
            if frame != "absolute":
                row += list(function(team[:, :2] - scaled[member, :2], axis=0))
        if include_self:
            row += list(scaled[member, [AGENT[name] for name in (*absolute, "tank")]])
        expected.append(row)
    assert inputs.query_rows.rows.shape == (len(inputs.member), features.query_width)
    close(inputs.query_rows.rows, np.array(expected).reshape(len(expected), features.query_width))


@pytest.mark.parametrize("frame", ["absolute", "relative", "both"])
@pytest.mark.parametrize("extras", [False, True])
def test_key_rows_by_hand(frame: str, extras: bool) -> None:
    obs = random_obs(np.random.default_rng(0), [(3, 2), (0, 0), (4, 5)])
    features = ActorFeatures(SPEC, frame=frame, task_extras=extras)
    inputs = features(tensors(obs))
    task = obs.task_rows[obs.pair_task] * np.array([c.scale for c in SPEC.task_columns])
    pair = obs.pair_rows * np.array([c.scale for c in SPEC.pair_columns])
    parts = [task[:, [2]] if frame == "relative" else task[:, [0, 1, 2]]]
    parts += [pair[:, [0, 1]]] if frame != "absolute" else []
    parts += [pair[:, [2]]] if extras else []
    assert inputs.key_rows.rows.shape == (len(obs.pair_agent), features.key_width)
    close(inputs.key_rows.rows, np.concatenate(parts, axis=1))
    equal(inputs.member[inputs.owner], obs.pair_agent)


@pytest.mark.parametrize("frame", ["absolute", "relative", "both"])
@several
@example(seed=1, sizes=BUSY, see=0.5)
@given(seed=SEEDS, sizes=SIZES, see=SEE)
def test_pointer_rows_by_hand(frame: str, seed: int, sizes: list[tuple[int, int]], see: float | None) -> None:
    obs = random_obs(np.random.default_rng(seed), sizes, see=see)
    features = ActorFeatures(SPEC, frame=frame, pointer=True)
    inputs = features(tensors(obs))
    scaled = obs.agent_rows.astype(np.float64) * SCALE

    def framed(agents: np.ndarray, ego: int) -> np.ndarray:
        offset = scaled[agents, :2] - scaled[ego, :2]
        parts = {
            "absolute": [scaled[agents, :3]],
            "relative": [scaled[agents, 2:3], offset],
            "both": [scaled[agents, :3], offset],
        }[frame]
        tank = np.where(agents == ego, scaled[agents, AGENT["tank"]], 0.0)  # known of oneself only
        return np.concatenate([*parts, tank[:, None]], axis=1)

    assert inputs.query_rows.rows.shape[1] == features.query_width
    for d, member in enumerate(inputs.member.tolist()):
        seen = np.flatnonzero(obs.agent_copy == obs.agent_copy[member])
        if see is not None:
            seen = obs.see_agent[obs.see_ptr[member] : obs.see_ptr[member + 1]]
        seen = seen[obs.present[seen]]
        mine = inputs.seen_rows.rows[inputs.seen_ptr[d] : inputs.seen_ptr[d + 1]]
        close(mine, framed(seen, member))
        close(inputs.query_rows.rows[d : d + 1], framed(np.array([member]), member))


@pytest.mark.parametrize("pointer", [False, True])
def test_a_coordinate_for_oneself_follows_the_frame(pointer: bool) -> None:
    obs = random_obs(np.random.default_rng(0), [(3, 2)], present=1.0, pairs=1.0)
    columns = (replace(SPEC.agent_columns[0], visible="self"), *SPEC.agent_columns[1:])
    spec = replace(SPEC, agent_columns=columns)
    moved = replace(obs, agent_rows=obs.agent_rows + np.eye(5, dtype=np.float32)[0])
    for frame in ("absolute", "relative", "both"):
        features = ActorFeatures(spec, frame=frame, pointer=pointer)
        before, after = (features(tensors(o)).query_rows.rows for o in (obs, moved))
        assert before.shape[1] == features.query_width
        assert torch.equal(before, after) == (frame == "relative")


def test_relative_features_do_not_know_where_the_world_is() -> None:
    obs = random_obs(np.random.default_rng(1), [(4, 3), (2, 2)], present=1.0, pairs=1.0)
    moved = obs.agent_rows.copy()
    moved[:, :2] += [3.0, -2.0]
    moved = replace(obs, agent_rows=moved)
    for options in ({}, {"pointer": True}):
        features = ActorFeatures(SPEC, frame="relative", stats=list(NUMPY), **options)
        close(features(tensors(moved)).query_rows.rows, features(tensors(obs)).query_rows.rows, atol=1e-5)
        features = ActorFeatures(SPEC, frame="both", stats=list(NUMPY), **options)
        assert (features(tensors(moved)).query_rows.rows - features(tensors(obs)).query_rows.rows).abs().max() > 0.1


@several
@example(seed=1, sizes=BUSY)
@given(seed=SEEDS, sizes=SIZES)
def test_who_thinks(seed: int, sizes: list[tuple[int, int]]) -> None:
    obs = random_obs(np.random.default_rng(seed), sizes)
    deciders = np.flatnonzero(np.bincount(obs.pair_agent, minlength=len(obs.present)))
    plain, memory = (ActorFeatures(SPEC, memory=m)(tensors(obs)) for m in (False, True))
    equal(plain.member, deciders)
    assert plain.decides.all()
    equal(memory.member, np.arange(len(obs.present)))
    equal(memory.member[memory.decides], deciders)
    equal(memory.step_ptr, obs.agent_ptr)
    equal(np.diff(plain.step_ptr), np.bincount(obs.agent_copy[deciders], minlength=obs.num_copies))


@several
@example(seed=1, sizes=BUSY)
@given(seed=SEEDS, sizes=SIZES)
def test_critic_reads_every_column_of_whoever_is_present(seed: int, sizes: list[tuple[int, int]]) -> None:
    obs = random_obs(np.random.default_rng(seed), sizes)
    inputs = critic_inputs(tensors(obs), SPEC, edges=True)
    close(inputs.agent_rows.rows, obs.agent_rows[obs.present] * SCALE, atol=1e-6)
    close(inputs.task_rows.rows, obs.task_rows * np.array([c.scale for c in SPEC.task_columns]), atol=1e-6)
    equal(np.diff(inputs.agent_ptr), np.bincount(obs.agent_copy[obs.present], minlength=obs.num_copies))
    agent = np.flatnonzero(obs.present)[np.repeat(np.arange(obs.present.sum()), np.diff(inputs.edge_ptr))]
    equal(agent, obs.pair_agent)
    equal(inputs.edge_task, obs.pair_task)
