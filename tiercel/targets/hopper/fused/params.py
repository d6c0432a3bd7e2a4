"""The fused kernel's argument, byte for byte as ``kernels/scheme_params.cuh`` declares it."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import NamedTuple

from tiercel.targets.hopper.fused.planes import ADDRESSES, Gain
from tiercel.targets.hopper.fused.verdict import ADDRESSES as VERDICT_ADDRESSES
from tiercel.targets.hopper.launching.launch import Places
from tiercel.targets.hopper.launching.tensor_map import MAP_BYTES, TensorMap

_FIELDS = struct.Struct("<QQ iiii iiii i 4i4i i ff")
_ADDRESSES = 0, 8  # offsets of scratch and flag
GROUPS = bytes(40)  # of ``kernels/grouped.cuh``: none


def nothing(gain: Gain) -> bytes:
    """A ``Combination`` of one block that is not combined by the kernel."""
    return bytes(32) + struct.pack("<QQ", *gain) + bytes(40)


class Crew(NamedTuple):
    """Of ``kernels/crew.cuh``: warps, and their share of the items in sixteenths."""

    workers: int
    left_workers: int
    others: int
    mine: int


NOBODY = Crew(0, 0, 0, 16)


@dataclass(frozen=True)
class SchemeParams:
    """Field names as in ``kernels/scheme_params.cuh``; addresses are integers, 0 for none."""

    maps: tuple[TensorMap, ...]  # planes of A, planes of B, blocks of D
    left: bytes
    right: bytes
    scratch: int
    flag: int
    block_rows: int
    block_columns: int
    tile_columns: int
    k_tiles: int
    cluster_rows: int
    cluster_columns: int
    group: int
    first_turn: int
    first: Crew
    beside: Crew
    split: int
    alpha: float
    plane_scale: float
    verdict: bytes  # of ``verdict.py``
    arrived: int
    paced: int = 0
    batches: int = 1
    trace: bytes = b""
    epilogue: bytes = b""
    epilogue_addresses: tuple[int, ...] = ()  # offsets in it

    @property
    def places(self) -> Places:
        """Of everything that the kernel reads and writes."""
        left = MAP_BYTES * len(self.maps)
        right = left + len(self.left)
        fields = right + len(self.right) + len(GROUPS)
        verdict = fields + _FIELDS.size
        words = (
            *(left + offset for offset in ADDRESSES),
            *(right + offset for offset in ADDRESSES),
            *(fields + offset for offset in _ADDRESSES),
            *(verdict + offset for offset in VERDICT_ADDRESSES),
            verdict + len(self.verdict),
            verdict + len(self.verdict) + 8,
            *(self._epilogue + offset for offset in self.epilogue_addresses),
        )
        return Places(words, self.maps)

    @property
    def _epilogue(self) -> int:
        """Where ``epilogue`` begins."""
        tables = MAP_BYTES * len(self.maps) + len(self.left) + len(self.right) + len(GROUPS)
        size = tables + _FIELDS.size + len(self.verdict) + 16 + len(self.trace)
        return size + -size % 8

    def pack(self) -> bytes:
        """The bytes, padded to the alignment of a tensor map."""
        fields = _FIELDS.pack(
            self.scratch, self.flag, self.block_rows, self.block_columns, self.tile_columns,
            self.k_tiles, self.cluster_rows, self.cluster_columns, self.batches, self.group,
            self.first_turn, *self.first, *self.beside, self.split, self.alpha, self.plane_scale,
        )  # fmt: skip
        content = b"".join(self.maps) + self.left + self.right + GROUPS + fields
        content += self.verdict + struct.pack("<QQ", self.arrived, self.paced) + self.trace
        if self.epilogue:
            content += bytes(self._epilogue - len(content)) + self.epilogue
        return content + bytes(-len(content) % 64)
