"""The table of known products, word by word: what ``handover.py`` writes and ``known.py`` reads."""

from __future__ import annotations

WORD = 8  # bytes

#: Words of the table's head: addresses of objects, of C functions, and of the words that are
#: written (``params.py``); the floating-point exceptions that NumPy warns of.
(
    NDARRAY, MATMUL, EMPTY, NONE, UNKNOWN, VECTORCALL, INCREF, DECREF, THREAD_IDENT, NOTES,
    SAVE_THREAD, RESTORE_THREAD, CLEAR_EXCEPT, TEST_EXCEPT, WARNED,
) = range(15)  # fmt: skip
HEAD = 16

#: Words of an entry: shapes, strides and addresses of the dtypes of two matrices; then the plan's
#: number, 0 for a product that is not counted. Then how NumPy calls BLAS: address of the routine, 0
#: where ``np.matmul`` is called; what the routine is told of A and B; the address of C's shape, a
#: tuple, and bytes of an element.
NUMBER, ROUTINE, TRANS_A, LDA, TRANS_B, LDB, RESULT, ITEM = range(10, 18)
ENTRY = 32

#: Entries of the table, a power of two. Of products that belong into the same one the latest stays.
ENTRIES = 1024
