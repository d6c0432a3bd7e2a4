"""Runs a recipe: fills the parameter block, lends it memory and threads, calls the driver."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from tiercel.lower.blocking import ceil_div
from tiercel.lower.program import Program
from tiercel.lower.recipe import Recipe
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
    _operand(block, "a", a)
    _operand(block, "c", c)
    if bias is not None:
        bias = _padded_bias(recipe, bias)
        _set(block, bias=bias.ctypes.data)
    with ExitStack() as stack:
        threads = team(recipe.threads, stack)
        own = 0 if isinstance(b, Packed) else recipe.blocking.packed
        lend(stack, block, prepared, own, threads)
        for index, (k0, span) in enumerate(passes(recipe)):
            _set(block, K=span, accumulate=int(k0 > 0), last=int(k0 + span == recipe.K))
            _set(block, a=a.ctypes.data + k0 * a.strides[1])
            if isinstance(b, Packed):
                _set(block, **b.fields(index))
            else:
                _operand(block, "b", b)
                _set(block, b=b.ctypes.data + k0 * b.strides[0])
            if launch(block, prepared, threads):
                return False
    return True


def pack(recipe: Recipe, b: np.ndarray) -> Packed:
    """Pack and sum all of ``b`` (K, N) for every later product of this recipe's K, N and program."""
    nothing = replace(recipe, M=0)
    prepared = prepare(nothing)
    block = Block.from_buffer_copy(prepared.template)
    packed = Packed.empty(recipe)
    with ExitStack() as stack:
        threads = team(recipe.threads, stack)
        lend(stack, block, prepared, 0, threads)
        _operand(block, "b", b)
        for index, (k0, span) in enumerate(passes(recipe)):
            _set(block, K=span, b=b.ctypes.data + k0 * b.strides[0])
            _set(block, packed_b=packed.address(index), packed_step=recipe.blocking.packed)
            launch(block, prepared, threads)
            packed.merge_scales(block[INDEX["stats_b"]], threads)
    return packed


def passes(recipe: Recipe) -> Iterator[tuple[int, int]]:
    """(start, length) of each pass over K."""
    span = recipe.blocking.k_span
    for k0 in range(0, recipe.K, span):
        yield k0, min(span, recipe.K - k0)


def team(threads: int, stack: ExitStack) -> int:
    """Reserve the pool; 1 when another Python thread is computing (no threads × threads)."""
    if threads == 1:
        return 1
    caller = Caller()
    stack.callback(pool().release, caller)  # first: an interrupt may follow at once
    return min(threads, MAX_WORKERS + 1) if pool().acquire(caller) else 1


def lend(stack: ExitStack, block: Block, prepared: Prepared, packed: int, threads: int) -> None:
    """Borrow the call's memory: packed B, a private region per thread, the words they share."""
    private = prepared.private * threads
    memory = stack.enter_context(workspace.borrow(packed + private + prepared.sync_bytes))
    sync = memory + packed + private
    stats = sync + 2 * params.LINE
    _set(block, packed_b=memory, private=memory + packed, threads=threads, sync=sync)
    _set(block, stats_b=stats, stats_count=threads, tickets=stats + threads * params.LINE)


def launch(block: Block, prepared: Prepared, threads: int) -> int:
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
    block = Block()
    names = ("mc", "nc", "kc", "k_pad", "panels", "task_panels", "pack_panels", "slice")
    _set(block, **{name: getattr(blocking, name) for name in names})
    offsets = ("at_stage_a", "at_pack_a", "at_scratch", "at_stage_b", "at_tables")
    _set(block, **{name: getattr(blocking, name) for name in offsets})
    _set(
        block,
        M=recipe.M,
        N=recipe.N,
        planes=program.planes,
        m=program.m,
        k=program.k,
        n=program.n,
        products=len(program.products),
        plain=int(program.plain),
        private_bytes=blocking.private,
        a_block_bytes=blocking.a_block,
        b_block_bytes=blocking.b_block,
        c_block_bytes=blocking.c_block,
        guard=int(recipe.guard is not None),
        **{name: array.ctypes.data for name, array in tables.arrays.items()},
    )
    if recipe.guard is not None:
        _set(block, limit=_bits(recipe.guard.limit), headroom=_bits(recipe.guard.headroom))
    steps = ceil_div(recipe.N, blocking.nc)
    sync_bytes = (2 + recipe.threads + 2 * steps) * params.LINE
    kernels = library(recipe.compute, recipe.storage, recipe.storage, recipe.activation)
    return Prepared(kernels, bytes(block), sync_bytes, blocking.private, tables)


@dataclass(frozen=True)
class Tables:
    """A program as arrays: per operand, compressed rows of (block, coefficient)."""

    arrays: dict[str, np.ndarray]


@lru_cache(maxsize=256)
def program_tables(program: Program, compute: str) -> Tables:
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


def _operand(block: ctypes.Array, name: str, x: np.ndarray) -> None:
    """Address and strides in bytes. A complex matrix is two planes, half an item apart."""
    rs, cs = x.strides
    # A stride is never used along a dimension of length 1, where NumPy may report anything; the
    # kernels choose their path by it, so say "contiguous".
    _set(
        block,
        **{
            name: x.ctypes.data,
            f"{name}_rs": rs,
            f"{name}_cs": cs if x.shape[1] > 1 else x.itemsize,
            f"{name}_plane": x.itemsize // 2,
        },
    )


def _padded_bias(recipe: Recipe, bias: np.ndarray) -> np.ndarray:
    """Bias in the compute dtype, with room for the last vector to read past the end."""
    padded = np.zeros(recipe.N + 64, recipe.compute)
    padded[: recipe.N] = bias
    return padded


def _bits(x: float) -> int:
    return struct.unpack("q", struct.pack("d", x))[0]
