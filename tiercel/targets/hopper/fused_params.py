"""The fused kernel's argument, byte for byte as ``SchemeParams`` in ``kernels/scheme.cuh``."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_FIELDS = struct.Struct("<QQQ iiiii iiii i ii i fff")
GROUPS = bytes(40)  # of ``kernels/grouped.cuh``: none
NOTHING = bytes(80)  # a ``Combination`` of one block


@dataclass(frozen=True)
class SchemeParams:
    """Field names as in ``kernels/scheme.cuh``; addresses are integers, 0 for none."""

    maps: tuple[bytes, ...]  # planes of A, planes of B, blocks of D
    left: bytes
    right: bytes
    scratch: int
    flag: int
    gate: int
    gate_value: int
    block_rows: int
    block_columns: int
    tile_columns: int
    k_tiles: int
    cluster_rows: int
    cluster_columns: int
    group: int
    first_turn: int
    workers: int
    left_workers: int
    split: int
    alpha: float
    plane_scale: float
    batches: int = 1
    trace: bytes = b""

    def pack(self) -> bytes:
        """The bytes, padded to the alignment of a tensor map."""
        fields = _FIELDS.pack(
            self.scratch, self.flag, self.gate, self.gate_value, self.block_rows,
            self.block_columns, self.tile_columns, self.k_tiles, self.cluster_rows,
            self.cluster_columns, self.batches, self.group, self.first_turn, self.workers,
            self.left_workers, self.split, self.alpha, self.plane_scale, 1 / self.plane_scale,
        )  # fmt: skip
        content = b"".join(self.maps) + self.left + self.right + GROUPS + fields + self.trace
        return content + bytes(-len(content) % 64)
