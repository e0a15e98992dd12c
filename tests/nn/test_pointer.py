"""The distribution over options against `torch.distributions`, sampling, greedy choices, and extremes."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributions import Categorical

from rl_openness.envs.draws import DecisionDraws
from rl_openness.nn.pointer import GREEDY_TOLERANCE, PointerDistribution, PointerScorer
from tests.nn.builders import SEEDS, close, equal, several

COUNTS = st.lists(st.integers(0, 5), min_size=1, max_size=6)


def random_logits(seed: int, counts: list[int], spread: float = 3.0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    owner = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    pair = torch.randn(sum(counts), generator=generator, dtype=torch.float64) * spread
    return pair, torch.randn(len(counts), generator=generator, dtype=torch.float64) * spread, owner


def categorical(pair: torch.Tensor, noop: torch.Tensor, owner: torch.Tensor, decider: int) -> Categorical:
    """Pairs in order, the no-op last."""
    return Categorical(logits=torch.cat([pair[owner == decider], noop[decider : decider + 1]]))


@several
@given(seed=SEEDS, counts=COUNTS)
def test_probabilities_and_entropy(seed: int, counts: list[int]) -> None:
    pair, noop, owner = random_logits(seed, counts)
    dist = PointerDistribution(pair, noop, owner)
    start = np.cumsum([0, *counts])
    for d, count in enumerate(counts):
        expected = categorical(pair, noop, owner, d)
        close(dist.entropy()[d], expected.entropy())
        close(dist.noop_log_probs[d], expected.log_prob(torch.tensor(count)))
        for k in range(count):
            chosen = torch.full((len(counts),), -1)
            chosen[d] = start[d] + k
            close(dist.log_prob(chosen)[d], expected.log_prob(torch.tensor(k)))
            others = np.arange(len(counts)) != d
            close(dist.log_prob(chosen)[others], dist.noop_log_probs[others])


@several
@given(seed=SEEDS, counts=COUNTS)
def test_gradients(seed: int, counts: list[int]) -> None:
    pair, noop, owner = random_logits(seed, counts)
    chosen = torch.tensor([-1 if count == 0 else int(np.cumsum([0, *counts])[d]) for d, count in enumerate(counts)])

    def both(pair: torch.Tensor, noop: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        dist = PointerDistribution(pair, noop, owner)
        return dist.log_prob(chosen), dist.entropy()

    assert torch.autograd.gradcheck(both, (pair.requires_grad_(), noop.requires_grad_()))


@several
@given(seed=SEEDS, counts=COUNTS, shift=st.sampled_from([-1e4, 7.0, 1e4]))
def test_a_common_shift_of_the_logits_is_nothing(seed: int, counts: list[int], shift: float) -> None:
    pair, noop, owner = random_logits(seed, counts)
    dist, moved = PointerDistribution(pair, noop, owner), PointerDistribution(pair + shift, noop + shift, owner)
    close(moved.pair_log_probs, dist.pair_log_probs)
    close(moved.entropy(), dist.entropy())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extreme_logits(dtype: torch.dtype) -> None:
    pair = torch.tensor([1e30, -1e30, 0.0, 1e4, -1e4], dtype=dtype, requires_grad=True)
    noop = torch.tensor([0.0, -1e4, 1e4], dtype=dtype, requires_grad=True)
    dist = PointerDistribution(pair, noop, torch.tensor([0, 0, 1, 1, 2]))
    equal(dist.entropy(), np.zeros(3))
    equal(dist.log_prob(torch.tensor([0, 3, -1])), np.zeros(3))
    found = torch.autograd.grad((dist.entropy() + dist.log_prob(torch.tensor([0, 3, -1]))).sum(), [pair, noop])
    assert all(torch.isfinite(gradient).all() for gradient in found)
    equal(dist.best(), [0, 3, -1])


def test_numbers_gone_wrong_stay_with_their_decider() -> None:
    nan = float("nan")
    pair, noop, owner = torch.tensor([nan, 1.0, 2.0, 0.5]), torch.tensor([0.0, nan, 0.0]), torch.tensor([0, 0, 1, 2])
    dist = PointerDistribution(pair, noop, owner)
    alone = PointerDistribution(pair[3:], noop[2:], torch.tensor([0]))
    equal(dist.log_prob(torch.tensor([1, 2, 3]))[2:], alone.log_prob(torch.tensor([0])))
    equal(dist.entropy()[2:], alone.entropy())
    for noise in ((), (torch.zeros(4), torch.zeros(3))):
        best = dist.best(*noise)
        assert best[2] == 3
        for d in (0, 1):  # still one of its own options
            assert best[d] == -1 or owner[best[d]] == d


def test_nobody_decides() -> None:
    for deciders in (0, 3):
        dist = PointerDistribution(torch.empty(0), torch.ones(deciders), torch.empty(0, dtype=torch.long))
        equal(dist.log_prob(torch.full((deciders,), -1)), np.zeros(deciders))
        equal(dist.entropy(), np.zeros(deciders))
        equal(dist.best(), np.full(deciders, -1))
        equal(dist.best(torch.empty(0), torch.zeros(deciders)), np.full(deciders, -1))


# Greedy choices: pairs in order, then the no-op; the first of those that count as equal


@pytest.mark.parametrize(
    ("pairs", "noop", "expected"),
    [
        ([1.0, 2.0, 0.0], 1.5, 1),
        ([1.0, 2.0, 0.0], 2.5, -1),
        ([2.0, 2.0, 2.0], 2.0, 0),
        ([2.0, 2.0], 2.0 + 2 * GREEDY_TOLERANCE, -1),
        ([1.0, 2.0], 2.0 + GREEDY_TOLERANCE / 2, 1),
        ([2.0, 2.0 + GREEDY_TOLERANCE / 2, 2.0 + 4 * GREEDY_TOLERANCE], 0.0, 2),
        ([2.0, 2.0 + GREEDY_TOLERANCE / 2], 0.0, 0),
        ([], 0.0, -1),
    ],
)
def test_greedy(pairs: list[float], noop: float, expected: int) -> None:
    before, after = [5.0, 4.0], [9.0]  # of other deciders
    pair = torch.tensor(before + pairs + after, dtype=torch.float64)
    owner = torch.tensor([0] * 2 + [1] * len(pairs) + [2])
    best = PointerDistribution(pair, torch.tensor([0.0, noop, 0.0], dtype=torch.float64), owner).best()
    equal(best, [0, -1 if expected < 0 else 2 + expected, len(pair) - 1])


def test_sampling_has_no_tolerance() -> None:
    pair = torch.tensor([1.0, 1.0 + GREEDY_TOLERANCE / 10], dtype=torch.float64)
    dist = PointerDistribution(pair, torch.tensor([0.0], dtype=torch.float64), torch.tensor([0, 0]))
    equal(dist.best(), [0])
    equal(dist.best(torch.zeros(2, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)), [1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_samples_have_the_distribution(dtype: torch.dtype) -> None:
    logits, noop = torch.tensor([0.3, -1.0, 1.2], dtype=dtype), torch.tensor([0.5], dtype=dtype)
    count = 40_000
    many = PointerDistribution(
        logits.repeat(count), noop.repeat(count), torch.repeat_interleave(torch.arange(count), 3)
    )
    draws = DecisionDraws(np.random.default_rng(0).integers(0, 2**63, count).astype(np.uint64))
    copy, agent = np.arange(count), np.zeros(count, dtype=np.int64)
    pairs = draws.gumbel(np.repeat(copy, 3), np.repeat(agent, 3), np.tile(np.arange(1, 4), count))
    best = many.best(torch.from_numpy(pairs).to(dtype), torch.from_numpy(draws.gumbel(copy, agent)).to(dtype))
    option = torch.where(best >= 0, best % 3, 3)
    assert ((best < 0) | (best // 3 == torch.arange(count))).all()
    expected = torch.cat([logits, noop]).softmax(0).numpy() * count
    observed = np.bincount(option.numpy(), minlength=4)
    assert ((observed - expected) ** 2 / expected).sum() < 16.3  # chi-square, 3 degrees of freedom, p = 0.001


# Scorers


def test_scores_by_hand() -> None:
    keys, queries = torch.tensor([[1.0, -2.0]]).double(), torch.tensor([[0.5, 3.0]]).double()
    additive = PointerScorer(2, "additive").double()
    with torch.no_grad():
        additive.head.weight.copy_(torch.tensor([[2.0, -1.0]]))
    close(additive.score(keys, queries), [2 * np.tanh(1.5) - np.tanh(1.0)])
    close(PointerScorer(2, "dot").score(keys, queries), [(0.5 - 6.0) / 2**0.5])
    close(PointerScorer(2, "dot", scaled=False).score(keys, queries), [0.5 - 6.0])


def test_scorers_have_no_bias_and_the_small_gain_in_one_place() -> None:
    for kind, small in (("additive", "head.weight"), ("dot", "query.weight")):
        for name, parameter in PointerScorer(16, kind).named_parameters():
            assert name.endswith("weight")
            norm = 0.01 if name == small else 1.0
            close(parameter @ parameter.T, norm**2 * np.eye(len(parameter)), atol=1e-5 * norm)


@pytest.mark.parametrize("kind", ["additive", "dot"])
def test_the_no_op_key_is_projected_like_any_other(kind: str) -> None:
    scorer = PointerScorer(4, kind).double()
    torch.manual_seed(0)
    raw, queries = torch.randn(3, 4).double(), torch.randn(2, 4).double()
    owner = torch.tensor([0, 0, 1])
    projected = scorer.query(queries)
    dist = scorer(scorer.key(raw), owner, raw[:1], projected)
    close(dist.noop_logits[0], dist.pair_logits[0])
    close(dist.noop_logits[1], scorer.score(scorer.key(raw[:1]), projected[1:])[0])
