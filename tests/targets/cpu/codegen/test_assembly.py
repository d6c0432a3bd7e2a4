"""The machine code of the micro-kernel, for every instruction set.

Its inner loop holds all accumulators in registers: one spill costs more than it can hide.
"""

import re
from functools import cache

import llvmlite.binding as llvm
import pytest

from tests.targets.cpu.isas import ISAS
from tiercel.targets.cpu import compile as compiler
from tiercel.targets.cpu.codegen.microkernel import chunk

FMA = re.compile(r"^\s*(vfn?madd\w+|fmla)\s", re.M)
STACK = re.compile(r"\(%rsp|\[sp\b")

every_kernel = pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name in ISAS for dtype in ("float32", "float64")]
)


@cache
def inner_loop(name: str, dtype: str) -> str:
    """The basic block of the macro-kernel with the most multiply-adds."""
    text = compiler.ir_text(ISAS[name], "core", dtype)
    module = llvm.parse_assembly(text)
    assembly = compiler._target_machine(ISAS[name]).emit_assembly(module)
    start = assembly.index("\nmacro:")
    macro = assembly[start : assembly.index(".size\tmacro", start)]
    return max(re.split(r"^\.L\w+:.*$", macro, flags=re.M), key=lambda x: len(FMA.findall(x)))


@every_kernel
def test_one_multiply_add_per_accumulator_and_step(name: str, dtype: str):
    isa = ISAS[name]
    (mr, nr), lanes = isa.register_tile(dtype), isa.lanes(dtype)
    assert len(FMA.findall(inner_loop(name, dtype))) == chunk(lanes) * mr * nr // lanes


@every_kernel
def test_no_accumulator_is_spilled(name: str, dtype: str):
    assert STACK.findall(inner_loop(name, dtype)) == []


@every_kernel
def test_vectors_have_full_width(name: str, dtype: str):
    register = {"avx2": "%ymm", "avx512": "%zmm", "neon": "fmla"}[name]
    lines = [line for line in inner_loop(name, dtype).splitlines() if FMA.match(line)]
    assert all(register in line for line in lines)
