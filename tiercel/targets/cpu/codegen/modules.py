"""Assembles the parts of a library (see ``compile.py``) as LLVM modules."""

from __future__ import annotations

from llvmlite import ir

from tiercel.targets.cpu.codegen import combine, driver, load, microkernel, norms, peak, store
from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.fields import Parts
from tiercel.targets.cpu.codegen.storage import COMPUTE, STORAGE
from tiercel.targets.cpu.codegen.values import F64, I64, PTR
from tiercel.targets.cpu.isa import ELEMENT_BYTES, Isa
from tiercel.targets.cpu.pool import sync
from tiercel.targets.cpu.shortcut import known, renew


def build(isa: Isa, part: str, *options: str) -> ir.Module:
    """The module of one part: ``core``, ``load``, ``store``, ``pool``, ``peak``, ``known``."""
    module = ir.Module(name=f"tiercel-{isa.name}-{'-'.join((part, *options))}")
    module.triple = isa.triple
    if part == "pool":
        sync.emit_pool(module)
        return module
    if part == "known":
        known.emit(module)
        return module
    compute = options[0]
    size = ELEMENT_BYTES[compute]
    element, lanes = COMPUTE[size], isa.lanes(compute)
    mr, nr = isa.register_tile(compute)
    shape = load.Shape(element, size, lanes, mr, nr)
    if part == "load":
        load.emit(module, STORAGE[options[1]], shape)
    elif part == "store":
        activation = None if options[2] == "none" else options[2]
        store.emit(module, STORAGE[options[1]], shape, activation)
    elif part == "peak":
        peak.emit(module, element, lanes, isa.registers)
    elif part == "core":
        gemm = driver.emit(
            module,
            Parts(
                macro=microkernel.emit(module, element, size, mr, nr, lanes),
                combine=combine.emit(module, "combine", element, size, lanes),
                stream=combine.emit(module, "combine_stream", element, size, lanes, stream=True),
                rows=norms.emit_rows(module, element, size, lanes, mr),
                columns=norms.emit_columns(module, element, size, lanes, nr),
                merge=norms.emit_merge(module, element, size),
                load_tiles=_external(module, "load_tiles", [PTR, PTR, *[I64] * 6]),
                load_panels=_external(module, "load_panels", [PTR, I64, PTR, *[I64] * 6]),
                store_tile=_external(
                    module, "store_tile", [PTR, PTR, *[I64] * 4, F64, I64, I64, I64]
                ),
                element=element,
                size=size,
                mr=mr,
                nr=nr,
                chunk=microkernel.chunk(lanes),
            ),
        )
        renew.emit(module, gemm, size)
    else:
        raise ValueError(f"no such part: {part}")
    return module


def _external(module: ir.Module, name: str, args: list[ir.Type]) -> Function:
    """A function that another part of the library defines."""
    f = Function.__new__(Function)
    f.module = module
    f.fn = ir.Function(module, ir.FunctionType(ir.VoidType(), args), name)
    return f
