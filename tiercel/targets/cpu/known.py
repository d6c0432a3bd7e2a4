"""``known``: products that are NumPy's own, handed to it without the help of Python.

Between products that fill all caches, each object and each function that Python touches on the way
to ``np.matmul`` comes from memory. This built-in function reads the two array objects, looks them
up in a table of its own and calls NumPy. What that adds to NumPy's own call: 7 to 10 µs between
products of 5.4 ms, where a look-up in Python added 44, and 1 to 2.5 between products of 0.9 ms,
where it added 5.5.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from tiercel.targets.cpu.address import AT
from tiercel.targets.cpu.emit import I32, I64, PTR, Function, Val
from tiercel.targets.cpu.params import CALLS, LATEST, THREAD

WORD, WORDS = 8, 1 << 64  # bytes of a word, and its values

#: Words of the table's head: addresses of objects, of C functions, and of the words that
#: are written (``params.py``).
NDARRAY, MATMUL, VECTORCALL, UNKNOWN, INCREF, THREAD_IDENT, NOTES = range(7)
HEAD = 8

#: Words of an entry: shapes, strides and addresses of the dtypes of two matrices; then the plan's
#: number, 0 for a product that is not counted.
NUMBER, ENTRY = 10, 16

#: Entries of the table, a power of two. Of products that belong into the same one the latest stays.
ENTRIES = 1024

_FACTOR = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: D. Knuth, TAOCP 3, 6.4

# ``PyArrayObject``: data, number of axes (int), shape, strides, base, dtype
_AXES, _SHAPE, _STRIDES, _DTYPE = AT + 8, AT + 16, AT + 24, AT + 40
_TYPE = AT - WORD  # the last word of an object's head


def entry_of(key: Sequence[int]) -> int:
    """Index in the table, in words, of the entry for a key, as the generated code finds it."""
    hashed = 0
    for word in key:
        hashed = ((hashed ^ (word & WORDS - 1)) * _FACTOR) % WORDS
    return HEAD + (hashed >> 32 & ENTRIES - 1) * ENTRY


def emit(module: ir.Module) -> None:
    """Emit ``known(self, args, count)`` for ``METH_FASTCALL``, and ``known_table(address)``.

    ``args``: a, b and out or None. Returns what ``np.matmul`` does, or the object ``UNKNOWN``.
    """
    table = ir.GlobalVariable(module, PTR, "table")
    table.linkage = "internal"
    table.initializer = ir.Constant(PTR, None)  # pyright: ignore[reportAttributeAccessIssue]
    setter = Function(module, "known_table", {"address": PTR}, export=True)
    (address,) = setter.args()
    setter.store(address, Val(setter, table), WORD)
    setter.ret()

    f = Function(module, "known", {"self": PTR, "args": PTR, "count": I64}, PTR, export=True)
    _, args, count = f.args()
    head = f.load(Val(f, table), PTR, WORD)
    a, b = (f.load(args + i * WORD, PTR, WORD) for i in range(2))
    answer = f.stack(PTR, 1)
    f.store(f.load(head + UNKNOWN * WORD, PTR, WORD), answer, WORD)
    found = f.stack(I64, 1)
    f.store(f.i64(0), found, WORD)
    ndarray = f.load(head + NDARRAY * WORD, I64, WORD)
    arrays = f.load(a + _TYPE, I64, WORD).eq(ndarray) & f.load(b + _TYPE, I64, WORD).eq(ndarray)
    with f.when(arrays):
        matrices = f.load(a + _AXES, I32, 4).eq(2) & f.load(b + _AXES, I32, 4).eq(2)
        with f.when(matrices):
            key = _key(f, a, b)
            entry = head + (HEAD * WORD + _slot(f, key) * (ENTRY * WORD))
            same = f.const(ir.IntType(1), 1)
            for i, word in enumerate(key):
                same = same & f.load(entry + i * WORD, I64, WORD).eq(word)
            with f.when(same):
                f.store(f.i64(1), found, WORD)
                vectorcall = f.load(head + VECTORCALL * WORD, I64, WORD)
                matmul = f.load(head + MATMUL * WORD, PTR, WORD)
                names = f.pointer(f.i64(0))
                result = f.call_pointer(vectorcall, PTR, matmul, args, count, names)
                f.store(result, answer, WORD)
                number = f.load(entry + NUMBER * WORD, I64, WORD)
                with f.when(f.cast(result, I64, "ptrtoint").ne(0) & number.ne(0)):
                    _count(f, head, number)
    with f.when(f.load(found, I64, WORD).eq(0)):
        unknown = f.load(answer, PTR, WORD)
        f.call_pointer(f.load(head + INCREF * WORD, I64, WORD), I64, unknown)
    f.ret(f.load(answer, PTR, WORD))


def _key(f: Function, a: Val, b: Val) -> list[Val]:
    key = []
    for x in (a, b):
        for field in (_SHAPE, _STRIDES):
            at = f.load(x + field, PTR, WORD)
            key += [f.load(at, I64, WORD), f.load(at + WORD, I64, WORD)]
    return key + [f.load(x + _DTYPE, I64, WORD) for x in (a, b)]


def _slot(f: Function, key: list[Val]) -> Val:
    factor = f.const(I64, _FACTOR - WORDS)
    hashed = f.i64(0)
    for word in key:
        hashed = Val(f, f.b.xor(hashed.v, word.v)) * factor
    return hashed.shift_right(32) & (ENTRIES - 1)


def _count(f: Function, head: Val, number: Val) -> None:
    notes = f.load(head + NOTES * WORD, PTR, WORD)
    thread = f.call_pointer(f.load(head + THREAD_IDENT * WORD, I64, WORD), I64)
    calls = f.load(notes + CALLS * WORD, I64, WORD)
    for place, value in ((CALLS, calls + 1), (LATEST, number), (THREAD, thread)):
        f.store(value, notes + place * WORD, WORD)
