"""No byte outside the matrices is read or written: they lie against pages that nobody may touch."""

import pytest

from tests.targets.cpu.recipes import python

FENCED = """
import ctypes, mmap, sys
from dataclasses import replace
from itertools import product
import numpy as np
from tests.targets.cpu.recipes import DTYPES, SMALL, exact, integers, recipe, tile
from tiercel.targets.cpu.kernel import execute, pack

libc = ctypes.CDLL(None, use_errno=True)
libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
PAGE, PAGES = mmap.PAGESIZE, 12
maps = []

def fence(x, at_end, column):
    "A copy of x that begins, or ends, at an inaccessible page."
    memory = mmap.mmap(-1, (PAGES + 2) * PAGE)
    maps.append(memory)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in (0, PAGES + 1):
        assert libc.mprotect(start + page * PAGE, PAGE, 0) == 0
    offset = (PAGES + 1) * PAGE - x.nbytes if at_end else PAGE
    flat = np.frombuffer(memory, x.dtype, x.size, offset)
    view = flat.reshape(x.shape[::-1]).T if column else flat.reshape(x.shape)
    view[...] = x
    return view

dtype, scheme = sys.argv[1], sys.argv[2] or None
rng = np.random.default_rng(0)
t = tile(dtype)
for (M, N, K), at_end, columns in product(
    [(t.mr + d, t.nr + e, t.chunk + f) for d in (-2, -1, 0, 1) for e in (-1, 1) for f in (-1, 1)]
    + [(3 * t.mr - 1, 3 * t.nr - 1, 3 * t.chunk - 1), (1, 1, 1), (1, t.nr, 1), (t.mr, 1, t.chunk)],
    (False, True),
    ((False,) * 3, (True,) * 3),
):
    made = recipe(M, N, K, scheme, dtype)
    shapes = (M, K), (K, N), (M, N)
    a, b, c = (
        fence(integers(rng, shape, dtype), at_end, column)
        for shape, column in zip(shapes, columns)
    )
    for right in (b, pack(made, b)):
        c[...] = 9
        assert execute(made, a, right, c)
        assert (c == exact(a, b, dtype)).all()
    if scheme is None and dtype != "complex64":
        c[...] = 9
        assert execute(recipe(M, N, K, None, dtype, target=replace(SMALL, in_turn=True)), a, b, c)
        assert (c == exact(a, b, dtype)).all()
"""


@pytest.mark.parametrize("scheme", ["", "strassen"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex64"])
def test_pages_beside_the_matrices_are_not_touched(dtype: str, scheme: str):
    python(FENCED, dtype, scheme)
