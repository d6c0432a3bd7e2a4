"""Runs a recipe: fills the parameter block, lends it memory and threads, calls the driver.

A product of a millisecond leaves the caches full of its operands, and every object that Python
touches at the next call is fetched anew. So what the calls of a recipe have in common is prepared
once, and found again by identity; what differs is written into a frame that is used again.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass, field, fields
from functools import lru_cache

import numpy as np

from tiercel.lower.blocking import ceil_div
from tiercel.lower.program import Program
from tiercel.lower.recipe import Recipe
from tiercel.lower.steps import Step, steps, sub_problem
from tiercel.targets.cpu import params, workspace
from tiercel.targets.cpu.compile import Library, library
from tiercel.targets.cpu.frame import Frame
from tiercel.targets.cpu.packed import Packed
from tiercel.targets.cpu.pool.pool import Team, pool

INDEX = {name: i for i, name in enumerate(params.CONSTANT_FIELDS)}
Block = ctypes.c_int64 * len(INDEX)


def execute(
    recipe: Recipe,
    a: np.ndarray,
    b: np.ndarray | Packed,
    c: np.ndarray,
    bias: np.ndarray | None = None,
) -> bool:
    """Compute C in place; False when the guard refused the data (C is then undefined).

    ``a`` (M, K), ``b`` (K, N) and ``c`` (M, N) of the recipe's dtype with any strides; ``c`` must
    not overlap the operands. ``bias`` (N,) is added to every row. For a swapped recipe they are the
    operands of the product that is wanted, (N, K), (K, M) and (N, M).
    """
    if recipe.swapped and isinstance(b, np.ndarray):
        a, b, c = b.T, a.T, c.T
    prepared = prepare(recipe)
    rows_of_bias = None if bias is None else _padded_bias(recipe, bias)
    if recipe.threads == 1:
        return _run(prepared, 1, a, b, c, rows_of_bias)
    with Team(recipe.threads) as threads:
        return _run(prepared, threads, a, b, c, rows_of_bias)


def pack(recipe: Recipe, b: np.ndarray) -> Packed:
    """Pack and sum all of ``b`` (K, N), once, for every later product of this K, N and program."""
    prepared = prepare(recipe)
    packed = Packed.empty(recipe)
    frame = prepared.frame(rows=0)  # the driver packs B and has nothing else to do
    private = recipe.blocking.private
    with Team(recipe.threads) as threads, workspace.borrow(threads * private) as memory:
        for index, step in enumerate(prepared.steps):
            frame.fill(step, None, b, None, None)
            frame.lend(threads, memory, 0, packed.address(index), recipe.blocking.packed)
            _launch(prepared, frame, threads)
            packed.merge_scales(frame.stats, threads)
    return packed


def _run(
    prepared: Prepared,
    threads: int,
    a: np.ndarray,
    b: np.ndarray | Packed,
    c: np.ndarray,
    bias: np.ndarray | None,
) -> bool:
    blocking = prepared.recipe.blocking
    before = threads * blocking.private
    behind = blocking.packed if isinstance(b, np.ndarray) else 0
    buffer = workspace.take(before + blocking.packed_a + behind)
    private = buffer.address
    packed_a = private + before if blocking.packed_a else 0
    packed_b = private + before + blocking.packed_a
    try:
        frame = prepared.idle.pop()
    except IndexError:  # the first call, or more at once than ever before
        frame = prepared.frame()
    try:
        for index, step in enumerate(prepared.steps):
            if isinstance(b, np.ndarray):
                frame.fill(step, a, b, c, bias)
                frame.lend(threads, private, packed_a, packed_b)
            else:
                frame.fill(step, a, None, c, bias)
                frame.lend_packed(threads, private, packed_a, b, index)
            if _launch(prepared, frame, threads):
                return False
        return True
    finally:
        prepared.idle.append(frame)
        workspace.give(buffer)


def _launch(prepared: Prepared, frame: Frame, threads: int) -> int:
    """One pass of the driver; non-zero when the guard gave up."""
    gemm = prepared.library
    if threads == 1:
        return gemm.gemm(frame.address, 0)
    return pool().run(gemm.gemm, gemm.address, frame.address, threads)


@dataclass(frozen=True, eq=False)
class Prepared:
    """What does not change between calls of one recipe; ``idle``: frames that no call uses now."""

    recipe: Recipe
    library: Library
    constants: bytes
    steps: tuple[Step, ...]
    tickets: int
    tables: Tables
    idle: list[Frame] = field(default_factory=list)

    def frame(self, rows: int | None = None) -> Frame:
        """A new frame; ``rows`` replaces the M of the recipe."""
        block = Block.from_buffer_copy(self.constants)
        if rows is not None:
            _set(block, M=rows)
        a, b, c = (max(len(getattr(step, x)) for step in self.steps) for x in "abc")
        return Frame(bytes(block), (a, b, c), self.recipe.threads, self.tickets)


_prepared: dict[int, Prepared] = {}
MOST_PREPARED = 4096


def prepare(recipe: Recipe) -> Prepared:
    """Compiled code and the constant part of the parameter block."""
    # By identity: the hash of a recipe's 40 numbers takes 2 us, 15 with cold caches. What is found
    # holds the recipe, so that no other can have its address.
    found = _prepared.get(id(recipe))
    if found is None:
        if len(_prepared) >= MOST_PREPARED:
            _prepared.clear()
        found = _prepared[id(recipe)] = _prepare(recipe)
    return found


def _prepare(recipe: Recipe) -> Prepared:
    blocking, program = recipe.blocking, recipe.program
    tables = program_tables(program, recipe.compute)
    M, N, _ = sub_problem(recipe)
    block = Block()
    names = set(INDEX) & {f.name for f in fields(blocking)}
    _set(block, **{name: getattr(blocking, name) for name in names})
    _set(
        block,
        M=M,
        N=N,
        planes=program.planes,
        m=program.m,
        k=program.k,
        n=program.n,
        products=len(program.products),
        plain=int(program.plain and recipe.outer is None),
        bias_plane=(recipe.N + BIAS_PAD) * np.dtype(recipe.compute).itemsize,
        private_bytes=blocking.private,
        a_block_bytes=blocking.a_block,
        b_block_bytes=blocking.b_block,
        c_block_bytes=blocking.c_block,
        in_turn=int(blocking.target.in_turn),
        guard=int(recipe.guard is not None),
        **{name: array.ctypes.data for name, array in tables.arrays.items()},
    )
    if recipe.guard is not None:
        _set(block, limit=_bits(recipe.guard.limit), headroom=_bits(recipe.guard.headroom))
    kernels = library(recipe.compute, recipe.storage, recipe.storage, recipe.activation)
    tickets = 2 * ceil_div(N, blocking.nc) + 1  # of B and of tasks, by step of jc; of A
    return Prepared(recipe, kernels, bytes(block), steps(recipe), tickets, tables)


@dataclass(frozen=True)
class Tables:
    """A program as arrays: per operand, compressed rows of (block, coefficient)."""

    arrays: dict[str, np.ndarray]


@lru_cache(maxsize=256)
def program_tables(program: Program, compute: str) -> Tables:
    """The tables of ``program`` with coefficients in the compute dtype."""
    arrays: dict[str, np.ndarray] = {}
    for operand in "abc":
        rows = [getattr(product, operand) for product in program.products]
        counts = np.cumsum([0, *map(len, rows)])
        arrays[f"{operand}_start"] = counts.astype(np.int64)
        arrays[f"{operand}_block"] = np.array([i for row in rows for i, _ in row], np.int64)
        arrays[f"{operand}_coef"] = np.array([x for row in rows for _, x in row], compute)
    first = [flag for product in program.products for flag in product.first]
    arrays["c_first"] = np.array(first, np.int64)
    arrays["c_never"] = np.zeros_like(arrays["c_first"])
    return Tables(arrays)


def _set(block: ctypes.Array, **fields: int) -> None:
    for name, value in fields.items():
        block[INDEX[name]] = value


#: Elements that the last vector of a bias may read past its end.
BIAS_PAD = 64


def _padded_bias(recipe: Recipe, bias: np.ndarray) -> np.ndarray:
    """Bias in the compute dtype: one row per plane, with room to read past the end."""
    padded = np.zeros((recipe.program.planes, recipe.N + BIAS_PAD), recipe.compute)
    padded[0, : recipe.N] = np.real(bias)
    if recipe.program.planes == 2:
        padded[1, : recipe.N] = np.imag(bias)
    return padded


def _bits(x: float) -> int:
    return struct.unpack("q", struct.pack("d", x))[0]
