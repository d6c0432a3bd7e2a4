"""The table of products that are NumPy's own, and the built-in function that looks there.

See ``known.py`` for what it does, and what it saves. Where a Python object may not be read as this
CPython lays it out, there is none: `builtin` is None, and ``shortcut.py`` looks up products itself.
"""

from __future__ import annotations

import ctypes
import sysconfig
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiercel.targets.cpu import address

_METH_FASTCALL = 0x80


class _MethodDef(ctypes.Structure):
    """``PyMethodDef``."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class Handover:
    """``call(a, b, out)`` is ``np.matmul(a, b, out)`` for products that were added.

    For all others it is ``NotImplemented``. ``notes``: address of the words that it writes, see
    ``params.py``.
    """

    def __init__(self, notes: int) -> None:
        from tiercel.targets.cpu import known
        from tiercel.targets.cpu.compile import known_products

        self._memory = bytearray((known.HEAD + known.ENTRIES * known.ENTRY) * known.WORD)
        self._table = memoryview(self._memory).cast("q")
        self._kept: list[Any] = []  # dtypes whose addresses are in the table
        self._entry_of = known.entry_of
        self._head = known.HEAD
        python = ctypes.pythonapi
        functions = (python.PyObject_Vectorcall, python.Py_IncRef, python.PyThread_get_thread_ident)
        vectorcall, incref, ident = (ctypes.cast(f, ctypes.c_void_p).value or 0 for f in functions)
        for place, word in (
            (known.NDARRAY, id(np.ndarray)), (known.MATMUL, id(np.matmul)),
            (known.VECTORCALL, vectorcall), (known.UNKNOWN, id(NotImplemented)),
            (known.INCREF, incref), (known.THREAD_IDENT, ident), (known.NOTES, notes),
        ):  # fmt: skip
            self._table[place] = word
        self._code = known_products()
        self._code.use(ctypes.addressof(ctypes.c_char.from_buffer(self._memory)))
        self._method = _MethodDef(b"known", self._code.known, _METH_FASTCALL, None)
        new = ctypes.PYFUNCTYPE(ctypes.py_object, *[ctypes.c_void_p] * 3)(
            ("PyCFunction_NewEx", python)
        )
        self.call: Callable[[Any, Any, Any], Any] = new(ctypes.addressof(self._method), None, None)

    def add(self, a: NDArray, b: NDArray, number: int) -> None:
        """Hand products like this one of two matrices to NumPy; ``number``: of its plan, or 0."""
        if a.ndim != 2 or b.ndim != 2:
            return
        key = (*a.shape, *a.strides, *b.shape, *b.strides, id(a.dtype), id(b.dtype))
        self._kept += a.dtype, b.dtype
        at = self._entry_of(key)
        for i, word in enumerate((*key, number)):
            self._table[at + i] = word

    def forget(self) -> None:
        """Hand nothing to NumPy any more."""
        entries = self._table[self._head :]
        entries[:] = memoryview(bytes(entries.nbytes)).cast("q")
        self._kept.clear()


@cache
def handover(notes: int) -> Handover | None:
    """The one of this process; None where there is none, for want of a compiler or a layout."""
    if not address.READABLE or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    try:
        made = Handover(notes)
    except (ImportError, LookupError, AttributeError):
        return None
    return made if _works(made) else None


def _works(made: Handover) -> bool:
    """Whether objects are laid out as the generated code reads them."""
    a, b = np.arange(6.0).reshape(2, 3), np.arange(24.0).reshape(3, 8)[:, ::2]
    before = made.call(a, b, None)
    made.add(a, b, 0)
    after = made.call(a, b, None)
    other = made.call(a, b.astype(np.float32), None)
    made.forget()
    return before is other is NotImplemented and np.array_equal(after, a @ b)
