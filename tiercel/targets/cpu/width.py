"""Whether a CPU multiplies vectors of 512 bits at once, or has the instructions only.

Zen 4 takes two cycles for them in each of its two units, which are 256 bits wide. There AVX-512
multiplies no faster than AVX2, and its large register tiles cost more beside the multiplications:
in turns on two threads, over NumPy's speed, 2048³ has 1.23 with AVX2 and 1.14 without (float64 1.13
and 1.02), 4096 × 4096 × 1024 1.29 and 1.12. LLVM's features do not tell, so it is measured once.
"""

from __future__ import annotations

import time

from tiercel import cache as disk
from tiercel.targets.cpu.isa import Isa, machine_name

#: The rates are equal, or one is twice the other, less what the clock loses to wide vectors.
WIDER = 1.2


def multiplies_wide(wide: Isa, narrow: Isa) -> bool:
    """Whether the vectors of ``wide`` multiply faster than those of ``narrow``, half as long."""
    key = f"width-{machine_name()}-{wide.cpu}-{wide.features}"
    return disk.get("cpu", key, lambda: b"%d" % (_rate(wide) > WIDER * _rate(narrow))) == b"1"


def _rate(isa: Isa) -> float:
    """Multiply-adds a nanosecond, the best of a few short runs."""
    from tiercel.targets.cpu.codegen.peak import chain_count
    from tiercel.targets.cpu.compile import chains

    run, n = chains(isa, "float32"), 50_000
    times = []
    for _ in range(8):
        start = time.perf_counter()
        run(n)
        times.append(time.perf_counter() - start)
    return chain_count(isa.registers) * isa.lanes("float32") * n / min(times) * 1e-9
