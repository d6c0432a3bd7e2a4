"""One 2-D product: which plan, and its run."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from tiercel import counters
from tiercel.errors import TiercelRuntimeError
from tiercel.frontends.numpy import verify
from tiercel.frontends.numpy.layout import layout
from tiercel.frontends.numpy.packed import Packed
from tiercel.frontends.numpy.warned import may_warn
from tiercel.options import Options
from tiercel.planner.plan import Plan
from tiercel.planner.problem import Problem
from tiercel.runtime import execute, plan_for
from tiercel.targets import vendor
from tiercel.targets.cpu.threads import allowed

#: Multiplications below which NumPy runs a product unplanned: (one matrix, each of a batch).
#: One: a planned call spends 5 to 15 us in Python, and the BLAS needs 20 us for this much. Batch:
#: 0.3 ms of the BLAS on one core; NumPy's loop over the batch is in C, ours is not. float16 and
#: bfloat16 have no BLAS, so planning pays off much earlier.
_UNPLANNED = {
    "float32": (96**3, 240**3),
    "float64": (80**3, 190**3),
    "complex64": (64**3, 150**3),
    "complex128": (48**3, 120**3),
    "float16": (32**3, 32**3),
    "bfloat16": (32**3, 32**3),
}


@lru_cache(maxsize=64)
def unplanned(dtype: np.dtype) -> tuple[int, int]:
    """The limits of ``dtype``, by dtype: making ``dtype.name`` costs more than this look-up."""
    return _UNPLANNED[dtype.name]


@dataclass(frozen=True, slots=True)
class Request:
    """What a product is asked for beside a, b and out.

    ``bias`` is (N,) in the dtype of the product; ``packed`` is b in packed form, if the caller
    packed it.
    """

    options: Options
    bias: NDArray | None = None
    packed: Packed | None = None


@lru_cache(maxsize=4096)
def _plan(
    dtype: np.dtype,
    shape_a: tuple[int, ...], strides_a: tuple[int, ...],
    shape_b: tuple[int, ...], strides_b: tuple[int, ...], strides_c: tuple[int, ...],
    options: Options, bias: bool, threads: int, packed_for: str | None,
) -> Plan:  # fmt: skip
    """Keyed by what a call has at hand, so that a warm call derives nothing."""
    (M, K), N, size = shape_a, shape_b[1], dtype.itemsize
    return plan_for(
        Problem(
            M=M, N=N, K=K, dtype=dtype.name,
            layout_a=layout(shape_a, strides_a, size),
            layout_b=layout(shape_b, strides_b, size),
            layout_c=layout((M, N), strides_c, size),
            epilogue=options.epilogue, bias=bias, accuracy=options.accuracy,
            workspace=options.workspace, scheme=options.scheme or packed_for, threads=threads,
            static_b=packed_for is not None, must_use=options.scheme is not None,
        )
    )  # fmt: skip


def plan_of(a: NDArray, b: NDArray, out: NDArray, request: Request) -> Plan:
    """The plan of the 2-D product ``out = a @ b``; cached."""
    options, packed = request.options, request.packed
    return _plan(
        a.dtype, a.shape, a.strides, b.shape, b.strides, out.strides,
        options, request.bias is not None, options.threads or allowed(),
        None if packed is None else packed.algorithm,
    )  # fmt: skip


def is_vendor(plan: Plan) -> bool:
    """Whether the planner leaves the product to NumPy."""
    return plan.chosen.algorithm == "vendor"


def by_vendor(a: NDArray, b: NDArray, out: NDArray | None, request: Request) -> NDArray:
    """``epilogue(a @ b + bias)`` by NumPy, batches included."""
    return vendor.matmul(a, b, out, epilogue=request.options.epilogue, bias=request.bias)


def run(plan: Plan, a: NDArray, b: NDArray, out: NDArray, request: Request) -> None:
    """``out = epilogue(a @ b + bias)`` for 2-D arrays of one dtype; out overlaps no operand.

    Raises ``TiercelRuntimeError`` where the caller named a scheme and the data forbid it.
    """
    if not request.options.verify:
        _run(plan, a, b, out, request)
        return
    following: Plan | None = verify.remembered(plan)
    while following is not None:
        ran = _run(following, a, b, out, request)
        following = None if is_vendor(ran) else verify.next_plan(ran, a, b, out, request)


def _run(plan: Plan, a: NDArray, b: NDArray, out: NDArray, request: Request) -> Plan:
    """Run a plan, or what its guard leaves of it; returns the plan that ran."""
    if is_vendor(plan):
        return _run_vendor(plan, a, b, out, request)
    packed = request.packed
    if execute(plan, a, b if packed is None else packed.panels, out, request.bias):
        warn_as_numpy(a, b, out, request)
        return plan
    return run_instead(plan, a, b, out, request)


def warn_as_numpy(a: NDArray, b: NDArray, out: NDArray, request: Request) -> None:
    """Let NumPy multiply again where it may have to warn: of overflow, or invalid operations.

    A named scheme is not replaced.
    """
    if request.options.scheme is None and may_warn(out):
        by_vendor(a, b, out, request)


def run_instead(plan: Plan, a: NDArray, b: NDArray, out: NDArray, request: Request) -> Plan:
    """Run what is safe for data that the plan's guard refused; returns the plan that ran."""
    scheme = request.options.scheme
    if scheme is not None:
        raise TiercelRuntimeError(
            f"scheme={scheme!r} is not safe for these operands: they hold Inf or NaN, or rows "
            "or columns of very different scale; leave scheme=None to let such calls run the "
            "classical algorithm"
        )
    plan = plan.classical()
    if not is_vendor(plan) and execute(plan, a, b, out, request.bias):
        warn_as_numpy(a, b, out, request)
        return plan
    return _run_vendor(plan, a, b, out, request)


def _run_vendor(plan: Plan, a: NDArray, b: NDArray, out: NDArray, request: Request) -> Plan:
    start = perf_counter()
    by_vendor(a, b, out, request)
    counters.record(plan, perf_counter() - start)
    return plan
