"""Counters by which the last of several warps knows that it is the last.

A kernel leaves them at 0, so that launches in a row on one stream share them without clearing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tiercel.targets.hopper.launching.driver import clear_words
from tiercel.targets.hopper.launching.lasting import lasting
from tiercel.targets.hopper.launching.launch import on_device

if TYPE_CHECKING:
    import torch

_LEAST = 4096  # counters; 65,536 rows need as many

_of_stream: dict[tuple[int, int], torch.Tensor] = {}


def arrivals(device: int, stream: int, count: int) -> torch.Tensor:
    """``count`` or more 32-bit zeros for kernels of one stream, the device's current one.

    Inside the capture of a CUDA graph they are the graph's own, cleared at each replay: graphs of
    one stream may be replayed at the same time on others.
    """
    import torch

    with on_device(device):
        if torch.cuda.is_current_stream_capturing():
            own = torch.empty(count, dtype=torch.int32, device=device)
            clear_words(own.data_ptr(), count, stream)
            return own
        kept = _of_stream.get((device, stream))
        if kept is None or kept.numel() < count:
            kept = _of_stream[device, stream] = lasting(max(count, _LEAST), device, stream)
        return kept
