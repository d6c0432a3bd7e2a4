"""The engine for CPU tensors: generated kernels, run on NumPy views of the tensors' memory."""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import torch

from tiercel.errors import TiercelRuntimeError
from tiercel.frontends.numpy.layout import layout
from tiercel.frontends.numpy.packed import Packed
from tiercel.frontends.numpy.packed import pack as pack_array
from tiercel.frontends.torch.engine import Product, Request
from tiercel.frontends.torch.epilogues.named import with_epilogue
from tiercel.frontends.torch.tensors.batch_invariant import batch_invariant_plan
from tiercel.frontends.torch.tensors.memory import as_array
from tiercel.options import Options
from tiercel.planner.plan import Plan
from tiercel.planner.problem import Problem
from tiercel.runtime import execute, plan_for
from tiercel.targets.cpu.pool import openmp
from tiercel.targets.cpu.threads import allowed

#: After another operator, with cold caches, all that surrounds a kernel takes 0.2 to 0.3 ms: in
#: float32 512³ loses 15 % of 2 ms by it, 512 × 512 · 512 × 1536 gains 8 % (two cores). In 16 bits
#: torch needs 10 times longer where the processor has no instructions for them.
LEAST_WORK = {
    torch.float32: 560**3,
    torch.float64: 160**3,
    torch.complex64: 128**3,
    torch.complex128: 96**3,
    torch.bfloat16: 96**3,
    torch.float16: 96**3,
}

LEAST_FOLLOWED = 0.0

#: Plans depend on the number of threads.
STEADY = False

#: Multiplications of each product of a stack below which torch's batched routine, which loops in
#: compiled code, is left alone: 0.3 ms of one core in float32.
LEAST_OF_A_STACK = 240**3

#: dtypes whose packed form NumPy arrays can describe.
_PACKABLE = (torch.float32, torch.float64, torch.float16)


def begin() -> None:
    """See ``Engine``."""


def why_not(dtype: torch.dtype) -> str:
    """See ``Engine``: 16-bit types in hardware, float32 where the user allows 16 bits for it."""
    if dtype in (torch.float16, torch.bfloat16) and torch_is_fast_in(dtype):
        return f"torch has kernels of its own for {dtype} on this processor"
    if dtype is torch.float32 and _may_be_reduced() and torch_is_fast_in(torch.bfloat16):
        return "float32 products in reduced precision, as torch.backends allows,"
    return ""


def _may_be_reduced() -> bool:
    """Whether the user allows torch to multiply float32 in 16 bits."""
    matmul: Any = getattr(torch.backends.mkldnn, "matmul", None)
    if matmul is None:  # before PyTorch 2.9
        return torch.get_float32_matmul_precision() == "medium"
    return matmul.fp32_precision in ("bf16", "tf32")


@cache
def torch_is_fast_in(dtype: torch.dtype) -> bool:
    """Whether torch's own 16-bit product is more than a loop on this processor."""
    if not torch.backends.mkldnn.is_available():
        return False
    if dtype is torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return torch.ops.mkldnn._is_mkldnn_fp16_supported()


def plan(request: Request) -> Plan | None:
    """See ``Engine``."""
    a, options = request.a, request.options
    insisted = options.scheme is not None or options.batch_invariant
    if a.dim() == 3 and not insisted and _work(request.product) < LEAST_OF_A_STACK:
        return None
    if a.is_complex() and request.bias is not None:
        return None  # the kernels add real numbers
    packed_for = None if request.packed is None else request.packed.algorithm
    made = predict(request.product, options, packed_for)
    return None if made.chosen.algorithm == "vendor" else made


def _work(product: Product) -> int:
    return product.M * product.K * product.N


def predict(product: Product, options: Options, packed_for: str | None) -> Plan:
    """See ``Engine``."""
    threads = options.threads or min(allowed(), torch.get_num_threads())
    return _plan(product, options, threads, packed_for)


@lru_cache(maxsize=4096)
def _plan(product: Product, options: Options, threads: int, packed_for: str | None) -> Plan:
    M, K, N, dtype, (rs_a, cs_a), (rs_b, cs_b), bias = product
    size = dtype.itemsize
    problem = Problem(
        M=M, N=N, K=K, dtype=str(dtype).removeprefix("torch."),
        layout_a=layout((M, K), (rs_a * size, cs_a * size), size),
        layout_b=layout((K, N), (rs_b * size, cs_b * size), size),
        epilogue=options.epilogue, bias=bias, accuracy=options.accuracy,
        workspace=options.workspace, scheme=options.scheme or packed_for, threads=threads,
        static_b=packed_for is not None, must_use=options.scheme is not None,
    )  # fmt: skip
    return batch_invariant_plan(problem) if options.batch_invariant else plan_for(problem)


@cache
def torchs_threads() -> openmp.Runtime | None:
    """The OpenMP runtime that torch's operators run on; None where it cannot be had."""
    folder = Path(torch.__file__).parent / "lib"
    return openmp.of_library(str(folder / "libtorch_cpu.so"))


def run(plan: Plan, request: Request, out: torch.Tensor) -> None:
    """See ``Engine``."""
    with openmp.lent(torchs_threads()):
        _run(plan, request, out)


def _run(plan: Plan, request: Request, out: torch.Tensor) -> None:
    a, b, bias = request.a.detach(), request.b.detach(), request.bias
    # The kernels take a bias in the dtype that they compute in.
    vector = None if bias is None else as_array(bias.float() if bias.itemsize == 2 else bias)
    for x, y, z in [(a, b, out)] if a.dim() == 2 else zip(a, b, out, strict=True):
        panels = as_array(y) if request.packed is None else request.packed.panels
        if execute(plan, as_array(x), panels, as_array(z), vector):
            continue
        if request.options.scheme is not None:
            raise TiercelRuntimeError(
                f"scheme={request.options.scheme!r} is not safe for these operands: they hold Inf "
                "or NaN, or rows or columns of very different scale; leave scheme=None to let such "
                "calls run the classical algorithm"
            )
        safe = plan.classical()
        own = safe.chosen.algorithm != "vendor"
        if not (own and execute(safe, as_array(x), as_array(y), as_array(z), vector)):
            product = x @ y if bias is None else torch.addmm(bias.detach(), x, y)
            z.copy_(with_epilogue(product, request.options.epilogue))


def direct(plan: Plan, request: Request, given: Any, result: torch.Tensor) -> None:
    """See ``Engine``: there is none."""


def why_not_packed(w: torch.Tensor) -> str:
    """See ``Engine``."""
    return "" if w.dtype in _PACKABLE else f"no packed form of {w.dtype}"


def pack(w: torch.Tensor, options: Options) -> Packed:
    """See ``Engine``."""
    return pack_array(as_array(w.t()), None, options)
