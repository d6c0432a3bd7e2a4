"""What an operand is to a product, told from its shape: a tile, a row, a column, a scalar.

The accumulator is (..., M, N). A value may have N columns, N/2 (after `pairs`) or 2N (before it):
its *width* is 0, -1 or 1, the base-2 logarithm of its columns over N.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tiercel.errors import TiercelValueError

Kind = Literal["tile", "row", "column", "scalar", "batch"]

KINDS: tuple[Kind, ...] = ("tile", "row", "column", "scalar", "batch")

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """Where the elements of an operand go.

    ``width`` is None for columns, scalars and per-batch values, and for operands that are repeated
    along the columns. ``batched``: every matrix of a batch has its own.
    """

    kind: Kind
    width: int | None = None
    batched: bool = False


def width_of(columns: int, N: int) -> int | None:
    """Width of a value of so many columns beside an accumulator of N; None where it has none.

    Compared one by one: a compiler's symbolic sizes have no hash.

    >>> [width_of(columns, 6) for columns in (3, 6, 12, 4)]
    [-1, 0, 1, None]
    """
    if columns == N:
        return 0
    if columns == 2 * N:
        return 1
    return -1 if N % 2 == 0 and columns == N // 2 else None


def place(
    name: str, shape: Shape, acc: Shape, pinned: Kind | None = None, repeated: bool = False
) -> Place:
    """The place of an operand of this shape beside an accumulator (..., M, N).

    ``pinned``: the kind that the epilogue's author declared. ``repeated``: any number of columns.

    Raises ``TiercelValueError`` for shapes that fit nothing or more than one kind.

    >>> place("bias", (5,), (3, 5)), place("r", (3, 1), (3, 5)).kind
    (Place(kind='row', width=0, batched=False), 'column')
    >>> place("r", (1, 5), (1, 5)).kind, place("r", (1, 5), (1, 5), "tile").kind
    ('row', 'tile')
    >>> place("bias", (4,), (4, 4))
    Traceback (most recent call last):
      ...
    tiercel.errors.TiercelValueError: operand 'bias' has shape (4,), which is a row and a column \
of a 4 x 4 product; pass shape (1, 4) for a row or (4, 1) for a column
    """
    found = _place(name, shape, acc, pinned, repeated)
    one_element = found.kind in ("scalar", "batch")
    if pinned is not None and found.kind != pinned and not (one_element and pinned != "scalar"):
        raise TiercelValueError(
            f"operand {name!r} has shape {shape}, a {found.kind} of a {_product(acc)} product, but "
            f"this epilogue takes a {pinned}; {_allowed(acc, pinned)}"
        )
    return found


def _place(name: str, shape: Shape, acc: Shape, pinned: Kind | None, repeated: bool) -> Place:
    *batch, M, N = acc
    if all(size == 1 for size in shape):
        return Place("scalar")
    if len(shape) == 1:
        return _vector(name, shape, acc, pinned, repeated)
    *own_batch, rows, cols = shape
    batched = any(size != 1 for size in own_batch)
    aligned = own_batch[-len(batch) :] if batch else []
    fits = all(size == 1 for size in own_batch[: -len(batch) or None]) and all(
        size in (1, whole)
        for size, whole in zip(aligned, batch[len(batch) - len(aligned) :], strict=True)
    )
    width = None if repeated else width_of(cols, N)
    has_columns = repeated or width is not None
    if pinned == "tile" and fits and rows == M and has_columns:
        return Place("tile", width, batched)  # of one row, or of one column, too
    if fits and (rows, cols) == (1, 1) and not repeated:
        return Place("batch", batched=batched)
    if fits and rows == 1 and has_columns:
        return Place("row", width, batched)
    if fits and rows == M and cols == 1 and not repeated:
        return Place("column", batched=batched)
    if fits and rows == M and has_columns:
        return Place("tile", width, batched)
    raise _misfit(name, shape, acc)


def _vector(name: str, shape: Shape, acc: Shape, pinned: Kind | None, repeated: bool) -> Place:
    M, N = acc[-2:]
    width = None if repeated else width_of(shape[0], N)
    row = (repeated or width is not None) and pinned in (None, "row")
    column = shape[0] == M and pinned in (None, "column")
    if row and column:
        raise TiercelValueError(
            f"operand {name!r} has shape {shape}, which is a row and a column of a {M} x {N} "
            f"product; pass shape (1, {shape[0]}) for a row or ({M}, 1) for a column"
        )
    if row:
        return Place("row", width)
    if column and pinned == "column":
        return Place("column")
    raise _misfit(name, shape, acc)


def _misfit(name: str, shape: Shape, acc: Shape) -> TiercelValueError:
    return TiercelValueError(
        f"operand {name!r} has shape {shape}, which fits no part of a {_product(acc)} product; "
        f"{_allowed(acc)}"
    )


def _allowed(acc: Shape, kind: Kind | None = None) -> str:
    M, N = acc[-2:]
    columns = "N, N/2 or 2N" if N % 2 == 0 else "N or 2N"
    shapes = {
        "scalar": "a number or one element for a scalar",
        "row": f"(1, N) or (N,) = ({N},) for a row",
        "column": f"(M, 1) = ({M}, 1) for a column",
        "tile": f"(M, N) = ({M}, {N}) for a tile",
        "batch": "(B, 1, 1) for a value per matrix",
    }
    listed = shapes[kind] if kind else ", ".join(shapes.values())
    return f"allowed: {listed}; rows and tiles have {columns} columns; leading axes are batches"


def _product(acc: Shape) -> str:
    return " x ".join(str(size) for size in acc)
