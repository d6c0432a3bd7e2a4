import numpy as np
import pytest

from tiercel.bench.case import Case
from tiercel.bench.operands import ALIGNMENT, make_operands


@pytest.mark.parametrize("layout", ["row", "col"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_operands_are_aligned_and_laid_out(layout: str, dtype: str):
    case = Case(5, 7, 3, dtype=dtype, layout_a=layout, layout_b=layout)
    made = make_operands(case, seed=1)
    assert made.a.shape == (5, 3)
    assert made.b.shape == (3, 7)
    assert made.out.shape == (5, 7)
    for array in (made.a, made.b, made.out):
        assert array.ctypes.data % ALIGNMENT == 0
        assert array.dtype == dtype
    assert made.a.flags.f_contiguous == (layout == "col")
    assert made.out.flags.c_contiguous


def test_same_seed_same_data():
    first, second = (make_operands(Case(9, 8, 7), seed=5) for _ in range(2))
    assert np.array_equal(first.a, second.a)
    assert np.array_equal(first.b, second.b)
    assert not np.array_equal(first.a, make_operands(Case(9, 8, 7), seed=6).a)
