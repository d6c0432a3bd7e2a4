"""Epilogues: a Python function of the accumulator, traced once and lowered to every target.

`trace.py` traces, `graph.py` is what it records with the words of `vocabulary.py`, `simplify.py`
rewrites it, `instance.py` places the operands of one product (`kinds.py`, `widths.py`). Lowerings:
`reference.py` (NumPy), `cuda/` (CUDA C++), `text.py` (for people). `derivative.py` makes the
backward epilogue, `affine.py` what BLAS puts around a product; `library.py` has ready-made ones.
"""

from tiercel.lower.epilogue.instance import Array, Instance, bind
from tiercel.lower.epilogue.trace import Epilogue, Given, epilogue

__all__ = ["Array", "Epilogue", "Given", "Instance", "bind", "epilogue"]
