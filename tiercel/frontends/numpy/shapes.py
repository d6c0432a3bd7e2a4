"""The shape rules of ``np.matmul``: 1-D operands, batches, and batches that are really rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tiercel.errors import TiercelValueError

Shape = tuple[int, ...]


@dataclass(frozen=True)
class ProductShape:
    """Sizes of ``a @ b``: (batch..., M, K) times (batch..., K, N), and the user-visible result.

    ``row_vector`` says that a was 1-D (M = 1, dropped from ``result``), ``column_vector`` that b
    was (N = 1, dropped).
    """

    batch: Shape
    M: int
    N: int
    K: int
    row_vector: bool
    column_vector: bool

    @property
    def core(self) -> Shape:
        """The matrix axes of the result that the user sees: (M, N), (M,), (N,) or ()."""
        return (() if self.row_vector else (self.M,)) + (() if self.column_vector else (self.N,))

    @property
    def result(self) -> Shape:
        return self.batch + self.core

    @property
    def work(self) -> int:
        """Multiplications of one matrix of the batch."""
        return self.M * self.N * self.K


@lru_cache(maxsize=1024)
def product_shape(a: Shape, b: Shape) -> ProductShape:
    """Sizes of the product of arrays of shapes a and b.

    Raises ``TiercelValueError`` where ``np.matmul`` raises ``ValueError``: a 0-D operand, inner
    sizes that differ, batch axes that do not broadcast.

    >>> product_shape((5, 1, 2, 3), (4, 3, 7)).result
    (5, 4, 2, 7)
    >>> product_shape((3,), (4,))
    Traceback (most recent call last):
      ...
    tiercel.errors.TiercelValueError: inner sizes differ: the last axis of a has 3 elements, \
axis 0 of b has 4; they must be equal (did you mean a transposed operand?)
    """
    for name, shape in (("a", a), ("b", b)):
        if len(shape) == 0:
            raise TiercelValueError(
                f"{name} is 0-dimensional; a product needs at least 1 axis (use * to scale)"
            )
    (inner,) = b[-2:-1] or b
    if a[-1] != inner:
        raise TiercelValueError(
            f"inner sizes differ: the last axis of a has {a[-1]} elements, "
            f"axis {len(b) - 2 if len(b) > 1 else 0} of b has {inner}; they must be equal "
            "(did you mean a transposed operand?)"
        )
    try:
        batch = np.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        raise TiercelValueError(
            f"batch axes {a[:-2]} of a and {b[:-2]} of b do not broadcast: counted from the right, "
            "sizes must be equal or 1"
        ) from None
    return ProductShape(
        batch=batch,
        M=a[-2] if len(a) > 1 else 1,
        N=b[-1] if len(b) > 1 else 1,
        K=inner,
        row_vector=len(a) == 1,
        column_vector=len(b) == 1,
    )


def as_row(a: NDArray) -> NDArray:
    """A 1-D left operand as a (1, K) view; others unchanged."""
    return a[None, :] if a.ndim == 1 else a


def as_column(b: NDArray) -> NDArray:
    """A 1-D right operand as a (K, 1) view; others unchanged."""
    return b[:, None] if b.ndim == 1 else b


def with_matrix_axes(c: NDArray, shape: ProductShape) -> NDArray:
    """View of a result (batch..., core...) as (batch..., M, N)."""
    if shape.column_vector:
        c = c[..., None]
    if shape.row_vector:
        c = c[..., None, :]
    return c


def without_matrix_axes(c: NDArray, shape: ProductShape):
    """The reverse of `with_matrix_axes`; a NumPy scalar for the product of two vectors."""
    if shape.row_vector:
        c = c[..., 0, :]
    if shape.column_vector:
        c = c[..., 0]
    return c if c.ndim else c[()]


def merged_rows(x: NDArray) -> NDArray | None:
    """View of x (..., M, K) as one matrix (prod(...) M, K), or None if only a copy could do that.

    >>> merged_rows(np.ones((4, 3, 2))).shape, merged_rows(np.ones((4, 3, 2))[:, :2])
    ((12, 2), None)
    """
    rows, step = 1, 0
    for size, stride in zip(reversed(x.shape[:-1]), reversed(x.strides[:-1]), strict=True):
        if size == 1:
            continue
        if rows == 1:
            step = stride
        elif stride != step * rows:
            return None
        rows *= size
    return x.reshape(rows, x.shape[-1])


def as_shared_matrix(b: NDArray) -> NDArray | None:
    """The one matrix that every element of the batch of b repeats, or None if they differ."""
    if b.ndim == 2:
        return b
    axes = zip(b.shape[:-2], b.strides[:-2], strict=True)
    # An array without elements may have any strides, and no first matrix.
    if b.size and all(size == 1 or stride == 0 for size, stride in axes):
        return b[(0,) * (b.ndim - 2)]
    return None
