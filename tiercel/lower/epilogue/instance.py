"""An epilogue as one product uses it: every operand placed, every width and type settled.

An `Instance` holds what generated code depends on and no sizes, so that one compiled kernel serves
all products that use the epilogue in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from tiercel.errors import TiercelValueError
from tiercel.lower.epilogue.graph import Node, Reduction, node_of, topological
from tiercel.lower.epilogue.kinds import Kind, Place, Shape, place
from tiercel.lower.epilogue.operations import Type
from tiercel.lower.epilogue.widths import settle

if TYPE_CHECKING:
    from tiercel.lower.epilogue.trace import Epilogue

#: How the columns of an array lie in memory: "vector": adjacent, and each group of lanes aligned to
#: its own size; "unit": adjacent; "strided": a stride is passed.
Layout = Literal["vector", "unit", "strided"]

#: Aligned groups of columns of the product that a kernel may load at once.
SPAN = 128

#: Dtypes of operands and outputs -> bytes.
DTYPES = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3": 1, "float8_e5m2": 1,
    "int64": 8, "int32": 4,
}  # fmt: skip


@dataclass(frozen=True)
class Array:
    """What is known of an array before the kernel exists.

    ``strides`` count elements and are None for row-major; ``address`` is that of the first
    element. A Python number is an ``Array`` whose ``shape`` is None; kernels take it by value.
    """

    shape: Shape | None
    dtype: str = "float32"
    strides: tuple[int, ...] | None = None
    address: int = 0


@dataclass(frozen=True)
class Operand:
    """A parameter as this product passes it.

    ``by_value``: a number, not an array. ``masked``: the period of a repeated one is a power of
    two, so that a mask takes the place of a division. ``spanning``: and no less than ``SPAN``
    columns of the product.
    """

    name: str
    kind: Kind
    width: int | None
    dtype: str
    batched: bool = False
    repeated: bool = False
    masked: bool = False
    spanning: bool = False
    by_value: bool = False
    layout: Layout = "unit"


@dataclass(frozen=True)
class TileOutput:
    """A stored output (..., M, N · 2**width)."""

    name: str
    width: int
    dtype: str
    layout: Layout = "unit"


@dataclass(frozen=True)
class Partial:
    """A reduced output: one partial result per row (or column) and tile, then finished.

    ``over``: "row" or "column", the axis that keeps its length within a tile. ``to``: the kind of
    array that is left in the end; "scalar" and "batch" results also sum over ``over``.
    """

    name: str
    kind: Literal["sum", "max", "logsumexp"]
    over: Literal["row", "column"]
    width: int
    to: Kind


@dataclass(frozen=True)
class Instance:
    """An epilogue with its operands and outputs as one kind of product has them.

    ``even``: N is even, so that no pair of columns is cut. ``batched``: the product is a batch.
    """

    epilogue: Epilogue
    operands: tuple[Operand, ...]
    outputs: tuple[TileOutput, ...]
    partials: tuple[Partial, ...]
    even: bool
    batched: bool
    width: dict[Node, int | None] = field(compare=False, repr=False)
    type: dict[Node, Type] = field(compare=False, repr=False)

    @cached_property
    def nodes(self) -> list[Node]:
        """Every node whose value is read, arguments first."""
        roots = [node_of(out) for out in self.epilogue.outputs.values()]
        return topological(roots, read_only=True)

    def operand(self, name: str) -> Operand:
        """The operand of this name."""
        return next(x for x in self.operands if x.name == name)


def bind(
    epilogue: Epilogue,
    acc: Shape,
    operands: Mapping[str, Array],
    outputs: Mapping[str, Array] | None = None,
    dtype: str = "float32",
) -> Instance:
    """The instance of an epilogue for an accumulator (..., M, N) and these operands.

    ``outputs`` describes the arrays that tile outputs are stored to; one that is missing is
    row-major in ``dtype``.

    Raises ``TiercelValueError`` for operands that are missing, unknown or do not fit.
    """
    operands = with_defaults(epilogue, operands)
    repeated = epilogue.repeated
    places = {
        name: place(name, array.shape or (), acc, epilogue.pinned.get(name), name in repeated)
        for name, array in operands.items()
    }
    integers = {name for name, array in operands.items() if array.dtype.startswith("int")}
    width, types = settle(epilogue, places, integers)
    batched = len(acc) > 2
    even = acc[-1] % 2 == 0
    placed = []
    for name, array in operands.items():
        where = places[name]
        wide = width[epilogue.repeated[name]] if name in repeated else where.width
        _check_repeats(name, array, wide, acc)
        placed.append(
            Operand(
                name, where.kind, wide, array.dtype, where.batched,
                repeated=name in repeated, masked=name in repeated and _is_power(array.shape),
                spanning=name in repeated and _spans(array.shape, wide),
                by_value=array.shape is None,
                layout=_layout(array, wide, even),
            )
        )  # fmt: skip
    tiles, partials = [], []
    for name, out in epilogue.outputs.items():
        wide = width[node_of(out)] or 0
        if isinstance(out, Reduction) and not _is_tile(out, places):
            partials.append(_partial(name, out, wide, places))
        else:
            shape = (*acc[:-1], _columns(acc[-1], wide))
            array = (outputs or {}).get(name, Array(shape, dtype))
            if array.shape != shape:
                raise TiercelValueError(
                    f"output {name!r} has shape {array.shape}; allowed: {shape}, what the epilogue "
                    f"{epilogue.name!r} makes of a product of shape {acc}"
                )
            tiles.append(TileOutput(name, wide, array.dtype, _layout(array, wide, even)))
    return Instance(
        epilogue, tuple(placed), tuple(tiles), tuple(partials), even, batched, width, types
    )


def with_defaults(epilogue: Epilogue, given: Mapping[str, Array]) -> dict[str, Array]:
    """One array for each parameter, in order; those left out that have a default are numbers."""
    unknown = [name for name in given if name not in epilogue.parameters]
    missing = [
        name for name in epilogue.parameters if name not in given and name not in epilogue.defaults
    ]
    if unknown or missing:
        what = [f"unknown operand {name!r}" for name in unknown]
        what += [f"operand {name!r} is missing" for name in missing]
        listed = ", ".join(epilogue.parameters) or "none"
        raise TiercelValueError(
            f"{'; '.join(what)}; allowed: the operands of the epilogue {epilogue.name!r}, {listed}"
        )
    return {name: given.get(name, Array(None)) for name in epilogue.parameters}


def _is_power(shape: Shape | None) -> bool:
    """Whether the number of columns is a power of two."""
    return bool(shape) and shape[-1] > 0 and shape[-1] & (shape[-1] - 1) == 0


def _spans(shape: Shape | None, width: int | None) -> bool:
    if shape is None or not _is_power(shape):
        return False
    return shape[-1] >= SPAN * 2.0 ** (width or 0)


def _check_repeats(name: str, array: Array, width: int | None, acc: Shape) -> None:
    if width is None or array.shape is None or all(size == 1 for size in array.shape):
        return
    columns = _columns(acc[-1], width)
    if array.shape[-1] == 0 or columns % array.shape[-1]:
        raise TiercelValueError(
            f"operand {name!r} has {array.shape[-1]} columns, which do not repeat evenly along the "
            f"{columns} columns it is used with; allowed: a divisor of {columns}"
        )


def _columns(N: int, width: int) -> int:
    return N * 2**width if width >= 0 else N // 2


def _layout(array: Array, width: int | None, even: bool) -> Layout:
    """How the lanes of a pair of accumulators may be read at once."""
    if width is None or array.shape is None or len(array.shape) == 0:
        return "unit"
    if array.strides is not None and array.strides[-1] != 1:
        return "strided"
    lanes = 2 ** (1 + width)
    steps = [array.shape[-1]]  # the period of a repeated operand, else even anyway
    if array.strides is not None:
        steps += [step for size, step in zip(array.shape, array.strides, strict=True) if size > 1][
            :-1
        ]
    apart = array.address % (lanes * DTYPES[array.dtype]) or any(step % lanes for step in steps)
    # The second lane of a last odd column would be read beyond the end of the array.
    return "unit" if apart or not even else "vector"


def _is_tile(out: Reduction, places: Mapping[str, Place]) -> bool:
    """Whether the sum along what an operand repeats is no sum: the operand is a tile."""
    return out.like != "" and places[out.like].kind == "tile"


def _partial(name: str, out: Reduction, width: int, places: Mapping[str, Place]) -> Partial:
    if out.like:
        kind = places[out.like].kind
        return Partial(name, "sum", "column" if kind == "row" else "row", width, kind)
    assert out.over
    return Partial(name, out.kind, out.over, width, out.over)
