"""The pointer: scores of a query against the keys of the options now open, and the distribution over them.

Options of a decider are its pairs (tasks it may choose) and the no-op, which is always legal. Deciders D, pairs P;
`owner` [P] names the decider of each pair and is non-decreasing.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from rl_openness.nn.mlp import linear
from rl_openness.nn.segments import segment_max, segment_sum

GREEDY_TOLERANCE = 1e-5
"""Scores this close to the best count as equal: float32 results differ in the last bits between batch sizes."""


class PointerScorer(nn.Module):
    """`additive`: v . tanh(W_K k + W_q q); `dot`: (W_K k) . (W_q q), divided by sqrt(h) if `scaled`.

    The head (v, or W_q) starts with gain 0.01, so the first policy is almost uniform.
    """

    def __init__(self, hidden: int, kind: Literal["additive", "dot"] = "additive", *, scaled: bool = True) -> None:
        super().__init__()
        self.additive = kind == "additive"
        self.scale = hidden**-0.5 if scaled else 1.0
        self.key = linear(hidden, hidden, 1.0, bias=False)
        self.query = linear(hidden, hidden, 1.0 if self.additive else 0.01, bias=False)
        self.head = linear(hidden, 1, 0.01, bias=False) if self.additive else None

    def score(self, projected_keys: Tensor, projected_queries: Tensor) -> Tensor:
        """[n] scores of row-wise pairs of projected keys and queries [n, h]."""
        if self.head is None:
            return (projected_keys * projected_queries).sum(-1) * self.scale
        scores: Tensor = self.head((projected_keys + projected_queries).tanh()).squeeze(-1)
        return scores

    def forward(self, keys: Tensor, owner: Tensor, noop_key: Tensor, queries: Tensor) -> PointerDistribution:
        """Distribution for *projected* keys [P, h] and queries [D, h], and the no-op's raw key [1, h]."""
        pair = self.score(keys, queries.index_select(0, owner))
        noop = self.score(self.key(noop_key).expand_as(queries), queries)
        return PointerDistribution(pair, noop, owner)


class PointerDistribution:
    """A categorical distribution over each decider's pairs and its no-op."""

    def __init__(self, pair_logits: Tensor, noop_logits: Tensor, owner: Tensor) -> None:
        self.pair_logits, self.noop_logits, self.owner = pair_logits, noop_logits, owner
        peak = segment_max(pair_logits.detach(), owner, noop_logits.detach())
        total = segment_sum((pair_logits - peak.index_select(0, owner)).exp(), owner, len(noop_logits))
        self.log_total = (total + (noop_logits - peak).exp()).log() + peak
        self.pair_log_probs = pair_logits - self.log_total.index_select(0, owner)
        self.noop_log_probs = noop_logits - self.log_total

    def log_prob(self, pair: Tensor) -> Tensor:
        """[D] log-probabilities of the chosen pair rows [D]; -1 = no-op."""
        if len(self.pair_log_probs) == 0:
            return self.noop_log_probs
        chosen = self.pair_log_probs.index_select(0, pair.clamp(min=0))
        return torch.where(pair >= 0, chosen, self.noop_log_probs)

    def entropy(self) -> Tensor:
        """[D] entropies in nats; 0 where only the no-op is open."""
        pairs = segment_sum(self.pair_log_probs.exp() * self.pair_log_probs, self.owner, len(self.noop_logits))
        return -(pairs + self.noop_log_probs.exp() * self.noop_log_probs)

    def best(self, pair_noise: Tensor | None = None, noop_noise: Tensor | None = None) -> Tensor:
        """[D] pair rows with the highest logit (-1 = no-op): greedy, or a sample if Gumbel noise is given.

        Without noise the first option within `GREEDY_TOLERANCE` of the best is taken, pairs in order, the no-op last.
        """
        pair, noop, slack = self.pair_logits, self.noop_logits, GREEDY_TOLERANCE
        if pair_noise is not None and noop_noise is not None:
            pair, noop, slack = pair + pair_noise, noop + noop_noise, 0.0
        peak = segment_max(pair, self.owner, noop) - slack
        rows = torch.arange(len(pair), device=pair.device)
        rows = torch.where(pair >= peak.index_select(0, self.owner), rows, len(pair))
        first = torch.full_like(self.noop_logits, len(pair), dtype=torch.long)
        first = first.scatter_reduce(0, self.owner, rows, "amin")
        return torch.where(first < len(pair), first, -1)
