"""Whether the clusters of a product keep pace: ``kernels/paced.cuh``.

What clusters read together L2 holds for a while. They drift apart, a little with each k-tile, and
in long products read panels from DRAM again. At 16384³ keeping pace saves 1.6 to 6.5 % of the time
of a stream of products (bfloat16 1.070 instead of 1.053 of cuBLAS, TF32 1.082 instead of 1.015),
and 6 % with an epilogue that PingPong hides (cross-entropy of 8192 × 128256 × 4096).
"""

from __future__ import annotations

import struct

from tiercel.targets.hopper.config import Config
from tiercel.targets.hopper.products.params import Params

#: K-tiles of a CTA, over all its tiles, from which on clusters keep pace. 8192 × 8192 × 28672, of
#: 7,168, gains 1.7 %; 8192 × 57344 × 8192, 3,584, nothing; 8192³ in TF32, 4,096, loses 1 to 3.
LEAST_K_TILES = 7000

#: The bytes of ``PaceCounter`` before its address is known.
NOWHERE = struct.pack("<Q", 0)


def keeps_pace(config: Config, params: Params, blocks: int) -> bool:
    """Whether the clusters of a grid of ``blocks`` CTAs do."""
    if config.grouped or config.traced or config.tile.cluster_k > 1:
        return False
    clusters = blocks // config.tile.cluster
    tiles = params.cluster_rows * params.cluster_columns * params.batches
    return clusters > 1 and -(-tiles // clusters) * params.k_tiles >= LEAST_K_TILES
