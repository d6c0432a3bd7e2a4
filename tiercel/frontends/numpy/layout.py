"""How a matrix lies in memory, in the three words that plans are made of."""

from __future__ import annotations


def layout(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> str:
    """How a matrix lies in memory: "row", "col" or "strided".

    A stride along an axis of length 1 is never used, so it never decides.

    >>> layout((3, 4), (32, 8), 8), layout((3, 4), (8, 24), 8), layout((3, 4), (-64, 16), 8)
    ('row', 'col', 'strided')
    >>> layout((1, 4), (8, 8), 8), layout((4, 1), (8, 24), 8)
    ('row', 'row')
    """
    (rows, columns), (down, across) = shape, strides
    # Next rows must not start inside this one: then a kernel may take the stride for a
    # leading dimension (BLAS: lda >= max(1, n)).
    if (columns == 1 or across == itemsize) and (rows == 1 or down >= columns * itemsize):
        return "row"
    if (rows == 1 or down == itemsize) and (columns == 1 or across >= rows * itemsize):
        return "col"
    return "strided"
