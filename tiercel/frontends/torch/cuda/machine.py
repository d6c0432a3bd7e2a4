"""The GPU's profile: shipped for known ones, measured on first use for others."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from importlib.util import find_spec
from statistics import median
from typing import NamedTuple

import torch

from tiercel import cache as disk
from tiercel.frontends.torch.cuda.driver import driver_facts
from tiercel.planner.gpu import GpuMachine, GpuRates, shipped
from tiercel.targets import hopper
from tiercel.targets.gpu.failure import KernelFailed

#: Sides of the squares that are timed; a product may take this long, in seconds.
SIDES, PATIENCE = (1024, 2048, 4096), 0.15

#: Version of what is measured and how; another one measures anew.
FORMAT = 1

#: Bytes of the copied array: beyond any L2.
COPIED = 256 << 20

#: Bandwidth of the generated kernels over that of a copy, and the batched routine's rate over one
#: product's; on an H200 they are 0.89, 0.99, 0.72 and 0.97. An unknown GPU gets less.
COMBINE, FINISH, CHECK, BATCHED = 0.8, 0.85, 0.6, 0.94


class Timing(NamedTuple):
    """Median seconds of a call, and how far its timings lie apart, relative to that."""

    seconds: float
    spread: float


def capturing() -> bool:
    """Whether the current stream's work is being recorded into a CUDA graph."""
    return torch.cuda.is_current_stream_capturing()


def raw_stream(device: int) -> int:
    """The current stream of a device, as the driver names it; 2 us sooner than by its object."""
    return torch._C._cuda_getCurrentRawStream(device)


def make_blas_handle() -> None:
    """Let torch make cuBLAS's handle for the current device now, even while a graph is captured.

    In a capture torch's first product fails otherwise: making a handle allocates memory.
    """
    if not capturing():
        torch.cuda.current_blas_handle()
    elif find_spec("cuda") and find_spec("cuda.bindings"):
        from tiercel.targets.hopper.launching.driver import allowed_while_capturing

        with allowed_while_capturing():
            torch.cuda.current_blas_handle()


@cache
def why_not_hopper(device: int) -> str:
    """Why the Hopper kernels do not run on a device; "" if they do and are known to gain."""
    reason = hopper.available(device)
    if reason is None and shipped(torch.cuda.get_device_name(device)) is None:
        reason = f"{torch.cuda.get_device_name(device)} has not been measured"
    return reason or ""


@cache
def why_no_sums() -> str:
    """Why schemes cannot run around the vendor's library; "" if they can."""
    return "" if find_spec("triton") else "products without Triton, which forms the sums,"


def machine_for(device: int, dtype: torch.dtype) -> GpuMachine:
    """The profile of a device, with the rates of ``dtype`` if it may gain there.

    Shipped, or read from the cache, or measured now, which takes a second. While a graph is
    captured nothing can be measured: such a dtype then has no rates.
    """
    name = str(dtype).removeprefix("torch.")
    known = _known(device)
    if known is not None:
        return known
    if dtype.itemsize == 2 or why_no_sums() or (capturing() and not _is_measured(device, name)):
        return _bare(device)
    try:
        return _measured(device, name)
    except KernelFailed:
        return _bare(device)


def here(dtype: str, device: int | None = None) -> GpuMachine | None:
    """The profile of a device, by default the current one; None on a machine without one."""
    if not torch.cuda.is_available():
        return None
    index = torch.cuda.current_device() if device is None else device
    return machine_for(index, getattr(torch, dtype))


@cache
def _known(device: int) -> GpuMachine | None:
    """The shipped profile, less what is not installed here."""
    found = torch.cuda.get_device_properties(device)
    machine = shipped(found.name)
    if machine is None or machine.multiprocessors != found.multi_processor_count:
        return None  # a part of one is another machine
    key = _fingerprint(device, "shipped")
    machine = replace(machine, memory=found.total_memory, fingerprint=key)
    reason = hopper.available(device)
    if reason is not None:
        machine = machine.without_kernels(reason)
    if why_no_sums():
        machine = replace(machine, notes={**machine.notes, "triton": why_no_sums()})
    return machine


def _bare(device: int) -> GpuMachine:
    found = torch.cuda.get_device_properties(device)
    reason = why_not_hopper(device) or why_no_sums()
    return GpuMachine(
        found.name, found.multi_processor_count, (found.major, found.minor), found.total_memory,
        1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, {}, notes={"unavailable": reason},
    )  # fmt: skip


def _fingerprint(device: int, dtype: str) -> str:
    found = torch.cuda.get_device_properties(device)
    driver = driver_facts(device)
    facts = (found.name, found.multi_processor_count, found.total_memory >> 30, driver.watts)
    versions = (driver.version, torch.__version__, torch.version.cuda, FORMAT)
    return "-".join(map(str, (*facts, *versions, dtype)))


_in_memory: dict[str, GpuMachine] = {}


def _is_measured(device: int, dtype: str) -> bool:
    return _fingerprint(device, dtype) in _in_memory


def _measured(device: int, dtype: str) -> GpuMachine:
    key = _fingerprint(device, dtype)
    if key not in _in_memory:
        _in_memory[key] = _stored(key) or _measure(device, dtype, key)
    return _in_memory[key]


def _stored(key: str) -> GpuMachine | None:
    text = disk.load("gpu_machine", key)
    try:
        return None if text is None else GpuMachine.from_json(text.decode())
    except (ValueError, KeyError, TypeError):  # written by another version
        return None


def _measure(device: int, dtype: str, key: str) -> GpuMachine:
    """Times squares of the vendor's and a copy; all else is assumed, on the careful side."""
    with torch.cuda.device(device), torch.no_grad():
        source, target = torch.empty(2, COPIED // 4, dtype=torch.float32, device="cuda")
        copied = _timing(lambda: target.copy_(source))
        squares = _squares(getattr(torch, dtype))
    copy = 2 * COPIED / copied.seconds / 1e9
    curve = tuple((side, _flops(side, dtype) / t.seconds / 1e12) for side, t in squares.items())
    spread = max(timing.spread for timing in (copied, *squares.values()))
    peak = max(rate for _, rate in curve) * 1e3
    machine = replace(
        _bare(device), copy=copy, combine=COMBINE * copy, finish=FINISH * copy,
        check=CHECK * copy, launch=5.0, host=70.0, lead=100.0, prepare=600.0,
        fingerprint=key, measured=True, rates={dtype: GpuRates(peak, curve, BATCHED)},
        notes={"spread": f"timings within {spread:.0%}"},
    )  # fmt: skip
    disk.store("gpu_machine", key, machine.to_json().encode())
    return machine


def _squares(dtype: torch.dtype) -> dict[int, Timing]:
    found: dict[int, Timing] = {}
    for side in SIDES:
        if side // 2 in found and 8 * found[side // 2].seconds > PATIENCE:
            break
        a = torch.randn(side, side, device="cuda", dtype=dtype)
        out = torch.empty_like(a)
        found[side] = _timing(lambda a=a, out=out: torch.mm(a, a, out=out))
    return found


def _flops(side: int, dtype: str) -> int:
    return (8 if dtype.startswith("complex") else 2) * side**3


def _timing(call: Callable[[], object]) -> Timing:
    """Of five timed calls after two others, in turns of at least a millisecond."""
    call()
    once = _elapsed(call, 1)
    count = max(1, math.ceil(1e-3 / max(once, 1e-6)))
    times = [_elapsed(call, count) for _ in range(5)]
    return Timing(median(times), (max(times) - min(times)) / median(times))


def _elapsed(call: Callable[[], object], count: int) -> float:
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(count):
        call()
    stop.record()
    stop.synchronize()
    return start.elapsed_time(stop) / 1e3 / count
