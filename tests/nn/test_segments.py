"""Ragged sums, maxima, softmaxes and gathers against plain loops."""

import itertools

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_openness.envs import ragged
from rl_openness.nn.segments import gather_segments, segment_ids, segment_max, segment_softmax, segment_sum
from tests.nn.builders import SEEDS, close, equal, several

COUNTS = st.lists(st.integers(0, 5), min_size=1, max_size=6)


@several
@given(seed=SEEDS, counts=COUNTS)
def test_segments_against_loops(seed: int, counts: list[int]) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(sum(counts), generator=generator, dtype=torch.float64) * 50
    table = torch.randn(sum(counts), 3, generator=generator, dtype=torch.float64)
    floor = torch.randn(len(counts), generator=generator, dtype=torch.float64) * 50
    ptr = torch.from_numpy(ragged.pointer(np.array(counts)))
    segment = segment_ids(ptr)
    equal(segment, ragged.segment_of_row(ptr.numpy()))
    parts = [values[a:b] for a, b in itertools.pairwise(ptr)]
    close(segment_sum(values, segment, len(counts)), [part.sum() for part in parts])
    close(segment_sum(table, segment, len(counts)), [table[segment == i].sum(0).tolist() for i in range(len(counts))])
    equal(
        segment_max(values, segment, floor),
        [max([*part.tolist(), least]) for part, least in zip(parts, floor, strict=True)],
    )
    expected = torch.cat([part.softmax(0) for part in parts])
    close(segment_softmax(values, segment, len(counts)), expected)


@several
@given(seed=SEEDS, counts=COUNTS)
def test_gathering_segments(seed: int, counts: list[int]) -> None:
    ptr = ragged.pointer(np.array(counts))
    chosen = np.random.default_rng(seed).integers(0, len(counts), size=7)
    expected = np.concatenate([np.arange(ptr[i], ptr[i + 1]) for i in chosen])
    for gather, convert in ((ragged.gather_segments, np.asarray), (gather_segments, torch.from_numpy)):
        rows, new_ptr = gather(convert(ptr), convert(chosen))
        equal(rows, expected)
        equal(new_ptr, ragged.pointer(np.diff(ptr)[chosen]))


def test_softmax_of_extreme_logits_is_finite_and_its_gradient_right() -> None:
    logits = torch.tensor([1e4, 0.0, -1e4, -1e4, -1e4], dtype=torch.float64, requires_grad=True)
    segment = torch.tensor([0, 0, 0, 2, 2])
    weights = segment_softmax(logits, segment, 3)
    equal(weights, [1.0, 0.0, 0.0, 0.5, 0.5])
    (gradient,) = torch.autograd.grad(weights[0] + weights[3], logits)
    equal(gradient, [0.0, 0.0, 0.0, 0.25, -0.25])
    assert torch.autograd.gradcheck(lambda x: segment_softmax(x, segment, 3), torch.randn(5).double().requires_grad_())
