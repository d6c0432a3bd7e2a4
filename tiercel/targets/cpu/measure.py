"""Short measurements of this machine for the planner's cost model; see ``calibration.py``."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tiercel import ufuncs
from tiercel.lower.blocking import Target, Tile, blocking, ceil_div
from tiercel.lower.program import lower
from tiercel.lower.recipe import Recipe
from tiercel.targets.cpu.codegen.peak import chain_count
from tiercel.targets.cpu.compile import fma_chains
from tiercel.targets.cpu.isa import Isa, host
from tiercel.targets.cpu.kernel import execute

SQUARE = 768  # large enough for full speed, 10 ms on one AVX2 core
#: Skinny products show what a library spends on each element of an operand: 16 MiB of float32, for
#: 4 MiB take half as long.
LONG, SHORT = 2048, 32

#: Latency of a multiply-add on Zen 2 to 5 and on Intel's cores from Skylake on.
FMA_CYCLES = 4


def tile(isa: Isa, dtype: str) -> Tile:
    """The micro-kernel's shape on ``isa``."""
    mr, nr = isa.register_tile(dtype)
    return Tile(mr, nr, max(isa.lanes(dtype), 8), np.dtype(dtype).itemsize)


def peak_gflops(dtype: str) -> float:
    """Multiply-add peak of one core, GFLOP/s: the best of a few short runs."""
    isa, run, n = host(), fma_chains(dtype), 200_000  # 0.4 ms
    best = min(_seconds(lambda: run(n)) for _ in range(8))
    return 2 * chain_count(isa.registers) * isa.lanes(dtype) * n / best / 1e9


def cycles_per_ns(dtype: str, peak: float) -> float:
    """Clock of a core whose multiply-add peak is ``peak`` GFLOP/s.

    A multiply-add takes 4 cycles, so a chain of them shows how many begin in a cycle: two, or one
    where vectors are wider than the multipliers (AVX-512 on Zen 4). The peak is known better.
    """
    isa, run, n = host(), fma_chains(dtype, "fma_chain"), 400_000  # 0.4 ms
    best = min(_seconds(lambda: run(n)) for _ in range(8))
    flops = 2 * isa.lanes(dtype)
    at_once = peak / (flops * FMA_CYCLES * n / best / 1e9)
    return peak / (flops * (1 if at_once < 1.5 else 2))


def cores_free(dtype: str, cores: int) -> float:
    """Cores that ``cores`` busy threads really get: processor over wall-clock time, median."""
    run, n = fma_chains(dtype), 8_000_000  # 15 ms: long beside the start of threads
    shares = []
    with ThreadPoolExecutor(cores) as team:
        for _ in range(3):
            used, start = time.process_time(), time.perf_counter()
            list(team.map(run, [n] * cores))
            shares.append((time.process_time() - used) / (time.perf_counter() - start))
    return float(np.median(shares))


def square_for(threads: int) -> int:
    """A square that keeps ``threads`` cores busy for about as long as SQUARE keeps one (10 ms)."""
    return round(SQUARE * threads**0.4 / 96) * 96


def square_target(n: int, threads: int) -> Target:
    """Block sizes that cut an n × n product into exactly four tasks a thread, nearly square."""
    tasks = 4 * threads if threads > 1 else 1
    down = max(d for d in range(1, tasks + 1) if tasks % d == 0 and d * d <= tasks)
    return Target(ceil_div(n, down), 256, 4096, ceil_div(n, tasks // down), 1 << 40)


def own_gflops(dtype: str, threads: int) -> float:
    """The own classical kernel on a square product, GFLOP/s."""
    n = square_for(threads)
    return _gflops(n, n, n, _own_square(dtype, n, threads))


def vendor_share(dtype: str) -> float:
    """NumPy's speed over the own classical kernel's on one core: median of pairs, in turns."""
    own = _own_square(dtype, SQUARE, 1)
    a, b, c = _operands(SQUARE, SQUARE, SQUARE, dtype)
    pairs = [(_seconds(own), _seconds(lambda: ufuncs.matmul(a, b, out=c))) for _ in range(6)]
    return float(np.median([ours / numpys for ours, numpys in pairs[1:]]))


def _own_square(dtype: str, n: int, threads: int) -> Callable[[], object]:
    program = lower(None)
    block = blocking(n, n, n, program, tile(host(), dtype), square_target(n, threads))
    recipe = Recipe(n, n, n, program, block, dtype, dtype, None, threads, None)
    a, b, c = _operands(n, n, n, dtype)
    return lambda: execute(recipe, a, b, c)


def vendor_gflops(dtype: str, M: int, N: int, K: int, *, columns: bool = False) -> float:
    """NumPy's product with its current number of threads, GFLOP/s.

    ``columns``: A and B lie by columns.
    """
    a, b, c = _operands(M, N, K, dtype)
    if columns:
        a, b = np.asfortranarray(a), np.asfortranarray(b)
    return _gflops(M, N, K, lambda: ufuncs.matmul(a, b, out=c))


def _operands(M: int, N: int, K: int, dtype: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a = rng.random((M, K), dtype=np.float32).astype(dtype)
    b = rng.random((K, N), dtype=np.float32).astype(dtype)
    return a, b, np.empty((M, N), dtype)


def _gflops(M: int, N: int, K: int, run: Callable[[], object], repeats: int = 5) -> float:
    """Best of a few runs: a busy neighbour makes a machine slower, never faster."""
    run()
    return 2 * M * N * K / min(_seconds(run) for _ in range(repeats)) / 1e9


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start
