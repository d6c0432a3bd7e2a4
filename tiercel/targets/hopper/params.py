"""The kernel's argument, byte for byte as ``Params`` in ``kernels/gemm.cuh`` declares it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_FIELDS = struct.Struct("<Q qq Q i ii i i iiii iiii ff")


@dataclass(frozen=True)
class Params:
    """Field names as in ``kernels/gemm.cuh``; addresses are integers, 0 for none."""

    maps: tuple[bytes, ...]  # planes of A, planes of B, blocks of D
    block_rows: int
    block_columns: int
    tile_columns: int
    k_tiles: int
    cluster_rows: int
    cluster_columns: int
    batches: int
    group: int
    a_batch_step: int
    b_batch_step: int
    alpha: float
    beta: float
    c: int = 0
    c_row_stride: int = 0
    c_batch_stride: int = 0
    unloaded: int = 0
    alternates: int = 0
    gate: int = 0
    gate_value: int = 0
    groups: bytes = bytes(40)  # see ``grouped.py``
    scales: bytes = bytes(48)  # see ``scales.py``
    trace: bytes = b""
    epilogue: bytes = b""

    def pack(self) -> bytes:
        """The bytes, padded to the alignment of a tensor map."""
        fields = _FIELDS.pack(
            self.c, self.c_row_stride, self.c_batch_stride, self.gate,
            self.gate_value, self.block_rows, self.block_columns, self.tile_columns,
            self.k_tiles, self.cluster_rows, self.cluster_columns, self.batches, self.group,
            self.a_batch_step, self.b_batch_step, self.unloaded, self.alternates,
            self.alpha, self.beta,
        )  # fmt: skip
        content = b"".join(self.maps) + self.groups + self.scales + fields
        content += bytes(-len(content) % 8) + self.trace + self.epilogue
        return content + bytes(-len(content) % 64)
