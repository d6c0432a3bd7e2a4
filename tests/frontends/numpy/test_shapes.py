"""Views that turn batches into rows."""

import numpy as np
import pytest

from tiercel.frontends.numpy.layout import layout
from tiercel.frontends.numpy.shapes import as_shared_matrix, merged_rows

X = np.arange(4 * 6 * 5 * 3).reshape(4, 6, 5, 3)


@pytest.mark.parametrize(
    "x",
    [X, X[..., ::-1], X[..., :2], X[2:, ...], X[:, :, ::5], X[::-1, ::-1, ::-1], X[:1, :1],
     np.broadcast_to(X[0, 0, :1], (4, 6, 5, 3))],
)  # fmt: skip
def test_rows_join_as_a_view(x):
    merged = merged_rows(x)
    assert merged is not None
    np.testing.assert_array_equal(merged, x.reshape(-1, x.shape[-1]))
    assert np.shares_memory(merged, x)


@pytest.mark.parametrize("x", [X[:, :, :4], X[:, ::2], X.swapaxes(0, 1), X[:, :, ::-1]])
def test_rows_that_only_a_copy_joins(x):
    assert merged_rows(x) is None


def test_shared_matrix_of_a_batch():
    matrix = X[0, 0]
    shared = as_shared_matrix(np.broadcast_to(matrix, (7, 2, 5, 3)))
    assert shared is not None
    assert shared.shape == (5, 3)
    assert as_shared_matrix(X) is None
    nothing = np.lib.stride_tricks.as_strided(np.empty(0), (0, 0, 0), (0, 0, 8))
    assert as_shared_matrix(nothing) is None


def test_overlapping_rows_are_no_leading_dimension():
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(20.0), 5)
    assert layout(windows.shape, windows.strides, 8) == "strided"
    assert layout((5, 4), (0, 8), 8) == "strided"
