"""The public functions: which frontend answers, how errors read, what a tiny call costs."""

import subprocess
import sys
import timeit

import numpy as np
import pytest

from tiercel import api
from tiercel.errors import TiercelError, TiercelTypeError, TiercelValueError


def test_errors_say_what_the_function_was_called_with():
    a, b = np.ones((3, 4), "f4"), np.ones((5, 6))
    with pytest.raises(TiercelValueError) as raised:
        api.matmul(a, b)
    assert str(raised.value).startswith("matmul of a float32 (3, 4) and b float64 (5, 6): inner")
    assert raised.value.__suppress_context__
    with pytest.raises(TiercelValueError, match=r"^linear of x \(list\) and w float64 \(5, 6\)"):
        api.linear([[1.0]], b)
    with pytest.raises(TiercelTypeError, match=r"threads='2' is not"):
        api.matmul(a, a, threads="2")  # pyright: ignore[reportArgumentType]


def test_linear_speaks_of_its_own_operands():
    with pytest.raises(TiercelValueError, match=r"last axis of x has 3 elements, that of w 4"):
        api.linear(np.ones((2, 3)), np.ones((3, 4)))


def test_errors_are_what_numpy_would_raise():
    for error in (TiercelValueError, ValueError, TiercelError):
        with pytest.raises(error):
            api.matmul(np.ones((3, 4)), np.ones((3, 4)))


def test_a_framework_gets_its_own_frontend(monkeypatch):
    class Foreign:
        __module__ = "framework.tensors"

    monkeypatch.setitem(api._FRONTENDS, "framework", lambda: "its own")
    assert api._frontend(Foreign, np.ndarray) == "its own"
    assert api._frontend(np.ndarray, Foreign) == "its own"
    assert api._frontend(np.ndarray, list).__name__ == "tiercel.frontends.numpy"


def test_models_need_torch():
    program = """
import sys
sys.modules["torch"] = None
import tiercel
try:
    tiercel.patch(object())
except tiercel.TiercelRuntimeError as error:
    print(error)
"""
    command = [sys.executable, "-c", program]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "tiercel[torch]" in printed


def test_out_may_be_positional_as_for_numpy():
    out = np.empty((2, 2))
    assert api.matmul(np.eye(2), np.eye(2), out) is out


@pytest.mark.parametrize("out", [None, np.empty((4, 4), "f4")])
def test_a_tiny_call_costs_at_most_3_us_more_than_numpy(out):
    a = np.ones((4, 4), "f4")
    calls, rounds = 2000, 15

    def best(function):
        return min(timeit.repeat(lambda: function(a, a, out=out), number=calls, repeat=rounds))

    best(api.matmul)
    assert (best(api.matmul) - best(np.matmul)) / calls < 3e-6


def test_numpys_product_may_be_replaced_by_tiercels():
    """What is left to NumPy must not come back; measuring the machine multiplies, too."""
    use = """
import numpy as np, tiercel
np.matmul = np.dot = tiercel.matmul
large, small, whole = np.ones((900, 900), "f4"), np.ones((3, 3)), np.ones((300, 300), int)
for x in (large, small, whole, large.astype("f2"), large + 1j, np.ma.ones((3, 3))):
    for _ in range(2):
        assert (np.matmul(x, x) == x @ x).all()
out = np.empty((3, 3))
assert np.matmul(small, small, out=out) is out
assert (tiercel.matmul(large, large, verify=True) == 900).all()
with tiercel.numpy_matmul() as wrap:
    assert (wrap(large) @ large == 900).all()
"""
    ran = subprocess.run([sys.executable, "-c", use], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
