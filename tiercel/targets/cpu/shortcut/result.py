"""Where a product lands that generated code computes: in a new array, or in the caller's."""

from __future__ import annotations

from collections.abc import Callable

from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.values import I64, PTR, VOID, Val
from tiercel.targets.cpu.shortcut.address import AT
from tiercel.targets.cpu.shortcut.words import DECREF, INCREF, NONE, UNKNOWN, WORD


def into_result(
    f: Function, makes: Function, fits: Function, may: Val, multiply: Callable[[Val], Val]
) -> None:
    """Emit the body of ``f(head, entry, a, b, out, answer) -> int64``.

    ``multiply`` is emitted for an array that ``makes`` made or that ``fits``, where ``may`` holds;
    it returns whether the array then has the product. Non-zero: ``answer`` is the result, a new
    reference, or null after an exception. Zero: nothing was done that another may not do again.
    """
    head, entry, a, b, out, answer = f.args()
    done, slot = f.stack(I64, 1), f.stack(PTR, 1)
    f.store(f.i64(0), done, WORD)
    with f.when(may):
        makes_it = f.cast(out, I64, "ptrtoint").eq(f.load(head + NONE * WORD, I64, WORD))
        f.store(out, slot, WORD)
        with f.either(makes_it) as (new, given):
            with new:
                f.store(f.call(makes, head, entry), slot, WORD)
                f.store(f.pointer(f.i64(0)), answer, WORD)
                f.store(f.i64(1), done, WORD)
            with given:
                at_a, at_b = (f.load(x + AT, I64, 8) for x in (a, b))
                f.store(f.call(fits, head, entry, out, at_a, at_b), done, WORD)
        c = f.load(slot, PTR, WORD)
        made = f.load(done, I64, WORD).ne(0) & f.cast(c, I64, "ptrtoint").ne(0)
        with f.when(made), f.either(multiply(c)) as (well, ill):
            with well:
                f.store(c, answer, WORD)
                with f.when(makes_it.eq(0)):
                    f.call_pointer(f.load(head + INCREF * WORD, I64, WORD), VOID, c)
            with ill:
                f.store(f.i64(0), done, WORD)
                f.store(f.load(head + UNKNOWN * WORD, PTR, WORD), answer, WORD)
                with f.when(makes_it):
                    f.call_pointer(f.load(head + DECREF * WORD, I64, WORD), VOID, c)
    f.ret(f.load(done, I64, WORD))
