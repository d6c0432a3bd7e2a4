import numpy as np
import pytest

from tiercel.bench.case import Case
from tiercel.bench.operands import make_operands
from tiercel.bench.peers import matmul_options
from tiercel.bench.roster import LIBRARIES

PRESENT = [name for name in LIBRARIES if LIBRARIES[name].is_present()]


@pytest.mark.parametrize("name", PRESENT)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("layout_a", ["row", "col"])
@pytest.mark.parametrize("layout_b", ["row", "col"])
def test_every_library_multiplies(name: str, dtype: str, layout_a: str, layout_b: str):
    case = Case(33, 20, 47, dtype=dtype, layout_a=layout_a, layout_b=layout_b)
    operands = make_operands(case, seed=0)
    library = LIBRARIES[name].open()
    library.set_threads(1)
    operands.out.fill(np.nan)
    library.bind(case, operands)()
    assert library.name == name
    assert library.version
    np.testing.assert_allclose(operands.out, operands.a @ operands.b, rtol=0, atol=1e-4)


def test_mkl_packs_a_static_operand():
    case = Case(33, 20, 47, layout_b="col", static_b=True)
    operands = make_operands(case, seed=0)
    if "mkl" in PRESENT:
        LIBRARIES["mkl"].open().bind(case, operands)()
        np.testing.assert_allclose(operands.out, operands.a @ operands.b, rtol=0, atol=1e-4)


def test_options_of_a_case_reach_matmul():
    case = Case(8, 8, 8, threads=2, workspace=0, scheme="classical")
    assert matmul_options(case) == {"workspace": 0, "scheme": "classical"}
