"""Tensor maps: descriptors by which TMA finds boxes of an array."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from tiercel.errors import TiercelRuntimeError
from tiercel.targets.hopper.config import ITEM_BYTES
from tiercel.targets.hopper.launching import driver

MAP_BYTES = 128


class TensorMap(bytes):
    """The descriptor of an array for TMA, and the address that it was made for."""

    address: int


def move_tensor_maps(descriptors: Iterable[tuple[Any, int]], address: int) -> None:
    """Let descriptors (``Arguments.tensor_map``) describe the same parts of an array at another
    address, each behind that by the bytes given.
    """
    replace = driver.bindings().cuTensorMapReplaceAddress
    for descriptor, offset in descriptors:
        status = replace(descriptor, address + offset)[0]
        if status == driver.NO_CONTEXT:
            place = descriptor, address + offset
            status = driver.in_context(lambda place=place: replace(*place))[0]
        if status:
            raise TiercelRuntimeError(
                f"the CUDA driver refused to move a tensor map to {address + offset:#x}: "
                f"{status.name}"
            )


@lru_cache(maxsize=4096)
def tensor_map(
    dtype: str,
    address: int,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
) -> TensorMap:
    """128-byte descriptor of an array (contiguous dimension first) and a box of it.

    ``strides`` of all dimensions but the first in bytes, multiples of 16; the innermost side of
    the box is 128 or 64 bytes, swizzled. Elements outside read as zero and are not written.
    """
    cuda = driver.bindings()
    types = cuda.CUtensorMapDataType
    kind = {
        "bfloat16": types.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        "float16": types.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        "float32": types.CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
        "tf32": types.CU_TENSOR_MAP_DATA_TYPE_TFLOAT32,  # rounded while loading
        "float8_e4m3fn": types.CU_TENSOR_MAP_DATA_TYPE_UINT8,
        "float8_e5m2": types.CU_TENSOR_MAP_DATA_TYPE_UINT8,
    }[dtype]
    swizzles = cuda.CUtensorMapSwizzle
    wide = box[0] * ITEM_BYTES["float32" if dtype == "tf32" else dtype] == 128
    facts = (
        kind,
        len(sizes),
        address,
        [cuda.cuuint64_t(size) for size in sizes],
        [cuda.cuuint64_t(stride) for stride in strides],
        [cuda.cuuint32_t(side) for side in box],
        [cuda.cuuint32_t(1)] * len(sizes),
        cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        swizzles.CU_TENSOR_MAP_SWIZZLE_128B if wide else swizzles.CU_TENSOR_MAP_SWIZZLE_64B,
        cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        cuda.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    made = driver.in_context(lambda: cuda.cuTensorMapEncodeTiled(*facts))
    result = driver.checked(
        made, f"describe an array of sizes {sizes}, strides {strides} bytes to TMA"
    )
    described = TensorMap(ctypes.string_at(result.getPtr(), MAP_BYTES))
    described.address = address
    return described
