"""The table of known products, word by word: what Python writes and generated code reads."""

from __future__ import annotations

WORD = 8  # bytes

#: Words of the table's head: addresses of objects, of C functions, and of the words that are
#: written (``params.py``); the floating-point exceptions that NumPy warns of; the environment, a
#: dict, and the variable that sets the number of threads there; whether ``own.py`` runs a product.
(
    NDARRAY, EMPTY, NONE, UNKNOWN, VECTORCALL, INCREF, DECREF, THREAD_IDENT, NOTES,
    SAVE_THREAD, RESTORE_THREAD, CLEAR_EXCEPT, TEST_EXCEPT, WARNED,
    ENVIRONMENT, VARIABLE, DICT_GET, BLAS_THREADS, CLOCK, IN_USE,
) = range(20)  # fmt: skip
HEAD = 32

#: Words of an entry: shapes, strides and addresses of the dtypes of two matrices; then the address
#: of what is called, ``np.matmul`` or an own product, and the plan's number, 0 for one that is
#: not counted here. Then how NumPy calls BLAS: address of the routine, 0 where that is not done;
#: what the routine is told of A and B; the address of C's shape, a tuple, and bytes of an element.
#: Last, for an own product that needs no Python, the address of what follows, or 0.
CALLEE, NUMBER, ROUTINE, TRANS_A, LDA, TRANS_B, LDB, RESULT, ITEM, ALONE = range(10, 20)
ENTRY = 32

#: Words of an own product: address of ``again`` (``renew.py``) and of its parameter block; whether
#: A and B change places; whether BLAS's limit of threads must be one, and the address of the
#: variable's value, as when it was made. Written: calls, and nanoseconds in them.
AGAIN, FRAME, SWAPPED, LIMITED, SETTING, TIMES, NANOSECONDS = range(7)
ALONE_WORDS = 7

#: Entries of the table, a power of two. Of products that belong into the same one the latest stays.
ENTRIES = 1024
