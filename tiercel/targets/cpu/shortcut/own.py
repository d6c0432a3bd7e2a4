"""``own``: a product of the own kernels on one thread, without the help of Python.

Python needs 8 µs for a product of 0.6 ms, whose operands have taken the caches (320³ on Zen 4).
What the product needs is kept between calls, see ``alone.py``: a filled frame and memory. Only one
thread at a time can use them. Where they are in use, or something is not as when the product was
made known, nothing is done here, and Python multiplies.
"""

from __future__ import annotations

from llvmlite import ir

from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.values import I32, I64, PTR, VOID, Val
from tiercel.targets.cpu.params import DONE, OWN_CALLS
from tiercel.targets.cpu.shortcut.result import into_result
from tiercel.targets.cpu.shortcut.words import (
    AGAIN,
    ALONE,
    BLAS_THREADS,
    CLEAR_EXCEPT,
    CLOCK,
    DICT_GET,
    ENVIRONMENT,
    FRAME,
    IN_USE,
    LIMITED,
    NANOSECONDS,
    NOTES,
    RESTORE_THREAD,
    SAVE_THREAD,
    SETTING,
    SWAPPED,
    TEST_EXCEPT,
    TIMES,
    VARIABLE,
    WARNED,
    WORD,
)

_MONOTONIC = 1  # ``CLOCK_MONOTONIC`` of Linux
_SECOND = 1_000_000_000


def emit(module: ir.Module, makes: Function, fits: Function) -> Function:
    """Emit ``own(head, entry, a, b, out, answer) -> int64``, see ``result.py``."""
    names = ("head", "entry", "a", "b", "out", "answer")
    f = Function(module, "own", dict.fromkeys(names, PTR), I64)
    head, entry, a, b, _, _ = f.args()
    alone = f.load(entry + ALONE * WORD, PTR, WORD)
    may = f.load(head + IN_USE * WORD, I64, WORD).eq(0) & _one_thread(f, head, alone)
    into_result(f, makes, fits, may, lambda c: _multiply(f, head, alone, a, b, c))
    return f


def _one_thread(f: Function, head: Val, alone: Val) -> Val:
    """Whether products still run on one thread: what was asked for, and BLAS's limit, are so."""
    environment, variable = (f.load(head + w * WORD, PTR, WORD) for w in (ENVIRONMENT, VARIABLE))
    get = f.load(head + DICT_GET * WORD, I64, WORD)
    setting = f.call_pointer(get, I64, environment, variable)
    threads = f.call_pointer(f.load(head + BLAS_THREADS * WORD, I64, WORD), I32)
    unlimited = f.load(alone + LIMITED * WORD, I64, WORD).eq(0)
    return setting.eq(f.load(alone + SETTING * WORD, I64, WORD)) & (unlimited | threads.eq(1))


def _multiply(f: Function, head: Val, alone: Val, a: Val, b: Val, c: Val) -> Val:
    """The product without the GIL, timed and counted; whether that is all.

    It is not where ``again`` (``renew.py``) has something else to say, or NumPy may have to warn.
    """
    warned = f.cast(f.load(head + WARNED * WORD, I64, WORD), I32, "trunc")
    swapped = f.load(alone + SWAPPED * WORD, I64, WORD).ne(0)
    first, second = f.select(swapped, b, a), f.select(swapped, a, b)
    frame, again = f.load(alone + FRAME * WORD, PTR, WORD), f.load(alone + AGAIN * WORD, I64, WORD)
    f.store(f.i64(1), head + IN_USE * WORD, WORD)
    f.call_pointer(f.load(head + CLEAR_EXCEPT * WORD, I64, WORD), I32, warned)
    state = f.call_pointer(f.load(head + SAVE_THREAD * WORD, I64, WORD), PTR)
    start = _now(f, head)
    answer = f.call_pointer(again, I64, frame, first, second, c, f.i64(1))
    raised = f.call_pointer(f.load(head + TEST_EXCEPT * WORD, I64, WORD), I32, warned)
    spent = _now(f, head) - start
    f.call_pointer(f.load(head + RESTORE_THREAD * WORD, I64, WORD), VOID, state)
    f.store(f.i64(0), head + IN_USE * WORD, WORD)
    done = answer.eq(DONE) & raised.eq(0)
    with f.when(done):
        notes = f.load(head + NOTES * WORD, PTR, WORD)
        for at, more in (
            (alone + TIMES * WORD, 1), (alone + NANOSECONDS * WORD, spent),
            (notes + OWN_CALLS * WORD, 1),
        ):  # fmt: skip
            f.store(f.load(at, I64, WORD) + more, at, WORD)
    return done


def _now(f: Function, head: Val) -> Val:
    time = f.stack(I64, 2)  # ``timespec``
    clock = f.load(head + CLOCK * WORD, I64, WORD)
    f.call_pointer(clock, I32, f.const(I32, _MONOTONIC), time)
    return f.load(time, I64, WORD) * _SECOND + f.load(time + WORD, I64, WORD)
