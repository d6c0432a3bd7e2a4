"""Schemes as programs of one accumulator: fused into a GEMM kernel, with the least traffic.

``accumulate`` searches a *route* (``draft.py``, ``anneal.py``, ``exact.py``): the order in which
products and saved sums join the accumulator. ``build.py`` turns it into an
:class:`AccumulatorProgram`, ``verify.py`` proves that this multiplies, and ``interpret.py`` runs
it.
"""

from tiercel.lower.accumulator.compile import accumulate
from tiercel.lower.accumulator.cost import Cost
from tiercel.lower.accumulator.interpret import Rounding, run
from tiercel.lower.accumulator.program import (
    AccumulatorProgram,
    Load,
    Multiply,
    Plane,
    Save,
    Step,
    Store,
    classical,
)
from tiercel.lower.accumulator.verify import verify

__all__ = [
    "AccumulatorProgram",
    "Cost",
    "Load",
    "Multiply",
    "Plane",
    "Rounding",
    "Save",
    "Step",
    "Store",
    "accumulate",
    "classical",
    "run",
    "verify",
]
