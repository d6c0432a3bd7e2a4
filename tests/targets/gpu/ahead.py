"""Compiles the target's kernels for GPUs that are not there: ``python ahead.py sm_90``.

Prints one line per kernel: name, dtype, bytes of the widest global access.
A process of its own, for the tests around it run in Triton's interpreter.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from tiercel.lower.program import lower
from tiercel.schemes import get
from tiercel.targets.gpu.classical import classical
from tiercel.targets.gpu.combine import combination, combine_kernel
from tiercel.targets.gpu.freivalds import COLS, PARTS, ROWS, TALL, WIDE
from tiercel.targets.gpu.freivalds_kernels import compare, times_random
from tiercel.targets.gpu.guard import SEGMENT, SHORTEST, segment_means
from tiercel.targets.gpu.planes import tile
from tiercel.targets.gpu.update import update, update_kernel

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
PLANE = {"bf16": "fp16", "fp32": "fp32", "fp64": "fp64"}


def compiled(kernel: Any, target: str, types: dict[str, str], constants: dict[str, Any]) -> Any:
    """``kernel`` for one of ``TARGETS``.

    Args:
        kernel: made by ``triton.jit``.
        target: key of ``TARGETS``.
        types: of arguments by what their names start with, longest match first; others are 32-bit
            integers, annotated ones float64. Pointers and integers count as divisible by 16, as
            those of usual tensors are.
        constants: values of compile-time arguments.
    """
    signature: dict[str, str] = {}
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    for position, (name, parameter) in enumerate(inspect.signature(kernel.fn).parameters.items()):
        matches = sorted((key for key in types if name.startswith(key)), key=len)
        if name in constants:
            signature[name] = "constexpr"
        elif parameter.annotation is not inspect.Parameter.empty:
            signature[name] = "fp64"
        else:
            signature[name] = types[matches[-1]] if matches else "i32"
            attributes[(position,)] = [["tt.divisibility", 16]]
    source = ASTSource(kernel, signature, constants, attributes)
    return triton.compile(source, target=TARGETS[target], options={"num_warps": 4})


def kernels(target: str) -> Iterator[tuple[str, str, Any]]:
    """(name, dtype, compiled kernel): one and two levels of Strassen, one and two views."""
    for dtype, scheme, views in (
        ("fp32", "strassen2", 1), ("fp32", "strassen", 2), ("fp64", "strassen2", 2),
        ("bf16", "strassen", 1), ("complex", "strassen", 1),
    ):  # fmt: skip
        is_complex, real = dtype == "complex", "fp32" if dtype == "complex" else dtype
        compute, words = (tl.float64, 2) if dtype == "fp64" else (tl.float32, 1)
        bits = "*i64" if dtype == "fp64" else "*i32"
        program = lower(get(scheme), is_complex=is_complex)
        rows, cols = tile(program.m * program.n * program.planes, words, TARGETS[target].warp_size)
        shared = {"ROWS": rows, "COLS": cols, "COMPUTE": compute, "TILES": 16, "SHORTEST": SHORTEST}
        finish = {key: shared[key] for key in ("ROWS", "COLS", "COMPUTE")}
        step = 2 if is_complex else 1
        what = combination(program, "b", sources=views, scaled=dtype == "bf16", measured=views == 1)
        yield f"combine {scheme} {views}", dtype, compiled(
            combine_kernel(what), target,
            {"s": f"*{real}", "stride": "i32", "planes": f"*{PLANE[real]}", "largest": bits,
             "extremes": bits},
            {**shared, "stride_col": step},
        )  # fmt: skip
        what = update(program, (False,) if views == 1 else (True, False), scaled=dtype == "bf16")
        yield f"update {scheme} {views}", dtype, compiled(
            update_kernel(what), target,
            {"products": "*fp32" if dtype == "bf16" else f"*{real}", "largest": bits, "out": "i32",
             **dict.fromkeys(("o0", "o1", "p0"), f"*{real}"), "prior": "i32"},
            {**finish, "out_col": step, **({"prior_col0": step} if views > 1 else {})},
        )  # fmt: skip
        for along_rows in (True, False) if dtype != "complex" else ():
            yield f"means {along_rows}", dtype, compiled(
                segment_means, target, {"x": f"*{real}", "extremes": bits},
                {"stride_col": 1, "ALONG_ROWS": along_rows, "PEAK": dtype == "bf16", "ROWS": 16,
                 "SEGMENT": SEGMENT, "SHORTEST": SHORTEST, "COLS": SEGMENT, "COMPUTE": compute,
                 "BITS": tl.int64 if dtype == "fp64" else tl.int32},
            )  # fmt: skip
        yield "classical", dtype, compiled(
            classical, target,
            {**dict.fromkeys(("a", "b", "c", "prior"), f"*{real}"), "extremes": bits,
             **dict.fromkeys(("a_", "b_", "c_", "prior_"), "i32")},
            {"COMPLEX": is_complex, "PRIOR": False, "COMPUTE": compute, "DEPTH": 16,
             "BLOCK": 32 if is_complex or dtype == "fp64" else 64},
        )  # fmt: skip


def probes(target: str) -> Iterator[tuple[str, str, Any]]:
    """(name, dtype, compiled kernel) of the probe of a finished product."""
    for dtype in ("fp32", "fp64", "bf16"):
        compute, real = (tl.float64, "*fp64") if dtype == "fp64" else (tl.float32, "*fp32")
        shared = {"COMPUTE": compute, "NAN": 0x7FC00000, "BIASED": True}
        for name, contiguous, rows, cols, parts in (
            ("B by rows", "stride_n", ROWS, COLS, 1),
            ("B by columns", "stride_k", TALL, WIDE, PARTS),
        ):  # fmt: skip
            yield f"times_random {name}", dtype, compiled(
                times_random, target,
                {**dict.fromkeys("bc", f"*{dtype}"), "y": real, "z": real, "parts": real,
                 "state": "*i32"},
                {"COMPUTE": compute, "ROWS": ROWS, "COLS": COLS, "TALL": rows, "WIDE": cols,
                 "PARTS": parts, contiguous: 1},
            )  # fmt: skip
        yield "compare", dtype, compiled(
            compare, target,
            {**dict.fromkeys(("a", "bias"), f"*{dtype}"), "y": real, "rows": real,
             "record": "*i64" if dtype == "fp64" else "*i32", "heard": "*i8", "state": "*i32"},
            {**shared, "ROWS": ROWS, "COLS": COLS},
        )  # fmt: skip


def widest(kernel: Any) -> int:
    """Bytes of the widest global access."""
    if "ptx" in kernel.asm:
        found = re.findall(r"(?:ld|st)\.global\S*?(?:\.v(\d))?\.[bfu](\d+)", kernel.asm["ptx"])
        return max(int(vector or 1) * int(bits) // 8 for vector, bits in found)
    found = re.findall(r"(?:buffer|global)_(?:load|store)_(\w+)", kernel.asm["amdgcn"])
    return max({"dwordx2": 8, "dwordx4": 16}.get(kind, 4) for kind in found)


if __name__ == "__main__":
    for name, dtype, kernel in (*kernels(sys.argv[1]), *probes(sys.argv[1])):
        print(name, dtype, widest(kernel), sep="\t", flush=True)
