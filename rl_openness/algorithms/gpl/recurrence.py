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
        for at in _blocks(block_sizes):
            x, state = inputs[:, at], state[:, : at.stop - at.start]
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


def _blocks(block_sizes: tuple[int, ...]) -> list[slice]:
    """Rows of each block."""
    ends = [0]
    for size in block_sizes:
        ends.append(ends[-1] + size)
    return [slice(start, stop) for start, stop in pairwise(ends)]


def _lstm_forward(
    rows: Tensor, w_ih: Tensor, w_hh: Tensor, bias: Tensor, h: Tensor, c: Tensor, block_sizes: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """State h [2, R, hidden], memory [R, 4 hidden], c, activated gates and tanh(c) after every row.

    h and c are views of the memory. tanh(x) is taken as 2 sigmoid(2 x) - 1: torch's own takes five times as long.
    """
    gates = torch.baddbmm(bias.unsqueeze(1), rows, w_ih.transpose(1, 2))
    hidden = h.shape[2]
    memory = rows.new_empty(rows.shape[1], 2, 2, hidden)
    hs, cs = memory.permute(1, 2, 0, 3)
    squashed = rows.new_empty(2, rows.shape[1], hidden)
    recurrent = w_hh.transpose(1, 2)
    for at in _blocks(block_sizes):
        count = at.stop - at.start
        gate = gates[:, at].baddbmm_(h[:, :count], recurrent)
        keep_in, keep_old, new, out = gate.chunk(4, dim=2)
        new.mul_(2.0)
        gate.sigmoid_()  # all four at once
        new.mul_(2.0).sub_(1.0)
        old, c, flat, h = c[:, :count], cs[:, at], squashed[:, at], hs[:, at]
        torch.mul(keep_old, old, out=c)
        c.addcmul_(keep_in, new)
        torch.mul(c, 2.0, out=flat).sigmoid_().mul_(2.0).sub_(1.0)
        torch.mul(out, flat, out=h)
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
        blocks = _blocks(ctx.block_sizes)
        h_before, c_before = _one_step_earlier(h, hs, blocks), _one_step_earlier(c, cs, blocks)
        keep_in, keep_old, new, out = gates.chunk(4, dim=2)
        slope = gates * (1.0 - gates)
        in_slope, old_slope, new_slope, out_slope = slope.chunk(4, dim=2)
        torch.addcmul(slope.new_ones(()), new, new, value=-1.0, out=new_slope)
        in_slope.mul_(new)  # from here on d c / d gate; of the last gate d h / d gate
        old_slope.mul_(c_before)
        new_slope.mul_(keep_in)
        out_slope.mul_(squashed)
        through_c = torch.addcmul(slope.new_ones(()), squashed, squashed, value=-1.0).mul_(out)
        hidden = hs.shape[2]
        into_h = into_c = None
        for at in reversed(blocks):
            grad_h = grads[0][:, at]
            if into_h is not None:
                grad_h = grad_h.clone()
                grad_h[:, : into_h.shape[1]] += into_h
            grad_c = grad_h * through_c[:, at]
            if into_c is not None:
                grad_c[:, : into_c.shape[1]] += into_c
            grad_gate = slope[:, at]
            grad_gate[..., : 3 * hidden].unflatten(2, (3, hidden)).mul_(grad_c.unsqueeze(2))
            grad_gate[..., 3 * hidden :].mul_(grad_h)
            if at.start:
                into_c = grad_c.mul_(keep_old[:, at])
                into_h = torch.bmm(grad_gate, w_hh)
        columns = slope.transpose(1, 2)
        grad_rows = torch.bmm(slope, w_ih) if ctx.needs_input_grad[0] else None
        return grad_rows, torch.bmm(columns, rows), torch.bmm(columns, h_before), slope.sum(1), None, None, None


def _one_step_earlier(first: Tensor, after: Tensor, blocks: list[slice]) -> Tensor:
    """State before every row, from the one that entered the first block and the states after all rows."""
    before = after.new_empty(after.shape)
    before[:, blocks[0]] = first
    for old, at in pairwise(blocks):
        before[:, at] = after[:, old.start : old.start + at.stop - at.start]
    return before
