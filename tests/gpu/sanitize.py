"""compute-sanitizer over a small set of products: ``python tests/gpu/sanitize.py [TOOL ...]``.

Runs itself under each tool (memcheck: addresses out of bounds; racecheck: shared memory that is
read and written without an order between) and fails if one finds anything. PyTorch's allocator is
told to allocate each tensor apart, so that what lies beside one is not another's memory.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

import torch

import tiercel
from tiercel.lower.accumulator import accumulate
from tiercel.lower.accumulator.combining import Combining
from tiercel.lower.epilogue import library
from tiercel.schemes import get
from tiercel.targets.hopper import gemm, gemm_epilogue
from tiercel.targets.hopper.epilogues.fused import fused_epilogue
from tiercel.targets.hopper.fused.packed import pack
from tiercel.targets.hopper.fused.product import prepare
from tiercel.targets.hopper.products import heuristic

TOOLS = ("memcheck", "racecheck")


def normal(*shape: int) -> torch.Tensor:
    """Random bfloat16 numbers."""
    return torch.randn(shape, device="cuda").bfloat16()


def error(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """In the Frobenius norm."""
    return ((found.double() - wanted).norm() / wanted.norm()).item()


def products() -> None:
    """Tails in every dimension; both schedules, every way out of the kernel."""
    a, b, c = normal(200, 136), normal(136, 328), normal(200, 328)
    wanted = a.double() @ b.double()
    for tile in heuristic.CANDIDATES:
        assert error(gemm(a, b, config=tile), wanted) < 5e-3
        assert error(gemm(a, b.t().contiguous().t(), config=tile), wanted) < 5e-3
    for tile in heuristic.CANDIDATES[:2]:
        assert error(gemm(a, b, beta=2.0, c=c, config=tile), wanted + 2 * c.double()) < 5e-3
        odd = torch.empty(200, 327, device="cuda", dtype=torch.bfloat16)  # stored by threads
        assert error(gemm(a, b[:, :327], out=odd, config=tile), wanted[:, :327]) < 5e-3
        pair = normal(2, 130, 72), normal(2, 72, 136)
        assert error(gemm(*pair, config=tile), pair[0].double() @ pair[1].double()) < 5e-3
    long = normal(32, 4096), normal(4096, 256)  # K in parts
    assert error(gemm(*long), long[0].double() @ long[1].double()) < 5e-3


def epilogues() -> None:
    """Operands of every kind, pair maps, several outputs, reductions of rows and columns."""
    M, N, K = 200, 328, 136
    a, b = normal(M, K), normal(K, N)
    operands = {
        "gelu": {},
        "swiglu": {},
        "bias": {"bias": normal(N)},
        "residual_rms": {"residual": normal(M, N), "gamma": normal(N)},
        "cross_entropy": {"target": torch.randint(0, N, (M, 1), device="cuda")},
    }
    for tile in heuristic.CANDIDATES[:3]:
        for name, given in operands.items():
            gemm_epilogue(a, b, getattr(library, name), given, config=tile)
        gemm_epilogue(a, b, library.bias.vjp, {"bias": normal(N)}, config=tile)


def schemes() -> None:
    """Winograd's: planes made before the products and beside them, an end, the guard."""
    a, b = normal(544, 1024), normal(1024, 576)
    wanted = a.double() @ b.double()
    operand = pack(b, accumulate(get("winograd")))
    stream = torch.cuda.current_stream().cuda_stream
    for combining in (Combining(), Combining("beside", split=2)):
        out = torch.empty(544, 576, device="cuda", dtype=torch.bfloat16)
        prepare(a, operand, out, combining=combining).run(stream)
        assert error(out, wanted) < 5e-3
        ended = fused_epilogue(a, operand, library.gelu, {}, combining=combining)["out"]
        assert error(ended, torch.nn.functional.gelu(wanted)) < 5e-3
        fused_epilogue(
            a, operand, library.cross_entropy,
            {"target": torch.randint(0, 576, (544, 1), device="cuda")}, combining=combining,
        )  # fmt: skip
    weight = tiercel.pack(b, scheme="winograd")
    assert error(tiercel.matmul(a, weight, scheme="winograd"), wanted) < 5e-3
    a[3, 5] = torch.inf
    assert torch.isfinite(tiercel.matmul(a, weight, scheme="winograd")).sum() == 543 * 576


def main() -> int:
    """Everything under each tool; the number of tools that found something."""
    if "--here" in sys.argv:
        products()
        epilogues()
        schemes()
        torch.cuda.synchronize()
        return 0
    failed = 0
    for tool in sys.argv[1:] or TOOLS:
        begin = time.perf_counter()
        # cuda-bindings finds out by trying which functions the driver has: no errors of ours.
        command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "1"]
        command += ["--report-api-errors", "no"]
        environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        run = subprocess.run(
            [*command, sys.executable, __file__, "--here"],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        failed += run.returncode != 0
        summary = [line for line in run.stdout.splitlines() if line.startswith("=========")]
        seconds = time.perf_counter() - begin
        print(f"{tool}: {'clean' if run.returncode == 0 else 'FAILED'} in {seconds:.0f} s")
        print("\n".join(summary[-1:] if run.returncode == 0 else summary[:60]))
        if run.returncode:
            print(run.stderr[-3000:])
    return failed


if __name__ == "__main__":
    sys.exit(main())
