"""The table of products like earlier ones, and the built-in function that looks there.

See ``known.py`` for what it does, and what it saves. Where a Python object may not be read as this
CPython lays it out, there is none: `builtin` is None, and ``shortcut.py`` looks up products itself.
"""

from __future__ import annotations

import ctypes
import sysconfig
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiercel import ufuncs
from tiercel.targets.cpu import threads
from tiercel.targets.cpu.shortcut import address, words
from tiercel.targets.cpu.shortcut.alone import Alone
from tiercel.targets.cpu.shortcut.numpys_blas import BY_NUMPY, Routines, call_of, routines

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
    """``call(a, b, out)`` is ``np.matmul(a, b, out)``, or an own product, for what was added.

    For all others it is ``NotImplemented``. ``notes``: address of the words that it writes, see
    ``params.py``; ``blas``: of NumPy, to be called without ``np.matmul``.
    """

    def __init__(self, notes: int, blas: Routines | None = None) -> None:
        from tiercel.targets.cpu.compile import known_products
        from tiercel.targets.cpu.shortcut import known

        self._memory = bytearray((words.HEAD + words.ENTRIES * words.ENTRY) * words.WORD)
        self._table = memoryview(self._memory).cast("q")
        self._kept: list[Any] = []  # objects whose addresses are in the table
        self._used: list[Any] = []  # or were there, while a product was running
        self._entry_of = known.entry_of
        self._blas = blas
        python = ctypes.pythonapi
        for place, function in (
            (words.VECTORCALL, python.PyObject_Vectorcall), (words.INCREF, python.Py_IncRef),
            (words.DECREF, python.Py_DecRef), (words.SAVE_THREAD, python.PyEval_SaveThread),
            (words.RESTORE_THREAD, python.PyEval_RestoreThread),
            (words.DICT_GET, python.PyDict_GetItemWithError),
            (words.THREAD_IDENT, python.PyThread_get_thread_ident),
        ):  # fmt: skip
            self._table[place] = ctypes.cast(function, ctypes.c_void_p).value or 0
        for place, thing in (
            (words.NDARRAY, np.ndarray), (words.EMPTY, np.empty), (words.NONE, None),
            (words.UNKNOWN, NotImplemented),
        ):  # fmt: skip
            self._table[place] = id(thing)
        self._table[words.NOTES] = notes
        if blas is not None:
            self._table[words.CLEAR_EXCEPT] = blas.clear_except
            self._table[words.TEST_EXCEPT] = blas.test_except
            self._table[words.WARNED] = blas.warned
            self._table[words.BLAS_THREADS] = blas.thread_limit
            self._table[words.CLOCK] = blas.clock
        environment = threads.environment()
        self._runs_own = blas is not None and environment is not None
        if environment is not None:
            self._table[words.ENVIRONMENT], self._table[words.VARIABLE] = map(id, environment)
        self._code = known_products()
        self._code.use(ctypes.addressof(ctypes.c_char.from_buffer(self._memory)))
        self._method = _MethodDef(b"known", self._code.known, _METH_FASTCALL, None)
        new = ctypes.PYFUNCTYPE(ctypes.py_object, *[ctypes.c_void_p] * 3)(
            ("PyCFunction_NewEx", python)
        )
        self.call: Callable[[Any, Any, Any], Any] = new(ctypes.addressof(self._method), None, None)

    def add(
        self, a: NDArray, b: NDArray, number: int, own: Callable[..., Any] | None = None,
        alone: Alone | None = None,
    ) -> None:  # fmt: skip
        """Hand products like this one of two matrices to NumPy, or to ``own(a, b, out)``.

        ``number``: of the plan that is counted, or 0. What ``own`` returns None for is not known.
        ``alone``: how to multiply without ``own``, if it can be done.
        """
        if a.ndim != 2 or b.ndim != 2:
            return
        key = (*a.shape, *a.strides, *b.shape, *b.strides, id(a.dtype), id(b.dtype))
        result = a.shape[0], b.shape[1]
        callee = ufuncs.matmul if own is None else own
        self._kept += a.dtype, b.dtype, result, callee, alone
        call = call_of(self._blas, a, b) if self._blas and own is None else BY_NUMPY
        quick = alone.address if alone and self._runs_own else 0
        entry = (*key, id(callee), number, *call, id(result), a.itemsize, quick)
        at = self._entry_of(key)
        # In one step: another thread may look for this product, or write to this entry.
        self._table[at : at + len(entry)] = memoryview(array("q", entry))

    def forget(self) -> None:
        """Hand nothing to NumPy any more."""
        entries = self._table[words.HEAD :]
        entries[:] = memoryview(bytes(entries.nbytes)).cast("q")
        # A product that runs without the GIL still uses what its entry named.
        self._used = self._kept if self._table[words.IN_USE] else []
        self._kept = []


_made: dict[int, Handover | None] = {}


def handover(notes: int) -> Handover | None:
    """The one of this process; None where there is none, for want of a compiler or a layout."""
    # Threads that need it at once make one each. All get the first: nobody else keeps its code.
    return _made[notes] if notes in _made else _made.setdefault(notes, _make(notes))


def _make(notes: int) -> Handover | None:
    if not address.READABLE or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    for blas in (routines(), None):
        try:
            made = Handover(notes, blas)
        except (ImportError, LookupError, AttributeError):
            return None
        if _works(made):
            return made
    return None


def _works(made: Handover) -> bool:
    """Whether objects are laid out as the generated code reads them, and multiplied as by NumPy."""
    a, b = np.arange(6.0).reshape(2, 3), np.arange(24.0).reshape(3, 8)[:, ::2]
    before = made.call(a, b, None)
    made.add(a, b, 0)
    after = made.call(a, b, None)
    other = made.call(a, b.astype(np.float32), None)
    right = before is other is NotImplemented and np.array_equal(after, a @ b)
    for dtype in (np.float32, np.float64):
        a, b = (np.cos(np.arange(n, dtype=dtype)) for n in (7 * 5, 5 * 9))
        for x, y in ((a.reshape(7, 5), b.reshape(5, 9)), (a.reshape(5, 7).T, b.reshape(9, 5).T)):
            made.add(x, y, 0)
            out = np.empty((7, 9), dtype)
            made.call(x, y, out)
            right = (
                right and np.array_equal(out, x @ y) and np.array_equal(made.call(x, y, None), out)
            )
    made.forget()
    return right
