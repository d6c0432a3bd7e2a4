"""Device memory that outlives the call which needs it first."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from tiercel.targets.hopper.launching.driver import clear_words
from tiercel.targets.hopper.launching.launch import on_device

if TYPE_CHECKING:
    import torch


def lasting(words: int, device: int, stream: int | None = None) -> torch.Tensor:
    """New ``words`` (int32) to be kept, zero for what a stream of the device runs next.

    Another thread allocates them: ``torch.compile(mode="reduce-overhead")`` runs a function once
    while all that its thread allocates comes from a graph's pool, and raises where some stays.
    ``stream``: None for the current one.
    """
    import torch

    stream = torch._C._cuda_getCurrentRawStream(device) if stream is None else stream

    def allocate() -> torch.Tensor:
        # Memory that this stream has freed is in order for it.
        of_stream = torch.cuda.ExternalStream(stream, device=device)
        with torch.cuda.device(device), torch.cuda.stream(of_stream):
            return torch.empty(words, dtype=torch.int32, device=f"cuda:{device}")

    try:
        with ThreadPoolExecutor(1) as other:
            found = other.submit(allocate)
    except RuntimeError:  # the interpreter ends, and no thread begins
        made = allocate()
    else:
        made = found.result()
    with on_device(device):
        clear_words(made.data_ptr(), words, stream)
    return made
