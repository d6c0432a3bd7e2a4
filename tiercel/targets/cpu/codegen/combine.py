"""dst = Σ coefficient_s · source_s over contiguous packed blocks: a scheme's operand additions.

Operands are staged once into the packed layout (see ``load.py``), so that every sum of blocks, of A
or of B, for any scheme, is this one loop over aligned vectors.
"""

from __future__ import annotations

from llvmlite import ir

from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.values import I64, PTR, vec

CHUNK = 8  # vectors held in registers while the sources are summed


def emit(
    module: ir.Module, name: str, element: ir.Type, size: int, lanes: int, *, stream: bool = False
) -> Function:
    """Emit ``name(dst, bytes, count, sources, coefs, offset)``.

    ``bytes`` is a multiple of one vector; ``sources``: ``count`` pointers, each moved by
    ``offset`` bytes; ``coefs``: one element each. ``stream``: the result goes to memory, not into
    the cache (packed B is larger than L3 and is read much later).
    """
    f = Function(
        module,
        name,
        {"dst": PTR, "bytes": I64, "count": I64, "sources": PTR, "coefs": PTR, "offset": I64},
    )
    dst, nbytes, count, sources, coefs, offset = f.args()
    vtype, step = vec(element, lanes), lanes * size

    def run(lo, hi, vectors: int) -> None:
        with f.loop(lo, hi, vectors * step) as at:
            zero = f.const(vtype, 0.0)
            with f.loop(0, count, carry=[zero] * vectors) as s:
                source = f.load(sources + s.i * 8, PTR, 8) + offset + at.i
                coef = f.splat(f.load(coefs + s.i * size, element, size), lanes)
                s.next(
                    *(
                        f.fma(f.load(source + v * step, vtype, step), coef, s.carried[v])
                        for v in range(vectors)
                    )
                )
            for v in range(vectors):
                f.store(s.results[v], dst + at.i + v * step, step, stream=stream)

    whole = nbytes // (CHUNK * step) * (CHUNK * step)
    run(0, whole, CHUNK)
    run(whole, nbytes, 1)
    f.ret()
    return f
