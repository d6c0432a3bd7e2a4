"""Call overhead: what a tiny product costs over ``np.matmul``, in microseconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from tiercel.bench.case import Case
from tiercel.bench.operands import make_operands

SIZES = (1, 4, 16)
CALLS = 500  # per sample: 0.5 ms or so, above the clock's noise
SAMPLES = 40


def measure_overhead() -> list[dict[str, Any]]:
    """Median µs per call of NumPy and tiercel on n×n float32 arrays, sampled in turn."""
    import tiercel

    rows = []
    for n in SIZES:
        operands = make_operands(Case(n, n, n), seed=0)
        numpy_us, tiercel_us = compare(np.matmul, tiercel.matmul, operands.a, operands.b)
        rows.append({"size": n, "numpy_us": numpy_us, "tiercel_us": tiercel_us})
    return rows


def compare(
    first: Callable[..., object], second: Callable[..., object], *arguments: object
) -> tuple[float, float]:
    """Median µs per call of two functions on the same arguments."""
    samples = [(_sample(first, arguments), _sample(second, arguments)) for _ in range(SAMPLES)]
    a, b = np.median(samples, axis=0)
    return float(a), float(b)


def _sample(function: Callable[..., object], arguments: tuple[object, ...]) -> float:
    start = time.perf_counter()
    for _ in range(CALLS):
        function(*arguments)
    return (time.perf_counter() - start) / CALLS * 1e6
