"""Grouped products of arrays: the loop's semantics, and what each refusal says."""

import numpy as np
import pytest

import tiercel
from tiercel import epilogues
from tiercel.errors import TiercelTypeError, TiercelValueError

RNG = np.random.default_rng(4)
SIZES = [3, 0, 7, 1]
ENDS = np.cumsum(SIZES)


def operands(dtype="f8", M=13, K=5, N=6):
    a, b = RNG.standard_normal((M, K)), RNG.standard_normal((len(SIZES), K, N))
    return a.astype(dtype), b.astype(dtype)


def exact(a, b):
    """Zeros behind the groups, which end before the rows do."""
    out = np.zeros((len(a), b.shape[2]))
    for group, (end, size) in enumerate(zip(ENDS, SIZES, strict=True)):
        out[end - size : end] = a[end - size : end].astype("f8") @ b[group]
    return out


@pytest.mark.parametrize("dtype", ["f2", "f4", "f8", "c16", "i8"])
def test_each_group_has_its_own_matrix(dtype: str):
    a, b = operands(dtype)
    found = tiercel.grouped_matmul(a, b, ENDS)
    assert found.dtype == dtype
    wanted = exact(np.real(a), np.real(b))
    tolerance = {"f2": 1e-2, "f4": 1e-5}.get(dtype, 1e-12)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance)


def test_offsets_may_begin_with_zero_and_be_a_list():
    a, b = operands()
    for offsets in (ENDS.tolist(), [0, *ENDS], np.append(0, ENDS).astype("u4")):
        np.testing.assert_allclose(tiercel.grouped_matmul(a, b, offsets), exact(a, b))


def test_out_and_layouts():
    a, b = operands()
    out = np.full((13, 6), np.nan)
    across = np.ascontiguousarray(b.swapaxes(1, 2)).swapaxes(1, 2)
    assert tiercel.grouped_matmul(np.asfortranarray(a), across, ENDS, out=out) is out
    np.testing.assert_allclose(out, exact(a, b))


def test_refusals_name_the_argument():
    a, b = operands()
    with pytest.raises(TiercelValueError, match=r"offsets are \[3, 2, 10, 11\]; allowed: ends"):
        tiercel.grouped_matmul(a, b, [3, 2, 10, 11])
    with pytest.raises(TiercelValueError, match="to a's 13 rows"):
        tiercel.grouped_matmul(a, b, [3, 3, 10, 14])
    with pytest.raises(TiercelValueError, match=r"of shape \(2,\); allowed: integers \(4,\)"):
        tiercel.grouped_matmul(a, b, [3, 3])
    with pytest.raises(TiercelTypeError, match="offsets are float64"):
        tiercel.grouped_matmul(a, b, ENDS * 1.0)
    with pytest.raises(
        TiercelValueError, match=r"b \(4, 6, 5\); allowed: \(M, K\) and \(G, K, N\)"
    ):
        tiercel.grouped_matmul(a, b.swapaxes(1, 2), ENDS)
    with pytest.raises(TiercelValueError, match="out has shape"):
        tiercel.grouped_matmul(a, b, ENDS, out=np.empty((13, 5)))


@tiercel.epilogue(weight="column")
def expert(acc, bias, weight, residual):
    return epilogues.relu(acc + bias) * weight + residual


def test_epilogues_see_the_operands_of_their_group():
    a, b = operands()
    bias, weight = RNG.standard_normal((4, 1, 6)), RNG.standard_normal(13)
    residual = RNG.standard_normal((13, 6))
    given = {"weight": weight, "residual": residual}
    found = tiercel.grouped_matmul(a, b, ENDS, epilogue=expert, bias=bias, **given)
    biases = np.repeat(bias[:, 0], SIZES, axis=0)
    wanted = np.maximum(exact(a, b)[:11] + biases, 0) * weight[:11, None] + residual[:11]
    np.testing.assert_allclose(found, np.pad(wanted, ((0, 2), (0, 0))))
    out = np.empty((13, 3))
    assert tiercel.grouped_matmul(a, b, ENDS, out=out, epilogue=epilogues.swiglu) is out
    np.testing.assert_allclose(out, epilogues.swiglu(exact(a, b)))
    named = tiercel.grouped_matmul(a, b, ENDS, epilogue="relu")
    np.testing.assert_allclose(named, np.maximum(exact(a, b), 0))


def test_epilogues_that_do_not_fit_are_refused():
    a, b = operands()
    with pytest.raises(TiercelValueError, match="stores one output"):
        tiercel.grouped_matmul(a, b, ENDS, epilogue=epilogues.rms_statistics)
    with pytest.raises(TiercelTypeError, match="scale: neither an option"):
        tiercel.grouped_matmul(a, b, ENDS, scale=2.0)
    with pytest.raises(TiercelValueError, match="out has shape"):
        tiercel.grouped_matmul(a, b, ENDS, out=np.empty((13, 6)), epilogue=epilogues.swiglu)
