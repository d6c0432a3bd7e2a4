"""``direct``: a product of two matrices by the routine of BLAS that ``np.matmul`` would call.

With the same arguments, hence the same bits; what NumPy spends on its way there is saved. The way
ends, and ``np.matmul`` is called, where that does more than call the routine: for an ``out`` that
does not fit, is not contiguous or overlaps an operand; for A times its own transpose; for what is
not aligned; and, to warn as it does, for products that raised a floating-point exception.
"""

from __future__ import annotations

from llvmlite import ir

from tiercel.targets.cpu.codegen.emit import Function
from tiercel.targets.cpu.codegen.values import F32, F64, I32, I64, PTR, VOID, Val
from tiercel.targets.cpu.shortcut.address import AT
from tiercel.targets.cpu.shortcut.numpys_object import (
    ALIGNED,
    AXES,
    DTYPE,
    FLAGS,
    SHAPE,
    STRIDES,
    TYPE,
    WRITEABLE,
)
from tiercel.targets.cpu.shortcut.result import into_result
from tiercel.targets.cpu.shortcut.words import (
    CLEAR_EXCEPT,
    EMPTY,
    ITEM,
    LDA,
    LDB,
    NDARRAY,
    RESTORE_THREAD,
    RESULT,
    ROUTINE,
    SAVE_THREAD,
    TEST_EXCEPT,
    TRANS_A,
    TRANS_B,
    VECTORCALL,
    WARNED,
    WORD,
)

ROW_MAJOR = 101  # ``CBLAS_ORDER``

# Words of an entry: M, K, strides of A; K, N, strides of B; the dtype of A.
_M, _K, _A_STRIDES, _N, _B_STRIDES, _DTYPE = 0, 1, (2, 3), 5, (6, 7), 8


def emit(module: ir.Module, makes: Function, fits: Function) -> Function:
    """Emit ``direct(head, entry, a, b, out, answer) -> int64``; see ``result.py``."""
    names = ("head", "entry", "a", "b", "out", "answer")
    f = Function(module, "direct", dict.fromkeys(names, PTR), I64)
    head, entry, a, b, _, _ = f.args()
    at_a, at_b = (f.load(x + AT, I64, 8) for x in (a, b))
    aligned = f.load(a + FLAGS, I32, 4) & f.load(b + FLAGS, I32, 4) & ALIGNED

    def multiply(c: Val) -> Val:
        return _multiply(f, head, entry, at_a, at_b, f.load(c + AT, I64, 8)).eq(0)

    into_result(f, makes, fits, aligned.ne(0) & at_a.ne(at_b), multiply)
    return f


def _multiply(f: Function, head: Val, entry: Val, a: Val, b: Val, c: Val) -> Val:
    """C = A·B without the GIL; the exceptions that were raised and NumPy warns of."""
    warned = f.cast(f.load(head + WARNED * WORD, I64, WORD), I32, "trunc")
    routine = f.load(entry + ROUTINE * WORD, I64, WORD)
    trans_a, trans_b = (
        f.cast(f.load(entry + word * WORD, I64, WORD), I32, "trunc") for word in (TRANS_A, TRANS_B)
    )
    M, N, K, lda, ldb = (f.load(entry + word * WORD, I64, WORD) for word in (_M, _N, _K, LDA, LDB))
    f.call_pointer(f.load(head + CLEAR_EXCEPT * WORD, I64, WORD), I32, warned)
    state = f.call_pointer(f.load(head + SAVE_THREAD * WORD, I64, WORD), PTR)
    order = f.const(I32, ROW_MAJOR)
    double = f.load(entry + ITEM * WORD, I64, WORD).eq(8)
    with f.either(double) as branches:
        for branch, element in zip(branches, (F64, F32), strict=True):
            with branch:
                one, zero = f.const(element, 1.0), f.const(element, 0.0)
                f.call_pointer(
                    routine, VOID, order, trans_a, trans_b, M, N, K,
                    one, a, lda, b, ldb, zero, c, N,
                )  # fmt: skip
    raised = f.call_pointer(f.load(head + TEST_EXCEPT * WORD, I64, WORD), I32, warned)
    f.call_pointer(f.load(head + RESTORE_THREAD * WORD, I64, WORD), VOID, state)
    return raised


def emit_makes(module: ir.Module) -> Function:
    """Emit ``makes(head, entry) -> array``: ``np.empty(shape, dtype)``."""
    f = Function(module, "makes", {"head": PTR, "entry": PTR}, PTR)
    head, entry = f.args()
    given = f.stack(PTR, 2)
    f.store(f.load(entry + RESULT * WORD, PTR, WORD), given, WORD)
    f.store(f.load(entry + _DTYPE * WORD, PTR, WORD), given + WORD, WORD)
    empty, names = f.load(head + EMPTY * WORD, PTR, WORD), f.pointer(f.i64(0))
    call = f.load(head + VECTORCALL * WORD, I64, WORD)
    f.ret(f.call_pointer(call, PTR, empty, given, f.i64(2), names))
    return f


def emit_fits(module: ir.Module) -> Function:
    """Emit ``fits(head, entry, out, a, b) -> int64``: whether the routine may write to out."""
    args = {"head": PTR, "entry": PTR, "out": PTR, "a": I64, "b": I64}
    f = Function(module, "fits", args, I64)
    head, entry, out, a, b = f.args()

    def word(index: int) -> Val:
        return f.load(entry + index * WORD, I64, WORD)

    answer = f.stack(I64, 1)
    f.store(f.i64(0), answer, WORD)
    is_array = f.load(out + TYPE, I64, WORD).eq(f.load(head + NDARRAY * WORD, I64, WORD))
    with f.when(is_array):
        needed = ALIGNED | WRITEABLE
        like = (f.load(out + FLAGS, I32, 4) & needed).eq(needed)
        like = like & f.load(out + AXES, I32, 4).eq(2)
        like = like & f.load(out + DTYPE, I64, WORD).eq(word(_DTYPE))
        with f.when(like):
            M, K, N, item = word(_M), word(_K), word(_N), word(ITEM)
            shape, strides = (f.load(out + at, PTR, WORD) for at in (SHAPE, STRIDES))
            like = f.load(shape, I64, WORD).eq(M) & f.load(shape + WORD, I64, WORD).eq(N)
            like = like & f.load(strides, I64, WORD).eq(N * item)
            like = like & f.load(strides + WORD, I64, WORD).eq(item)
            c = f.load(out + AT, I64, 8)
            end = c + M * N * item
            for at, rows, cols, (down, right) in (
                (a, M, K, _A_STRIDES), (b, K, N, _B_STRIDES),
            ):  # fmt: skip
                high = at + (rows - 1) * word(down) + (cols - 1) * word(right) + item
                like = like & ((end <= at) | (high <= c))
            with f.when(like):
                f.store(f.i64(1), answer, WORD)
    f.ret(f.load(answer, I64, WORD))
    return f
