"""The kernel's argument, byte for byte as ``Params`` in ``kernels/gemm.cuh`` declares it."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tiercel.targets.hopper.launching.launch import Places
from tiercel.targets.hopper.launching.tensor_map import MAP_BYTES, TensorMap

_FIELDS = struct.Struct("<Q qq ii i i iiii iiii ff")
_C = 0  # offset


@dataclass(frozen=True)
class Params:
    """Field names as in ``kernels/gemm.cuh``; addresses are integers, 0 for none."""

    maps: tuple[TensorMap, ...]  # planes of A, planes of B, blocks of D
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
    groups: bytes = bytes(40)  # see ``grouped.py``
    scales: bytes = bytes(48)  # see ``scales.py``
    trace: bytes = b""
    stream_k: bytes = b""  # see ``stream_k.py``
    paced: bytes = b""  # see ``paced.py``
    epilogue: bytes = b""

    @property
    def stream_k_word(self) -> int:
        """Number of the 64-bit word that ``stream_k`` begins at."""
        fields = MAP_BYTES * len(self.maps) + len(self.groups) + len(self.scales)
        return (_whole(fields + _FIELDS.size) + len(self.trace)) // 8

    @property
    def paced_word(self) -> int:
        """The same of ``paced``."""
        return self.stream_k_word + len(self.stream_k) // 8

    def places(self, in_epilogue: tuple[int, ...]) -> Places:
        """Of A, B, C and D; ``in_epilogue``: offsets of addresses in ``epilogue``."""
        fields = MAP_BYTES * len(self.maps) + len(self.groups) + len(self.scales)
        epilogue = 8 * self.paced_word + len(self.paced)
        words = fields + _C, *(epilogue + offset for offset in in_epilogue)
        return Places(words, self.maps)

    def pack(self) -> bytes:
        """The bytes, padded to the alignment of a tensor map."""
        fields = _FIELDS.pack(
            self.c, self.c_row_stride, self.c_batch_stride, self.block_rows, self.block_columns,
            self.tile_columns, self.k_tiles, self.cluster_rows, self.cluster_columns, self.batches,
            self.group, self.a_batch_step, self.b_batch_step, self.unloaded, self.alternates,
            self.alpha, self.beta,
        )  # fmt: skip
        content = b"".join(self.maps) + self.groups + self.scales + fields
        content += bytes(_whole(len(content)) - len(content))
        content += self.trace + self.stream_k + self.paced + self.epilogue
        return content + bytes(-len(content) % 64)


def _whole(size: int) -> int:
    return -(-size // 8) * 8
