"""Planes of a static right operand, made by the steps that a product would take."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tiercel.targets.gpu import planes
from tiercel.targets.gpu.launch import Memory, Work, current_stream
from tiercel.targets.gpu.layout import Layout, as_stored
from tiercel.targets.gpu.operand import PLANE, operand
from tiercel.targets.gpu.sides import Side, combined
from tiercel.targets.gpu.steps import EXTREMES, PLANES, B, measure, record


def packed_planes(b: Tensor, side: Side) -> tuple[Tensor, Tensor]:
    """Planes of every outer product of a right operand, one after the other, and its extremes."""
    extremes = torch.zeros(3, dtype=planes.extremes_dtype(side.dtype), device=b.device)
    steps = side.recipe.outer.products
    memory = torch.empty(len(steps) * side.elements, dtype=PLANE[side.dtype], device=b.device)
    everything = Memory([None, as_stored(b), *[None] * 4, extremes, memory])
    stream = current_stream(b)
    for work in _packing(Layout.of(b), side):
        work(everything, stream)
    return memory, extremes


def _packing(b: Layout, side: Side) -> Iterator[Work]:
    seen, extremes = operand(b.stand_in(B)), record(EXTREMES, side.dtype)
    yield from measure(seen, extremes, side.dtype, along_rows=False)
    scale = extremes if b.dtype.itemsize == 2 else None
    for s, product in enumerate(side.recipe.outer.products):
        buffer = side.buffer(seen, PLANES, s * side.elements)
        yield from combined(side, product, seen, buffer, scale=scale)
