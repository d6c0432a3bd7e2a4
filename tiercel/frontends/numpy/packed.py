"""``tiercel.pack`` for NumPy arrays: a right operand whose packing is paid for once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.frontends.numpy.layout import layout
from tiercel.frontends.numpy.operands import ACCELERATED, as_operand, as_plain_array
from tiercel.options import Options, is_count
from tiercel.planner.problem import Problem
from tiercel.runtime import pack as pack_operand
from tiercel.runtime import plan_for
from tiercel.targets.cpu.threads import allowed

#: Rows of a that a packing is planned for unless the caller says otherwise: a prefill or a batch.
TYPICAL_ROWS = 2048


@dataclass(frozen=True, eq=False)
class Packed:
    """A static right operand (K, N), packed and summed for one algorithm.

    ``source`` is the caller's array, not a copy: it serves products too small for the packing and
    data that the algorithm's guard refuses, and must not be changed. ``panels`` is the target's
    own form of it, None where the plan is NumPy's product.
    """

    source: NDArray
    algorithm: str
    panels: Any

    __array_ufunc__ = None  # else NumPy takes it for an object that is an element of an array

    @property
    def shape(self) -> tuple[int, ...]:
        """(K, N)."""
        return self.source.shape

    @property
    def dtype(self) -> np.dtype:
        """The dtype of the operand and of its products."""
        return self.source.dtype

    @property
    def ndim(self) -> int:
        """2."""
        return self.source.ndim

    @property
    def nbytes(self) -> int:
        """Memory held in addition to ``source``, in bytes."""
        return 0 if self.panels is None else self.panels.nbytes

    def __repr__(self) -> str:
        return (
            f"Packed({self.dtype} {self.shape}, {self.algorithm}, "
            f"{self.nbytes / 2**20:.1f} MiB besides the array)"
        )


def pack(b: Any, rows: int | None, options: Options) -> Packed:
    """See ``tiercel.pack``."""
    array = as_plain_array(b)
    if array is None or array.dtype.name not in ACCELERATED:
        kind = type(b).__name__ if array is None else str(array.dtype)
        raise TiercelTypeError(
            f"cannot pack {kind}; allowed: a plain ndarray of {', '.join(ACCELERATED)}"
        )
    if array.ndim != 2:
        raise TiercelValueError(
            f"cannot pack an array of {array.ndim} axes; allowed: 2, (K, N); pack each matrix of a "
            "batch by itself"
        )
    if rows is not None and not (is_count(rows) and rows >= 1):
        raise TiercelValueError(f"rows={rows!r} is not a row count; allowed: an int >= 1, or None")
    source = as_operand(array, array.dtype.newbyteorder("="))
    if source.size == 0:
        return Packed(source, "vendor", None)
    K, N = source.shape
    plan = plan_for(
        Problem(
            M=int(rows or TYPICAL_ROWS),
            N=N,
            K=K,
            dtype=source.dtype.name,
            layout_a="row",
            layout_b=layout(source.shape, source.strides, source.itemsize),
            layout_c="row",
            epilogue=None,
            bias=False,
            accuracy=options.accuracy,
            workspace=options.workspace,
            scheme=options.scheme,
            threads=options.threads or allowed(),
            static_b=True,
        )
    )
    panels = None if plan.chosen.algorithm == "vendor" else pack_operand(plan, source)
    return Packed(source, plan.chosen.algorithm, panels)


def checked_packed(packed: Packed, dtype: np.dtype, options: Options) -> Packed | None:
    """``packed`` if it serves a product of ``dtype``; None if NumPy's product needs no panels."""
    if dtype != packed.dtype:
        raise TiercelTypeError(
            f"b is packed as {packed.dtype}, the product is {dtype}; convert a, or pack b in "
            f"{dtype}"
        )
    if options.scheme not in (None, "vendor", packed.algorithm):
        raise TiercelValueError(
            f"b is packed for {packed.algorithm!r}, which scheme={options.scheme!r} cannot use; "
            "leave scheme out, or pass it to pack"
        )
    return None if packed.panels is None else packed
