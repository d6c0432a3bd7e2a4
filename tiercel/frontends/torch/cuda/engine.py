"""The engine for CUDA tensors: own kernels on a Hopper, schemes around cuBLAS on any GPU.

``machine`` knows the device, ``planner/gpu`` decides, ``run`` runs what was chosen and
``direct`` repeats it; ``packed`` and ``fused`` keep packed weights. Nothing waits
for the device, and memory is torch's, so that calls may be captured in a CUDA graph. What has not
run before is torch's while a graph is captured: kernels must not be compiled then, nor rates
measured.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from tiercel.errors import TiercelTypeError
from tiercel.frontends.torch.cuda import direct as cuda_direct
from tiercel.frontends.torch.cuda import fused, packed
from tiercel.frontends.torch.cuda import run as cuda_run
from tiercel.frontends.torch.cuda.machine import (
    capturing,
    machine_for,
    make_blas_handle,
    why_no_sums,
    why_not_hopper,
)
from tiercel.frontends.torch.cuda.packed import Packed
from tiercel.frontends.torch.engine import Product, Request
from tiercel.frontends.torch.tensors.precision import tf32_allowed
from tiercel.options import Options
from tiercel.planner.gpu import GpuPlan, make_plan
from tiercel.planner.gpu.variants import considered
from tiercel.planner.plan import Plan
from tiercel.planner.problem import Problem
from tiercel.planner.winners import applied
from tiercel.targets.gpu.failure import KernelFailed

#: No plan of ours was seen to gain in an isolated call below these on an H200: at 2560³ in float32
#: two levels gain 2 % in a stream of calls and lose 2 % in an isolated one.
LEAST_WORK = {
    torch.float32: 2800**3,
    torch.float64: 3600**3,
    torch.complex64: 1600**3,
    torch.complex128: 1600**3,
    torch.bfloat16: 2500**3,
    torch.float16: 2500**3,
}

#: With derivatives a layer's three products take 0.6 ms of a host that torch's take 0.3 (H200): the
#: device has to be busy for longer, or the host is what a step waits for.
LEAST_FOLLOWED = 2.5e-4

STEADY = True

#: Rows that the packing of a weight is decided for: a prefill's.
PACKED_ROWS = 8192


def begin() -> None:
    """See ``Engine``: cuBLAS's handle is made, so that a graph may be captured from now on."""
    if torch.cuda.is_initialized():
        make_blas_handle()


def why_not(dtype: torch.dtype) -> str:
    """See ``Engine``: asked for the current device."""
    in_tf32 = dtype is torch.float32 and tf32_allowed()
    if dtype.itemsize == 2 or in_tf32:
        what = "products in TF32, as torch.backends allows," if in_tf32 else dtype
        reason = why_not_hopper(torch.cuda.current_device())
        return f"{what} without the Hopper kernels ({reason})" if reason else ""
    return why_no_sums()


def predict(product: Product, options: Options, packed_for: str | None) -> Plan:
    """See ``Engine``: for the current device."""
    return _planned(product, options, torch.cuda.current_device(), packed_for)


def _planned(product: Product, options: Options, device: int, packed_for: str | None) -> GpuPlan:
    in_tf32 = product.dtype is torch.float32 and tf32_allowed()
    return _plan(product, options, device, packed_for, in_tf32)


@lru_cache(maxsize=4096)
def _plan(
    product: Product, options: Options, device: int, packed_for: str | None, in_tf32: bool = False
) -> GpuPlan:
    M, K, N, dtype, strides_a, strides_b, bias = product
    scheme = options.scheme or packed_for
    if options.batch_invariant:
        scheme = _invariant(dtype, device, options)
    machine = machine_for(device, dtype)
    # Schemes that callers name and that the own kernel has not are around the vendor's routine.
    around = options.scheme not in (None, "classical", *machine.fused_of("tfloat32"))
    own = in_tf32 and not around
    step = cuda_run.ALIGNMENT // dtype.itemsize if own or dtype.itemsize == 2 else 1
    problem = Problem(
        M=M, N=N, K=K, dtype="tfloat32" if own else str(dtype).removeprefix("torch."),
        layout_a=_layout(strides_a, (M, K), step), layout_b=_layout(strides_b, (K, N), step),
        epilogue=options.epilogue, bias=bias, accuracy=options.accuracy,
        workspace=options.workspace, scheme=scheme, static_b=packed_for is not None,
        must_use=options.scheme is not None or options.batch_invariant,
    )  # fmt: skip
    made = applied(make_plan(problem, machine))
    assert isinstance(made, GpuPlan), "applied() changes the choice only"
    return made


def _layout(strides: tuple[int, int], shape: tuple[int, int], step: int) -> str:
    """Which dimension is contiguous, "row" or "col", if the other one's steps are aligned.

    ``step``: what these must be multiples of, in elements. Kernels that add in Triton read any
    strides; those of 16 bytes are read by TMA.
    """
    (down, across), (rows, cols) = strides, shape
    if (across == 1 or cols == 1) and (rows == 1 or (down > 0 and down % step == 0)):
        return "row"
    if (down == 1 or rows == 1) and (cols == 1 or (across > 0 and across % step == 0)):
        return "col"
    return "strided"


def _invariant(dtype: torch.dtype, device: int, options: Options) -> str:
    """The scheme for ``batch_invariant``: the own kernel, one tile, one order of summation."""
    reason = why_not_hopper(device) if dtype.itemsize == 2 else f"{dtype} has no own kernel here"
    if options.scheme not in (None, "classical"):
        reason = f"scheme={options.scheme!r} looks at all rows together"
    if reason:
        raise TiercelTypeError(
            f"batch_invariant=True does not work for CUDA tensors of {dtype}: {reason}; allowed: "
            "bfloat16 and float16 on a Hopper GPU, without a scheme"
        )
    return "classical"


def plan(request: Request) -> Plan | None:
    """See ``Engine``. What a call's addresses, data and capture decide is left to ``run``."""
    packed_for = None if request.packed is None else request.packed.algorithm
    made = _planned(request.product, request.options, request.a.get_device(), packed_for)
    return None if made.chosen.algorithm == "vendor" else made


def run(plan: Plan, request: Request, out: torch.Tensor) -> None:
    """See ``Engine``."""
    assert isinstance(plan, GpuPlan), "made here"
    cuda_run.run(plan, request, out)


def direct(
    plan: Plan, request: Request, given: tuple[Any, ...], result: torch.Tensor
) -> Callable[..., torch.Tensor | None] | None:
    """See ``Engine``: for schemes around the vendor's library."""
    assert isinstance(plan, GpuPlan), "made here"
    return cuda_direct.direct(plan, request, given, result)


def why_not_packed(w: torch.Tensor) -> str:
    """See ``Engine``."""
    if w.dtype not in LEAST_WORK:
        return f"no packed form of {w.dtype}"
    return "a CUDA graph is being captured" if capturing() else why_not(w.dtype)


def pack(w: torch.Tensor, options: Options) -> Packed:
    """See ``Engine``: by the plan for ``PACKED_ROWS`` rows; waits for the device."""
    (N, K), b = w.shape, w.detach().t()
    product = Product.of_rows(PACKED_ROWS, w, bias=False)
    names = [options.scheme] if options.scheme is not None else _packable(w)
    plans = [_planned(product, options, w.get_device(), name) for name in names]
    best = min(plans, key=lambda made: made.chosen.seconds, default=None)
    if best is None or best.chosen.algorithm == "vendor" or 0 in (N, K):
        return Packed("vendor", None, 0)
    variant = best.chosen.variant
    try:
        with torch.cuda.device_of(w):
            if variant.kind == "fused":
                return fused.pack(b, best.chosen.algorithm)
            return packed.pack(b, best.chosen.algorithm, variant)
    except KernelFailed:
        return Packed("vendor", None, 0)


def _packable(w: torch.Tensor) -> tuple[str, ...]:
    """The schemes that a weight may be packed for."""
    name = str(w.dtype).removeprefix("torch.")
    in_tf32 = w.dtype is torch.float32 and tf32_allowed()
    if w.dtype.itemsize != 2 and not in_tf32:
        return considered(name)
    machine = machine_for(w.get_device(), w.dtype)
    return tuple(machine.fused_of("tfloat32" if in_tf32 else name))
