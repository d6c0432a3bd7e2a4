"""``known``: products like earlier ones, handed to whom they are for without the help of Python.

Between products that fill all caches, each object and each function that Python touches on the way
to ``np.matmul``, and NumPy on the way to its BLAS, comes from memory. This built-in function reads
the two array objects, looks them up in a table of its own and goes on in NumPy's BLAS
(``direct.py``) or in an own kernel (``own.py``), or calls what the table names.
"""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.values import I32, I64, PTR, VOID, Val
from tiercel.targets.cpu.params import CALLS, LATEST, THREAD
from tiercel.targets.cpu.shortcut import direct, own
from tiercel.targets.cpu.shortcut.numpys_object import AXES, DTYPE, SHAPE, STRIDES, TYPE
from tiercel.targets.cpu.shortcut.words import (
    ALONE,
    CALLEE,
    DECREF,
    ENTRIES,
    ENTRY,
    HEAD,
    INCREF,
    NDARRAY,
    NONE,
    NOTES,
    NUMBER,
    ROUTINE,
    THREAD_IDENT,
    UNKNOWN,
    VECTORCALL,
    WORD,
)

WORDS = 1 << 64  # values of a word

_FACTOR = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: D. Knuth, TAOCP 3, 6.4


def entry_of(key: Sequence[int]) -> int:
    """Index in the table, in words, of the entry for a key, as the generated code finds it."""
    hashed = 0
    for word in key:
        hashed = ((hashed ^ (word & WORDS - 1)) * _FACTOR) % WORDS
    return HEAD + (hashed >> 32 & ENTRIES - 1) * ENTRY


def emit(module: ir.Module) -> None:
    """Emit ``known(self, args, count)`` for ``METH_FASTCALL``, and ``known_table(address)``.

    ``args``: a, b and out or None. Returns the product, or the object ``UNKNOWN``: also where what
    the table names returns None.
    """
    table = ir.GlobalVariable(module, PTR, "table")
    table.type = PTR  # else llvmlite 0.45 writes "ptr*", which LLVM does not read
    table.linkage = "internal"
    table.initializer = ir.Constant(PTR, None)  # pyright: ignore[reportAttributeAccessIssue]
    setter = Function(module, "known_table", {"address": PTR}, export=True)
    (address,) = setter.args()
    setter.store(address, Val(setter, table), WORD)
    setter.ret()
    makes, fits = direct.emit_makes(module), direct.emit_fits(module)
    ways = (ROUTINE, direct.emit(module, makes, fits)), (ALONE, own.emit(module, makes, fits))

    f = Function(module, "known", {"self": PTR, "args": PTR, "count": I64}, PTR, export=True)
    _, args, count = f.args()
    head = f.load(Val(f, table), PTR, WORD)
    a, b = (f.load(args + i * WORD, PTR, WORD) for i in range(2))
    answer = f.stack(PTR, 1)
    f.store(f.load(head + UNKNOWN * WORD, PTR, WORD), answer, WORD)
    found = f.stack(I64, 1)
    f.store(f.i64(0), found, WORD)
    ndarray = f.load(head + NDARRAY * WORD, I64, WORD)
    arrays = f.load(a + TYPE, I64, WORD).eq(ndarray) & f.load(b + TYPE, I64, WORD).eq(ndarray)
    with f.when(arrays):
        matrices = f.load(a + AXES, I32, 4).eq(2) & f.load(b + AXES, I32, 4).eq(2)
        with f.when(matrices):
            key = _key(f, a, b)
            entry = head + (HEAD * WORD + _slot(f, key) * (ENTRY * WORD))
            same = f.const(ir.IntType(1), 1)
            for i, word in enumerate(key):
                same = same & f.load(entry + i * WORD, I64, WORD).eq(word)
            with f.when(same):
                f.store(f.i64(1), found, WORD)
                done = f.stack(I64, 1)
                f.store(f.i64(0), done, WORD)
                for word, way in ways:
                    with f.when(f.load(entry + word * WORD, I64, WORD).ne(0) & count.eq(3)):
                        out = f.load(args + 2 * WORD, PTR, WORD)
                        f.store(f.call(way, head, entry, a, b, out, answer), done, WORD)
                with f.when(f.load(done, I64, WORD).eq(0)):
                    _call(f, head, entry, args, count, found, answer)
                number = f.load(entry + NUMBER * WORD, I64, WORD)
                known = f.load(answer, I64, WORD).ne(0) & f.load(found, I64, WORD).ne(0)
                known = known & number.ne(0)  # what Python multiplies, Python counts
                here = f.load(done, I64, WORD).ne(0) | f.load(entry + ALONE * WORD, I64, WORD).eq(0)
                with f.when(known & here):
                    _count(f, head, number)
    with f.when(f.load(found, I64, WORD).eq(0)):
        unknown = f.load(answer, PTR, WORD)
        f.call_pointer(f.load(head + INCREF * WORD, I64, WORD), I64, unknown)
    f.ret(f.load(answer, PTR, WORD))


def _call(
    f: Function, head: Val, entry: Val, args: Val, count: Val, found: Val, answer: Val
) -> None:
    """Call the Python object that an entry names; a None is as good as no entry."""
    vectorcall = f.load(head + VECTORCALL * WORD, I64, WORD)
    callee = f.load(entry + CALLEE * WORD, PTR, WORD)
    names = f.pointer(f.i64(0))
    result = f.call_pointer(vectorcall, PTR, callee, args, count, names)
    none = f.load(head + NONE * WORD, I64, WORD)
    with f.either(f.cast(result, I64, "ptrtoint").eq(none)) as (left, made):
        with left:
            f.call_pointer(f.load(head + DECREF * WORD, I64, WORD), VOID, result)
            f.store(f.i64(0), found, WORD)
        with made:
            f.store(result, answer, WORD)


def _key(f: Function, a: Val, b: Val) -> list[Val]:
    key = []
    for x in (a, b):
        for field in (SHAPE, STRIDES):
            at = f.load(x + field, PTR, WORD)
            key += [f.load(at, I64, WORD), f.load(at + WORD, I64, WORD)]
    return key + [f.load(x + DTYPE, I64, WORD) for x in (a, b)]


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
