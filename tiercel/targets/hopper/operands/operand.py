"""A matrix in device memory, and how TMA sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tiercel.errors import TiercelTypeError, TiercelValueError
from tiercel.targets.hopper.config import ITEM_BYTES
from tiercel.targets.hopper.launching.tensor_map import TensorMap, tensor_map

if TYPE_CHECKING:
    import torch

ALIGNMENT = 16  # bytes: base address and every stride but the contiguous one, for TMA


@dataclass(frozen=True)
class Matrix:
    """``batches`` matrices of rows × columns; strides in elements."""

    address: int
    dtype: str
    rows: int
    columns: int
    row_stride: int
    column_stride: int
    batches: int = 1
    batch_stride: int = 0

    @property
    def transposed(self) -> Matrix:
        """The same memory with rows and columns exchanged."""
        return Matrix(
            self.address, self.dtype, self.columns, self.rows, self.column_stride,
            self.row_stride, self.batches, self.batch_stride,
        )  # fmt: skip

    def block(self, row: int, column: int, rows: int, columns: int) -> Matrix:
        """A part of the matrix, in place."""
        offset = (row * self.row_stride + column * self.column_stride) * ITEM_BYTES[self.dtype]
        return Matrix(
            self.address + offset, self.dtype, rows, columns, self.row_stride,
            self.column_stride, self.batches, self.batch_stride,
        )  # fmt: skip

    def tensor_map(self, box_rows: int, operand: bool = False, span: int = 128) -> TensorMap:
        """Descriptor for boxes of ``box_rows`` rows × ``span`` bytes; the matrix must be row-major.

        ``operand``: of a multiplication, float32 being rounded to TF32.
        """
        item = ITEM_BYTES[self.dtype]
        row = self.row_stride * item if self.rows > 1 else _aligned(self.columns * item)
        batch = self.batch_stride * item if self.batches > 1 else _aligned(self.rows * row)
        sizes = (self.columns, self.rows, self.batches)
        dtype = "tf32" if operand and self.dtype == "float32" else self.dtype
        return tensor_map(dtype, self.address, sizes, (row, batch), (span // item, box_rows, 1))

    def tensor_map_of_blocks(
        self, rows: int, columns: int, down: int, across: int, box_rows: int
    ) -> TensorMap:
        """Descriptor for boxes of ``box_rows`` rows × 128 bytes of an operand's blocks, ``down`` ×
        ``across`` of ``rows`` × ``columns``: what is outside of a block reads as zero.

        One row-major matrix; columns are whole chunks of 16 bytes. Dimensions are column, block
        across, row, block down, so that strides grow.
        """
        item = ITEM_BYTES[self.dtype]
        row = self.row_stride * item if self.rows > 1 else columns * across * item
        return tensor_map(
            "tf32" if self.dtype == "float32" else self.dtype,
            self.address,
            (columns, across, rows, down),
            (columns * item, row, rows * row),
            (128 // item, 1, box_rows, 1),
        )

    def tensor_map_of_neighbours(self, box_rows: int) -> TensorMap:
        """Descriptor for boxes of ``box_rows`` rows × 128 bytes, multiples of 32 rows.

        Of each 32 rows, row 8b + 2c + d goes to place 8c + 2b + d, which
        ``kernels/store_neighbours.cuh`` explains. One row-major matrix of a multiple of 32 rows.
        """
        row = self.row_stride * ITEM_BYTES[self.dtype]
        sizes = (self.columns, 2, 4, 4, self.rows // 32)
        box = (128 // ITEM_BYTES[self.dtype], 2, 4, 4, box_rows // 32)
        return tensor_map(self.dtype, self.address, sizes, (row, 8 * row, 2 * row, 32 * row), box)


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def of_tensor(tensor: torch.Tensor, name: str) -> Matrix:
    """Describe a 2-D or 3-D CUDA tensor. Raises for other types and numbers of dimensions."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype not in ITEM_BYTES:
        raise TiercelTypeError(
            f"{name} has dtype {dtype}; the Hopper kernel takes {', '.join(ITEM_BYTES)}"
        )
    shape, strides = tensor.shape, tensor.stride()
    if len(shape) == 2:
        return Matrix(tensor.data_ptr(), dtype, shape[0], shape[1], strides[0], strides[1])
    if len(shape) == 3:
        batches, rows, columns = shape
        stride = strides[0] if batches > 1 else 0
        single = 1 if stride == 0 else batches  # broadcast: one matrix for all
        return Matrix(
            tensor.data_ptr(), dtype, rows, columns, strides[1], strides[2], single, stride
        )
    raise TiercelValueError(f"{name} has {len(shape)} dimensions; 2 or 3 (batch first) are allowed")


def oriented(matrix: Matrix, name: str) -> tuple[Matrix, bool]:
    """The matrix or its transpose, whichever is row-major for TMA, and whether it is the latter.

    Raises :class:`TiercelValueError` when neither is: a copy or the vendor's routine must do.
    """
    if matrix.address % ALIGNMENT:
        raise TiercelValueError(
            f"{name} starts at address {matrix.address:#x}, which is not a multiple of {ALIGNMENT} "
            "bytes as TMA needs. Copy it, or use the vendor's routine"
        )
    if _reachable(matrix):
        return matrix, False
    if _reachable(matrix.transposed):
        return matrix.transposed, True
    item = ITEM_BYTES[matrix.dtype]
    raise TiercelValueError(
        f"{name} ({matrix.rows}x{matrix.columns} {matrix.dtype}) has strides "
        f"({matrix.row_stride}, {matrix.column_stride}) and batch stride {matrix.batch_stride}; "
        f"TMA needs one of them to be 1 and the others positive multiples of {ALIGNMENT // item} "
        "elements. Copy it to such a layout, or use the vendor's routine"
    )


def output(matrix: Matrix) -> tuple[Matrix, bool, bool]:
    """An output with contiguous rows: the matrix or its transpose, whether the latter, and whether
    threads must store it, because TMA cannot.

    TMA writes chunks of 16 bytes: behind a row of another length it would overwrite what is there.
    """
    item = ITEM_BYTES[matrix.dtype]
    flipped = matrix.column_stride != 1 and matrix.columns != 1
    view = matrix.transposed if flipped else matrix
    if view.column_stride != 1 and view.columns != 1:
        raise TiercelValueError(
            f"out ({matrix.rows}x{matrix.columns}) has strides ({matrix.row_stride}, "
            f"{matrix.column_stride}); one of them must be 1"
        )
    whole = view.columns * item % ALIGNMENT == 0 and view.address % ALIGNMENT == 0
    return view, flipped, not (whole and _reachable(view))


def _reachable(matrix: Matrix) -> bool:
    """Rows are contiguous, and TMA can step from row to row and from batch to batch."""

    def steps(count: int, stride: int) -> bool:
        return count == 1 or (stride > 0 and stride * ITEM_BYTES[matrix.dtype] % ALIGNMENT == 0)

    contiguous = matrix.columns == 1 or matrix.column_stride == 1
    return (
        contiguous
        and steps(matrix.rows, matrix.row_stride)
        and steps(matrix.batches, matrix.batch_stride)
    )
