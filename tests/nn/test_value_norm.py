"""Running normalisation of value targets by hand."""

import numpy as np
import pytest
import torch

from rl_openness.nn.value_norm import ValueNorm
from tests.nn.builders import close


def test_the_identity_before_the_first_update() -> None:
    values = torch.tensor([3.0, -5.0])
    assert torch.equal(ValueNorm().normalise(values), values)
    assert torch.equal(ValueNorm().denormalise(values), values)


def test_by_hand() -> None:
    norm = ValueNorm(beta=0.9)
    norm.update(torch.tensor([1.0, 3.0]))
    # means 2 and 5 (of squares), debiased: the first update counts in full
    values = torch.tensor([2.0, 3.0], dtype=torch.float64)
    close(norm.normalise(values), [0.0, 1.0], atol=1e-12)
    norm.update(torch.tensor([10.0, 10.0, 13.0]))
    mean = (0.9 * 0.1 * 2 + 0.1 * 11) / (1 - 0.9**2)
    square = (0.9 * 0.1 * 5 + 0.1 * (100 + 100 + 169) / 3) / (1 - 0.9**2)
    scale = (square - mean**2) ** 0.5
    close(norm.normalise(values), (np.array([2.0, 3.0]) - mean) / scale, atol=1e-6)
    close(norm.denormalise(values), np.array([2.0, 3.0]) * scale + mean, atol=1e-6)


@pytest.mark.parametrize("targets", [[4.0, 4.0], [4.0, 4.0 + 1e-3]])
def test_variance_is_at_least_a_hundredth(targets: list[float]) -> None:
    norm = ValueNorm()
    norm.update(torch.tensor(targets, dtype=torch.float64))
    close(norm.denormalise(torch.tensor([1.0, 0.0], dtype=torch.float64)).diff(), [-0.1])


def test_inverse() -> None:
    generator = torch.Generator().manual_seed(0)
    norm, values = ValueNorm(), torch.randn(50, generator=generator, dtype=torch.float64) * 1e3
    for _ in range(5):
        norm.update(torch.randn(20, generator=generator) * 100 + 40)
        close(norm.denormalise(norm.normalise(values)), values)
        close(norm.normalise(norm.denormalise(values)), values)


def test_the_default_decay_keeps_its_precision() -> None:
    """In float32, 1 - 0.99999 is off by a per cent and 10,000 updates drift; here nothing is lost."""
    norm = ValueNorm()
    for step in range(2_000):
        norm.update(torch.tensor([float(step % 2), float(step % 2)]))
    weight = 1 - 0.99999**2_000
    close(norm.weight, weight, atol=1e-12)
    close(norm.mean / norm.weight, 0.5, atol=1e-4)


def test_state_comes_back_exactly() -> None:
    norm, other = ValueNorm(), ValueNorm()
    norm.update(torch.tensor([1.0, 4.0, 9.0]))
    other.load_state_dict(norm.state_dict())
    values = torch.randn(9, dtype=torch.float64)
    assert torch.equal(other.normalise(values), norm.normalise(values))
    for one in (norm, other):
        one.update(torch.tensor([-7.0]))
    assert torch.equal(other.normalise(values), norm.normalise(values))
    assert all(buffer.dtype == torch.float64 for buffer in norm.state_dict().values())
    assert not list(norm.parameters())


def test_targets_keep_their_type_and_get_no_gradient() -> None:
    norm = ValueNorm()
    targets = torch.tensor([1.0, 2.0], requires_grad=True)
    norm.update(targets)
    assert not norm.mean.requires_grad
    assert norm.normalise(targets).dtype == torch.float32


def test_a_small_spread_around_a_large_mean_is_kept() -> None:
    targets = 2.0**14 + torch.linspace(-4, 4, 9)
    norm = ValueNorm()
    norm.update(targets)
    expected = np.linspace(-4, 4, 9) / np.linspace(-4, 4, 9).std()
    close(norm.normalise(targets), expected, atol=1e-3)


def test_a_network_cast_to_float32_still_learns() -> None:
    norm = ValueNorm().float()
    norm.update(torch.tensor([1.0, 3.0]))
    close(norm.normalise(torch.tensor([2.0, 3.0])), [0.0, 1.0], atol=1e-3)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_bad_target_is_left_out(bad: float) -> None:
    norm, other = ValueNorm(), ValueNorm()
    for targets in ([1.0, 3.0], [bad, 2.0], [4.0, 5.0]):
        norm.update(torch.tensor(targets))
        if np.isfinite(targets).all():
            other.update(torch.tensor(targets))
    values = torch.randn(9, dtype=torch.float64)
    assert torch.equal(norm.normalise(values), other.normalise(values))
