"""Recipes made by hand, operands in every layout, and exact references."""

import os
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np

from tiercel import schemes
from tiercel.lower.blocking import Target, Tile, blocking, ceil_div
from tiercel.lower.program import Program, lower
from tiercel.lower.recipe import Guard, Recipe
from tiercel.targets.cpu.codegen.microkernel import chunk
from tiercel.targets.cpu.isa import host

ROOT = Path(__file__).parents[3]

# Blocks so small that every loop of the driver turns several times at sizes below 100.
SMALL = Target(rows=12, depth=16, cols=32, task_cols=16, k_span=10**9)

DTYPES = {
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "complex64": np.dtype(np.complex64),
    "complex128": np.dtype(np.complex128),
}
STORAGE = {"complex64": "float32", "complex128": "float64"}


def compute_dtype(dtype: str) -> str:
    return "float64" if dtype in ("float64", "complex128") else "float32"


def program(name: str | None, dtype: str) -> Program:
    """The scheme called ``name`` (None: classical) for operands of ``dtype``."""
    return lower(name and schemes.get(name), is_complex=dtype.startswith("complex"))


def tile(dtype: str) -> Tile:
    compute, isa = compute_dtype(dtype), host()
    mr, nr = isa.register_tile(compute)
    return Tile(mr, nr, chunk(isa.lanes(compute)), np.dtype(compute).itemsize)


def recipe(
    M: int,
    N: int,
    K: int,
    scheme: str | None = None,
    dtype: str = "float32",
    *,
    target: Target = SMALL,
    threads: int = 1,
    guard: Guard | None = None,
    outer: str | None = None,
    activation: str | None = None,
) -> Recipe:
    """``scheme`` inside the five loops, ``outer`` around them."""
    made, around = program(scheme, dtype), outer and lower(schemes.get(outer))
    m, n, k, views = (around.m, around.n, around.k, around.widest("b")) if around else (1, 1, 1, 0)
    sizes = ceil_div(M, m), ceil_div(N, n), ceil_div(K, k)
    return Recipe(
        M, N, K, made, blocking(*sizes, made, tile(dtype), target, views=views),
        compute_dtype(dtype), STORAGE.get(dtype, dtype), activation, threads, guard, around or None,
    )  # fmt: skip


def integers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Integers so small that sums over a hundred products are exact in float16."""
    x = rng.integers(-3, 4, shape)
    if dtype.startswith("complex"):
        x = x + 1j * rng.integers(-3, 4, shape)
    return x.astype(DTYPES[dtype])


LAYOUTS = ("row", "column", "strided", "reversed", "column reversed")


def embedded(x: np.ndarray, layout: str, around: float = np.nan) -> tuple[np.ndarray, np.ndarray]:
    """A view that equals ``x``, laid out as told, and the larger array of ``around`` it lies in."""
    if layout.startswith("column"):
        view, whole = embedded(x.T, "row", around)
        view = view.T
    else:
        down, right = (2, 3) if layout == "strided" else (1, 1)
        rows, cols = x.shape
        whole = np.full((down * rows + 6, right * cols + 7), around, x.dtype)
        view = whole[3 : 3 + down * rows : down, 3 : 3 + right * cols : right]
    if layout.endswith("reversed"):
        view = view[::-1, ::-1]
    view[...] = x
    return view, whole


def exact(a: np.ndarray, b: np.ndarray, dtype: str) -> np.ndarray:
    """a · b of small integers, rounded once to ``dtype``."""
    wide = np.complex128 if dtype.startswith("complex") else np.float64
    return (a.astype(wide) @ b.astype(wide)).astype(DTYPES[dtype])


def python(code: str, *arguments: str, **environment: str) -> str:
    """Output of a fresh interpreter that runs ``code``; it must end well, and within a minute."""
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
