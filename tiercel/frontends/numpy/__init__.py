"""NumPy arrays: everything between ``tiercel.matmul(a, b)`` and the 2-D product of the engine.

In the order of a call: ``matmul`` (or ``linear``) takes it, ``operands`` decides what is ours to
compute (``numpys_own`` has the rest), ``shapes`` broadcasts, ``out`` protects the caller's buffer,
``batch`` finds the 2-D products, ``product`` plans and runs one, ``verify`` probes it (``probe``)
where that is asked for, ``warned`` tells what NumPy would warn of. ``repeated`` has later calls
like it begin at the end of this way. ``packed`` keeps a static operand, ``traced`` applies a
traced epilogue, ``grouped`` multiplies group by group, ``override`` serves
``with tiercel.numpy_matmul()``.
"""

from typing import Any

from tiercel.frontends.numpy.grouped import grouped_matmul
from tiercel.frontends.numpy.linear import linear
from tiercel.frontends.numpy.matmul import matmul
from tiercel.frontends.numpy.override import numpy_matmul
from tiercel.frontends.numpy.packed import Packed, pack

__all__ = ["Packed", "grouped_matmul", "has_epilogues", "linear", "matmul", "numpy_matmul", "pack"]


def has_epilogues(a: Any, b: Any) -> bool:
    """Whether the product of a and b has epilogues; see ``traced.has_epilogues``."""
    from tiercel.frontends.numpy import traced

    return traced.has_epilogues(a, b)
