"""``grouped_matmul`` of NumPy arrays: one product after the other."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.frontends.numpy.matmul import matmul
from tiercel.frontends.numpy.out import written
from tiercel.lower.epilogue import Given
from tiercel.options import DEFAULT, Options


def grouped_matmul(a: Any, b: Any, offsets: Any, out: Any, given: Given | None) -> NDArray:
    """Rows of group g of a times b[g]; see ``tiercel.grouped_matmul``."""
    a, b = np.asarray(a), np.asarray(b)
    check_shapes(a.shape, b.shape)
    bounds = row_bounds(offsets, len(b), len(a))
    if given is not None:
        parts = [
            matmul(a[start:end], b[group], None, None, options_of(given, group, start, end, b, a))
            for group, (start, end) in enumerate(pairwise(bounds))
        ]
        rest = np.zeros((len(a) - bounds[-1], parts[0].shape[1]), parts[0].dtype)
        made = np.concatenate((*parts, rest))
        return made if out is None else written(out, made)
    shape, dtype = (a.shape[0], b.shape[2]), np.result_type(a, b)
    if out is None:
        out = np.empty(shape, dtype)
    elif not isinstance(out, np.ndarray) or out.shape != shape:
        raise TiercelValueError(
            f"out has shape {getattr(out, 'shape', None)}; allowed: an array of shape {shape}"
        )
    for group, (start, end) in enumerate(pairwise(bounds)):
        if start < end:
            matmul(a[start:end], b[group], out[start:end], None, DEFAULT)
    out[bounds[-1] :] = 0
    return out


def options_of(given: Given, group: int, start: int, end: int, b: Any, a: Any) -> Options:
    """The epilogue with its operands of one group: rows ``start`` to ``end`` of a and of tiles and
    columns, and one matrix of what has a value for each group.
    """
    epilogue = given.epilogue
    if not epilogue.single:
        raise TiercelValueError(
            f"epilogue {epilogue.name} makes {', '.join(epilogue.outputs)}; a grouped product "
            "stores one output. Leave the others out"
        )

    def of_group(name: str, x: Any) -> Any:
        shape = tuple(getattr(x, "shape", ()))
        if len(shape) == 3 and shape[:2] == (len(b), 1):
            return x[group]
        column = len(shape) == 1 and epilogue.pinned.get(name) == "column"
        return x[start:end] if column or (len(shape) == 2 and shape[0] == len(a)) else x

    operands = {name: of_group(name, x) for name, x in given.operands.items()}
    return Options(epilogue=epilogue.given(**operands))


def check_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    """Raise unless a is (M, K) and b (G, K, N)."""
    if len(a) != 2 or len(b) != 3 or a[1] != b[1] or b[0] == 0:
        raise TiercelValueError(
            f"a has shape {tuple(a)} and b {tuple(b)}; allowed: (M, K) and (G, K, N) with the same "
            "K and G of at least 1"
        )


def row_bounds(offsets: Any, groups: int, M: int) -> list[int]:
    """0 and the end of each group, of offsets on the host.

    >>> row_bounds([2, 2, 5], 3, 6)
    [0, 2, 2, 5]
    """
    values = np.asarray(offsets)
    if values.dtype.kind not in "iu" or values.shape not in ((groups,), (groups + 1,)):
        kind = TiercelTypeError if values.dtype.kind not in "iu" else TiercelValueError
        raise kind(
            f"offsets are {values.dtype} of shape {values.shape}; allowed: integers ({groups},), "
            f"the end of each group, or ({groups + 1},), beginning with 0"
        )
    bounds = [0, *values.tolist()] if len(values) == groups else values.tolist()
    if bounds[0] != 0 or bounds[-1] > M or any(np.diff(bounds) < 0):
        raise TiercelValueError(
            f"offsets are {values.tolist()}; allowed: ends that do not decrease, from 0 to a's "
            f"{M} rows"
        )
    return bounds
