"""Blocks transposed in registers."""

import ctypes

import numpy as np
import pytest
from llvmlite import ir

from tiercel.targets.cpu import compile as compiler
from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.load import transpose
from tiercel.targets.cpu.codegen.values import F32, F64, PTR, vec
from tiercel.targets.cpu.isa import host


@pytest.mark.parametrize("side", [2, 4, 8])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_transpose_of_a_square_block(side: int, dtype: str):
    isa, size = host(), int(dtype[1])
    module = ir.Module("transpose")
    module.triple = isa.triple
    f = Function(module, "run", {"src": PTR, "dst": PTR}, export=True)
    src, dst = f.args()
    vtype = vec(F32 if size == 4 else F64, side)
    rows = [f.load(src + i * side * size, vtype) for i in range(side)]
    for i, x in enumerate(transpose(f, rows)):
        f.store(x, dst + i * side * size)
    f.ret()
    code = compiler._compile(isa, str(module), "transpose")
    owner, at = compiler._link(f"transpose_{side}_{dtype}", (code,), "run")
    x = np.arange(side * side, dtype=dtype).reshape(side, side)
    y = np.empty_like(x)
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(at["run"])
    run(x.ctypes.data, y.ctypes.data)
    np.testing.assert_array_equal(y, x.T)
    del owner
