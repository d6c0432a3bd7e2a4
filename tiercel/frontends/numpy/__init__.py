"""NumPy arrays: everything between ``tiercel.matmul(a, b)`` and the 2-D product of the engine.

In the order of a call: ``operands`` decides what is ours to compute (``numpys_own`` has the rest),
``shapes`` broadcasts, ``out`` protects the caller's buffer, ``batch`` finds the 2-D products,
``product`` plans and runs one, ``verify`` probes it where that is asked for. ``packed`` keeps a
static operand, ``override`` serves ``with tiercel.numpy_matmul()``.
"""

from tiercel.frontends.numpy.linear import linear
from tiercel.frontends.numpy.matmul import matmul
from tiercel.frontends.numpy.override import numpy_matmul
from tiercel.frontends.numpy.packed import Packed, pack

__all__ = ["Packed", "linear", "matmul", "numpy_matmul", "pack"]
