"""Options that are masked out: no probability, no gradient, and never a number that is not finite, in fp32 and bf16."""

import pytest
import torch

from rl_openness.algorithms.mappo.networks.actions import ActionDistribution

MASKS = torch.tensor([[1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 1, 0]], dtype=torch.bool)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [0.0, 3.0, 1e4])
def test_masked_actions(dtype: torch.dtype, size: float) -> None:
    torch.manual_seed(0)
    logits = (size * torch.randn(3, 4)).to(dtype).requires_grad_()
    distribution = ActionDistribution(logits, MASKS)
    probabilities = distribution.log_probs.exp()
    assert (probabilities[~MASKS] == 0).all()
    assert torch.allclose(probabilities.sum(1).float(), torch.ones(3), atol=0.02)
    chosen = torch.tensor([0, 3, 2])
    loss = distribution.log_prob(chosen).sum() + distribution.entropy().sum()
    loss.backward()
    assert loss.isfinite()
    assert logits.grad.isfinite().all()
    assert (logits.grad[~MASKS] == 0).all()
    assert distribution.entropy()[2] == 0


def test_infinite_logits_behind_a_mask_change_nothing() -> None:
    logits = torch.randn(3, 4)
    wild = logits.masked_fill(~MASKS, float("-inf"))
    assert torch.equal(ActionDistribution(wild, MASKS).log_probs, ActionDistribution(logits, MASKS).log_probs)
