"""Sums, maxima and softmaxes over ragged segments.

`segment` [n] names the segment of every row, `count` is the number of segments; empty segments are legal everywhere.
"""

from __future__ import annotations

import torch
from torch import Tensor


def segment_ids(ptr: Tensor) -> Tensor:
    """Segment of every row for CSR offsets `ptr` [count + 1]."""
    return torch.repeat_interleave(torch.arange(len(ptr) - 1, device=ptr.device), ptr.diff())


def gather_segments(ptr: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
    """Rows of the chosen segments one after another, and their new CSR offsets."""
    starts = ptr.index_select(0, segments)
    sizes = ptr.index_select(0, segments + 1) - starts
    new_ptr = torch.zeros(len(segments) + 1, dtype=torch.long, device=ptr.device)
    torch.cumsum(sizes, 0, out=new_ptr[1:])
    shift = torch.repeat_interleave(starts - new_ptr[:-1], sizes)
    return torch.arange(len(shift), device=ptr.device) + shift, new_ptr


def segment_sum(rows: Tensor, segment: Tensor, count: int) -> Tensor:
    """[count, ...] sums of rows [n, ...]; 0 for empty segments."""
    return rows.new_zeros((count, *rows.shape[1:])).index_add_(0, segment, rows)


def segment_max(values: Tensor, segment: Tensor, floor: Tensor) -> Tensor:
    """[count, ...] maximum of each segment and of `floor` [count, ...]."""
    index = segment.view(-1, *[1] * (values.dim() - 1)).expand_as(values)
    return floor.scatter_reduce(0, index, values, "amax")


def segment_softmax(logits: Tensor, segment: Tensor, count: int) -> Tensor:
    """Softmax of logits [n] within each segment."""
    with torch.no_grad():
        peak = segment_max(logits.detach(), segment, logits.new_full((count,), torch.finfo(logits.dtype).min))
    weight = (logits - peak.index_select(0, segment)).exp()
    return weight / segment_sum(weight, segment, count).index_select(0, segment)
