"""Runs a recipe: fills the parameter block, lends it memory and threads, calls the driver."""

from __future__ import annotations

import ctypes
import struct
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from tiercel.lower.blocking import ceil_div
from tiercel.lower.program import Program
from tiercel.lower.recipe import Recipe
from tiercel.lower.steps import Step, View, steps, sub_problem
from tiercel.targets.cpu import params, workspace
from tiercel.targets.cpu.compile import Library, library
from tiercel.targets.cpu.packed import Packed
from tiercel.targets.cpu.pool import MAX_WORKERS, Caller, pool

INDEX = {name: i for i, name in enumerate(params.FIELDS)}
Block = ctypes.c_int64 * len(params.FIELDS)


def execute(
    recipe: Recipe,
    a: np.ndarray,
    b: np.ndarray | Packed,
    c: np.ndarray,
    bias: np.ndarray | None = None,
) -> bool:
    """Compute C in place; False when the guard refused the data (C is then undefined).

    ``a`` (M, K), ``b`` (K, N) and ``c`` (M, N) of the recipe's dtype with any strides; ``c`` must
    not overlap the operands. ``bias`` (N,) is added to every row.
    """
    prepared = prepare(recipe)
    block = Block.from_buffer_copy(prepared.template)
    rows_of_bias = None if bias is None else _padded_bias(recipe, bias)
    _strides(block, "a", a)
    _strides(block, "c", c)
    if isinstance(b, np.ndarray):
        _strides(block, "b", b)
    with ExitStack() as stack:
        threads = team(recipe.threads, stack)
        own = 0 if isinstance(b, Packed) else recipe.blocking.packed
        lend(stack, block, prepared, own, threads)
        for index, step in enumerate(steps(recipe)):
            targets = _targets(c, step, rows_of_bias)
            a_terms = _terms(a, step.a)
            _set(block, K=step.K, a=ctypes.addressof(a_terms), a_terms=len(step.a))
            _set(block, c=ctypes.addressof(targets), c_targets=len(step.c))
            if isinstance(b, Packed):
                _set(block, **b.fields(index))
            else:
                b_terms = _terms(b, step.b)
                _set(block, b=ctypes.addressof(b_terms), b_terms=len(step.b))
            if launch(block, prepared, threads):
                return False
    return True


def pack(recipe: Recipe, b: np.ndarray) -> Packed:
    """Pack and sum all of ``b`` (K, N), once, for every later product of this K, N and program."""
    prepared = prepare(recipe)
    block = Block.from_buffer_copy(prepared.template)
    packed = Packed.empty(recipe)
    _set(block, M=0)  # no rows of A: the driver packs B and has nothing else to do
    _strides(block, "b", b)
    with ExitStack() as stack:
        threads = team(recipe.threads, stack)
        lend(stack, block, prepared, 0, threads)
        for index, step in enumerate(steps(recipe)):
            b_terms = _terms(b, step.b)
            _set(block, K=step.K, b=ctypes.addressof(b_terms), b_terms=len(step.b))
            _set(block, packed_b=packed.address(index), packed_step=recipe.blocking.packed)
            launch(block, prepared, threads)
            packed.merge_scales(block[INDEX["stats_b"]], threads)
    return packed


def team(threads: int, stack: ExitStack) -> int:
    """Reserve the pool; 1 when another Python thread is computing (no threads × threads)."""
    if threads == 1:
        return 1
    caller = Caller()
    stack.callback(pool().release, caller)  # first: an interrupt may follow at once
    return min(threads, MAX_WORKERS + 1) if pool().acquire(caller) else 1


def lend(
    stack: ExitStack, block: ctypes.Array, prepared: Prepared, packed: int, threads: int
) -> None:
    """Borrow the call's memory: packed B, a private region per thread, the words they share."""
    private = prepared.private * threads
    memory = stack.enter_context(workspace.borrow(packed + private + prepared.sync_bytes))
    sync = memory + packed + private
    stats = sync + 2 * params.LINE
    _set(block, packed_b=memory, private=memory + packed, threads=threads, sync=sync)
    _set(block, stats_b=stats, stats_count=threads, tickets=stats + threads * params.LINE)


def launch(block: ctypes.Array, prepared: Prepared, threads: int) -> int:
    """One pass of the driver; non-zero when the guard gave up."""
    ctypes.memset(block[INDEX["sync"]], 0, prepared.sync_bytes)
    gemm = prepared.library
    return pool().run(gemm.gemm, gemm.address, ctypes.addressof(block), threads)


@dataclass(frozen=True)
class Prepared:
    """What does not change between calls of one recipe."""

    library: Library
    template: bytes
    sync_bytes: int
    private: int
    tables: Tables


@lru_cache(maxsize=4096)
def prepare(recipe: Recipe) -> Prepared:
    """Compiled code and the constant part of the parameter block."""
    blocking, program = recipe.blocking, recipe.program
    tables = program_tables(program, recipe.compute)
    M, N, _ = sub_problem(recipe)
    block = Block()
    names = ("mc", "nc", "kc", "k_pad", "panels", "task_panels", "pack_panels", "slice")
    _set(block, **{name: getattr(blocking, name) for name in names})
    offsets = ("at_stage_a", "at_pack_a", "at_scratch", "at_stage_b", "at_tables")
    _set(block, **{name: getattr(blocking, name) for name in offsets})
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
        guard=int(recipe.guard is not None),
        **{name: array.ctypes.data for name, array in tables.arrays.items()},
    )
    if recipe.guard is not None:
        _set(block, limit=_bits(recipe.guard.limit), headroom=_bits(recipe.guard.headroom))
    column_steps = ceil_div(N, blocking.nc)
    sync_bytes = (2 + recipe.threads + 2 * column_steps) * params.LINE
    kernels = library(recipe.compute, recipe.storage, recipe.storage, recipe.activation)
    return Prepared(kernels, bytes(block), sync_bytes, blocking.private, tables)


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


def _strides(block: ctypes.Array, name: str, x: np.ndarray) -> None:
    """Strides in bytes. A complex matrix is two planes, half an item apart."""
    rs, cs = x.strides
    # A stride is never used along a dimension of length 1, where NumPy may report anything; the
    # kernels choose their path by it, so say "contiguous".
    cs = cs if x.shape[1] > 1 else x.itemsize
    _set(block, **{f"{name}_rs": rs, f"{name}_cs": cs, f"{name}_plane": x.itemsize // 2})


def _address(x: np.ndarray, view: View) -> int:
    return x.ctypes.data + view.row * x.strides[0] + view.col * x.strides[1]


def _terms(x: np.ndarray, views: tuple[View, ...]) -> ctypes.Array:
    """The records ``params.TERM`` of an operand."""
    words = [w for v in views for w in (_address(x, v), _bits(v.coef), v.rows, v.cols)]
    return (ctypes.c_int64 * len(words))(*words)


def _targets(c: np.ndarray, step: Step, bias: np.ndarray | None) -> ctypes.Array:
    """The records ``params.TARGET`` of a step."""
    words: list[int] = []
    for target in step.c:
        view = target.view
        words += (_address(c, view), _bits(view.coef), view.rows, view.cols)
        column = 0
        if bias is not None and target.last:
            column = bias.ctypes.data + view.col * bias.itemsize
        words += (int(not target.first), column, int(target.last))
    return (ctypes.c_int64 * len(words))(*words)


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
