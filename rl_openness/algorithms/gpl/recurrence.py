"""Two networks of the same shape side by side, and recurrent cells that run over chains of rows without padding.

The two "type inference" branches of GPL read the same rows with weights of their own. Their tensors are stacked, branch
first, so that one operation does the work of two. `block_sizes` and the order of the rows are those of `graph.chains`.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn


class TwinLinear(nn.Module):
    """Two linear layers: [2, R, inputs] -> [2, R, outputs], with torch's default initialisation."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        bound = 1.0 / math.sqrt(inputs)
        self.weight = nn.Parameter(torch.empty(2, outputs, inputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(2, outputs).uniform_(-bound, bound))

    def forward(self, rows: Tensor) -> Tensor:
        """Each branch's own layer."""
        return torch.baddbmm(self.bias.unsqueeze(1), rows, self.weight.transpose(1, 2))


class TwinRecurrent(nn.Module):
    """Weights of two recurrent cells with `gates` gates, in torch's order and with its default initialisation."""

    gates: int
    parts: int
    """Tensors in the memory: 1 (h) or 2 (h, c)."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.hidden = hidden
        bound, width = 1.0 / math.sqrt(hidden), self.gates * hidden
        self.weight_ih = nn.Parameter(torch.empty(2, width, inputs).uniform_(-bound, bound))
        self.weight_hh = nn.Parameter(torch.empty(2, width, hidden).uniform_(-bound, bound))
        self.bias_ih = nn.Parameter(torch.empty(2, width).uniform_(-bound, bound))
        self.bias_hh = nn.Parameter(torch.empty(2, width).uniform_(-bound, bound))

    @property
    def width(self) -> int:
        """Columns of a member's memory: h of both branches, then c of both."""
        return 2 * self.parts * self.hidden

    def unpack(self, memory: Tensor) -> Tensor:
        """[parts, 2, n, hidden] view of memory rows [n, width]."""
        return memory.view(len(memory), self.parts, 2, self.hidden).permute(1, 2, 0, 3)


class TwinGRU(TwinRecurrent):
    """Two gated recurrent units."""

    gates, parts = 3, 1

    def forward(self, rows: Tensor, memory: Tensor, block_sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """Outputs [2, R, hidden] and memory [R, width] after each of `rows` [2, R, inputs].

        `memory` [block_sizes[0], width] enters the chains.
        """
        inputs = torch.baddbmm(self.bias_ih.unsqueeze(1), rows, self.weight_ih.transpose(1, 2))
        (state,) = self.unpack(memory)
        states = []
        for x in inputs.split_with_sizes(block_sizes, 1):
            state = state[:, : x.shape[1]]
            own = torch.baddbmm(self.bias_hh.unsqueeze(1), state, self.weight_hh.transpose(1, 2))
            reset, update = (x[..., : -self.hidden] + own[..., : -self.hidden]).sigmoid().chunk(2, dim=2)
            new = (x[..., -self.hidden :] + reset * own[..., -self.hidden :]).tanh()
            state = new + update * (state - new)
            states.append(state)
        outputs = torch.cat(states, dim=1)
        return outputs, outputs.detach().transpose(0, 1).flatten(1)


class TwinLSTM(TwinRecurrent):
    """Two long short-term memory cells."""

    gates, parts = 4, 2

    def forward(self, rows: Tensor, memory: Tensor, block_sizes: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """As `TwinGRU`; there is no gradient for `memory`."""
        bias = self.bias_ih + self.bias_hh
        h, c = self.unpack(memory)
        run = _LSTM.apply if torch.is_grad_enabled() else _lstm_forward
        outputs, after = run(rows, self.weight_ih, self.weight_hh, bias, h, c, block_sizes)[:2]
        return outputs, after


def _lstm_forward(
    rows: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, h: Tensor, c: Tensor, block_sizes: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """State h [2, R, hidden], memory [R, 4 hidden], c, activated gates and tanh(c) after every row.

    h and c are views of the memory. tanh(x) is taken as 2 sigmoid(2 x) - 1: torch's own takes five times as long.
    """
    hidden, recurrent, one = h.shape[2], w_hh.transpose(1, 2), rows.new_ones(())
    gates = torch.baddbmm(bias.unsqueeze(1), rows, w_ih.transpose(1, 2))
    memory = rows.new_empty(rows.shape[1], 2, 2, hidden)
    hs, cs = memory.permute(1, 2, 0, 3)
    squashed = rows.new_empty(2, rows.shape[1], hidden)
    blocks = zip(*(x.split_with_sizes(block_sizes, 1) for x in (gates, hs, cs, squashed)), strict=True)
    for gate, h_after, c_after, flat in blocks:
        count = gate.shape[1]
        gate.baddbmm_(h[:, :count], recurrent)
        keep_in, keep_old, new, out = gate.chunk(4, dim=2)
        new.add_(new)
        gate.sigmoid_()  # all four at once
        new.add_(new).sub_(one)
        torch.mul(keep_old, c[:, :count], out=c_after)
        c_after.addcmul_(keep_in, new)
        torch.add(c_after, c_after, out=flat).sigmoid_()
        flat.add_(flat).sub_(one)
        torch.mul(out, flat, out=h_after)
        h, c = h_after, c_after
    return hs, memory.view(-1, 4 * hidden), cs, gates, squashed


class _LSTM(torch.autograd.Function):
    """`_lstm_forward` with its gradient written out: two thirds of torch's time at these sizes.

    The local derivatives of all rows are computed at once; only the sums over time run block by block.
    """

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        w_ih: Tensor,
        w_hh: Tensor,
        bias: Tensor,
        h: Tensor,
        c: Tensor,
        block_sizes: tuple[int, ...],
    ) -> tuple[Tensor, Tensor]:
        hs, memory, cs, gates, squashed = _lstm_forward(rows, w_ih, w_hh, bias, h, c, block_sizes)
        ctx.save_for_backward(rows, w_ih, w_hh, h, c, hs, cs, gates, squashed)
        ctx.block_sizes = block_sizes
        ctx.mark_non_differentiable(memory)
        return hs, memory

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        rows, w_ih, w_hh, h, c, hs, cs, gates, squashed = ctx.saved_tensors
        h_before = _one_step_earlier(h, hs, ctx.block_sizes)
        c_before = _one_step_earlier(c, cs, ctx.block_sizes)
        one, shape = gates.new_ones(()), (*hs.shape[:2], 4, hs.shape[2])
        keep_in, keep_old, new, out = gates.chunk(4, dim=2)
        slope = gates * (one - gates)
        in_slope, old_slope, new_slope, out_slope = slope.chunk(4, dim=2)
        torch.addcmul(one, new, new, value=-1.0, out=new_slope)
        in_slope.mul_(new)  # from here on d c / d gate; of the last gate d h / d gate
        old_slope.mul_(c_before)
        new_slope.mul_(keep_in)
        out_slope.mul_(squashed)
        through_c = torch.addcmul(one, squashed, squashed, value=-1.0).mul_(out)
        whole = (slope, slope.view(shape), through_c, keep_old, grads[0])
        blocks = list(zip(*(x.split_with_sizes(ctx.block_sizes, 1) for x in whole), strict=True))
        into_h = into_c = None
        for number in reversed(range(len(blocks))):
            grad_gate, by_gate, h_to_c, kept, grad_h = blocks[number]
            if into_h is not None:
                grad_h = grad_h.clone()
                grad_h[:, : into_h.shape[1]] += into_h
            grad_c = grad_h * h_to_c
            if into_c is not None:
                grad_c[:, : into_c.shape[1]] += into_c
            by_gate[:, :, :3].mul_(grad_c.unsqueeze(2))
            by_gate[:, :, 3].mul_(grad_h)
            if number:
                into_c = grad_c.mul_(kept)
                into_h = torch.bmm(grad_gate, w_hh)
        columns = slope.transpose(1, 2)
        grad_rows = torch.bmm(slope, w_ih) if ctx.needs_input_grad[0] else None
        return grad_rows, torch.bmm(columns, rows), torch.bmm(columns, h_before), slope.sum(1), None, None, None


def _one_step_earlier(first: Tensor, after: Tensor, block_sizes: tuple[int, ...]) -> Tensor:
    """State before every row, from the one that entered the first block and the states after all rows."""
    before = [first]
    start = 0
    for size, following in pairwise(block_sizes):
        before.append(after[:, start : start + following])
        start += size
    return torch.cat(before, dim=1)
