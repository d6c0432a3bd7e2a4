"""Short measurements of this machine for the planner's cost model (about 0.3 s per dtype)."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tiercel.lower.blocking import Target, Tile, blocking
from tiercel.lower.program import lower
from tiercel.lower.recipe import Recipe
from tiercel.schemes import get
from tiercel.targets.cpu.compile import fma_chains
from tiercel.targets.cpu.isa import Isa, host
from tiercel.targets.cpu.kernel import execute, pack
from tiercel.targets.cpu.peak import chain_count

SQUARE = 768  # large enough for full speed, 10 ms on one AVX2 core
LONG, SHORT = 1024, 32  # skinny products that show how a library saturates


def tile(isa: Isa, dtype: str) -> Tile:
    """The micro-kernel's shape on ``isa``."""
    mr, nr = isa.register_tile(dtype)
    return Tile(mr, nr, max(isa.lanes(dtype), 8), np.dtype(dtype).itemsize)


def peak_gflops(dtype: str, repeats: int = 8, threads: int = 1) -> float:
    """Multiply-add peak of ``threads`` cores together, GFLOP/s: the best of a few short runs."""
    isa, run = host(), fma_chains(dtype)
    n = 200_000 if threads == 1 else 4_000_000  # 0.4 ms; long beside the start of threads
    with ThreadPoolExecutor(threads) as team:
        together = run if threads == 1 else lambda n: list(team.map(run, [n] * threads))
        best = min(_seconds(lambda: together(n)) for _ in range(repeats))
    return threads * 2 * chain_count(isa.registers) * isa.lanes(dtype) * n / best / 1e9


def own_gflops(dtype: str, threads: int) -> float:
    """The own classical kernel on a square product, GFLOP/s."""
    n = SQUARE
    program = lower(None)
    rows = max(12, n // (4 * threads))  # four tasks a thread, so that none waits long
    target = Target(rows, 256, 4096, 4096, 1 << 40)
    block = blocking(n, n, n, program, tile(host(), dtype), target)
    recipe = Recipe(n, n, n, program, block, dtype, dtype, None, threads, None)
    a, b, c = _operands(n, n, n, dtype)
    return _gflops(n, n, n, lambda: execute(recipe, a, b, c))


def pack_gbs(dtype: str, threads: int) -> float:
    """Packing a matrix larger than most caches for two levels of Strassen, GB/s read."""
    n = 2 * SQUARE
    program = lower(get("strassen2"))
    block = blocking(n, n, n, program, tile(host(), dtype), Target(126, 256, 1024, 1024, 1 << 40))
    recipe = Recipe(n, n, n, program, block, dtype, dtype, None, threads, None)
    b, _, _ = _operands(n, n, n, dtype)
    pack(recipe, b)
    return b.nbytes / min(_seconds(lambda: pack(recipe, b)) for _ in range(3)) / 1e9


def vendor_gflops(dtype: str, M: int, N: int, K: int) -> float:
    """NumPy's product with its current number of threads, GFLOP/s."""
    a, b, c = _operands(M, N, K, dtype)
    return _gflops(M, N, K, lambda: np.matmul(a, b, out=c))


def _operands(M: int, N: int, K: int, dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a = rng.random((M, K), dtype=np.float32).astype(dtype)
    b = rng.random((K, N), dtype=np.float32).astype(dtype)
    return a, b, np.empty((M, N), dtype)


def _gflops(M: int, N: int, K: int, run: Callable[[], object], repeats: int = 7) -> float:
    """Best of a few runs: a busy neighbour makes a machine slower, never faster."""
    run()
    return 2 * M * N * K / min(_seconds(run) for _ in range(repeats)) / 1e9


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
