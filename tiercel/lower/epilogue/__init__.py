"""Epilogues: a Python function of the accumulator, traced once and lowered to every target.

`trace.py` traces, `graph.py` is what it records, `instance.py` places the operands of one
product. Lowerings: `reference.py` (NumPy), `cuda.py` (CUDA C++), `text.py` (for people).
`derivative.py` makes the backward epilogue, `library.py` has the ready-made ones.
"""

from tiercel.lower.epilogue.instance import Array, Instance, bind
from tiercel.lower.epilogue.trace import Epilogue, Given, epilogue

__all__ = ["Array", "Epilogue", "Given", "Instance", "bind", "epilogue"]
